// The pool: every page, slot and checkpoint of every sequence of a model, in one arena, behind one interface for
// attention, recurrent and hybrid models.
//
// Who may call: one thread, the engine's. Nothing here locks. Ids carry generations; stale ids are
// refused. The device must outlive the pool. Bookkeeping (tables, tokens, the prefix index) is on the
// heap and does not count against the budget.
// How it fails: it returns PoolError, and the operation has not happened. Two side effects are possible:
// cached content may have been evicted to make room, and objects may have been moved inside the arena.
// Neither is visible through a live sequence.
// Asynchronous devices: the pool submits its copies and uploads and does not wait, except where a call says so. Work is
// done in order, so kernels run after them. The engine fences before it commits a step. If a fence fails, every byte
// that the pool wrote since the last fence is void, also for other sequences (moved pages, kept checkpoints, zeroed
// slots). Nothing in the pool can be trusted then: release every sequence and call recover(), or create a new pool.
//
// A step of an engine
//   create()   a sequence for a prompt: a cached prefix is reused; the engine computes the rest
//   reserve()  room for the tokens of the step, for one sequence or a whole batch, all or nothing
//   kv_view(), state_view()   what kernels read and write; valid until the next call that is not a view
//   commit()   these tokens were computed: full blocks are published, windows advance, checkpoints are kept
//   draft(), end_draft()   around a step that also computes tokens which may turn out to be wrong
//   fork(), rewind(), release()
//
// What always holds (check_integrity() recounts it)
// - free + held + cached = total, for pages of each group and for recurrent states; cached states are checkpoints
// - a page in two tables, or known to the prefix index, is never written
// - a sequence's pages, its slot's position and its length agree
// - nothing is allocated from the heap after create(), except by save(), save_checkpoints(),
//   create_host_arena() and check_integrity(); the hot path uses arrays of fixed size
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quire/state/batch.h"
#include "quire/state/block_pool.h"
#include "quire/state/kv_cache.h"
#include "quire/state/paged_seq_state.h"
#include "quire/state/prefix_index.h"
#include "quire/state/saved_sequence.h"
#include "quire/state/ssm_state_pool.h"
#include "quire/state/suspended_sequence.h"

