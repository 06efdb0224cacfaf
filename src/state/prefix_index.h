// Which prefixes the pool remembers. A tree of nodes, one per full block of tokens; a node is known by a chained
// 128-bit hash of (namespace, tokens up to its end) and found only if the tokens themselves agree, so a collision of
// hashes costs a comparison and never an answer. Keys depend on a seed that nobody outside knows, or prompts could be
// made that all fall into one place of the table. Nothing that the index answers depends on it: not what is found, nor
// in which order things go, nor why something was not found (those tables have a hash of their own, without the seed,
// and a place in them is overwritten instead of searched).
//
// A node is held while sequences have its block in their tables, and unheld otherwise. A sequence holds a whole path
// from the root, so a held node's ancestors are held, and unheld nodes form subtrees. Unheld nodes stand in one list,
// the least recently used first. Whoever lets go of a path does so from its end: then children stand before their
// parents in that list at all times, and its first node never has a child (proved by check_integrity()).
//
// The index knows page and checkpoint ids but owns none of them: SequencePool takes and gives them. Memory for
// `max_nodes` nodes is taken at construction. All operations are O(1) per block. Single-threaded.
#pragma once

#include <cstdint>
#include <expected>
#include <span>

#include "quire/base/large_vector.h"
#include "quire/state/ids.h"

namespace quire {

class PrefixIndex {
 public:
  struct Key {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };

  // One line of the processor's cache: with a million nodes the cost of an operation is the lines it touches.
  struct alignas(64) Node {
    Key key;
    std::uint64_t content = 0;  // chained hash of the tokens alone, without the namespace and the seed
    Namespace name_space = 0;
    std::uint32_t parent = kNoIndex;
    std::uint32_t first_child = kNoIndex;
    std::uint32_t prev_sibling = kNoIndex;
    std::uint32_t next_sibling = kNoIndex;  // also the list of unused nodes
    std::uint32_t lru_prev = kNoIndex;
    std::uint32_t lru_next = kNoIndex;
    std::uint32_t block = kNoIndex;  // the block's number in its sequence; kNoIndex: the node is unused
    std::uint32_t holders = 0;

    bool used() const { return block != kNoIndex; }
  };
  static_assert(sizeof(Node) == 64);

  enum class Absence : std::uint8_t { NeverSeen, Evicted, OtherNamespace };

  // `hash_bits` under 128 makes collisions likely; tests use it. `seed`: drawn at random by whoever takes prompts from
  // strangers.
  PrefixIndex(std::uint32_t max_nodes, std::uint32_t block_size, std::uint32_t groups, bool checkpoints,
              std::uint32_t hash_bits = 128, std::uint64_t seed = 0);

  // --- finding
  // Follows `tokens` block by block from the root as far as nodes exist; writes them to `path` and says how many.
  std::uint32_t match(Namespace name_space, std::span<const Token> tokens, std::span<std::uint32_t> path) const;
  // The child of `parent` (kNoIndex: of the root) with these tokens, or kNoIndex; and what it is or would be known by.
  struct Found {
    std::uint32_t node;
    Key key;
    std::uint64_t content;
  };
  Found find_child(Namespace name_space, std::uint32_t parent, std::span<const Token> tokens) const;
  // Why find_child found nothing.
  Absence why_absent(Namespace name_space, std::uint32_t parent, std::span<const Token> tokens) const;
  // The child whose first tokens agree with the most of `tokens` (fewer than a block), and how many do. Looks at a
  // bounded number of children, the latest first; at the root at those of this namespace, however many others there
  // are.
  struct PartialMatch {
    std::uint32_t node = kNoIndex;
    std::uint32_t tokens = 0;
  };
  PartialMatch find_partial(Namespace name_space, std::uint32_t parent, std::span<const Token> tokens) const;

  // The key that the last whole block of `tokens` would be known by: the hashing of a lookup, and nothing else of it.
  Key key_of(Namespace name_space, std::span<const Token> tokens) const;

  // --- changing
  bool full() const { return unused_head_ == kNoIndex; }
  // A new node, held once, for a child that find_child did not find. There must be room.
  std::uint32_t insert(Namespace name_space, std::uint32_t parent, std::span<const Token> tokens, const Found& absent);
  // Forgets an unheld node without children. The caller has taken its pages and checkpoint.
  void remove(std::uint32_t node);
  void hold(std::uint32_t node);
  void let_go(std::uint32_t node);  // a path is let go from its end
  std::uint32_t least_recently_used() const { return lru_head_; }

