// The tiers of one pool: what the pool caches is written behind to them, and what the pool has lost or never had is
// looked for and brought back from there.
//
//   Tiers tiers(options);              // before the pool, whose config names it as the observer
//   tiers.add(open_disk_tier(...));    // the fastest first
//   tiers.attach(pool);
//   tiers.advance();                   // between two steps: moves a bounded number of bytes
//   id = tiers.look(prompt, ...);      // what is there after what the pool knows?
//   tiers.fetch(id, ...);              // bring it into the pool's prefix cache, where the next look-up finds it
//
// How content leaves. The pool tells of every page and checkpoint that it publishes. advance() copies it to staging
// memory, a bounded number of bytes at a time, and hands it to every tier. Content that is evicted before its turn came
// is copied then, if there is room in the staging memory; otherwise it is lost (and counted). So is content that some
// tier did not take or failed to store: it is offered once more, and not before. What a tier has lost since (a disk
// that is full evicts) is offered to it anew when the pool evicts it too, or when a prompt uses it. With write_back,
// content is copied only when it is evicted, and at a normal end (flush()).
//
// How it comes back. Names are computed from the prompt (object_name.h). All tiers are asked at once. What is found is
// read into staging memory and promoted into the pool as cached prefixes, exactly as if it had been computed. Where a
// page alone is of use, this happens in pieces; with sliding windows or recurrent layers at once, at a place from where
// a sequence can go on.
//
// Nothing here waits for a disk or a socket. Memory is bounded: staging_bytes, and a few bytes for each node.
//
// Who may call: the thread that owns the pool; done() is called by the tiers' threads.
// How it fails: a tier that fails loses time and nothing else. advance() passes on errors of the device.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "quire/state/content_observer.h"
#include "quire/state/sequence_pool.h"
#include "quire/state/tier.h"
#include "quire/tiers/host_tier.h"
#include "quire/tiers/staging.h"

namespace quire::tiers {

using Clock = std::chrono::steady_clock;

struct TiersOptions {
  std::uint64_t staging_bytes = std::uint64_t{256} << 20;  // host memory for what is on its way
  std::uint64_t step_bytes = std::uint64_t{32} << 20;      // copied by one call of advance(), in each direction
  bool write_back = false;                                 // content leaves only when the pool evicts it
  // What a namespace is called in every tier. By default its number: enough where one server has the tiers for itself.
  std::function<TenantName(Namespace)> tenant;
};

using FetchId = std::uint64_t;  // 0: none

struct FetchStatus {
  enum class Phase : std::uint8_t {
    Looking,   // the tiers have not answered yet
    Found,     // something is there: fetch() or end()
    Fetching,  // it is on its way
    Done,      // everything that could be brought is in the pool; end()
  };
  Phase phase = Phase::Done;
  std::uint32_t tokens = 0;   // Found, Fetching: the length of the prefix that can be there; Done: that was brought
  std::uint64_t bytes = 0;    // to be read
  double seconds = 0;         // Found: how long that will take, as far as is known
  double waited = 0;          // seconds since look()
  bool no_room = false;       // the pool had no room for it
  double since_progress = 0;  // seconds since something arrived
  std::uint32_t brought = 0;  // Fetching: the length of the prefix that is in the pool already
  std::array<std::uint32_t, kTierKinds> from{};  // tokens that were brought, by tier
};

struct TiersStats {
  struct One {
    TierKind kind = TierKind::Disk;
    TierUsage usage;
    std::uint64_t tokens = 0;  // of prefixes that were brought from it
  };
  std::vector<One> tiers;
  std::uint64_t staging_bytes = 0, staging_used_bytes = 0;
  std::uint64_t pending = 0;                     // objects that wait to be copied
  std::uint64_t written = 0, written_bytes = 0;  // objects that were copied for the tiers
  std::uint64_t lost = 0;                        // evicted before they could be copied
  std::uint64_t looks = 0, fetches = 0;
  std::uint64_t promoted = 0, promoted_bytes = 0;  // objects that were brought into the pool
  std::uint64_t promotions_refused = 0;            // by the pool: no room, or the prefix before them was gone
};

class Tiers final : public ContentObserver, public TierListener {
 public:
  explicit Tiers(TiersOptions options);
  ~Tiers() override;  // as detach()
  Tiers(const Tiers&) = delete;
  Tiers& operator=(const Tiers&) = delete;

  void add(std::unique_ptr<Tier> tier);  // before attach()
  // Takes the staging memory from the pool's device. The device must outlive this object.
  PoolResult<void> attach(SequencePool& pool);
  // Ends the tiers and gives the staging memory back. To be called before the device goes; the pool may be gone
  // already. What is pending is not written. After that only stats() and the destructor may be called.
  void detach();
  // What the pool evicts goes to this arena too: at most so many bytes of it. The arena must outlive its use here.
  void use_host(HostArena& arena, std::uint64_t bytes);
  void leave_host();                        // before the arena goes; waits for the device
  HostTier* host() { return host_.get(); }  // null: there is none
  // What a namespace is called in every tier from now on, instead of what options.tenant says. To be told before the
  // first prompt of the namespace: what is cached already keeps its name.
  void name_tenant(Namespace name_space, const TenantName& name) { tenants_[name_space] = name; }
  // The fingerprint of the adapter with the next number, beginning with 1. To be told before its first prompt.
  void add_adapter(const Fingerprint& fingerprint) { adapters_.push_back(fingerprint); }
  // Is called by a tier's thread whenever something has arrived that advance() can use.
  void on_arrival(std::function<void()> wake);

