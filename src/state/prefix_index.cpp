#include "quire/state/prefix_index.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "quire/base/check.h"

namespace quire {
namespace {

constexpr std::uint32_t kBatch = 16;  // blocks prefetched together

}  // namespace

PrefixIndex::PrefixIndex(std::uint32_t max_nodes, std::uint32_t block_size, std::uint32_t groups, bool checkpoints,
                         std::uint32_t hash_bits, std::uint64_t seed, Eviction eviction, std::uint32_t unit)
    : block_size_(block_size),
      unit_(unit != 0 ? std::min(unit, block_size) : block_size),
      groups_(groups),
      seed_(seed),
      nodes_(max_nodes),
      tokens_(std::size_t{max_nodes} * block_size),
      pages_(std::size_t{max_nodes} * groups),
      checkpoints_(checkpoints ? max_nodes : 0),
      parts_(unit_ < block_size ? max_nodes : 0),
      evicted_(max_nodes),
      usages_(eviction == Eviction::Value ? max_nodes : 0),
      has_states_(checkpoints),
      kinds_(checkpoints ? kCheckpointKinds : kBlockKinds),
      odds_(checkpoints ? ReuseOdds::for_checkpoints() : ReuseOdds::for_blocks()),
      first_odds_(odds_),
      candidates_(eviction == Eviction::Value ? max_nodes : 0, kinds_ * (kMaxShares + 1)),
      shares_(kMaxShares + 1),
      object_bytes_(groups + 1) {
  key_mask_.low = hash_bits >= 64 ? UINT64_MAX : (std::uint64_t{1} << hash_bits) - 1;
  key_mask_.high = hash_bits >= 128 ? UINT64_MAX : hash_bits <= 64 ? 0 : (std::uint64_t{1} << (hash_bits - 64)) - 1;
  const std::size_t entries = std::bit_ceil(std::max<std::size_t>(std::size_t{max_nodes} * 2 + 2, kBucket * 2));
  by_key_.resize(entries);
  roots_.assign(entries, kNoIndex);
  by_content_.assign(entries, kNoIndex);
  mask_ = entries - 1;
  for (std::uint32_t i = 0; i < max_nodes; ++i) nodes_[i].next_sibling = i + 1 < max_nodes ? i + 1 : kNoIndex;
  unused_head_ = max_nodes > 0 ? 0 : kNoIndex;
}

PrefixIndex::Key PrefixIndex::root_key(Namespace name_space) const {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(&name_space, sizeof name_space, seed_);
  return {hash.low64 & key_mask_.low, hash.high64 & key_mask_.high};
}

PrefixIndex::Key PrefixIndex::child_key(const Key& parent, std::span<const Token> tokens) const {
  // The parent's key is the seed and a second factor. That avoids copying key and tokens into one buffer.
  const XXH128_hash_t hash = XXH3_128bits_withSeed(tokens.data(), tokens.size_bytes(), parent.low);
  const std::uint64_t high = hash.high64 ^ (parent.high * 0x9E3779B97F4A7C15 + (parent.high >> 29));
  return {hash.low64 & key_mask_.low, high & key_mask_.high};
}

std::uint64_t PrefixIndex::content_of(std::uint64_t parent, std::span<const Token> tokens) {
  return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), parent);
}

PrefixIndex::Key PrefixIndex::key_of(Namespace name_space, std::span<const Token> tokens) const {
  Key key = root_key(name_space);
  for (std::size_t i = 0; i + block_size_ <= tokens.size(); i += block_size_) {
    key = child_key(key, tokens.subspan(i, block_size_));
  }
  return key;
}

bool PrefixIndex::is_child(std::uint32_t node, const Key& key, Namespace name_space, std::uint32_t parent,
                           std::span<const Token> tokens) const {
  const Node& n = nodes_[node];
  return n.key == key && n.parent == parent && n.name_space == name_space && count(node) == tokens.size() &&
         std::memcmp(tokens_.data() + std::size_t{node} * block_size_, tokens.data(), tokens.size_bytes()) == 0;
}

