#include "quire/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "quire/jinja/expression_parser.h"
#include "quire/jinja/left_out.h"
#include "quire/jinja/lexer.h"

namespace quire::jinja {
namespace {

bool assigns(const Target& target, NameId name) {
  return target.name == name ||
         std::ranges::any_of(target.parts, [name](const Target& part) { return assigns(part, name); });
}

class StatementParser {
 public:
  StatementParser(TokenStream& tokens, Program& program)
      : tokens_(tokens), program_(program), expressions_(tokens, program) {}

  void run() {
    program_.loop = expressions_.name_id("loop");
    program_.caller = expressions_.name_id("caller");
    program_.varargs = expressions_.name_id("varargs");
    program_.kwargs = expressions_.name_id("kwargs");
    program_.body = statements({});
  }

 private:
  using Words = std::initializer_list<std::string_view>;

  // Statements up to a tag that begins with one of `ends`, which stays current. If `ends` is empty: up to the end of
  // the template.
  Block statements(Words ends) {
    Block block;
    while (true) {
      const Token& token = tokens_.current();
      const int line = token.line;
      switch (token.kind) {
        case TokenKind::end:
          if (ends.size() != 0) fail_unclosed(ends);
          return block;
        case TokenKind::data: block.push_back({Data{tokens_.next().text}, line}); break;
        case TokenKind::variable_begin:
          tokens_.next();
          block.push_back({Print{expressions_.tuple(true)}, line});
          tokens_.expect(TokenKind::variable_end);
          break;
        default:
          tokens_.expect(TokenKind::block_begin);
          if (std::ranges::any_of(ends, [this](std::string_view end) { return tokens_.current().is_name(end); })) {
            return block;
          }
          statement(block);
          tokens_.expect(TokenKind::block_end);
      }
    }
  }

  // The rest of an opening tag, and the body.
  Block body(Words ends) {
    tokens_.skip_symbol(":");
    tokens_.expect(TokenKind::block_end);
    return statements(ends);
  }

  // The same, and the word of the closing tag.
  Block whole_body(std::string_view end) {
    Block block = body({end});
    tokens_.next();
    return block;
  }

  [[noreturn]] void fail_unclosed(Words ends) const {
    std::string message = fmt::format("Unexpected end of template. Jinja was looking for the following tags: '{}'.",
                                      fmt::join(ends, "' or '"));
    if (!open_tags_.empty()) {
      message += fmt::format(" The innermost block that needs to be closed is '{}'.", open_tags_.back());
    }
    fail_syntax(std::move(message), tokens_.line());
  }

  void statement(Block& block) {
    const Token& token = tokens_.current();
    if (token.kind != TokenKind::name) fail_syntax("tag name expected", token.line);
    const Nesting nesting(expressions_.depth, token.line);
    const std::string word = token.text;
    const int line = token.line;
    open_tags_.push_back(word);
    if (word == "if") {
      block.push_back({if_statement(), line});
    } else if (word == "for") {
      block.push_back({for_statement(), line});
    } else if (word == "set") {
      set_statement(block, line);
    } else if (word == "macro") {
      block.push_back({macro(), line});
    } else if (word == "call") {
      block.push_back({call_block(), line});
    } else if (word == "filter") {
      tokens_.next();
      ExpressionPtr filters = expressions_.filters(nullptr, true);
      block.push_back({FilterBlock{std::move(filters), whole_body("endfilter")}, line});
    } else if (word == "with") {
      block.push_back({with_statement(), line});
    } else if (word == "print") {
      print_statement(block, line);
    } else if (word == "generation") {
      tokens_.next();
      const int loops = std::exchange(loops_, 0);
      block.push_back({Generation{whole_body("endgeneration")}, line});
      loops_ = loops;
    } else if (word == "break" || word == "continue") {
      loop_control(block, line);
    } else {
      open_tags_.pop_back();
      fail_unknown(word, line);
    }
    open_tags_.pop_back();
  }

  [[noreturn]] void fail_unknown(const std::string& word, int line) const {
    if (is_left_out(kLeftOutTags, word)) fail_syntax(left_out_message("the tag", word), line);
    std::string message = fmt::format("Encountered unknown tag '{}'.", word);
    if (!open_tags_.empty()) {
      message += fmt::format(" The innermost block that needs to be closed is '{}'.", open_tags_.back());
    }
    fail_syntax(std::move(message), line);
  }

