// A tokenizer for an untrained model. It can spell every text, has exactly the wanted number of tokens, and any engine
// loads it. Its tokens are runs of up to eight letters, with and without a leading space. Text in Latin letters has
// about three letters per token.
#pragma once

#include <cstdint>
#include <string_view>

#include "quire/gguf/writer.h"

namespace quire::synth {

// `tokens` is at least 260. `pre` names the pre-tokenizer of a byte-level BPE; empty: SentencePiece.
void add_tokenizer(gguf::Writer& writer, std::uint32_t tokens, std::string_view pre);

}  // namespace quire::synth