namespace quire {

class ContentObserver;
class PoolJournal;
struct PoolCounts;
struct PoolOperation;

struct PoolConfig {
  StateLayout layout;
  Fingerprint model;                 // a sequence saved with one model cannot be restored with another
  std::uint64_t budget_bytes = 0;    // of the arena; rounded down to whole slabs
  std::uint32_t max_sequences = 64;  // alive at once
  std::uint32_t max_tokens = 4096;   // of one sequence
  bool prefix_cache = true;
  Eviction eviction = Eviction::Value;  // Lru is for comparison
  // Recurrent models: how many bytes of the arena checkpoints may take, how often a checkpoint is kept while a sequence
  // is computed, and how many tokens at most must be recomputed to resume a prefix after checkpoints were thinned out.
  std::uint64_t checkpoint_budget_bytes = UINT64_MAX;
  std::uint32_t checkpoint_interval = 256;  // tokens; rounded up to whole units
  std::uint32_t max_recompute = 1024;       // tokens; Lru only: thinning needs at least two intervals
  // What is kept inside a block, in tokens. Recurrent models: a checkpoint may lie at every multiple of it. Others:
  // what a released sequence has in its last page is kept if it has at least so many tokens. It must divide the block
  // size; 0, or the block size and more: prefixes are kept only to the ends of blocks.
  std::uint32_t checkpoint_unit = 0;
  bool scrub = false;  // zero pages as they are freed
  std::uint32_t event_capacity = 4096;
  std::uint32_t hash_bits = 128;  // fewer only in tests that want collisions
  // Seed of the prefix index. By default the system draws it at random, so that nobody can construct prompts that
  // collide. No answer depends on it.
  std::optional<std::uint64_t> hash_seed;
  PoolJournal* journal = nullptr;  // is told of every operation (pool_journal.h); must outlive the pool
  // Is told of content that is cached and dropped (content_observer.h); must outlive the pool.
  ContentObserver* observer = nullptr;
};

// Why the reused prefix ended where it did.
enum class HitEnd : std::uint8_t {
  Complete,        // everything that can be reused was reused
  NeverSeen,       // miss: the next block was never computed here
  Evicted,         // miss: the next block was evicted
  OtherNamespace,  // miss: the next block is cached, but in another namespace
  NoCheckpoint,    // its pages are cached, but no recurrent state to resume from
  WindowGone,      // its pages are cached, but the pages of the window before it are gone
  NoRoom,          // it is cached, but there is no room for it beside the new sequence's state
  Disabled,        // no lookup was made
};
inline constexpr std::size_t kHitEnds = 8;
const char* name(HitEnd end);

struct Hit {
  std::uint32_t tokens = 0;   // reused: the sequence starts at this length
  std::uint32_t matched = 0;  // known to the index, reusable or not
  HitEnd end = HitEnd::Complete;
};

struct ObjectCounts {
  std::uint32_t total = 0, free = 0, held = 0, cached = 0, high_water = 0;
  std::uint64_t object_bytes = 0, allocations = 0;
};

// One entry per layer group. The array has a fixed size, so that stats() takes nothing from the heap.
class GroupCounts {
 public:
  void push_back(const ObjectCounts& counts) { counts_[size_++] = counts; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const ObjectCounts& operator[](std::size_t group) const { return counts_[group]; }
  const ObjectCounts* begin() const { return counts_.data(); }
  const ObjectCounts* end() const { return counts_.data() + size_; }

 private:
  std::array<ObjectCounts, kMaxClasses> counts_;
  std::size_t size_ = 0;
};

struct PoolStats {
  GroupCounts pages;
  ObjectCounts states;  // cached: checkpoints
  std::uint32_t slabs = 0, free_slabs = 0;
  std::uint64_t arena_bytes = 0;
  std::uint32_t sequences = 0, sequences_high_water = 0;
  std::uint64_t unfilled_bytes = 0;  // of the pages of live sequences: places that hold no token yet
  std::uint32_t prefix_blocks = 0;   // known to the index, parts of blocks included
  std::uint64_t lookups = 0, lookup_tokens = 0, hit_tokens = 0;
  std::array<std::uint64_t, kHitEnds> hit_ends{};  // by HitEnd
  std::uint64_t blocks_published = 0, blocks_deduplicated = 0, blocks_evicted = 0, window_pages_evicted = 0;
  std::uint64_t checkpoints_stored = 0, checkpoints_dropped = 0, checkpoints_restored = 0, checkpoints_skipped = 0;
  std::uint64_t parts_stored = 0, parts_reused = 0;  // prefixes that end inside a block; sequences that began with one
  std::uint64_t pages_copied = 0, objects_moved = 0, forks = 0, rewinds = 0;
  std::uint64_t refusals = 0;  // operations that ended with Exhausted; can_reserve() and its like do not count
  std::uint64_t scrub_failures = 0;
  std::uint64_t floors_yielded = 0;                  // evictions below a tenant's floor: nothing else was left
  bool has_journal = false, journal_failed = false;  // failed: it has stopped, see its log
  std::uint64_t journal_records = 0, journal_bytes = 0;
};

// What the pool keeps for a tenant: pages and checkpoints that the prefix index knows, held or cached. Pages that a
// sequence is still filling and the states of live sequences are not counted.
struct TenantBytes {
  std::uint64_t resident = 0;
  std::uint64_t floor = 0;
  std::uint64_t cap = UINT64_MAX;
};

class SequencePool {
 public:
  static PoolResult<std::unique_ptr<SequencePool>> create(Device& device, const PoolConfig& config);
  ~SequencePool();
  SequencePool(const SequencePool&) = delete;
  SequencePool& operator=(const SequencePool&) = delete;

  // --- plain operations, for engines that do their own bookkeeping. Objects taken here belong to the
  // caller until given back. InvalidSlot means: the pool has no such part, or the object belongs to a
  // sequence. Giving a page back to the wrong group is refused like a stale id. An id that was given back
  // is stale and never names the next owner's object.
  bool is_kv_based() const { return layout().has_attention() && !layout().has_recurrent(); }
  bool is_ssm() const { return layout().has_recurrent() && !layout().has_attention(); }
  bool is_hybrid() const { return layout().has_recurrent() && layout().has_attention(); }
  PoolResult<PageId> alloc_kv(std::uint32_t group = 0);
  PoolResult<void> free_kv(PageId page, std::uint32_t group = 0);
  PoolResult<SlotId> alloc_ssm(RequestId request);
  PoolResult<void> release_ssm(SlotId id);
  // The caller's own slot: to step it, to snapshot and restore its state. Valid
  // until it is released; it is never moved.
  PoolResult<SequenceSlot*> ssm_slot(SlotId id);
  // Any slot, for inspection. A free slot shows request 0 and position 0.
  PoolResult<const SequenceSlot*> ssm_slot(std::uint32_t index) const;

  // --- sequences
  struct Request {
    std::span<const Token> prompt;
    Namespace name_space = 0;
    RequestId request = 0;  // 0: the pool chooses one
    bool reuse = true;      // look for a cached prefix
  };
  struct Created {
    SequenceId id;
    Hit hit;
  };
  // What create() would reuse now. Changes nothing and counts nothing.
  Hit lookup(std::span<const Token> prompt, Namespace name_space = 0) const;
  // A sequence that starts with the reusable prefix of the prompt. At least one token is always left to compute.
  PoolResult<Created> create(const Request& request);

