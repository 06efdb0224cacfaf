#include "quire/jinja/token_stream.h"

#include <fmt/format.h>

#include "quire/jinja/fault.h"

namespace quire::jinja {
namespace {

std::string_view describe_kind(TokenKind kind) {
  switch (kind) {
    case TokenKind::data: return "template data / text";
    case TokenKind::variable_begin: return "begin of print statement";
    case TokenKind::variable_end: return "end of print statement";
    case TokenKind::block_begin: return "begin of statement block";
    case TokenKind::block_end: return "end of statement block";
    case TokenKind::name: return "name";
    case TokenKind::string: return "string";
    case TokenKind::integer: return "integer";
    case TokenKind::real: return "float";
    case TokenKind::symbol: return "symbol";
    case TokenKind::end: return "end of template";
  }
  return "token";
}

}  // namespace

std::string describe(const Token& token) {
  if (token.kind == TokenKind::name || token.kind == TokenKind::symbol) return token.text;
  return std::string(describe_kind(token.kind));
}

Token TokenStream::next() {
  Token token = std::move(tokens_[at_]);
  if (token.kind == TokenKind::end) {
    tokens_[at_] = token;
  } else {
    ++at_;
  }
  return token;
}

bool TokenStream::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  next();
  return true;
}

bool TokenStream::skip_symbol(std::string_view symbol) {
  if (!current().is_symbol(symbol)) return false;
  next();
  return true;
}

void TokenStream::fail_expected(std::string_view wanted) const {
  if (current().kind == TokenKind::end) {
    fail_syntax(fmt::format("unexpected end of template, expected '{}'.", wanted), line());
  }
  fail_syntax(fmt::format("expected token '{}', got '{}'", wanted, describe(current())), line());
}

Token TokenStream::expect(TokenKind kind) {
  if (current().kind != kind) fail_expected(describe_kind(kind));
  return next();
}

void TokenStream::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_expected(name);
}

void TokenStream::expect_symbol(std::string_view symbol) {
  if (!skip_symbol(symbol)) fail_expected(symbol);
}

}  // namespace quire::jinja
