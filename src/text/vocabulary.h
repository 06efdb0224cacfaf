// A tokenizer's vocabulary as a plain struct: what a GGUF file says under tokenizer.ggml.*, before anything is built on
// it. Tokenizer::create() turns it into something that encodes.
//
// Who may call: anyone; there is no shared state.
// How it fails: read_vocabulary() with one line that names the file and the key; check_vocabulary() with one line that
//   names what contradicts what. A vocabulary that passes the check may still be refused by Tokenizer::create(), which
//   looks at merges and bytes.
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
  undefined = 0,     // taken for normal
  normal = 1,        // made of text by the tokenizer's own rules
  unknown = 2,       // stands for what the vocabulary cannot spell
  control = 3,       // steers the model; read from text only where the caller allows it
  user_defined = 4,  // found in text before everything else, always
  unused = 5,        // a row of the embedding that no text leads to
  byte = 6,          // "<0x41>": one byte
};

enum class VocabularyKind {
  byte_level_bpe,  // "gpt2": bytes, spelled with printable characters, merged in the order of a list
  sentencepiece,   // "llama": characters, merged in the order of the tokens' scores; bytes for the rest
};

struct Vocabulary {
  VocabularyKind kind = VocabularyKind::byte_level_bpe;
  std::string pre;  // byte_level_bpe: the name of the pre-tokenizer

  std::vector<std::string> tokens;  // as the file spells them; the index is the id
  std::vector<TokenType> types;     // one for each token, or none: all are normal
  std::vector<float> scores;        // sentencepiece: one for each token
  std::vector<std::string> merges;  // byte_level_bpe: "left right", the most important first

  // kNoToken: there is none.
  TokenId bos = kNoToken;  // begin of text
  TokenId eos = kNoToken;  // end of text
  TokenId eot = kNoToken;  // end of a turn
  TokenId eom = kNoToken;  // end of a message
  TokenId unk = kNoToken;  // unknown
  TokenId pad = kNoToken;  // padding

  // Empty: what is usual for the kind and the pre-tokenizer.
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_space_prefix;  // sentencepiece

  // Phi-3's special tokens swallow the white space behind them, which its chat template relies on. No GGUF key says so.
  bool strip_after_special = false;
};

Result<Vocabulary> read_vocabulary(const gguf::File& file);

// Whether counts agree, ids are in range and types are known.
Result<void> check_vocabulary(const Vocabulary& vocabulary);

// `text` between quotation marks, cut if it is long, with everything unprintable escaped: fit for one line of an error.
std::string in_quotes(std::string_view text);

}  // namespace quire::text