  // create(), plus room for all `tokens` that the sequence is to have, in such a way that `others` still have room for
  // their rows too: all of it, or a refusal, which evicts nothing. The prompt is matched once. Layers with a window are
  // computed in chunks of `chunk` tokens and are counted by the most that they hold at once; only the room for the
  // first chunk is reserved. If the cached prefix itself takes the room, the sequence starts with less of it or without
  // it.
  PoolResult<Created> admit(const Request& request, std::uint32_t tokens, std::uint32_t chunk,
                            std::span<const BatchEntry> others);
  // Whether admit() would succeed now, or once the sequences `leaving` have been released. `others` must not contain
  // them. Changes nothing.
  PoolResult<void> can_admit(const Request& request, std::uint32_t tokens, std::uint32_t chunk,
                             std::span<const BatchEntry> others, std::span<const SequenceId> leaving = {}) const;

  // Room for the tokens of a step. Only `sequence` and `rows` of an entry are used.
  PoolResult<void> reserve(SequenceId id, std::uint32_t tokens);
  PoolResult<void> reserve(std::span<const BatchEntry> entries);  // each sequence at most once
  // Whether reserve() would succeed now. Changes nothing.
  PoolResult<void> can_reserve(std::span<const BatchEntry> entries) const;
  // Fills in where the sequences of a batch are, for kernels: positions, rows of the page tables, recurrent states.
  // Uploads the table entries that changed since the last time, all in one call of the device. The room must have been
  // reserved. Valid until the next call that is not a view.
  PoolResult<void> bind(Batch& batch);
  // Whether a sequence of so many tokens, computed in chunks of `chunk`, could ever fit into an otherwise empty pool.
  PoolResult<void> can_ever_fit(std::uint32_t tokens, std::uint32_t chunk) const;

  // The next tokens of the sequence have been computed (they must have been reserved). At a multiple of the checkpoint
  // unit a checkpoint is kept if one is due, or if `checkpoint` asks for one there. Never fails for lack of memory.
  PoolResult<void> commit(SequenceId id, std::span<const Token> tokens, bool checkpoint = false);
  PoolResult<void> commit(const Batch& batch);
  // --- drafts: tokens that a sequence may turn out not to have, computed in the same step as its next tokens
  // Room for `drafts` tokens after the `certain` ones that were reserved, until end_draft(). In a recurrent model also
  // a scratch state: the certain tokens change the state, the drafts continue from it in the scratch state (batch.h).
  // Then commit() takes the certain tokens, all at once in a recurrent model, and after them drafts from the first one
  // on: as many as turned out right, or in a recurrent model all or none. Refused with Exhausted if there is no room. A
  // sequence with drafts cannot be reserved for, forked, rewound, saved or suspended; it can be released.
  PoolResult<void> draft(SequenceId id, std::uint32_t certain, std::uint32_t drafts);
  // Gives back what only the drafts needed. What was reserved before them stays reserved.
  PoolResult<void> end_draft(SequenceId id);
  // The scratch state of a sequence with drafts.
  PoolResult<StateView> scratch_view(SequenceId id) const;

  // The next checkpoint position: an engine should end a chunk there, so that a checkpoint can be kept.
  PoolResult<std::uint32_t> next_checkpoint(SequenceId id) const;

  struct Forked {
    SequenceId id;
    std::uint32_t position;  // length of the new sequence
  };
  // A second sequence with the first `position` tokens of this one. Attention shares pages at any position. A recurrent
  // state exists only at the sequence's end and at checkpoints. So the fork ends at the last such position at or before
  // `position`, and the engine recomputes the tokens in between.
  PoolResult<Forked> fork(SequenceId id, std::uint32_t position, RequestId request = 0);
  // Removes the tokens from `position` on. The same rule decides the new length, which is returned.
  PoolResult<std::uint32_t> rewind(SequenceId id, std::uint32_t position);
  PoolResult<void> release(SequenceId id);

  PoolResult<KvView> kv_view(SequenceId id, std::uint32_t group, std::uint32_t layer);
  PoolResult<StateView> state_view(SequenceId id) const;
  PoolResult<KvCache> kv_cache(SequenceId id, std::uint32_t group, std::uint32_t layer);
  PoolResult<std::uint32_t> length(SequenceId id) const;
  PoolResult<std::span<const Token>> tokens(SequenceId id) const;
  PoolResult<std::span<const PageId>> pages(SequenceId id, std::uint32_t group) const;
  // Another number whenever pages() has changed.
  PoolResult<std::uint64_t> pages_version(SequenceId id, std::uint32_t group) const;
  PoolResult<SlotId> slot(SequenceId id) const;

