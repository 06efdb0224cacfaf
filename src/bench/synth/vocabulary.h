// A tokenizer for a model that has learned nothing: it can spell every text, has exactly as many tokens as asked for,
// and any engine loads it. Its pieces are runs of up to eight letters, with and without a space before them; text in
// Latin letters comes to some three of them a token.
#pragma once

#include <cstdint>
#include <string_view>

#include "quire/gguf/writer.h"

namespace quire::synth {

// At least 260 tokens. `pre` is the name of the pre-tokenizer of a byte-level BPE; empty: SentencePiece.
void add_tokenizer(gguf::Writer& writer, std::uint32_t tokens, std::string_view pre);

}  // namespace quire::synth