std::uint32_t PrefixIndex::find(const Key& key, Namespace name_space, std::uint32_t parent,
                                std::span<const Token> tokens) const {
  const auto tag = static_cast<std::uint32_t>(key.low);
  for (std::uint64_t bucket = home(key.low);; bucket = next_bucket(bucket)) {
    const Entry* entries = by_key_.data() + bucket * kBucket;
    std::uint32_t same = 0, empty = 0;
    for (std::uint32_t i = 0; i < kBucket; ++i) {
      same |= std::uint32_t{entries[i].tag == tag} << i;
      empty |= std::uint32_t{entries[i].node == kNoIndex} << i;
    }
    for (same &= ~empty; same != 0; same &= same - 1) {
      const std::uint32_t node = entries[std::countr_zero(same)].node;
      if (is_child(node, key, name_space, parent, tokens)) return node;
    }
    if (empty != 0) return kNoIndex;
  }
}

// Keys depend on the tokens alone. So the keys of a whole batch are computed first, and its table entries, nodes and
// tokens are prefetched before the first node is compared.
std::uint32_t PrefixIndex::match(Namespace name_space, std::span<const Token> tokens,
                                 std::span<std::uint32_t> path) const {
  const auto blocks = static_cast<std::uint32_t>(std::min<std::size_t>(tokens.size() / block_size_, path.size()));
  Key key = root_key(name_space);
  std::uint32_t parent = kNoIndex;
  std::array<Key, kBatch> keys;
  for (std::uint32_t begin = 0; begin < blocks; begin += kBatch) {
    const std::uint32_t count = std::min(kBatch, blocks - begin);
    for (std::uint32_t i = 0; i < count; ++i) {
      key = child_key(key, tokens.subspan(std::size_t{begin + i} * block_size_, block_size_));
      keys[i] = key;
      __builtin_prefetch(by_key_.data() + home(key.low) * kBucket);
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      const Entry* entries = by_key_.data() + home(keys[i].low) * kBucket;
      const auto tag = static_cast<std::uint32_t>(keys[i].low);
      std::uint32_t guess = kNoIndex;
      for (std::uint32_t e = 0; e < kBucket; ++e) guess = entries[e].tag == tag ? entries[e].node : guess;
      if (guess == kNoIndex) break;  // the path most likely ends here
      __builtin_prefetch(nodes_.data() + guess);
      __builtin_prefetch(tokens_.data() + std::size_t{guess} * block_size_);
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t node =
          find(keys[i], name_space, parent, tokens.subspan(std::size_t{begin + i} * block_size_, block_size_));
      if (node == kNoIndex) return begin + i;
      path[begin + i] = node;
      parent = node;
    }
  }
  return blocks;
}

PrefixIndex::Found PrefixIndex::find_child(Namespace name_space, std::uint32_t parent,
                                           std::span<const Token> tokens) const {
  const Key key = child_key(parent == kNoIndex ? root_key(name_space) : nodes_[parent].key, tokens);
  // With many nodes both tables are outside the processor's caches: prefetch them together, and early.
  __builtin_prefetch(by_key_.data() + home(key.low) * kBucket, 1);
  const std::uint64_t content = content_of(parent == kNoIndex ? kContentRoot : nodes_[parent].content, tokens);
  __builtin_prefetch(by_content_.data() + (content & mask_), 1);
  if (by_value()) __builtin_prefetch(evicted_.entry_of(content, name_space));
  return {find(key, name_space, parent, tokens), key, content};
}

PrefixIndex::Absence PrefixIndex::why_absent(Namespace name_space, std::uint32_t parent,
                                             std::span<const Token> tokens) const {
  const std::uint64_t content = content_of(parent == kNoIndex ? kContentRoot : nodes_[parent].content, tokens);
  if (evicted_.find(content, name_space)) return Absence::Evicted;
  const std::uint32_t other = by_content_[content & mask_];
  const bool elsewhere = other != kNoIndex && nodes_[other].used() && nodes_[other].content == content &&
                         nodes_[other].name_space != name_space;
  return elsewhere ? Absence::OtherNamespace : Absence::NeverSeen;
}