  // --- suspend and resume, to make room in this pool
  struct Holding {
    std::uint64_t saved_bytes = 0;    // what suspend() copies
    std::uint64_t own_bytes = 0;      // held by nobody else: freed or cached when it is released
    std::uint32_t shared_tokens = 0;  // length of a prefix that others hold and that can be resumed from
  };
  PoolResult<Holding> holding(SequenceId id) const;
  // A host arena for suspended sequences, with cells that suit this pool's objects. The pool's device must outlive it.
  PoolResult<std::unique_ptr<HostArena>> create_host_arena(std::uint64_t bytes) const;
  // Copies what nobody else holds into the arena and releases the sequence. Blocks that another sequence holds too, and
  // that the prefix index knows, are not copied. Exhausted: the arena is too full. Waits for the device. After an error
  // the sequence is as it was.
  PoolResult<SuspendedSequence> suspend(SequenceId id, HostArena& arena);
  // Recreates a sequence as it was when it was suspended. `tokens` are the tokens that it had. Pages that the index
  // knows are taken from there, the others from the arena. Refused without any change: PrefixGone (a page is in
  // neither), Incompatible (another pool's), InvalidArgument (other tokens). Waits for the device: `suspended` may be
  // destroyed when this returns.
  PoolResult<SequenceId> resume(const SuspendedSequence& suspended, std::span<const Token> tokens,
                                RequestId request = 0);
  // Whether resume() and room for `more` tokens would succeed now (or once `leaving` have been released), with room
  // left for `others`; see admit().
  PoolResult<void> can_resume(const SuspendedSequence& suspended, std::span<const Token> tokens, std::uint32_t more,
                              std::uint32_t chunk, std::span<const BatchEntry> others,
                              std::span<const SequenceId> leaving = {}) const;

  // --- save and restore, for files and other pools
  // A complete copy of the sequence's pages and state, in host memory. The sequence does not change. Waits for the
  // device.
  PoolResult<SavedSequence> save(SequenceId id) const;
  // Recurrent models: copies of the checkpoints that the index has before the end of this sequence, in ascending order.
  // Left out are those that could not be resumed from with the pages of save(): the pages of a window before them were
  // given back. Waits for the device.
  PoolResult<std::vector<SavedCheckpoint>> save_checkpoints(SequenceId id) const;
  // Recreates a sequence as it was when it was saved, in this pool or another one of the same model and layout. Refused
  // without any change: Incompatible (version, model or layout), Damaged (truncated, checksum). Pages that the index
  // knows are taken from there. Waits for the device: `saved` may be destroyed when this returns.
  PoolResult<SequenceId> restore(const SavedSequence& saved, RequestId request = 0);
  // The same from bytes that the caller has checked. To restore a checkpoint: restore the sequence that ends there,
  // commit no tokens with `checkpoint`, and release it.
  PoolResult<SequenceId> restore(const SavedView& view, RequestId request = 0);
  // Whether restore() and room for `more` tokens would succeed now (or once `leaving` have been released), with room
  // left for `others`; see admit(). Checks everything that restore() checks except the checksum, which would read all
  // bytes.
  PoolResult<void> can_restore(const SavedSequence& saved, std::uint32_t more, std::uint32_t chunk,
                               std::span<const BatchEntry> others, std::span<const SequenceId> leaving = {}) const;

  // --- content that comes from elsewhere (src/tiers)
  // An object in host memory: a page of a layer group, or the state at the end of the tokens (cls: number of groups).
  struct FetchedObject {
    std::uint32_t cls = 0;
    std::uint32_t block = 0;                 // of a page
    const std::byte* bytes = nullptr;        // in host memory, or
    const HostArena::List* cells = nullptr;  // in the cells of a host arena,
    std::uint32_t cell = 0;                  // from this one on
  };
  // A sequence with these tokens, whole blocks of them, from pages that the index knows and from objects that were
  // fetched. The caller vouches for the bytes: they are what computing the tokens would give. Its blocks are published
  // like computed ones. Refused without any change: PrefixGone (a page is in neither), InvalidArgument (not whole
  // blocks, or no state for a recurrent model), Exhausted. Waits for the device: the memory of the objects may be
  // reused when this returns.
  PoolResult<SequenceId> promote(std::span<const Token> tokens, Namespace name_space,
                                 std::span<const FetchedObject> fetched, RequestId request = 0);
  // The blocks of these tokens that the index knows, from the first one on. Writes their nodes to `path`, as many as it
  // has room for; counts no more.
  std::uint32_t known_blocks(std::span<const Token> tokens, Namespace name_space, std::span<std::uint32_t> path) const;
  // Where the index has an object of one of its nodes.
  struct CachedObject {
    const std::byte* address = nullptr;  // on the device; null: not cached
    std::uint64_t bytes = 0;
  };
  CachedObject cached_object(std::uint32_t node, std::uint32_t cls) const;
  std::uint32_t object_classes() const { return classes(); }  // layer groups, and one for states if there are any
  std::uint64_t bytes_of_object(std::uint32_t cls) const { return object_bytes(cls); }
  // The first block that a sequence of this length needs in a group: later than 0 for a sliding window.
  std::uint32_t first_block_needed(std::uint32_t group, std::uint32_t length) const {
    return window_start(group, length) / block_size();
  }
  Hash128 layout_fingerprint() const { return layout_fingerprint_; }

