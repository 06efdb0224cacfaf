// For fuzzers: builds a constraint, walks through its texts with a small vocabulary and checks what matcher.h promises.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/base/check.h"
#include "quire/grammar/constraint.h"
#include "quire/grammar/matcher.h"
#include "quire/text/byte_level.h"
#include "quire/text/tokenizer.h"

namespace quire::grammar::testing {

// Bytes, some tokens of several bytes, special tokens.
inline const text::Tokenizer& small_tokenizer() {
  static const text::Tokenizer tokenizer = [] {
    text::Vocabulary v;
    v.pre = "gpt-2";
    for (unsigned byte = 0; byte < 256; ++byte) {
      v.tokens.push_back(text::byte_level_spelling(static_cast<std::uint8_t>(byte)));
    }
    const auto merge = [&v](std::string_view left, std::string_view right) {
      std::string a, b;
      for (const char c : left) a += text::byte_level_spelling(static_cast<std::uint8_t>(c));
      for (const char c : right) b += text::byte_level_spelling(static_cast<std::uint8_t>(c));
      v.merges.push_back(a + " " + b);
      v.tokens.push_back(a + b);
    };
    merge("{", "\"");
    merge("\"", ":");
    merge("\":", " ");
    merge("\"", ",");
    merge("\"", "}");
    merge(" ", " ");
    merge("a", "b");
    merge("ab", "c");
    merge("t", "r");
    merge("u", "e");
    merge("tr", "ue");
    merge("1", "0");
    merge("]", "}");
    merge("\xC3", "\xA9");
    merge("\xF0", "\x9F");
    v.types.assign(v.tokens.size(), text::TokenType::normal);
    for (const char* special : {"<|end|>", "<|tool|>", "<think>"}) {
      v.tokens.emplace_back(special);
      v.types.push_back(text::TokenType::control);
    }
    v.eos = static_cast<text::TokenId>(v.tokens.size() - 3);
    auto made = text::Tokenizer::create(std::move(v));
    QUIRE_CHECK(made.has_value(), "the vocabulary is right");
    return std::move(*made);
  }();
  return tokenizer;
}

// `choices` say which of the allowed tokens to take, again and again. `complete` is called with every complete text.
inline void walk(const ConstraintSpec& spec, std::span<const std::uint8_t> choices,
                 const std::function<void(std::string_view)>& complete = {}) {
  auto grammar = build(spec);
  if (!grammar) {
    QUIRE_CHECK(!grammar.error().message.empty(), "a refusal says why");
    return;
  }
  const text::Tokenizer& tokenizer = small_tokenizer();
  static const auto trie = TokenTrie::create(tokenizer, static_cast<std::uint32_t>(tokenizer.size()) + 5);
  auto compiled = compile(std::move(*grammar), trie);
  if (!compiled) return;
  Matcher matcher(*compiled), by_bytes(*compiled);
  std::vector<std::uint32_t> mask(trie->mask_words()), again(mask.size());
  std::string text;
  bool special = false;  // the text has a special token, which bytes cannot spell
  const auto allowed = [&](TokenId id) {
    return ((mask[static_cast<std::size_t>(id) / 32] >> (static_cast<std::size_t>(id) % 32)) & 1) != 0;
  };
  for (std::size_t step = 0; step < 40; ++step) {
    const std::uint32_t count = matcher.mask(mask);
    if (matcher.failed()) {
      QUIRE_CHECK(count == 0, "a failed matcher allows nothing");
      return;
    }
    std::vector<TokenId> ids;
    for (TokenId id = 0; id < static_cast<TokenId>(trie->vocabulary()); ++id) {
      if (allowed(id)) ids.push_back(id);
    }
    QUIRE_CHECK(ids.size() == count, "mask() counts what it allows");
    const bool may_end = matcher.may_end();
    QUIRE_CHECK(allowed(*tokenizer.eos()) == may_end, "the end is allowed exactly where the text is complete");
    if (matcher.must_end()) {
      QUIRE_CHECK(may_end && count == 1, "nothing but the end can follow");
    }
    if (may_end && complete && !special) complete(text);

    Matcher copy = matcher;
    copy.mask(again);
    QUIRE_CHECK(again == mask, "a copy allows the same");
    if (!special) {
      by_bytes.mask(again);
      QUIRE_CHECK(by_bytes.failed() || again == mask, "bytes and tokens lead to the same place");
    }
    // A token that is not allowed is refused and changes nothing.
    const auto choice = choices.empty() ? static_cast<std::uint8_t>(step * 37) : choices[step % choices.size()];
    const TokenId probe = static_cast<TokenId>((choice * 7 + step) % trie->vocabulary());
    if (!allowed(probe)) {
      QUIRE_CHECK(!copy.accept(probe), "only what the mask allows is accepted");
      copy.mask(again);
      QUIRE_CHECK(again == mask, "a refused token changes nothing");
    }
    const auto forced = matcher.forced();
    const std::string forced_bytes = matcher.forced_bytes();
    Matcher ahead = matcher;
    std::string forced_text;
    for (const TokenId id : forced) {
      ahead.mask(again);
      QUIRE_CHECK(((again[static_cast<std::size_t>(id) / 32] >> (static_cast<std::size_t>(id) % 32)) & 1) != 0,
                  "a forced token is allowed");
      QUIRE_CHECK(ahead.accept(id), "a forced token is accepted");
      forced_text += tokenizer.piece(id);
    }
    QUIRE_CHECK(tokenizer.is_special(forced.empty() ? 0 : forced.front()) || forced_bytes.starts_with(forced_text),
                "forced tokens spell forced bytes");
    if (ids.empty()) {
      QUIRE_CHECK(!may_end, "the end is a token");
      return;
    }
    const TokenId id = ids[(choice + step) % ids.size()];
    QUIRE_CHECK(matcher.accept(id), "what the mask allows is accepted");
    if (tokenizer.is_end_of_generation(id)) return;
    if (tokenizer.is_special(id)) {
      special = true;
    } else if (!special) {
      const std::string_view piece = tokenizer.piece(id);
      QUIRE_CHECK(by_bytes.accept_bytes(piece) == piece.size() || by_bytes.failed(), "the token's bytes are admitted");
      text += piece;
    }
  }
}

}  // namespace quire::grammar::testing
