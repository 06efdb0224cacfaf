#include "quire/text/special_tokens.h"

namespace quire::text {
namespace {

std::uint64_t child_key(std::uint32_t node, char byte) {
  return std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
}

}  // namespace

SpecialTokens::SpecialTokens() : nodes_(1) {}

void SpecialTokens::add(std::string_view text, TokenId id, bool restricted) {
  const auto first = static_cast<unsigned char>(text[0]);
  begins_[first] = true;
  if (!restricted) begins_free_[first] = true;
  std::uint32_t node = 0;
  for (const char byte : text) {
    const auto next = static_cast<std::uint32_t>(nodes_.size());
    if (children_.insert(child_key(node, byte), next)) {
      nodes_.emplace_back();
      node = next;
    } else {
      node = *children_.find(child_key(node, byte));
    }
  }
  nodes_[node] = {id, restricted};
}

std::optional<SpecialTokens::Match> SpecialTokens::find(std::string_view text, std::size_t from, bool allow_restricted,
                                                        std::span<const TextRange> literal) const {
  const std::array<bool, 256>& begins = allow_restricted ? begins_ : begins_free_;
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (!begins[static_cast<unsigned char>(text[begin])]) continue;
    // The latest end of a restricted token that begins here.
    while (!literal.empty() && literal.front().end <= begin) literal = literal.subspan(1);
    const std::size_t limit = !allow_restricted ? 0 : literal.empty() ? text.size() : literal.front().begin;
    Match longest;
    std::uint32_t node = 0;
    for (std::size_t at = begin; at < text.size(); ++at) {
      const std::uint32_t* const child = children_.find(child_key(node, text[at]));
      if (child == nullptr) break;
      node = *child;
      if (nodes_[node].id != kNoToken && (!nodes_[node].restricted || at < limit)) {
        longest = {begin, at + 1, nodes_[node].id};
      }
    }
    if (longest.id != kNoToken) return longest;
  }
  return std::nullopt;
}

}  // namespace quire::text