PrefixIndex::PartialMatch PrefixIndex::find_partial(Namespace name_space, std::uint32_t parent,
                                                    std::span<const Token> tokens) const {
  PartialMatch best;
  std::uint32_t child = parent == kNoIndex ? roots_[root_place(name_space)] : nodes_[parent].first_child;
  for (std::uint32_t looks = 0; child != kNoIndex && looks < kPartialLooks;
       ++looks, child = nodes_[child].next_sibling) {
    const auto theirs = this->tokens(child);
    const auto end = std::mismatch(tokens.begin(), tokens.end(), theirs.begin(), theirs.end()).first;
    const auto same = static_cast<std::uint32_t>(end - tokens.begin());
    if (same > best.tokens) best = {child, same};
  }
  return best;
}

void PrefixIndex::table_insert(const Key& key, std::uint32_t node) {
  for (std::uint64_t bucket = home(key.low);; bucket = next_bucket(bucket)) {
    Entry* entries = by_key_.data() + bucket * kBucket;
    std::uint32_t empty = 0;
    for (std::uint32_t i = 0; i < kBucket; ++i) empty |= std::uint32_t{entries[i].node == kNoIndex} << i;
    if (empty == 0) continue;
    entries[std::countr_zero(empty)] = {static_cast<std::uint32_t>(key.low), node};
    return;
  }
}

// If the bucket was full, entries that had overflowed from it move back into the gap. Searches stay as short as if the
// removed entry had never existed.
void PrefixIndex::table_remove(const Key& key, std::uint32_t node) {
  const auto bucket_at = [&](std::uint64_t bucket) { return std::span(by_key_).subspan(bucket * kBucket, kBucket); };
  const auto is_full = [&](std::uint64_t bucket) {
    std::uint32_t used = 0;
    for (const Entry& entry : bucket_at(bucket)) used += entry.node != kNoIndex;
    return used == kBucket;
  };
  std::uint64_t bucket = home(key.low);
  Entry* hole = nullptr;
  for (;; bucket = next_bucket(bucket)) {
    std::uint32_t here = 0;
    for (std::uint32_t i = 0; i < kBucket; ++i) here |= std::uint32_t{bucket_at(bucket)[i].node == node} << i;
    if (here != 0) {
      hole = &bucket_at(bucket)[std::countr_zero(here)];
      break;
    }
    QUIRE_CHECK(is_full(bucket), "every node is in the table");
  }
  for (std::uint64_t from = bucket; is_full(from);) {
    from = next_bucket(from);
    for (Entry& entry : bucket_at(from)) {
      const std::uint64_t displaced = (from - home(entry.tag)) & (mask_ / kBucket);
      if (entry.node == kNoIndex || displaced < ((from - bucket) & (mask_ / kBucket))) continue;
      *hole = entry;
      hole = &entry;
      bucket = from;
      break;
    }
  }
  *hole = Entry{};
}

// The place of a namespace in roots_, or the empty place where it would go. An empty place always exists: half of the
// table is empty even if every node is the first block of its own namespace.
std::uint64_t PrefixIndex::root_place(Namespace name_space) const {
  std::uint64_t i = root_key(name_space).low & mask_;
  while (roots_[i] != kNoIndex && nodes_[roots_[i]].name_space != name_space) i = (i + 1) & mask_;
  return i;
}

void PrefixIndex::root_remove(std::uint64_t place) {
  for (std::uint64_t i = (place + 1) & mask_; roots_[i] != kNoIndex; i = (i + 1) & mask_) {
    const std::uint64_t home = root_key(nodes_[roots_[i]].name_space).low;
    if (((i - home) & mask_) >= ((i - place) & mask_)) {
      roots_[place] = roots_[i];
      place = i;
    }
  }
  roots_[place] = kNoIndex;
}