  // --- what is evicted first; both need Eviction::Value
  // What the engine has measured. The only measured input of the pool: everything else follows from the operations.
  void set_costs(const RecomputeCosts& costs);
  const RecomputeCosts& costs() const { return costs_; }
  // A tenant is a namespace. What is cached for it is not evicted below `floor` bytes while anything else can be
  // evicted instead. A live sequence of anybody comes before a floor: then the floor yields (floors_yielded). Above
  // `cap` bytes the tenant's own cached content is evicted until it is below, or until only content in use is left. 0
  // and UINT64_MAX remove both. Looks at every node: for configuration, not for every step. Refused for more than 64
  // tenants.
  PoolResult<void> set_share(Namespace tenant, std::uint64_t floor, std::uint64_t cap);
  std::optional<TenantBytes> tenant_bytes(Namespace tenant) const;  // nothing for a tenant without floor and cap

  // Evicts everything that no sequence holds.
  void drop_cache();
  // To be called after the device has failed. Nothing written since the last fence can be trusted, so everything cached
  // is evicted, and no free state counts as zeroed. All sequences must have been released. Then every answer is as
  // after create(), with the costs, floors and caps that were set.
  PoolResult<void> recover();

  // --- inspection
  const StateLayout& layout() const { return config_.layout; }
  const PoolConfig& config() const { return config_; }
  PoolStats stats() const;
  PoolCounts counts() const;  // what a journal compares (pool_journal.h)
  const EventLog& events() const { return *events_; }
  const BlockPool& block_pool(std::uint32_t group) const { return *pools_[group]; }
  const Arena& arena() const { return *arena_; }
  const PrefixIndex& prefix_index() const { return *index_; }
  // The first contradiction as text; "out of memory" if there is too little memory to recount.
  std::expected<void, std::string> check_integrity() const;

 private:
  std::expected<void, std::string> recount() const;
  struct Sequence;
  struct PageInfo {
    std::uint32_t node = kNoIndex;   // the node that it is published as
    std::uint32_t block = kNoIndex;  // its block number, the same in every table
  };
  struct SlotInfo {
    std::uint32_t node = kNoIndex;      // whose checkpoint it is
    std::uint32_t sequence = kNoIndex;  // whose state it is, or whose scratch state
    bool scratch = false;
  };
  struct Match {
    Hit hit;
    std::uint32_t blocks = 0;               // blocks of the path to hold
    std::uint32_t whole = 0;                // blocks of the path after which a sequence could start without a part
    std::uint32_t partial_node = kNoIndex;  // its page is shared in part; in a recurrent model: a part
    std::uint32_t partial_tokens = 0;
    std::uint32_t length() const { return hit.tokens; }
    // The match of a sequence that starts without the prefix, for lack of room.
    Match without_prefix() const { return {.hit = {.tokens = 0, .matched = hit.matched, .end = HitEnd::NoRoom}}; }
    // The match of one that starts without the part of a page, whose copy would take a page.
    Match whole_blocks(std::uint32_t block_size) const {
      return {.hit = {.tokens = whole * block_size, .matched = hit.matched, .end = HitEnd::NoRoom},
              .blocks = whole,
              .whole = whole};
    }
  };
  enum class Effort : std::uint8_t { Gentle, Everything };  // Everything: also drops checkpoints of held paths

  explicit SequencePool(const PoolConfig& config);
  PoolResult<void> build(Device& device);

  Sequence* find(SequenceId id);
  const Sequence* find(SequenceId id) const;
  std::uint32_t groups() const { return static_cast<std::uint32_t>(pools_.size()); }
  std::uint32_t state_class() const { return groups(); }
  std::uint32_t classes() const { return groups() + (states_ ? 1 : 0); }
  const BlockAllocator& allocator(std::uint32_t cls) const;
  BlockAllocator& allocator(std::uint32_t cls);
  std::uint64_t object_bytes(std::uint32_t cls) const;
  std::uint32_t block_size() const { return config_.layout.block_size; }
  std::uint32_t unit() const { return config_.checkpoint_unit; }
  // A commit that passes a multiple of this has more to do: a block ends, or a checkpoint can be kept.
  std::uint32_t stride() const { return states_ ? unit() : block_size(); }
  std::uint32_t window_start(std::uint32_t group, std::uint32_t length) const;