  // To be called between two steps. An error is one of the device (see Device::fence()). `bounded`: somebody waits for
  // the next step, so it moves no more than step_bytes.
  PoolResult<void> advance(bool bounded = true);
  std::uint64_t moved_bytes() const { return moved_bytes_; }  // into the pool, by the last advance()
  // Whether advance() has or will have something to do, without any further call.
  bool busy() const;
  // Calls advance() until everything is written, or until the deadline: with write_back, all that is cached. Returns
  // whether everything is.
  bool flush(Clock::time_point deadline);

  // Looks for what comes after the known part of this prompt. 0: nothing can be there (no whole block is missing).
  FetchId look(std::span<const Token> prompt, Namespace name_space);
  // Brings the blocks from `first_block` on. Blocks before it must be in the pool when they are promoted; until then
  // what was fetched waits.
  void fetch(FetchId id, std::uint32_t first_block);
  FetchStatus status(FetchId id) const;
  std::uint32_t known_blocks(FetchId id) const;  // in the pool, when it looked
  // Whether all that is found from this block on can lie in staging memory at a time. What fetch() brings behind blocks
  // that are still computed has to.
  bool can_wait(FetchId id, std::uint32_t first_block) const;
  void end(FetchId id);

  TiersStats stats() const;

  // A line for the next server on the same tiers; see Tier::keep_note().
  void keep_note(const std::string& note);
  std::string kept_note() const;  // of the first tier that has one; empty: there is none

  // --- ContentObserver, TierListener
  void stored(std::uint32_t node, std::uint32_t cls) noexcept override;
  void dropping(std::uint32_t node, std::uint32_t cls) noexcept override;
  void distrust() noexcept override;
  void done(const TierJob& job, TierOutcome outcome) noexcept override;

 private:
  using TierSet = std::uint8_t;  // a bit for each tier

  // --- content that leaves (tiers_write.cpp)
  struct NodeInfo {
    PrefixIndex::Key key;  // of the node that this is about
    ObjectName name{};
    std::uint16_t copied = 0;  // a bit for each class: every tier has it, or has it in work
    std::uint16_t kept = 0;    // a bit for each class: every tier had it; one may have lost it since
    bool named = false;
  };
  struct Pending {
    PrefixIndex::Key key;
    std::uint32_t node = kNoIndex;
    std::uint32_t cls = 0;
    TierSet skip = 0;  // these have it
  };
  struct Leaving {  // copied to a cell
    ObjectKey key;
    PrefixIndex::Key node_key;  // of the node that it was copied from
    std::uint32_t node = kNoIndex;
    std::uint32_t cls = 0;
    Staging::Cell cell;
    TierSet to = 0;         // tiers that did not take it yet
    std::uint8_t open = 0;  // tiers that have it in work
    Clock::time_point since;
  };
  NodeInfo& info(std::uint32_t node);
  ObjectName root(Namespace name_space) const;
  ObjectKey key_of(std::uint32_t node, std::uint32_t cls);
  TierSet promoted_from(std::uint32_t node, std::uint32_t cls) const;
  TierSet all() const { return static_cast<TierSet>((1u << tiers_.size()) - 1); }
  TierSet lost_by(std::uint32_t node, std::uint32_t cls);
  TierSet repaired() const;
  void repair(std::uint32_t node, std::uint32_t cls, TierSet tiers);
  void add_pending(std::uint32_t node, std::uint32_t cls, TierSet skip);
  void add_all_pending();
  void was_kept(const Leaving& object);
  void went_without(const Leaving& object);
  bool copy_out(std::uint32_t node, std::uint32_t cls, TierSet skip);
  void copy_pending();
  PoolResult<void> finish_copies();
  void offer_leaving();

