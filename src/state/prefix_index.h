// The cached prefixes, as a tree with one node per full block of tokens. There may also be parts: leaves with fewer
// tokens than a block, and with pages that are not full. In a recurrent model a part has a checkpoint inside a block,
// at a multiple of `unit`; in others it is the end of a sequence that was released. No sequence holds a part for longer
// than it takes to start from it. A node's key is a chained 128-bit hash of (namespace, all tokens up to its end). A
// lookup also compares the tokens, so a hash collision costs a comparison and never gives a wrong answer. Keys depend
// on a secret seed. Without it, an attacker could construct prompts whose keys all fall into one place of the table. No
// answer depends on the seed: neither hits, nor the order of eviction, nor the reason for a miss. (The tables behind
// that reason use a hash of their own without the seed. They are never searched: a new entry overwrites the old one.)
//
// A node is held while sequences have its block in their tables, and unheld otherwise. A sequence holds a whole path
// from the root, so the ancestors of a held node are held, and unheld nodes form subtrees. Unheld nodes are in one
// list, the least recently used first. A path must be let go from its end. Then children always stand before their
// parents in that list, and its first node never has a child (check_integrity() verifies this).
//
// With Eviction::Value the index also observes how nodes are used: of which kind they are, when they were used last,
// and how often such nodes are wanted again (ReuseOdds). It keeps the candidates for eviction by kind and age
// (EvictionOrder). In a recurrent model these are the nodes with a checkpoint, otherwise the unheld leaves. Tenants
// with a floor or a cap have lists and a count of bytes of their own.
//
// The index stores ids of pages and checkpoints but owns none of them: SequencePool takes and gives them back. Memory
// for `max_nodes` nodes is taken at construction. All operations are O(1) per block, O(log n) where candidates change.
// Single-threaded.
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <span>
#include <vector>

#include "quire/base/large_vector.h"
#include "quire/state/evicted_blocks.h"
#include "quire/state/eviction.h"
#include "quire/state/eviction_order.h"
#include "quire/state/ids.h"
#include "quire/state/reuse_odds.h"

namespace quire {

class PrefixIndex {
 public:
  struct Key {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };

  // One cache line: with a million nodes, the cost of an operation is the number of lines it touches.
  struct alignas(64) Node {
    Key key;
    std::uint64_t content = 0;  // chained hash of the tokens alone, without the namespace and the seed
    Namespace name_space = 0;
    std::uint32_t parent = kNoIndex;
    std::uint32_t first_child = kNoIndex;
    std::uint32_t prev_sibling = kNoIndex;
    std::uint32_t next_sibling = kNoIndex;  // also links the list of unused nodes
    std::uint32_t lru_prev = kNoIndex;
    std::uint32_t lru_next = kNoIndex;
    std::uint32_t block = kNoIndex;  // the block's number in its sequence; kNoIndex: the node is unused
    std::uint32_t holders = 0;

    bool used() const { return block != kNoIndex; }
  };
  static_assert(sizeof(Node) == 64);

  enum class Absence : std::uint8_t { NeverSeen, Evicted, OtherNamespace };

  // Tests use fewer `hash_bits` than 128 to make collisions likely. An engine that takes
  // prompts from strangers draws `seed` at random. With a `unit` smaller than the block size, which it must divide,
  // there may be parts.
  PrefixIndex(std::uint32_t max_nodes, std::uint32_t block_size, std::uint32_t groups, bool checkpoints,
              std::uint32_t hash_bits = 128, std::uint64_t seed = 0, Eviction eviction = Eviction::Lru,
              std::uint32_t unit = 0);

  // --- lookup
  // Follows `tokens` block by block from the root as far as nodes exist. Writes the
  // nodes to `path` and returns their number.
  std::uint32_t match(Namespace name_space, std::span<const Token> tokens, std::span<std::uint32_t> path) const;
  // The child of `parent` (kNoIndex: of the root) with these tokens, or kNoIndex. Also returns the key and content hash
  // that such a child has or would have.
  struct Found {
    std::uint32_t node;
    Key key;
    std::uint64_t content;
  };
  Found find_child(Namespace name_space, std::uint32_t parent, std::span<const Token> tokens) const;
  // Why find_child found nothing.
  Absence why_absent(Namespace name_space, std::uint32_t parent, std::span<const Token> tokens) const;
  static constexpr std::uint32_t kPartialLooks = 64;  // children compared for a partial match
  // The child that shares the most first tokens with `tokens` (fewer than a block), and how many. Compares a bounded
  // number of children, the latest first. At the root it compares only those of this namespace.
  struct PartialMatch {
    std::uint32_t node = kNoIndex;
    std::uint32_t tokens = 0;
  };
  PartialMatch find_partial(Namespace name_space, std::uint32_t parent, std::span<const Token> tokens) const;