  // room (sequence_pool_room.cpp)
  using Need = std::array<std::uint32_t, kMaxClasses>;  // objects by class
  bool feasible(const Need& more, const Need& freed = {}) const;
  PoolError refusal(const Need& need) const;
  std::unexpected<PoolError> refuse(const PoolError& error);
  PoolResult<void> make_room(const Need& need, Effort effort);
  bool evict_one(const Need& need, Effort effort);
  PoolResult<bool> compact_one(const Need& need);
  PoolResult<void> evacuate(std::uint32_t cls, std::uint32_t slab);
  PoolResult<void> move_page(std::uint32_t group, PageId from);
  PoolResult<void> move_state(SlotId from);
  void evict_node(std::uint32_t node);
  void evict_window_page(std::uint32_t group, PageId page);
  PageId oldest_window_page(std::uint32_t group) const;
  void drop_checkpoint(std::uint32_t node);
  bool thin_checkpoints(Effort effort);
  // by value (sequence_pool_value.cpp)
  // How many units back from a checkpoint the one before it is looked for. Beyond that its cost no longer grows.
  static constexpr std::uint32_t kGapLooks = 256;
  struct Victim {
    std::uint32_t node = kNoIndex;
    double worth = 0;  // seconds per byte and tick
  };
  double worth(std::uint32_t node) const;
  double worth_of_new_checkpoint(std::uint32_t end, std::uint32_t units, bool asked, std::uint64_t bytes) const;
  std::uint64_t pages_that_go_with(std::uint32_t node, std::uint64_t tokens) const;
  void offer(std::uint32_t share, Victim& best, Victim* lru) const;
  Victim least_worth(bool below_floors) const;
  bool evict_least_worth(Effort effort);
  void evict_candidate(std::uint32_t node);
  bool at_floor(std::uint32_t share) const;
  void keep_within_cap(Namespace tenant);

  // prefixes (sequence_pool_prefix.cpp)
  Match match(std::span<const Token> prompt, Namespace name_space, std::span<std::uint32_t> path) const;
  void match_part(std::span<const Token> prompt, Namespace name_space, std::span<const std::uint32_t> path,
                  std::uint32_t known, bool window_gone, Match& match) const;
  std::uint32_t resumable_part(Namespace name_space, std::uint32_t parent, std::span<const Token> tokens) const;
  bool resumable(std::uint32_t node) const;
  void let_go(std::uint32_t node);
  void publish(Sequence& sequence);
  void keep_tail(Sequence& sequence);
  void evict_shorter_parts(Namespace name_space, std::uint32_t parent, std::span<const Token> tokens);
  void note_evicted_before(Sequence& sequence, const PrefixIndex::Found& found);
  void note_evicted_part(Sequence& sequence, const PrefixIndex::Found& found);
  void note_missed_checkpoint(const Match& match, const Request& request);
  void skip_checkpoint(std::uint32_t node, bool asked, std::uint32_t covered);
  void publish_page(std::uint32_t node, std::uint32_t group, PageId page, std::uint32_t block);
  void keep_checkpoint(Sequence& sequence, bool asked);
  void keep_part(Sequence& sequence, bool asked);
  bool make_room_for_checkpoint(std::uint32_t arriving, const Need& need);
  PoolResult<SlotId> copy_of_state(const Sequence& sequence);
  bool copy_pages(const Sequence& sequence, std::array<PageId, kMaxClasses>& copies);
  std::uint32_t units_since_checkpoint(std::uint32_t node, std::uint32_t limit) const;
  std::uint32_t units_since_checkpoint(Namespace name_space, std::uint32_t parent, std::span<const Token> tokens,
                                       std::uint32_t limit) const;

