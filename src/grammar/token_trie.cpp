#include "quire/grammar/token_trie.h"

#include <algorithm>
#include <map>
#include <utility>

#include "quire/base/check.h"
#include "quire/base/utf8.h"

namespace quire::grammar {

Trie Trie::build(std::span<const std::pair<std::string_view, TokenId>> entries) {
  Trie trie;
  std::vector<std::uint32_t> open;  // the nodes of the current path
  std::string_view path;
  const auto close = [&](std::size_t depth) {
    for (; open.size() > depth; open.pop_back()) trie.end[open.back()] = trie.size();
  };
  for (const auto& [bytes, token] : entries) {
    std::size_t common = 0;
    while (common < path.size() && common < bytes.size() && path[common] == bytes[common]) ++common;
    close(common);
    for (std::size_t i = common; i < bytes.size(); ++i) {
      open.push_back(trie.size());
      trie.byte.push_back(static_cast<std::uint8_t>(bytes[i]));
      trie.depth.push_back(static_cast<std::uint16_t>(i));
      trie.end.push_back(0);
      trie.first.push_back(static_cast<std::uint32_t>(trie.tokens.size()));
    }
    trie.tokens.push_back(token);
    trie.longest = std::max(trie.longest, static_cast<std::uint32_t>(bytes.size()));
    path = bytes;
  }
  close(0);
  trie.first.push_back(static_cast<std::uint32_t>(trie.tokens.size()));
  return trie;
}

namespace {

bool is_word(std::uint8_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool is_plain(std::uint8_t c) { return c >= 0x20 && c <= 0x7E && c != '"' && c != '\\'; }

// The kind, and the number of characters.
std::pair<SliceKind, std::size_t> classify(std::string_view bytes) {
  bool word = true, spaced = bytes.size() > 1 && bytes[0] == ' ', plain = true, printable = true;
  std::size_t characters = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto c = static_cast<std::uint8_t>(bytes[i]);
    word = word && is_word(c);
    spaced = spaced && (i == 0 || is_word(c));
    plain = plain && is_plain(c);
    printable = printable && (is_plain(c) || c >= 0x80);
    if ((c & 0xC0) != 0x80) ++characters;
  }
  if (word) return {SliceKind::Word, characters};
  if (spaced) return {SliceKind::SpacedWord, characters};
  if (plain) return {SliceKind::Plain, characters};
  if (printable && utf8_valid_prefix(bytes) == bytes.size()) return {SliceKind::Characters, characters};
  return {SliceKind::Other, 0};
}

}  // namespace

std::shared_ptr<const TokenTrie> TokenTrie::create(const text::Tokenizer& tokenizer, std::uint32_t vocabulary) {
  auto impl = std::make_unique<Impl>();
  impl->tokenizer = &tokenizer;
  QUIRE_CHECK(vocabulary >= tokenizer.size(), "the logits have a row for every token");
  impl->vocabulary = vocabulary;
  impl->free_special.resize((vocabulary + 31) / 32);
  impl->special.resize(vocabulary, 1);
  using Entry = std::pair<std::string_view, TokenId>;
  std::vector<Entry> entries, longer;
  for (TokenId id = 0; id < static_cast<TokenId>(tokenizer.size()); ++id) {
    const auto bit = static_cast<std::uint32_t>(id);
    if (tokenizer.is_end_of_generation(id)) {
      impl->ends.push_back(id);
    } else if (tokenizer.is_special(id)) {
      impl->free_special[bit / 32] |= 1U << (bit % 32);
    } else if (const std::string_view piece = tokenizer.piece(id); !piece.empty() && piece.size() <= kLongestToken) {
      (piece.size() <= kShortToken ? entries : longer).emplace_back(piece, id);
      impl->special[bit] = 0;
    }
  }
  std::ranges::sort(entries);
  std::ranges::sort(longer);
  impl->all = Trie::build(entries);
  impl->longer = Trie::build(longer);
  std::map<std::pair<SliceKind, std::uint32_t>, std::vector<Entry>> slices;
  for (const Entry& entry : entries) {
    const auto [kind, characters] = classify(entry.first);
    std::uint32_t most = 0;
    if (kind != SliceKind::Other) {
      for (most = 3; most < characters;) most *= 2;
    }
    slices[{kind, most}].push_back(entry);
  }
  for (const auto& [key, members] : slices) {
    Slice slice{.kind = key.first, .characters = key.second, .trie = Trie::build(members), .mask = {}};
    slice.mask.resize((vocabulary + 31) / 32);
    for (const TokenId id : slice.trie.tokens) {
      const auto bit = static_cast<std::uint32_t>(id);
      slice.mask[bit / 32] |= 1U << (bit % 32);
    }
    impl->slices.push_back(std::move(slice));
  }
  return std::shared_ptr<const TokenTrie>(new TokenTrie(std::move(impl)));
}

TokenTrie::TokenTrie(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
TokenTrie::~TokenTrie() = default;
std::uint32_t TokenTrie::vocabulary() const { return impl_->vocabulary; }
const text::Tokenizer& TokenTrie::tokenizer() const { return *impl_->tokenizer; }

}  // namespace quire::grammar
