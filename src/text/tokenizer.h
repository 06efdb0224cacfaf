// Converts text to token ids and back, with the tokenizer of the model's file: byte-level BPE (GGUF's "gpt2") or
// SentencePiece's BPE (GGUF's "llama").
//
//   auto tokenizer = Tokenizer::from_gguf(*file);
//   if (!tokenizer) return fail(tokenizer.error().message);
//   auto prompt = tokenizer->encode(rendered_template, {.add_special = false, .parse_special = true});
//   auto text = tokenizer->encode(what_a_user_wrote);                     // cannot contain a control token
//   StreamDecoder decoder(*tokenizer);                                    // see stream_decoder.h
//
// Who may call: any number of threads at the same time; nothing changes after it is created.
// What holds:
// - encode() gives control tokens only if add_special or parse_special asks for them, whatever the text spells.
//   User-defined tokens are always found: they are text that the vocabulary's author wanted as one token.
// - A token that begins a text or ends a generation is a control token even if the file calls it user-defined.
// - Any bytes can be encoded. With a byte-level vocabulary, and with a SentencePiece vocabulary that has byte tokens,
//   decode(encode(text)) gives the same bytes. SentencePiece has two exceptions: U+2581 becomes a space; and if the
//   file asks for space prefixes, a space is added after a special token inside the text.
// - encode() takes linear time, except for a logarithm of the longest word: well under a second for a megabyte without
//   a space.
// - Ids that are out of range decode to nothing.
// How it fails: from_gguf() and create() with one line that names the wrong key, token or merge, or the tokenizer or
//   pre-tokenizer that is not supported. encode() only if the text is longer than kMaxTextBytes, or if the vocabulary
//   cannot spell it and has no unknown token.
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
  bool add_special = true;     // add BOS and EOS if the file says so
  bool parse_special = false;  // "<|im_end|>" is the special token; never for text from users
  // Ranges in which special tokens are not parsed even so, sorted and without overlaps: text from users inside the
  // output of a chat template. A special token that overlaps such a range is not parsed either.
  std::span<const TextRange> literal = {};
};

struct DecodeOptions {
  bool render_special = false;  // include control, unknown and unused tokens; otherwise they are left out
  // Those that are included even so: the marks of tool calls, for example. Sorted; must outlive a StreamDecoder.
  std::span<const TokenId> shown = {};
  // The ids begin a text: the space that encode() added before it is removed.
  bool at_start = true;
  // Replace invalid UTF-8 by U+FFFD, for JSON and terminals. Otherwise bytes are unchanged.
  bool repair_utf8 = false;
};

class Tokenizer {
 public:
  static constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

  static Result<Tokenizer> from_gguf(const gguf::File& file);
  static Result<Tokenizer> create(Vocabulary vocabulary);

  Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options = {}) const;
  std::string decode(std::span<const TokenId> ids, DecodeOptions options = {}) const;

  // encode() gives at least one token for so many bytes of text, so a text that is longer than a context times this
  // cannot fit. 0: there is no such number, because some text is left out or many characters become one token.
  std::size_t max_token_bytes() const;

  std::size_t size() const;
  VocabularyKind kind() const;
  std::string_view pre() const;  // the pre-tokenizer's name; empty for SentencePiece

  // The token's bytes, which need not be whole characters. Empty if `id` is out of range.
  std::string_view piece(TokenId id) const;
  // The token's spelling in the file: "Ġthe", "<|im_end|>". Empty if `id` is out of range.
  std::string_view spelling(TokenId id) const;
  // The token with this spelling in the file.
  std::optional<TokenId> find(std::string_view spelling) const;
  TokenType type(TokenId id) const;  // undefined if `id` is out of range
  // Control, unknown and unused tokens, which decode() leaves out.
  bool is_special(TokenId id) const;

  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  std::optional<TokenId> unk() const;
  std::optional<TokenId> pad() const;
  bool adds_bos() const;
  bool adds_eos() const;
  bool adds_space_prefix() const;

  // Whether this token ends a generation: EOS, end of turn, end of message. The file names some of them; the others are
  // known by their spelling.
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
