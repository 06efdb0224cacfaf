#include "quire/grammar/byte_vocabulary.h"

#include <utility>

#include "quire/text/byte_level.h"

namespace quire::grammar {

Result<text::Tokenizer> byte_tokenizer() {
  text::Vocabulary vocabulary;
  vocabulary.kind = text::VocabularyKind::byte_level_bpe;
  vocabulary.pre = "gpt-2";
  for (unsigned byte = 0; byte < 256; ++byte) {
    vocabulary.tokens.push_back(text::byte_level_spelling(static_cast<std::uint8_t>(byte)));
  }
  vocabulary.types.assign(256, text::TokenType::normal);
  vocabulary.tokens.emplace_back("<|endoftext|>");
  vocabulary.types.push_back(text::TokenType::control);
  vocabulary.eos = 256;
  return text::Tokenizer::create(std::move(vocabulary));
}

}  // namespace quire::grammar