  // The key of the last whole block of `tokens`. This is the hashing part of a lookup alone, for benchmarks.
  Key key_of(Namespace name_space, std::span<const Token> tokens) const;

  // --- modification
  bool full() const { return unused_head_ == kNoIndex; }
  // Adds a node, held once, for a child that find_child() did not find: a block, or a part. The index must not be
  // full().
  std::uint32_t insert(Namespace name_space, std::uint32_t parent, std::span<const Token> tokens, const Found& absent);
  // Removes an unheld node without children. The caller has taken back its pages and checkpoint.
  void remove(std::uint32_t node);
  void hold(std::uint32_t node);
  void let_go(std::uint32_t node);  // a path must be let go from its end
  std::uint32_t least_recently_used() const { return lru_head_; }

  PageId page(std::uint32_t node, std::uint32_t group) const { return pages_[std::size_t{node} * groups_ + group]; }
  void set_page(std::uint32_t node, std::uint32_t group, PageId page) {
    PageId& entry = pages_[std::size_t{node} * groups_ + group];
    if (entry.valid() != page.valid()) count_bytes(node, group, page.valid());
    entry = page;
  }
  std::span<const Token> tokens(std::uint32_t node) const {
    return {tokens_.data() + std::size_t{node} * block_size_, count(node)};
  }
  const Node& node(std::uint32_t node) const { return nodes_[node]; }
  bool is_leaf(std::uint32_t node) const { return nodes_[node].first_child == kNoIndex; }
  // The only child of a node, or kNoIndex if it has none or several.
  std::uint32_t only_child(std::uint32_t node) const {
    const std::uint32_t child = nodes_[node].first_child;
    return child != kNoIndex && nodes_[child].next_sibling == kNoIndex ? child : kNoIndex;
  }

  // --- parts (prefix_index_parts.cpp)
  bool has_parts() const { return !parts_.empty(); }  // whether there may be any
  std::uint32_t unit() const { return unit_; }        // tokens; without parts the block size
  std::uint32_t count(std::uint32_t node) const { return parts_.empty() ? block_size_ : parts_[node].count; }
  bool is_part(std::uint32_t node) const { return count(node) < block_size_; }
  // The number of tokens from the start of the sequence to the end of the node.
  std::uint32_t end(std::uint32_t node) const { return nodes_[node].block * block_size_ + count(node); }
  // A part below `parent` with which `tokens` begin, and that has fewer tokens; or kNoIndex. Compares a bounded number
  // of children, the latest first.
  std::uint32_t find_shorter_part(Namespace name_space, std::uint32_t parent, std::span<const Token> tokens) const;
  // The rest is for recurrent models.
  // The longest part below `parent` that has fewer than `below` tokens and begins `tokens`, or kNoIndex.
  std::uint32_t longest_part(Namespace name_space, std::uint32_t parent, std::span<const Token> tokens,
                             std::uint32_t below) const;
  // The last node with a checkpoint at or before the end of `node` on its path, or kNoIndex. Looks at so many blocks.
  std::uint32_t checkpoint_at_or_before(std::uint32_t node, std::uint32_t looks) const;
  // The same strictly before the end of a node with these tokens, which need not exist. The blocks above are counted.
  std::uint32_t checkpoint_before(Namespace name_space, std::uint32_t parent, std::span<const Token> tokens,
                                  std::uint32_t looks) const;
  // A part was due but there was no room that was worth less; see note_skipped_checkpoint().
  void note_skipped_part(Namespace name_space, std::uint64_t content, bool asked);
  // A sequence would have resumed from a part with these tokens. Returns whether there was one, which was then wanted.
  bool note_missed_part(Namespace name_space, std::uint32_t parent, std::span<const Token> tokens);