std::uint32_t PrefixIndex::insert(Namespace name_space, std::uint32_t parent, std::span<const Token> tokens,
                                  const Found& absent) {
  QUIRE_CHECK(!full() && (tokens.size() == block_size_ || (has_parts() && tokens.size() < block_size_)),
              "there is room, and a node is a whole block or a part");
  const std::uint32_t index = unused_head_;
  Node& n = nodes_[index];
  unused_head_ = n.next_sibling;
  n = Node{};
  n.key = absent.key;
  n.content = absent.content;
  n.name_space = name_space;
  n.parent = parent;
  n.block = parent == kNoIndex ? 0 : nodes_[parent].block + 1;
  n.holders = 1;
  std::uint32_t& children = parent == kNoIndex ? roots_[root_place(name_space)] : nodes_[parent].first_child;
  n.next_sibling = children;
  if (children != kNoIndex) nodes_[children].prev_sibling = index;
  children = index;
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + std::ptrdiff_t(std::size_t{index} * block_size_));
  std::fill_n(pages_.begin() + std::ptrdiff_t(std::size_t{index} * groups_), groups_, PageId{});
  if (has_parts()) {
    parts_[index] = {.count = static_cast<std::uint32_t>(tokens.size())};
    if (is_part(index) && parent != kNoIndex) ++parts_[parent].children;
  }
  table_insert(absent.key, index);
  by_content_[n.content & mask_] = index;
  ++used_;
  if (by_value()) note_new(index);
  return index;
}

void PrefixIndex::remove(std::uint32_t node) {
  Node& n = nodes_[node];
  QUIRE_CHECK(n.used() && n.holders == 0 && n.first_child == kNoIndex, "only an unheld leaf is removed");
  QUIRE_CHECK(!has_checkpoint(node), "a checkpoint is given back before its node goes");
  lru_unlink(node);
  --unheld_;
  table_remove(n.key, node);
  if (by_value()) {
    note_removed(node);
  } else {
    evicted_.remember(n.content, n.name_space, {});
  }
  if (n.prev_sibling != kNoIndex) {
    nodes_[n.prev_sibling].next_sibling = n.next_sibling;
  } else if (n.parent != kNoIndex) {
    nodes_[n.parent].first_child = n.next_sibling;
  } else if (const std::uint64_t place = root_place(n.name_space); n.next_sibling != kNoIndex) {
    roots_[place] = n.next_sibling;
  } else {
    root_remove(place);
  }
  if (n.next_sibling != kNoIndex) nodes_[n.next_sibling].prev_sibling = n.prev_sibling;
  if (has_parts()) {
    if (is_part(node) && n.parent != kNoIndex) --parts_[n.parent].children;
    // The part that this node continued is no longer covered by it.
    const bool covers = by_value() && has_states_;
    const std::uint32_t part = covers ? longest_part(n.name_space, n.parent, tokens(node), count(node)) : kNoIndex;
    if (part != kNoIndex) set_covered(part, false);
  }
  if (by_value() && n.parent != kNoIndex && is_leaf(n.parent)) note_leaf(n.parent);
  n = Node{};
  n.next_sibling = unused_head_;
  unused_head_ = node;
  --used_;
  // Evictions often come in a row. Prefetch what removing the next node needs. For the node after that only its index
  // is known, so prefetch its records.
  if (lru_head_ == kNoIndex) return;
  const Node& next = nodes_[lru_head_];
  __builtin_prefetch(by_key_.data() + home(next.key.low) * kBucket, 1);
  __builtin_prefetch(evicted_.entry_of(next.content, next.name_space), 1);
  if (next.lru_next == kNoIndex) return;
  __builtin_prefetch(nodes_.data() + next.lru_next, 1);
  __builtin_prefetch(pages_.data() + std::size_t{next.lru_next} * groups_);
  __builtin_prefetch(tokens_.data() + std::size_t{next.lru_next} * block_size_, 1);
}

