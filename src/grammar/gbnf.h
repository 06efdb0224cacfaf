// GBNF, llama.cpp's format of grammars, and Lark's, as far as they are used to constrain answers.
// How it fails: with one line that names the line and what is not understood there. A grammar without `root` (GBNF) or
//   `start` (Lark) is an error, and so is a rule that is used and not defined.
#pragma once

#include <string_view>

#include "quire/base/error.h"
#include "quire/grammar/grammar.h"

namespace quire::grammar {

Result<SymbolId> add_gbnf(Grammar& grammar, std::string_view text);
Result<SymbolId> add_lark(Grammar& grammar, std::string_view text);

}  // namespace quire::grammar
