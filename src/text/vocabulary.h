// A tokenizer's vocabulary as a plain struct: the contents of tokenizer.ggml.* in a GGUF file. Tokenizer::create()
// builds a tokenizer from it.
//
// Who may call: anyone; there is no shared state.
// How it fails: read_vocabulary() with one line that names the file and the key; check_vocabulary() with one line that
//   names the contradiction. Tokenizer::create() may still refuse a vocabulary that passes the check, because it also
//   checks merges and bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/gguf/gguf.h"

namespace quire::text {

using TokenId = std::int32_t;
inline constexpr TokenId kNoToken = -1;

// The numbers are those of tokenizer.ggml.token_type.
enum class TokenType : std::uint8_t {
  undefined = 0,     // treated as normal
  normal = 1,        // produced from text by the tokenizer's rules
  unknown = 2,       // stands for text that the vocabulary cannot spell
  control = 3,       // controls the model; parsed from text only if the caller allows it
  user_defined = 4,  // always found in text, before everything else
  unused = 5,        // a row of the embedding that no text uses
  byte = 6,          // "<0x41>": one byte
};

enum class VocabularyKind {
  byte_level_bpe,  // "gpt2": bytes, merged in the order of a list
  sentencepiece,   // "llama": characters, merged in the order of scores; bytes for unknown characters
};

struct Vocabulary {
  VocabularyKind kind = VocabularyKind::byte_level_bpe;
  std::string pre;  // byte_level_bpe: the name of the pre-tokenizer

  std::vector<std::string> tokens;  // as the file spells them; the index is the id
  std::vector<TokenType> types;     // one per token, or empty: all are normal
  std::vector<float> scores;        // sentencepiece: one per token
  std::vector<std::string> merges;  // byte_level_bpe: "left right", the highest priority first

  // kNoToken: the vocabulary has no such token.
  TokenId bos = kNoToken;  // begin of text
  TokenId eos = kNoToken;  // end of text
  TokenId eot = kNoToken;  // end of a turn
  TokenId eom = kNoToken;  // end of a message
  TokenId unk = kNoToken;  // unknown
  TokenId pad = kNoToken;  // padding

  // Empty: the default of the kind and the pre-tokenizer.
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_space_prefix;  // sentencepiece

  // Phi-3's special tokens swallow the white space after them; its chat template relies on that. There is no GGUF key.
  bool strip_after_special = false;
};

Result<Vocabulary> read_vocabulary(const gguf::File& file);

// Whether counts agree, ids are in range and types are known.
Result<void> check_vocabulary(const Vocabulary& vocabulary);

// `text` in quotation marks for error messages: cut if it is long, with unprintable characters escaped.
std::string in_quotes(std::string_view text);

}  // namespace quire::text
