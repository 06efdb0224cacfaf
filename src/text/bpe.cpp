#include "quire/text/bpe.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "quire/text/byte_level.h"

namespace quire::text {
namespace {

std::uint64_t pair_key(TokenId left, TokenId right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

Result<ByteLevelBpe> ByteLevelBpe::create(const Vocabulary& vocabulary, const Pieces& pieces,
                                          const TokenIndex& spelled) {
  auto pretokenizer = Pretokenizer::create(vocabulary.pre);
  if (!pretokenizer) return std::unexpected(pretokenizer.error());
  ByteLevelBpe made(std::move(*pretokenizer), vocabulary.merges.size(), vocabulary.tokens.size());
  made.unk_ = vocabulary.unk;
  if (auto added = made.add_merges(vocabulary, spelled); !added) return std::unexpected(added.error());
  made.add_words(vocabulary, pieces);
  return made;
}

Result<void> ByteLevelBpe::add_merges(const Vocabulary& vocabulary, const TokenIndex& spelled) {
  const auto type_of = [&](TokenId id) { return vocabulary.types[static_cast<std::size_t>(id)]; };

  for (unsigned byte = 0; byte < 256; ++byte) {
    const TokenId id = spelled.find(byte_level_spelling(static_cast<std::uint8_t>(byte)));
    byte_ids_[byte] = id != kNoToken && is_mergeable(type_of(id)) ? id : kNoToken;
  }

  std::string whole;
  for (std::size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const std::string_view merge = vocabulary.merges[rank];
    const std::size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return fail(fmt::format("tokenizer.ggml.merges: {} at {} is not two tokens with a space between",
                              in_quotes(merge), rank));
    }
    const std::string_view parts[] = {merge.substr(0, space), merge.substr(space + 1)};
    whole.assign(parts[0]).append(parts[1]);
    TokenId ids[3];
    bool makes_text = true;
    for (int i = 0; i < 3; ++i) {
      const std::string_view text = i < 2 ? parts[i] : std::string_view(whole);
      ids[i] = spelled.find(text);
      if (ids[i] == kNoToken) {
        return fail(
            fmt::format("tokenizer.ggml.merges: {} at {}: {} is not a token", in_quotes(merge), rank, in_quotes(text)));
      }
      // A vocabulary may have an added token with the same spelling as a merge. The merge still applies to text.
      makes_text = makes_text && (is_mergeable(type_of(ids[i])) || type_of(ids[i]) == TokenType::user_defined);
    }
    if (makes_text) merges_.insert(pair_key(ids[0], ids[1]), {static_cast<std::uint32_t>(rank), ids[2]});
  }
  return {};
}

void ByteLevelBpe::add_words(const Vocabulary& vocabulary, const Pieces& pieces) {
  Merger merger;
  for (std::size_t index = 0; index < vocabulary.tokens.size(); ++index) {
    const auto id = static_cast<TokenId>(index);
    if (!is_mergeable(vocabulary.types[index]) || pieces[id].empty()) continue;
    if (pretokenizer_.ignore_merges()) {
      if (byte_level_bytes(vocabulary.tokens[index])) words_.insert(pieces[id], id);
      continue;
    }
    merge_word(pieces[id], merger);
    if (merger.symbols.size() == 1 && merger.symbols[0].id == id) words_.insert(pieces[id], id);
  }
}

void ByteLevelBpe::merge_word(std::string_view word, Merger& merger) const {
  merger.symbols.resize(word.size());
  for (std::uint32_t i = 0; i < word.size(); ++i) {
    merger.symbols[i] = {i, i + 1, byte_ids_[static_cast<unsigned char>(word[i])]};
  }
  merger.merge([this](const Symbol& left, const Symbol& right) {
    const Merge* merge = merges_.find(pair_key(left.id, right.id));
    return merge != nullptr ? *merge : Merge();
  });
}

Result<void> ByteLevelBpe::encode(std::string_view text, std::vector<TokenId>& out) const {
  std::vector<std::uint32_t> ends;
  ends.reserve(text.size() / 4 + 1);
  if (auto split = pretokenizer_.split(text, ends); !split) return split;
  Merger merger;
  std::uint32_t begin = 0;
  for (const std::uint32_t end : ends) {
    const std::string_view word = text.substr(begin, end - begin);
    begin = end;
    if (const TokenId id = words_.find(word); id != kNoToken) {
      out.push_back(id);
      continue;
    }
    merge_word(word, merger);
    for (const Symbol& symbol : merger.symbols) {
      const TokenId id = symbol.id != kNoToken ? symbol.id : unk_;
      if (id == kNoToken) {
        return fail(fmt::format("the vocabulary has no token for the byte 0x{:02X}, and no unknown token",
                                static_cast<unsigned>(static_cast<unsigned char>(word[symbol.begin]))));
      }
      out.push_back(id);
    }
  }
  return {};
}

}  // namespace quire::text