  // The recurrent state at the end of a node's tokens. Checkpoints are in a list of
  // their own, the least recently used first.
  SlotId checkpoint(std::uint32_t node) const { return checkpoints_.empty() ? SlotId{} : checkpoints_[node].id; }
  bool has_checkpoint(std::uint32_t node) const { return checkpoint(node).valid(); }
  std::uint32_t next_checkpoint(std::uint32_t node) const { return checkpoints_[node].next; }
  void set_checkpoint(std::uint32_t node, SlotId checkpoint, bool asked = false);
  void move_checkpoint(std::uint32_t node, SlotId checkpoint) { checkpoints_[node].id = checkpoint; }
  SlotId clear_checkpoint(std::uint32_t node);
  void touch_checkpoint(std::uint32_t node);
  std::uint32_t oldest_checkpoint() const { return checkpoint_head_; }
  std::uint32_t checkpoint_count() const { return checkpoint_count_; }

  // --- how nodes are used; only with Eviction::Value (prefix_index_use.cpp)
  bool by_value() const { return !usages_.empty(); }
  const EvictionOrder& candidates() const { return candidates_; }
  // How often a candidate is expected to be wanted, per tick.
  double rate(std::uint32_t candidate) const;
  // Forgets what was evicted and how often content is wanted again, as if the index were new. Floors and caps stay.
  void forget_uses();
  double new_checkpoint_rate(bool asked) const { return odds_.rate(checkpoint_kind(false, asked, false), 0); }
  // While it is protected, a node with a checkpoint is no candidate.
  void protect(std::uint32_t node) { candidates_.remove(node); }
  void unprotect(std::uint32_t node);
  // What is remembered of an evicted block, and that such content was wanted after it had been evicted.
  std::optional<EvictedBlocks::Use> evicted_use(std::uint64_t content, Namespace name_space) const {
    return evicted_.find(content, name_space);
  }
  void wanted_after_eviction(const EvictedBlocks::Use& use);
  // A checkpoint is about to be kept at the end of a node with these tokens, which need not exist. It will cover the
  // one before it on its path, which is returned if that is news (otherwise kNoIndex). uncover() takes it back if none
  // is kept.
  std::uint32_t cover_before(Namespace name_space, std::uint32_t parent, std::span<const Token> tokens);
  void uncover(std::uint32_t node) { set_covered(node, false); }
  // A checkpoint was due here but there was no room that was worth less. It counts as kept and dropped at once, so that
  // it is noticed if it is wanted later.
  void note_skipped_checkpoint(std::uint32_t node, bool asked);
  // A sequence would have resumed here. Returns whether the node once had a checkpoint, which was then wanted.
  bool note_missed_checkpoint(std::uint32_t node);

  // A tenant's share of the pool, in bytes of pages and checkpoints that the index knows. Share 0 is everybody who has
  // none; it has no bounds and is not counted.
  struct Share {
    Namespace name_space = 0;
    std::uint64_t floor = 0, cap = UINT64_MAX, resident = 0;
    bool used = false;
  };
  static constexpr std::uint32_t kMaxShares = 64;
  void set_object_bytes(std::span<const std::uint64_t> groups, std::uint64_t state);
  // Looks at every node. Returns false if there are kMaxShares already.
  bool set_share(Namespace name_space, std::uint64_t floor, std::uint64_t cap);
  std::uint32_t share_of(Namespace name_space) const;
  const Share& share(std::uint32_t share) const { return shares_[share]; }
  std::uint32_t share_limit() const { return share_limit_; }  // shares at or above this one are unused
  // The candidates of a share are in the lists [first_list(share), first_list(share + 1)).
  std::uint32_t first_list(std::uint32_t share) const { return share * kinds_; }

  // The chained hash of the tokens alone. `parent` is that of the block before, or kContentRoot.
  static constexpr std::uint64_t kContentRoot = 0x71756972652d6373;  // an arbitrary constant
  static std::uint64_t content_of(std::uint64_t parent, std::span<const Token> tokens);

  std::uint32_t size() const { return used_; }
  std::uint32_t unheld_count() const { return unheld_; }
  std::uint32_t max_nodes() const { return static_cast<std::uint32_t>(nodes_.size()); }

  std::expected<void, const char*> check_integrity() const;