  // sequences (sequence_pool.cpp)
  Need need_to_attach(const Match& match, std::span<const std::uint32_t> path) const;
  PoolResult<Created> create_from(const Request& request, const Match& found, bool looked);
  void build_views();
  PoolResult<void> attach(Sequence& sequence, const Match& match, std::span<const std::uint32_t> path);
  PoolResult<void> give_slot(Sequence& sequence, std::uint32_t from_node);
  void detach(Sequence& sequence);
  void remove(Sequence& sequence);
  // save and restore (sequence_pool_save.cpp)
  std::uint64_t bytes_of(const Sequence& sequence) const;
  PoolResult<void> acceptable(const SavedSequence& saved) const;
  PoolResult<void> acceptable(const SavedView& view) const;
  PoolResult<void> fits_this_pool(const Fingerprint& model, const Hash128& layout, std::size_t tokens,
                                  std::span<const std::uint32_t> first_blocks) const;
  PoolResult<void> download(const Sequence& sequence, SavedSequence& saved) const;
  // suspend and resume (sequence_pool_suspend.cpp)
  bool stays(const Sequence& sequence, std::uint32_t group, std::uint32_t block) const;
  template <typename Visit>
  PoolResult<void> for_each_copied(const Sequence& sequence, Visit visit) const;
  PoolResult<void> acceptable(const SuspendedSequence& suspended, std::span<const Token> tokens) const;
  // a saved or suspended sequence comes back (sequence_pool_return.cpp)
  struct Copy {
    std::span<const Token> tokens;
    Namespace name_space = 0;
    std::span<const std::uint32_t> first_blocks;  // by group
    const SavedSequence* saved = nullptr;         // one of these four
    const SuspendedSequence* suspended = nullptr;
    const SavedView* view = nullptr;
    std::span<const FetchedObject> fetched = {};
  };
  static Copy copy_in(const SavedSequence& saved) {
    return {saved.tokens, saved.name_space, saved.first_blocks, &saved, nullptr, nullptr, {}};
  }
  static Copy copy_in(const SavedView& view) {
    return {view.tokens, view.name_space, view.first_blocks, nullptr, nullptr, &view, {}};
  }
  static Copy copy_in(const SuspendedSequence& suspended, std::span<const Token> tokens) {
    return {tokens, suspended.name_space, suspended.first_blocks, nullptr, &suspended, nullptr, {}};
  }
  struct Return {
    std::uint32_t known = 0;  // blocks of path_, which the index knows
    Need need{};              // objects that become held
    Need fresh{};             // of those, the ones whose bytes come from the copy
  };
  void note_sources(const Copy& copy) const;
  std::span<const HostArena::Object> not_copied(const Copy& copy) const;
  PageId indexed(std::uint32_t group, std::uint32_t block, std::uint32_t known) const;
  PoolResult<Return> plan_return(const Copy& copy, const Need& freed = {}, bool somebody_leaves = false) const;
  PoolResult<void> can_return(const Copy& copy, std::uint32_t more, std::uint32_t chunk,
                              std::span<const BatchEntry> others, std::span<const SequenceId> leaving) const;
  PoolResult<SequenceId> bring_back(const Copy& copy, const Return& plan, RequestId request);
  PoolResult<void> fill(Sequence& sequence, const Copy& copy, const Return& plan);
  PoolResult<void> upload(Sequence& sequence, const Copy& copy, std::uint32_t known);
  PoolResult<void> upload(const Copy& copy, std::uint64_t source, std::uint32_t cls, std::byte* to);
  // content that comes from elsewhere (sequence_pool_promote.cpp)
  PoolResult<void> acceptable(std::span<const Token> tokens, std::span<const FetchedObject> fetched) const;
  PoolResult<SequenceId> do_promote(std::span<const Token> tokens, Namespace name_space,
                                    std::span<const FetchedObject> fetched, RequestId request);
  Copy copy_in(std::span<const Token> tokens, Namespace name_space, std::span<const FetchedObject> fetched) const;
  void note_stored(std::uint32_t node, std::uint32_t cls);
  void note_dropping(std::uint32_t node, std::uint32_t cls);
  // admission (sequence_pool_admit.cpp)
  Need need_to_admit(const Match& match, std::uint32_t tokens, std::uint32_t chunk) const;
  std::uint32_t most_pages(std::uint32_t group, std::uint32_t tokens, std::uint32_t chunk) const;
  PoolResult<Need> future_need(std::span<const BatchEntry> others, std::uint32_t chunk) const;
  std::optional<Match> best_that_fits(const Match& found, std::uint32_t tokens, std::uint32_t chunk, const Need& others,
                                      const Need& freed) const;
  Need count_leaving(std::span<const SequenceId> leaving) const;
  void forget_leaving(std::span<const SequenceId> leaving) const;
  std::uint32_t references_after_leaving(std::uint32_t group, PageId page) const {
    return allocator(group).references_at(page.index) - leaving_[group][page.index];
  }
  PoolResult<Created> create_and_reserve(const Request& request, const Match& found, bool looked, std::uint32_t tokens,
                                         std::uint32_t chunk);
  // fork and rewind (sequence_pool_fork.cpp)
  struct ResumePoint {
    std::uint32_t position = 0;
    bool in_place = true;           // the sequence's own tables and state can be used
    std::uint32_t part = kNoIndex;  // where the state comes from, if it lies inside a block
  };
  ResumePoint resume_point(const Sequence& sequence, std::uint32_t position) const;
  // The public operations without the journal (sequence_pool_journal.cpp). Operations that are part of another one are
  // called in this form.
  PoolResult<PageId> do_alloc_kv(std::uint32_t group);
  PoolResult<void> do_free_kv(PageId page, std::uint32_t group);
  PoolResult<SlotId> do_alloc_ssm(RequestId request);
  PoolResult<void> do_release_ssm(SlotId id);
  PoolResult<Created> do_create(const Request& request);
  PoolResult<Created> do_admit(const Request& request, std::uint32_t tokens, std::uint32_t chunk,
                               std::span<const BatchEntry> others);
  PoolResult<void> do_reserve(std::span<const BatchEntry> entries);
  PoolResult<void> do_commit(SequenceId id, std::span<const Token> tokens, bool checkpoint);
  PoolResult<void> do_draft(SequenceId id, std::uint32_t certain, std::uint32_t drafts);
  PoolResult<void> do_end_draft(SequenceId id);
  PoolResult<Forked> do_fork(SequenceId id, std::uint32_t position, RequestId request);
  PoolResult<std::uint32_t> do_rewind(SequenceId id, std::uint32_t position);
  PoolResult<void> do_release(SequenceId id);
  PoolResult<SavedSequence> do_save(SequenceId id) const;
  PoolResult<SequenceId> do_restore(const SavedSequence& saved, RequestId request);
  PoolResult<SequenceId> do_restore(const SavedView& view, RequestId request);
  PoolResult<SuspendedSequence> do_suspend(SequenceId id, HostArena& arena);
  PoolResult<SequenceId> do_resume(const SuspendedSequence& suspended, std::span<const Token> tokens,
                                   RequestId request);
  PoolResult<void> do_set_share(Namespace tenant, std::uint64_t floor, std::uint64_t cap);
  void do_drop_cache();
  PoolResult<void> do_recover();
  template <typename T, typename Answer>
  void tell(PoolOperation operation, const PoolResult<T>& result, Answer answer) const;
  template <typename T>
  void tell(const PoolOperation& operation, const PoolResult<T>& result) const;
  // drafts (sequence_pool_draft.cpp)
  PoolResult<SlotId> take_scratch(std::uint32_t sequence);
  void drop_scratch(Sequence& sequence);
  PoolResult<void> may_commit(const Sequence& sequence, std::size_t tokens) const;
  void swap_states(Sequence& sequence);
  // reservation and commit (sequence_pool_reserve.cpp)
  bool is_reserved(SequenceId id, std::uint32_t tokens) const;
  struct Plan {
    Need need{};
    bool unpublish = false;  // there is room only if half-full pages that only the index shares are removed from it
  };
  PoolResult<Plan> plan(std::span<const BatchEntry> entries) const;
  bool copies(std::span<const BatchEntry> entries, std::size_t index, std::uint32_t group, bool copy_kept) const;
  void unpublish_last_page(std::span<const BatchEntry> entries, std::size_t index);
  void note_pages(Sequence& sequence, std::uint32_t group, const PagedSeqState::Growth& growth);
  [[gnu::noinline]] void pass_boundary(Sequence& sequence, bool checkpoint);