void PrefixIndex::hold(std::uint32_t node) {
  if (nodes_[node].holders++ == 0) {
    lru_unlink(node);
    --unheld_;
    if (by_value()) note_held(node);
  } else if (by_value()) {
    usages_[node].reused = true;
  }
}

void PrefixIndex::let_go(std::uint32_t node) {
  QUIRE_CHECK(nodes_[node].holders > 0, "only a held node is let go");
  if (--nodes_[node].holders == 0) {
    lru_append(node);
    ++unheld_;
    if (by_value()) note_let_go(node);
  }
}

void PrefixIndex::lru_append(std::uint32_t node) {
  nodes_[node].lru_prev = lru_tail_;
  nodes_[node].lru_next = kNoIndex;
  (lru_tail_ == kNoIndex ? lru_head_ : nodes_[lru_tail_].lru_next) = node;
  lru_tail_ = node;
}

void PrefixIndex::lru_unlink(std::uint32_t node) {
  Node& n = nodes_[node];
  (n.lru_prev == kNoIndex ? lru_head_ : nodes_[n.lru_prev].lru_next) = n.lru_next;
  (n.lru_next == kNoIndex ? lru_tail_ : nodes_[n.lru_next].lru_prev) = n.lru_prev;
  n.lru_prev = n.lru_next = kNoIndex;
}

void PrefixIndex::checkpoint_link(std::uint32_t node) {
  checkpoints_[node].prev = checkpoint_tail_;
  checkpoints_[node].next = kNoIndex;
  (checkpoint_tail_ == kNoIndex ? checkpoint_head_ : checkpoints_[checkpoint_tail_].next) = node;
  checkpoint_tail_ = node;
  ++checkpoint_count_;
}

SlotId PrefixIndex::checkpoint_unlink(std::uint32_t node) {
  const Checkpoint c = std::exchange(checkpoints_[node], Checkpoint{});
  (c.prev == kNoIndex ? checkpoint_head_ : checkpoints_[c.prev].next) = c.next;
  (c.next == kNoIndex ? checkpoint_tail_ : checkpoints_[c.next].prev) = c.prev;
  --checkpoint_count_;
  return c.id;
}

void PrefixIndex::set_checkpoint(std::uint32_t node, SlotId checkpoint, bool asked) {
  QUIRE_CHECK(!has_checkpoint(node), "a node has one checkpoint");
  checkpoints_[node].id = checkpoint;
  checkpoint_link(node);
  if (by_value()) note_checkpoint(node, asked);
}

SlotId PrefixIndex::clear_checkpoint(std::uint32_t node) {
  if (!has_checkpoint(node)) return {};
  if (by_value()) {
    candidates_.remove(node);
    count_bytes(node, groups_, false);
  }
  return checkpoint_unlink(node);
}

void PrefixIndex::touch_checkpoint(std::uint32_t node) {
  if (!has_checkpoint(node)) return;
  const SlotId checkpoint = checkpoint_unlink(node);
  checkpoints_[node].id = checkpoint;
  checkpoint_link(node);
  if (by_value()) note_resumed(node);
}