 private:
  struct Entry {
    std::uint32_t tag = 0;  // the low half of key.low: gives the home bucket, and settles most comparisons
    std::uint32_t node = kNoIndex;
  };
  // A bucket of entries is one cache line. All entries of a line are compared at once, without branches that would wait
  // for the line to arrive. All buckets between an entry's home and its place are full.
  static constexpr std::uint64_t kBucket = 8;
  struct Checkpoint {
    SlotId id;
    std::uint32_t prev = kNoIndex;
    std::uint32_t next = kNoIndex;
  };
  struct Part {
    std::uint32_t count = 0;     // tokens of the node
    std::uint32_t children = 0;  // how many of its children are parts
  };
  struct Usage {
    std::uint64_t last = 0;  // when it was let go; in a recurrent model: when its checkpoint was kept or resumed from
    std::uint8_t turn = 0;   // blocks
    bool reused = false;     // blocks
    bool had_state = false;  // it has or had a checkpoint
    bool covered = false, asked = false, resumed = false;  // checkpoints
    std::uint8_t share = 0;
  };

  Key root_key(Namespace name_space) const;
  Key child_key(const Key& parent, std::span<const Token> tokens) const;
  bool is_child(std::uint32_t node, const Key& key, Namespace name_space, std::uint32_t parent,
                std::span<const Token> tokens) const;
  std::uint32_t find(const Key& key, Namespace name_space, std::uint32_t parent, std::span<const Token> tokens) const;
  std::uint64_t root_place(Namespace name_space) const;
  void root_remove(std::uint64_t place);
  std::uint64_t home(std::uint64_t low) const { return (low & mask_) / kBucket; }
  std::uint64_t next_bucket(std::uint64_t bucket) const { return (bucket + 1) & (mask_ / kBucket); }
  void table_insert(const Key& key, std::uint32_t node);
  void table_remove(const Key& key, std::uint32_t node);
  void lru_append(std::uint32_t node);
  void lru_unlink(std::uint32_t node);
  void checkpoint_link(std::uint32_t node);
  SlotId checkpoint_unlink(std::uint32_t node);

  std::uint8_t kind(std::uint32_t node) const;
  void count_bytes(std::uint32_t node, std::uint32_t cls, bool more);
  void list(std::uint32_t node);
  void note_new(std::uint32_t node);
  void note_held(std::uint32_t node);
  void note_let_go(std::uint32_t node);
  void note_removed(std::uint32_t node);
  void note_leaf(std::uint32_t node);
  void note_checkpoint(std::uint32_t node, bool asked);
  void begin_checkpoint(std::uint32_t node, bool asked);
  void note_resumed(std::uint32_t node);
  void set_covered(std::uint32_t node, bool covered);
  std::uint64_t resident_bytes(std::uint32_t node) const;
  std::expected<void, const char*> check_uses() const;
  std::expected<void, const char*> check_parts() const;

  std::uint32_t block_size_;
  std::uint32_t unit_;
  std::uint32_t groups_;
  std::uint64_t seed_;
  Key key_mask_;
  LargeVector<Node> nodes_;
  LargeVector<Token> tokens_;            // [max_nodes][block_size]
  LargeVector<PageId> pages_;            // [max_nodes][groups]
  LargeVector<Checkpoint> checkpoints_;  // [max_nodes], or none
  LargeVector<Part> parts_;              // [max_nodes], or none
  LargeVector<Entry> by_key_;            // open addressing in buckets, a power of two
  LargeVector<std::uint32_t> roots_;  // the same by namespace: head of the list of its first blocks, the latest first
  // These two only explain misses. They are not searched: a new entry overwrites the old one at the same place.
  LargeVector<std::uint32_t> by_content_;  // a node that had this content hash; the node itself must be compared
  EvictedBlocks evicted_;
  LargeVector<Usage> usages_;  // [max_nodes], or none
  bool has_states_ = false;
  std::uint32_t kinds_ = 0;
  ReuseOdds odds_, first_odds_;  // what has been learned; before anything was learned
  EvictionOrder candidates_;
  std::uint64_t ticks_ = 0;
  std::vector<Share> shares_;  // [kMaxShares + 1], or none
  std::uint32_t share_limit_ = 1;
  std::vector<std::uint64_t> object_bytes_;  // by class: pages of each group, then states
  std::uint64_t mask_ = 0;
  std::uint32_t unused_head_ = kNoIndex;
  std::uint32_t lru_head_ = kNoIndex;
  std::uint32_t lru_tail_ = kNoIndex;
  std::uint32_t checkpoint_head_ = kNoIndex;
  std::uint32_t checkpoint_tail_ = kNoIndex;
  std::uint32_t used_ = 0;
  std::uint32_t unheld_ = 0;
  std::uint32_t checkpoint_count_ = 0;
};

}  // namespace quire
