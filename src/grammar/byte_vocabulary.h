// A vocabulary of the 256 bytes and a token that ends an answer, for using grammars without a model.
#pragma once

#include "quire/base/error.h"
#include "quire/text/tokenizer.h"

namespace quire::grammar {

Result<text::Tokenizer> byte_tokenizer();

}  // namespace quire::grammar