std::expected<void, const char*> PrefixIndex::check_integrity() const {
  if (const auto ok = check_parts(); !ok) return ok;
  std::uint32_t used = 0, unheld = 0, checkpoints = 0, children = 0, entries = 0;
  for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
    const Node& n = nodes_[i];
    if (!n.used()) {
      if (has_checkpoint(i)) return std::unexpected("a node that is not used has a checkpoint");
      continue;
    }
    ++used;
    if (n.holders == 0) ++unheld;
    if (has_checkpoint(i)) ++checkpoints;
    if (n.parent != kNoIndex) {
      const Node& parent = nodes_[n.parent];
      if (!parent.used()) return std::unexpected("a node is orphaned");
      if (parent.block + 1 != n.block) return std::unexpected("a node's block number is wrong");
      if (parent.name_space != n.name_space) return std::unexpected("a path crosses namespaces");
      if (n.holders > 0 && parent.holders == 0) return std::unexpected("a held node has an unheld parent");
    } else if (n.block != 0) {
      return std::unexpected("a root node is not block 0");
    }
    std::uint32_t before = kNoIndex;
    for (std::uint32_t c = n.first_child; c != kNoIndex; before = c, c = nodes_[c].next_sibling) {
      if (nodes_[c].parent != i || nodes_[c].prev_sibling != before)
        return std::unexpected("a list of children is torn");
      if (++children > nodes_.size()) return std::unexpected("a list of children runs in a circle");
    }
    if (find(n.key, n.name_space, n.parent, tokens(i)) != i)
      return std::unexpected("a node cannot be found by its key");
  }
  for (const std::uint32_t first : roots_) {
    if (first == kNoIndex) continue;
    const Namespace name_space = nodes_[first].name_space;
    if (roots_[root_place(name_space)] != first)
      return std::unexpected("a namespace cannot be found, or is listed twice");
    for (std::uint32_t c = first, before = kNoIndex; c != kNoIndex; before = c, c = nodes_[c].next_sibling) {
      const Node& n = nodes_[c];
      if (!n.used() || n.parent != kNoIndex) return std::unexpected("a list of roots is torn");
      if (n.name_space != name_space || n.prev_sibling != before) return std::unexpected("a list of roots is mixed up");
      if (++children > nodes_.size()) return std::unexpected("a list of roots runs in a circle");
    }
  }
  if (children != used) return std::unexpected("a node is not among its parent's children");
  for (const Entry& entry : by_key_) entries += entry.node != kNoIndex;
  if (entries != used) return std::unexpected("the table holds more or fewer nodes than there are");
  if (used != used_) return std::unexpected("nodes are counted wrongly");
  if (unheld != unheld_) return std::unexpected("unheld nodes are counted wrongly");
  if (checkpoints != checkpoint_count_) return std::unexpected("checkpoints are counted wrongly");

  // Children before parents: walking the list backwards, a node's parent has been seen or is held.
  std::uint32_t in_list = 0;
  for (std::uint32_t i = lru_head_, before = kNoIndex; i != kNoIndex; before = i, i = nodes_[i].lru_next) {
    if (!nodes_[i].used() || nodes_[i].holders > 0) return std::unexpected("a held node stands in the unheld list");
    if (nodes_[i].lru_prev != before) return std::unexpected("the unheld list is torn");
    if (++in_list > unheld) return std::unexpected("the unheld list is too long");
  }
  if (in_list != unheld) return std::unexpected("the unheld list is too short");
  static thread_local std::vector<bool> seen;
  try {
    seen.assign(nodes_.size(), false);
  } catch (const std::bad_alloc&) {
    return std::unexpected("out of memory");
  }
  for (std::uint32_t i = lru_tail_; i != kNoIndex; i = nodes_[i].lru_prev) {
    const std::uint32_t parent = nodes_[i].parent;
    if (parent != kNoIndex && nodes_[parent].holders == 0 && !seen[parent]) {
      return std::unexpected("a parent would be evicted before its child");
    }
    seen[i] = true;
  }
  std::uint32_t listed = 0;
  for (std::uint32_t i = checkpoint_head_, before = kNoIndex; i != kNoIndex; before = i, i = checkpoints_[i].next) {
    if (!has_checkpoint(i)) return std::unexpected("a node without a checkpoint stands in their list");
    if (checkpoints_[i].prev != before) return std::unexpected("the list of checkpoints is torn");
    if (++listed > checkpoints) return std::unexpected("the list of checkpoints is too long");
  }
  if (listed != checkpoints) return std::unexpected("the list of checkpoints is too short");
  return by_value() ? check_uses() : std::expected<void, const char*>{};
}

}  // namespace quire
