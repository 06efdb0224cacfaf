// Splits a template's source into tokens, by Jinja2's rules with trim_blocks and lstrip_blocks on.
//
// Who may call: anyone, from any thread; there is no state.
// How it fails: with a Fault of Kind::syntax that has a line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "quire/jinja/value.h"

namespace quire::jinja {

enum class TokenKind {
  data,  // text between tags, white space already trimmed
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  real,
  symbol,  // an operator, in `text`
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  int line = 1;
  std::string text;  // of data, names, symbols; a string with its escapes resolved
  Int integer = 0;
  double real = 0;

  bool is_name(std::string_view wanted) const { return kind == TokenKind::name && text == wanted; }
  bool is_symbol(std::string_view wanted) const { return kind == TokenKind::symbol && text == wanted; }
};

// The last token is of kind `end`. The source must be valid UTF-8.
std::vector<Token> tokenize(std::string_view source);

}  // namespace quire::jinja
