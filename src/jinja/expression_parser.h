// Parses the expressions of a template.
//
// Who may call: the statement parser.
// What holds: the grammar is Jinja2's, with its precedences (`~` binds tighter than `+`, a filter tighter than any
//   operator).
// How it fails: with a Fault of Kind::syntax or Kind::limit that has a line.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/jinja/ast.h"
#include "quire/jinja/token_stream.h"

namespace quire::jinja {

// Counts the nesting of brackets, tags and prefixes.
class Nesting {
 public:
  Nesting(int& depth, int line) : depth_(depth) {
    if (++depth_ > kMaxNesting) throw Fault{TemplateError::Kind::limit, "the template is nested too deeply", line};
  }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  ~Nesting() { --depth_; }

 private:
  int& depth_;
};

class ExpressionParser {
 public:
  ExpressionParser(TokenStream& tokens, Program& program) : tokens_(tokens), program_(program) {}

  NameId name_id(const std::string& name);

  ExpressionPtr expression();
  ExpressionPtr condition();  // without an inline if, which would take the `if` of `for x in y if z`
  // One expression, or a tuple: several with commas between them. `end` is a word that may follow the last comma.
  ExpressionPtr tuple(bool inline_if, std::string_view end = {});
  // | filter | filter(arguments), applied to `input`. Null if there is no filter. `first` begins with a name.
  ExpressionPtr filters(ExpressionPtr input, bool first = false);
  Target target(std::string_view end, bool with_namespace);

  // The open macros, which the names caller, varargs and kwargs belong to. The statement parser maintains them.
  std::vector<MacroDefinition*> macros;
  int depth = 0;  // nesting, statements included

 private:
  ExpressionPtr make(int line, int below, auto node);
  ExpressionPtr disjunction();
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  struct ArithmeticSymbol {
    std::string_view text;
    Arithmetic operation;
  };
  // Operands with these symbols between them, left-associative.
  ExpressionPtr arithmetic(std::span<const ArithmeticSymbol> symbols, ExpressionPtr (ExpressionParser::*operand)());
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr filtered_unary();
  ExpressionPtr unary();
  ExpressionPtr primary();
  ExpressionPtr name();
  ExpressionPtr parenthesized();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr object);
  ExpressionPtr postfix_filters(ExpressionPtr input);
  ExpressionPtr subscript(ExpressionPtr object);
  ExpressionPtr call(ExpressionPtr callee);
  ExpressionPtr filter(ExpressionPtr input);
  ExpressionPtr test(ExpressionPtr input);
  ArgumentList arguments(int& deepest);
  std::string dotted_name();
  Target single_target(bool with_namespace);

  TokenStream& tokens_;
  Program& program_;
  std::map<std::string, NameId, std::less<>> ids_;
};

}  // namespace quire::jinja
