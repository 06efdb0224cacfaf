// Text to token ids and back, as the model's file says: byte-level BPE (GGUF's "gpt2") or SentencePiece's (GGUF's
// "llama").
//
//   auto tokenizer = Tokenizer::from_gguf(*file);
//   if (!tokenizer) return fail(tokenizer.error().message);
//   auto prompt = tokenizer->encode(rendered_template, {.add_special = false, .parse_special = true});
//   auto text = tokenizer->encode(what_a_user_wrote);                     // cannot contain a control token
//   StreamDecoder decoder(*tokenizer);                                    // see stream_decoder.h
//
// Who may call: a Tokenizer does not change after it is made; any number of threads may use it at once.
// What holds:
// - Control tokens come out of encode() only where add_special or parse_special asks for them, however the text is
//   written. User-defined tokens are found always: they are text that the vocabulary's author wanted in one piece.
// - A token that begins a text or ends a generation is a control token even if the file calls it user-defined.
// - Any bytes can be encoded. With a byte-level vocabulary, and with a SentencePiece one that has byte tokens,
//   decode(encode(text)) gives the same bytes back, with these exceptions of SentencePiece: U+2581 comes back as a
//   space; and behind a special token inside of the text a space is added, if the file asks for space prefixes.
// - encode() takes time linear in the text but for a logarithm of its longest word: for a megabyte without a space,
//   well under a second.
// - Ids that are out of range decode to nothing.
// How it fails: from_gguf() and create() with one line that names the key, token or merge that is wrong, or the kind of
//   tokenizer or pre-tokenizer that is not supported. encode() only for texts above kMaxTextBytes and for vocabularies
//   that cannot spell the text and have no unknown token.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/gguf/gguf.h"
#include "quire/text/special_tokens.h"
#include "quire/text/vocabulary.h"

namespace quire::text {

struct EncodeOptions {
  bool add_special = true;     // put BOS before and EOS behind, where the file says so
  bool parse_special = false;  // take "<|im_end|>" in the text for the token; only for text that no user wrote
  // Parts of the text in which that is not done all the same, sorted, none overlapping another: what users wrote in a
  // text that is otherwise a chat template's. No token reaches into one from outside either.
  std::span<const TextRange> literal = {};
};

struct DecodeOptions {
  bool render_special = false;  // write out control, unknown and unused tokens; otherwise they are left out
  // The ids are a text's first, so that the space which encode() put before it is taken away.
  bool at_start = true;
  // Replace what is not UTF-8 by U+FFFD: for JSON and terminals. Otherwise bytes come out as they are.
  bool repair_utf8 = false;
};

class Tokenizer {
 public:
  static constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

  static Result<Tokenizer> from_gguf(const gguf::File& file);
  static Result<Tokenizer> create(Vocabulary vocabulary);

  Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options = {}) const;
  std::string decode(std::span<const TokenId> ids, DecodeOptions options = {}) const;

  std::size_t size() const;
  VocabularyKind kind() const;
  std::string_view pre() const;  // the pre-tokenizer's name; empty for SentencePiece

  // What the token stands for, which need not be whole characters. Empty if `id` is out of range.
  std::string_view piece(TokenId id) const;
  // How the file spells it: "Ġthe", "<|im_end|>". Empty if `id` is out of range.
  std::string_view spelling(TokenId id) const;
  // The token that the file spells so.
  std::optional<TokenId> find(std::string_view spelling) const;
  TokenType type(TokenId id) const;  // undefined if `id` is out of range
  // Control, unknown and unused tokens: those that decode() leaves out.
  bool is_special(TokenId id) const;

  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  std::optional<TokenId> unk() const;
  std::optional<TokenId> pad() const;
  bool adds_bos() const;
  bool adds_eos() const;
  bool adds_space_prefix() const;

  // Whether a generation ends with this token: EOS, end of turn, end of message. The file names some of them, and the
  // others are known by their spelling.
  bool is_end_of_generation(TokenId id) const;
  std::span<const TokenId> end_of_generation() const;  // sorted

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace quire::text