  // --- content that comes back (tiers_fetch.cpp)
  struct Wanted {
    enum class State : std::uint8_t { InPool, Asked, There, Loading, Ready, Absent };
    State state = State::Asked;
    TierSet in = 0;  // tiers that have it
    std::uint8_t from = 0;
    Staging::Cell cell;
    std::uint32_t host = UINT32_MAX;  // Ready: its place in the host tier, where it is pinned
  };
  struct Fetch {
    FetchId id = 0;
    FetchId behind = 0;  // another fetch that brings the same blocks
    Namespace name_space = 0;
    std::vector<Token> tokens;  // whole blocks, and the token after them
    std::vector<ObjectName> names;
    std::vector<Wanted> wanted;  // [block][class]
    FetchStatus::Phase phase = FetchStatus::Phase::Looking;
    std::uint32_t blocks = 0;
    std::uint32_t known = 0;     // blocks in the pool, when it looked
    std::uint32_t first = 0;     // blocks before this one are computed
    std::uint32_t end = 0;       // blocks that can be there
    std::uint32_t goal = 0;      // blocks that are promoted together; all that is wanted for them has a cell
    std::uint32_t promoted = 0;  // blocks
    std::uint32_t asked = 0;     // questions that were submitted, in the order of ask_next()
    std::uint32_t open = 0;      // jobs in work
    bool no_room = false;        // for what has arrived
    bool ended = false;          // forgotten when its last job has ended
    Clock::time_point began, progress;
    std::array<std::uint32_t, kTierKinds> from{};
  };
  // A job in work. Its ticket number is its place here.
  struct Ticket {
    FetchId fetch = 0;  // 0: a Leaving
    std::uint32_t block = 0, cls = 0;
    std::uint32_t leaving = 0;
    std::uint8_t tier = 0;
    std::uint64_t next = 0;  // free tickets
    Clock::time_point since;
  };
  struct Arrived {
    std::uint64_t ticket;
    TierOutcome outcome;
    TierJob::Kind kind;
    std::uint64_t bytes;
  };
  std::uint32_t classes() const { return pool_->object_classes(); }
  bool in_pieces() const { return in_pieces_; }
  std::uint32_t groups() const { return static_cast<std::uint32_t>(pool_->layout().groups.size()); }
  std::uint32_t block_size() const { return pool_->layout().block_size; }
  ObjectKey key_at(const Fetch& fetch, std::uint32_t block, std::uint32_t cls) const;
  Wanted& wanted(Fetch& fetch, std::uint32_t block, std::uint32_t cls) const;
  const Wanted& wanted(const Fetch& fetch, std::uint32_t block, std::uint32_t cls) const;
  Fetch* find(FetchId id);
  const Fetch* find(FetchId id) const;
  void begin(Fetch& fetch);
  void ask(Fetch& fetch);
  std::uint32_t best_end(const Fetch& fetch) const;
  std::uint32_t next_goal(const Fetch& fetch) const;
  bool is_complete(const Fetch& fetch, std::uint32_t end) const;
  bool has_cells(const Fetch& fetch, std::uint32_t first, std::uint32_t end) const;
  bool may_load(const Fetch& fetch) const;
  template <typename Visit>
  bool each_needed(const Fetch& fetch, std::uint32_t first, std::uint32_t end, Visit visit) const;
  void load(Fetch& fetch);
  bool promote(Fetch& fetch, PoolResult<void>& fenced);
  void finish(Fetch& fetch);
  void give_back(Wanted& object);
  void take_arrived();
  void take(const Arrived& arrived);
  void answer(Fetch& fetch, const Ticket& ticket, const Arrived& arrived);

  std::uint64_t open_ticket(const Ticket& ticket);
  void close_ticket(std::uint64_t ticket);
  bool submit(std::uint8_t tier, const TierJob& job);

  TiersOptions options_;
  std::unordered_map<Namespace, TenantName> tenants_;  // those that were named
  std::vector<Fingerprint> adapters_;                  // by number, from 1
  SequencePool* pool_ = nullptr;
  Device* device_ = nullptr;
  bool in_pieces_ = false;  // every block can be promoted: no windows, no recurrent state
  std::unique_ptr<Staging> staging_;
  std::vector<NodeInfo> infos_;   // by node
  std::vector<Pending> pending_;  // a ring
  std::size_t pending_first_ = 0, pending_count_ = 0;
  std::vector<Leaving> leaving_;  // by place; open and to are 0: free
  std::vector<std::uint32_t> free_leaving_;
  std::vector<std::uint32_t> copying_;   // leaving objects whose download was submitted since the last fence
  std::vector<std::uint32_t> to_offer_;  // leaving objects that some tier did not take yet
  std::vector<std::unique_ptr<Fetch>> fetches_;
  FetchId last_fetch_ = 0;
  std::vector<Ticket> tickets_;
  std::uint64_t free_ticket_ = UINT64_MAX;
  const Fetch* promoting_ = nullptr;  // stored() is told of what it has brought
  std::uint64_t moved_bytes_ = 0;     // promoted in this call of advance()
  struct Reading {                    // how fast a tier reads
    double seconds_per_byte = 0;
    std::uint32_t open = 0;   // jobs in work
    std::uint64_t bytes = 0;  // read since the first of them was submitted
    Clock::time_point since;
  };
  std::vector<Reading> reading_;            // by tier
  std::vector<std::uint64_t> tokens_from_;  // by tier
  std::uint64_t tokens_from_host_ = 0;
  std::unique_ptr<HostTier> host_;
  TiersStats counters_;

  std::mutex arrival_;
  std::vector<Arrived> arrived_, arrived_now_;
  std::function<void()> wake_;
  std::vector<std::unique_ptr<Tier>> tiers_;  // the last member: their threads use the others
};

}  // namespace quire::tiers
