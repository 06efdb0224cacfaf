// Parts: nodes of the index with fewer tokens than a block.
#include <algorithm>

#include "quire/state/prefix_index.h"

namespace quire {

std::uint32_t PrefixIndex::find_shorter_part(Namespace name_space, std::uint32_t parent,
                                             std::span<const Token> tokens) const {
  if (parts_.empty() || (parent != kNoIndex && parts_[parent].children == 0)) return kNoIndex;
  std::uint32_t child = parent == kNoIndex ? roots_[root_place(name_space)] : nodes_[parent].first_child;
  for (std::uint32_t looks = 0; child != kNoIndex && looks < kPartialLooks;
       ++looks, child = nodes_[child].next_sibling) {
    if (!is_part(child) || count(child) >= tokens.size()) continue;
    if (std::ranges::equal(this->tokens(child), tokens.first(count(child)))) return child;
  }
  return kNoIndex;
}

// There are few parts below a node, but a node may have many children. So each length is looked up by its key.
std::uint32_t PrefixIndex::longest_part(Namespace name_space, std::uint32_t parent, std::span<const Token> tokens,
                                        std::uint32_t below) const {
  if (parts_.empty() || (parent != kNoIndex && parts_[parent].children == 0)) return kNoIndex;
  const Key above = parent == kNoIndex ? root_key(name_space) : nodes_[parent].key;
  const auto longest = std::min({static_cast<std::uint32_t>(tokens.size()), below - 1, block_size_ - 1});
  for (std::uint32_t length = longest / unit_ * unit_; length > 0; length -= unit_) {
    const auto first = tokens.first(length);
    const std::uint32_t part = find(child_key(above, first), name_space, parent, first);
    if (part != kNoIndex) return part;
  }
  return kNoIndex;
}

std::uint32_t PrefixIndex::checkpoint_at_or_before(std::uint32_t node, std::uint32_t looks) const {
  for (; node != kNoIndex && looks > 0; --looks, node = nodes_[node].parent) {
    if (has_checkpoint(node)) return node;
    const std::uint32_t part = longest_part(nodes_[node].name_space, nodes_[node].parent, tokens(node), count(node));
    if (part != kNoIndex) return part;
  }
  return kNoIndex;
}

std::uint32_t PrefixIndex::checkpoint_before(Namespace name_space, std::uint32_t parent, std::span<const Token> tokens,
                                             std::uint32_t looks) const {
  const auto count = static_cast<std::uint32_t>(tokens.size());
  const std::uint32_t part = longest_part(name_space, parent, tokens, count);
  return part != kNoIndex ? part : checkpoint_at_or_before(parent, looks);
}

void PrefixIndex::note_skipped_part(Namespace name_space, std::uint64_t content, bool asked) {
  const std::uint8_t kind = checkpoint_kind(false, asked, false);
  odds_.began(kind);
  evicted_.remember(content, name_space, {++ticks_, kind});
}

bool PrefixIndex::note_missed_part(Namespace name_space, std::uint32_t parent, std::span<const Token> tokens) {
  const Found found = find_child(name_space, parent, tokens);
  const auto use = found.node == kNoIndex ? evicted_.find(found.content, name_space) : std::nullopt;
  if (!use || use->kind == EvictedBlocks::kNoKind) return false;
  wanted_after_eviction(*use);
  evicted_.remember(found.content, name_space, {use->last, EvictedBlocks::kNoKind});  // once is enough
  return true;
}

std::expected<void, const char*> PrefixIndex::check_parts() const {
  for (std::uint32_t i = 0; i < parts_.size(); ++i) {
    if (!nodes_[i].used()) continue;
    if (count(i) < unit_ || count(i) > block_size_) return std::unexpected("a part is too short or too long");
    if (is_part(i) && (!is_leaf(i) || nodes_[i].holders > 0)) return std::unexpected("a part is held or has children");
    if (is_part(i) && has_states_ && (!has_checkpoint(i) || count(i) % unit_ != 0)) {
      return std::unexpected("a part has no checkpoint, or at a position that is none");
    }
    std::uint32_t children = 0;
    for (std::uint32_t c = nodes_[i].first_child; c != kNoIndex; c = nodes_[c].next_sibling) children += is_part(c);
    if (children != parts_[i].children) return std::unexpected("parts below a node are counted wrongly");
  }
  return {};
}

}  // namespace quire
