// The tokens of a template for its parser: one at a time, with one token of lookahead.
//
// Who may call: the parser that owns it.
// How it fails: with a Fault of Kind::syntax that has a line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/jinja/lexer.h"

namespace quire::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  int line() const { return current().line; }
  Token next();  // returns the current token and advances

  bool skip_name(std::string_view name);
  bool skip_symbol(std::string_view symbol);
  Token expect(TokenKind kind);
  void expect_name(std::string_view name);
  void expect_symbol(std::string_view symbol);

 private:
  [[noreturn]] void fail_expected(std::string_view wanted) const;

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

// The name of a token for messages.
std::string describe(const Token& token);

}  // namespace quire::jinja