  RequestId request_or_own(RequestId request) {
    return request != 0 ? request : ++own_requests_ | (RequestId{1} << 63);
  }

  PoolConfig config_;
  Hash128 layout_fingerprint_;
  std::uint32_t max_blocks_ = 0;
  bool has_windows_ = false;
  std::unique_ptr<EventLog> events_;
  std::unique_ptr<Arena> arena_;
  std::vector<std::unique_ptr<BlockPool>> pools_;  // by layer group
  std::unique_ptr<SsmStatePool> states_;           // of recurrent and hybrid models
  std::unique_ptr<PrefixIndex> index_;
  std::vector<LargeVector<PageInfo>> page_infos_;  // [group][page]
  std::vector<SlotInfo> slot_infos_;               // [slot]
  std::unique_ptr<PageTables> tables_;             // [groups][sequences][blocks]
  std::vector<KvGroupView> kv_groups_;             // by layer group: what kernels see
  StatesView states_view_;                         // what kernels see of the states
  std::vector<Sequence> sequences_;
  std::vector<std::uint32_t> free_sequences_;          // a stack
  mutable std::vector<std::uint32_t> path_;            // scratch for lookups
  mutable std::vector<std::uint64_t> sources_;         // [groups][blocks], state: scratch, where a copy has its bytes
  mutable std::vector<HostArena::Object> not_copied_;  // scratch for the journal
  mutable std::array<std::uint32_t, kMaxClasses> first_blocks_{};  // scratch for promote()
  ContentObserver* observer_ = nullptr;                            // the config's, except while content is lost
  std::vector<PagedSeqState::Growth> growths_;                     // scratch for reservations
  // [group][page], scratch: how many of the sequences that are assumed to leave hold the page; 0 between calls.
  mutable std::vector<LargeVector<std::uint32_t>> leaving_;
  mutable std::vector<std::uint64_t> asked_in_;  // by sequence: its last plan; finds one that is listed twice
  mutable std::uint64_t plans_ = 0;
  std::uint32_t arriving_node_ = kNoIndex;   // its checkpoint is about to be kept
  std::uint32_t protected_node_ = kNoIndex;  // its checkpoint is about to be read
  std::uint64_t checkpoint_budget_ = 0;      // checkpoints
  std::uint32_t interval_units_ = 0;
  std::uint32_t max_gap_units_ = 0;
  RecomputeCosts costs_;
  std::uint64_t node_bytes_ = 0;  // pages of a node, one in each group
  double arriving_worth_ = 0;     // of the checkpoint that is about to be kept
  RequestId own_requests_ = 0;
  PoolStats counters_;
};

}  // namespace quire