  IfStatement if_statement() {
    IfStatement result;
    tokens_.next();
    while (true) {
      ExpressionPtr condition = expressions_.tuple(false);
      result.branches.emplace_back(std::move(condition), body({"elif", "else", "endif"}));
      const Token end = tokens_.next();
      if (end.text == "elif") continue;
      if (end.text == "else") result.otherwise = whole_body("endif");
      return result;
    }
  }

  ForStatement for_statement() {
    ForStatement result;
    tokens_.next();
    result.target = expressions_.target("in", false);
    if (assigns(result.target, program_.loop)) {
      fail_syntax("Can't assign to special loop variable in for-loop target", tokens_.line());
    }
    tokens_.expect_name("in");
    result.items = expressions_.tuple(false, "recursive");
    if (tokens_.skip_name("if")) result.condition = expressions_.expression();
    if (tokens_.current().is_name("recursive")) {
      fail_syntax("recursive loops are not supported in chat templates", tokens_.line());
    }
    ++loops_;
    result.body = body({"endfor", "else"});
    --loops_;
    if (tokens_.next().text == "else") result.otherwise = whole_body("endfor");
    return result;
  }

  void loop_control(Block& block, int line) {
    const bool is_break = tokens_.next().text == "break";
    if (loops_ == 0) fail_syntax(fmt::format("'{}' outside loop", is_break ? "break" : "continue"), line);
    if (is_break) {
      block.push_back({Break{}, line});
    } else {
      block.push_back({Continue{}, line});
    }
  }

  void set_statement(Block& block, int line) {
    tokens_.next();
    Target target = expressions_.target({}, true);
    if (tokens_.skip_symbol("=")) {
      block.push_back({SetStatement{std::move(target), expressions_.tuple(true)}, line});
      return;
    }
    ExpressionPtr filters = expressions_.filters(nullptr);
    block.push_back({SetBlock{std::move(target), std::move(filters), whole_body("endset")}, line});
  }

  std::vector<Parameter> parameters() {
    std::vector<Parameter> list;
    tokens_.expect_symbol("(");
    bool has_default = false;
    while (!tokens_.current().is_symbol(")")) {
      if (!list.empty()) tokens_.expect_symbol(",");
      const Token name = tokens_.expect(TokenKind::name);
      Parameter parameter{expressions_.name_id(name.text), name.text, nullptr};
      if (tokens_.skip_symbol("=")) {
        parameter.otherwise = expressions_.expression();
        has_default = true;
      } else if (has_default) {
        fail_syntax("non-default argument follows default argument", name.line);
      }
      list.push_back(std::move(parameter));
    }
    tokens_.expect_symbol(")");
    return list;
  }

  void macro_body(MacroDefinition& macro, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    expressions_.macros.push_back(&macro);
    macro.body = whole_body(end);
    expressions_.macros.pop_back();
    loops_ = loops;
  }

  MacroDefinition macro() {
    MacroDefinition result;
    tokens_.next();
    result.name = tokens_.expect(TokenKind::name).text;
    result.id = expressions_.name_id(result.name);
    result.parameters = parameters();
    macro_body(result, "endmacro");
    return result;
  }

  CallBlock call_block() {
    CallBlock result;
    const int line = tokens_.next().line;
    result.caller.name = "caller";
    if (tokens_.current().is_symbol("(")) result.caller.parameters = parameters();
    result.call = expressions_.expression();
    if (!std::holds_alternative<Call>(result.call->node)) fail_syntax("expected call", line);
    macro_body(result.caller, "endcall");
    return result;
  }

  WithStatement with_statement() {
    WithStatement result;
    tokens_.next();
    while (tokens_.current().kind != TokenKind::block_end) {
      if (!result.variables.empty()) tokens_.expect_symbol(",");
      Target target = expressions_.target({}, false);
      tokens_.expect_symbol("=");
      result.variables.emplace_back(std::move(target), expressions_.expression());
    }
    result.body = whole_body("endwith");
    return result;
  }

  void print_statement(Block& block, int line) {
    tokens_.next();
    bool first = true;
    while (tokens_.current().kind != TokenKind::block_end) {
      if (!first) tokens_.expect_symbol(",");
      first = false;
      block.push_back({Print{expressions_.expression()}, line});
    }
  }

  TokenStream& tokens_;
  Program& program_;
  ExpressionParser expressions_;
  std::vector<std::string> open_tags_;
  int loops_ = 0;  // enclosing loops that a break could end
};

}  // namespace

std::shared_ptr<const Program> parse_program(std::string_view source) {
  TokenStream tokens(tokenize(source));
  auto program = std::make_shared<Program>();
  StatementParser(tokens, *program).run();
  return program;
}

}  // namespace quire::jinja
