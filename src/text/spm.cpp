#include "quire/text/spm.h"

#include <algorithm>
#include <numeric>
#include <string>

#include <fmt/format.h>

#include "quire/base/utf8.h"

namespace quire::text {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

// Equal scores get equal ranks, so that the leftmost of such merges comes first.
std::vector<std::uint32_t> ranks_of(const std::vector<float>& scores) {
  std::vector<std::uint32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) { return scores[a] > scores[b]; });
  std::vector<std::uint32_t> ranks(scores.size());
  for (std::size_t i = 1; i < order.size(); ++i) {
    const bool equal = scores[order[i]] == scores[order[i - 1]];
    ranks[order[i]] = ranks[order[i - 1]] + (equal ? 0 : 1);
  }
  return ranks;
}

std::string normalized(std::string_view text, bool space_prefix) {
  std::string out;
  out.reserve(text.size() + 1);
  if (space_prefix) out += ' ';
  for (std::size_t at = 0;;) {
    const std::size_t mark = text.find(kSpaceMark, at);
    out += text.substr(at, mark - at);
    if (mark == std::string_view::npos) return out;
    out += ' ';
    at = mark + kSpaceMark.size();
  }
}

// A character, or one invalid byte.
std::size_t character_length(std::string_view text) {
  const Utf8Step step = utf8_step(text);
  return step.kind == Utf8Kind::valid ? step.length : 1;
}

}  // namespace

SentencePieceBpe::SentencePieceBpe(const Vocabulary& vocabulary, const Pieces& pieces)
    : tokens_(vocabulary.tokens.size()), ranks_(ranks_of(vocabulary.scores)), unk_(vocabulary.unk) {
  byte_ids_.fill(kNoToken);
  for (std::size_t index = 0; index < vocabulary.tokens.size(); ++index) {
    const auto id = static_cast<TokenId>(index);
    const std::string_view piece = pieces[id];
    if (vocabulary.types[index] == TokenType::byte) {
      byte_ids_[static_cast<unsigned char>(piece[0])] = id;
      continue;
    }
    // A token that the file spells with a plain space cannot come from text, whose spaces are U+2581.
    const bool plain_space = vocabulary.tokens[index].find(' ') != std::string::npos;
    if (!is_mergeable(vocabulary.types[index]) || piece.empty() || plain_space) continue;
    tokens_.insert(piece, id);
    longest_ = std::max(longest_, piece.size());
    for (std::size_t i = 1; i < piece.size(); ++i) {
      if (piece[i] == ' ') joins_space_[static_cast<unsigned char>(piece[i - 1])] = true;
    }
  }
  find_words(pieces);
}

void SentencePieceBpe::find_words(const Pieces& pieces) {
  is_word_.resize(pieces.size());
  Merger merger;
  for (std::size_t index = 0; index < pieces.size(); ++index) {
    const auto id = static_cast<TokenId>(index);
    if (pieces[id].empty() || tokens_.find(pieces[id]) != id) continue;
    merge_word(pieces[id], merger);
    is_word_[index] = merger.symbols.size() == 1 && merger.symbols[0].id == id;
  }
}

Result<void> SentencePieceBpe::encode(std::string_view text, bool space_prefix, std::vector<TokenId>& out) const {
  const std::string spaced = normalized(text, space_prefix);
  std::string_view rest = spaced;
  const std::size_t first = out.size();
  Merger merger;
  while (!rest.empty()) {
    const std::size_t end = word_end(rest);
    if (auto encoded = encode_word(rest.substr(0, end), merger, first, out); !encoded) return encoded;
    rest.remove_prefix(end);
  }
  return {};
}

std::size_t SentencePieceBpe::word_end(std::string_view text) const {
  for (std::size_t end = text.find(' ', 1); end != std::string_view::npos; end = text.find(' ', end + 1)) {
    if (!joins_space_[static_cast<unsigned char>(text[end - 1])]) return end;
  }
  return text.size();
}

Result<void> SentencePieceBpe::encode_word(std::string_view word, Merger& merger, std::size_t first,
                                           std::vector<TokenId>& out) const {
  if (word.size() <= longest_) {
    const TokenId id = tokens_.find(word);
    if (id != kNoToken && is_word_[static_cast<std::size_t>(id)]) {
      out.push_back(id);
      return {};
    }
  }
  merge_word(word, merger);
  for (const Symbol& symbol : merger.symbols) {
    if (symbol.id != kNoToken) {
      out.push_back(symbol.id);
      continue;
    }
    auto encoded = encode_bytes(word.substr(symbol.begin, symbol.end - symbol.begin), first, out);
    if (!encoded) return encoded;
  }
  return {};
}

void SentencePieceBpe::merge_word(std::string_view word, Merger& merger) const {
  merger.symbols.clear();
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t length = character_length(word.substr(at));
    merger.symbols.push_back({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at + length),
                              tokens_.find(word.substr(at, length))});
    at += length;
  }
  merger.merge([&](const Symbol& left, const Symbol& right) {
    const std::size_t length = right.end - left.begin;
    if (length > longest_) return Merge();
    const TokenId id = tokens_.find(word.substr(left.begin, length));
    return id == kNoToken ? Merge() : Merge{ranks_[static_cast<std::size_t>(id)], id};
  });
}

Result<void> SentencePieceBpe::encode_bytes(std::string_view bytes, std::size_t first,
                                            std::vector<TokenId>& out) const {
  const auto id_of = [this](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  if (std::ranges::none_of(bytes, [&](char byte) { return id_of(byte) == kNoToken; })) {
    for (const char byte : bytes) out.push_back(id_of(byte));
    return {};
  }
  if (unk_ == kNoToken) {
    return fail(fmt::format("the vocabulary has no token for {}, and no unknown token", in_quotes(bytes)));
  }
  if (out.size() == first || out.back() != unk_) out.push_back(unk_);
  return {};
}

}  // namespace quire::text