  PageId page(std::uint32_t node, std::uint32_t group) const { return pages_[std::size_t{node} * groups_ + group]; }
  void set_page(std::uint32_t node, std::uint32_t group, PageId page) {
    pages_[std::size_t{node} * groups_ + group] = page;
  }
  std::span<const Token> tokens(std::uint32_t node) const {
    return {tokens_.data() + std::size_t{node} * block_size_, block_size_};
  }
  const Node& node(std::uint32_t node) const { return nodes_[node]; }
  bool is_leaf(std::uint32_t node) const { return nodes_[node].first_child == kNoIndex; }
  // The only child of a node, or kNoIndex where it has none or several.
  std::uint32_t only_child(std::uint32_t node) const {
    const std::uint32_t child = nodes_[node].first_child;
    return child != kNoIndex && nodes_[child].next_sibling == kNoIndex ? child : kNoIndex;
  }

  // The recurrent state at the end of a node's block. They stand in a list of their own, the least recently used first.
  SlotId checkpoint(std::uint32_t node) const { return checkpoints_.empty() ? SlotId{} : checkpoints_[node].id; }
  bool has_checkpoint(std::uint32_t node) const { return checkpoint(node).valid(); }
  std::uint32_t next_checkpoint(std::uint32_t node) const { return checkpoints_[node].next; }
  void set_checkpoint(std::uint32_t node, SlotId checkpoint);
  void move_checkpoint(std::uint32_t node, SlotId checkpoint) { checkpoints_[node].id = checkpoint; }
  SlotId clear_checkpoint(std::uint32_t node);
  void touch_checkpoint(std::uint32_t node);
  std::uint32_t oldest_checkpoint() const { return checkpoint_head_; }
  std::uint32_t checkpoint_count() const { return checkpoint_count_; }

  std::uint32_t size() const { return used_; }
  std::uint32_t unheld_count() const { return unheld_; }
  std::uint32_t max_nodes() const { return static_cast<std::uint32_t>(nodes_.size()); }

  std::expected<void, const char*> check_integrity() const;

 private:
  struct Entry {
    std::uint32_t tag = 0;  // the low half of key.low: the entry's home, and most of a comparison
    std::uint32_t node = kNoIndex;
  };
  // Entries are searched by the line of the processor's cache: those of a line at once, which it can guess its way
  // through while the line is still on its way. All lines between an entry's home and where it stands are full.
  static constexpr std::uint64_t kBucket = 8;
  struct Checkpoint {
    SlotId id;
    std::uint32_t prev = kNoIndex;
    std::uint32_t next = kNoIndex;
  };

  Key root_key(Namespace name_space) const;
  Key child_key(const Key& parent, std::span<const Token> tokens) const;
  std::uint64_t child_content(std::uint64_t parent, std::span<const Token> tokens) const;
  bool is_child(std::uint32_t node, const Key& key, Namespace name_space, std::uint32_t parent,
                std::span<const Token> tokens) const;
  std::uint32_t find(const Key& key, Namespace name_space, std::uint32_t parent, std::span<const Token> tokens) const;
  std::uint64_t root_place(Namespace name_space) const;
  void root_remove(std::uint64_t place);
  std::uint64_t ghost_place(std::uint64_t ghost) const { return (ghost >> 1) & mask_; }
  std::uint64_t home(std::uint64_t low) const { return (low & mask_) / kBucket; }
  std::uint64_t next_bucket(std::uint64_t bucket) const { return (bucket + 1) & (mask_ / kBucket); }
  void table_insert(const Key& key, std::uint32_t node);
  void table_remove(const Key& key, std::uint32_t node);
  void lru_append(std::uint32_t node);
  void lru_unlink(std::uint32_t node);

  std::uint32_t block_size_;
  std::uint32_t groups_;
  std::uint64_t seed_;
  Key key_mask_;
  LargeVector<Node> nodes_;
  LargeVector<Token> tokens_;            // [max_nodes][block_size]
  LargeVector<PageId> pages_;            // [max_nodes][groups]
  LargeVector<Checkpoint> checkpoints_;  // [max_nodes], or none
  LargeVector<Entry> by_key_;            // open addressing in buckets, a power of two
  LargeVector<std::uint32_t> roots_;     // the same by namespace: the first block that it published last
  // For explanations only, and therefore without searching: a new entry overwrites an old one at the same place.
  LargeVector<std::uint32_t> by_content_;  // a node with this content, to be checked against the node itself
  LargeVector<std::uint64_t> ghosts_;      // fingerprints of evicted nodes
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
