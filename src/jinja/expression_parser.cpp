#include "quire/jinja/expression_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "quire/jinja/filters.h"
#include "quire/jinja/predicates.h"
#include "quire/jinja/print.h"

namespace quire::jinja {
namespace {

int depth_of(const ExpressionPtr& expression) { return expression != nullptr ? expression->depth : 0; }

int deepest(const auto&... expressions) { return std::max({0, depth_of(expressions)...}); }

}  // namespace

ExpressionPtr ExpressionParser::make(int line, int below, auto node) {
  if (below >= kMaxExpressionDepth) throw Fault{TemplateError::Kind::limit, "an expression is too long", line};
  return std::make_unique<Expression>(Expression{std::move(node), line, below + 1});
}

NameId ExpressionParser::name_id(const std::string& name) {
  const auto [found, added] = ids_.try_emplace(name, static_cast<NameId>(program_.names.size()));
  if (added) program_.names.push_back(name);
  return found->second;
}

ExpressionPtr ExpressionParser::expression() {
  const Nesting nesting(depth, tokens_.line());
  ExpressionPtr value = disjunction();
  while (tokens_.current().is_name("if")) {
    const int line = tokens_.next().line;
    ExpressionPtr condition = disjunction();
    ExpressionPtr otherwise = tokens_.skip_name("else") ? expression() : nullptr;
    const int below = deepest(value, condition, otherwise);
    value = make(line, below, Conditional{std::move(condition), std::move(value), std::move(otherwise)});
  }
  return value;
}

ExpressionPtr ExpressionParser::condition() {
  const Nesting nesting(depth, tokens_.line());
  return disjunction();
}

ExpressionPtr ExpressionParser::tuple(bool inline_if, std::string_view end) {
  const int line = tokens_.line();
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  int below = 0;
  const auto at_end = [&] {
    const Token& token = tokens_.current();
    return token.kind == TokenKind::variable_end || token.kind == TokenKind::block_end || token.is_symbol(")") ||
           (!end.empty() && token.is_name(end));
  };
  while (true) {
    if (!items.empty()) tokens_.expect_symbol(",");
    if (at_end()) break;
    items.push_back(inline_if ? expression() : condition());
    below = std::max(below, items.back()->depth);
    if (!tokens_.current().is_symbol(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return make(line, below, ListDisplay{SequenceKind::tuple, std::move(items)});
  if (items.empty()) {
    fail_syntax(fmt::format("Expected an expression, got '{}'", describe(tokens_.current())), tokens_.line());
  }
  return std::move(items.front());
}

ExpressionPtr ExpressionParser::disjunction() {
  ExpressionPtr left = conjunction();
  while (tokens_.current().is_name("or")) {
    const int line = tokens_.next().line;
    ExpressionPtr right = conjunction();
    const int below = deepest(left, right);
    left = make(line, below, Logical{false, std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr ExpressionParser::conjunction() {
  ExpressionPtr left = negation();
  while (tokens_.current().is_name("and")) {
    const int line = tokens_.next().line;
    ExpressionPtr right = negation();
    const int below = deepest(left, right);
    left = make(line, below, Logical{true, std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr ExpressionParser::negation() {
  if (!tokens_.current().is_name("not")) return comparison();
  const int line = tokens_.next().line;
  const Nesting nesting(depth, line);
  ExpressionPtr operand = negation();
  const int below = deepest(operand);
  return make(line, below, Unary{Unary::Operation::logical_not, std::move(operand)});
}

ExpressionPtr ExpressionParser::comparison() {
  static constexpr std::pair<std::string_view, Comparison> kOperators[] = {
      {"==", Comparison::equal},      {"!=", Comparison::not_equal}, {"<", Comparison::less},
      {"<=", Comparison::less_equal}, {">", Comparison::greater},    {">=", Comparison::greater_equal}};
  const int line = tokens_.line();
  ExpressionPtr first = sum();
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
  int below = deepest(first);
  while (true) {
    const Token& token = tokens_.current();
    std::optional<Comparison> operation;
    for (const auto& [symbol, meaning] : kOperators) {
      if (token.is_symbol(symbol)) operation = meaning;
    }
    if (token.is_name("in")) operation = Comparison::in;
    if (token.is_name("not") && tokens_.look().is_name("in")) {
      tokens_.next();
      operation = Comparison::not_in;
    }
    if (!operation) break;
    tokens_.next();
    rest.emplace_back(*operation, sum());
    below = std::max(below, rest.back().second->depth);
  }
  if (rest.empty()) return first;
  return make(line, below, Comparisons{std::move(first), std::move(rest)});
}

ExpressionPtr ExpressionParser::arithmetic(std::span<const ArithmeticSymbol> symbols,
                                           ExpressionPtr (ExpressionParser::*operand)()) {
  ExpressionPtr left = (this->*operand)();
  while (true) {
    const auto found = std::ranges::find_if(
        symbols, [this](const ArithmeticSymbol& symbol) { return tokens_.current().is_symbol(symbol.text); });
    if (found == symbols.end()) return left;
    const int line = tokens_.next().line;
    ExpressionPtr right = (this->*operand)();
    const int below = deepest(left, right);
    left = make(line, below, Binary{found->operation, std::move(left), std::move(right)});
  }
}

ExpressionPtr ExpressionParser::sum() {
  static constexpr ArithmeticSymbol kSymbols[] = {{"+", Arithmetic::add}, {"-", Arithmetic::subtract}};
  return arithmetic(kSymbols, &ExpressionParser::concatenation);
}

ExpressionPtr ExpressionParser::concatenation() {
  const int line = tokens_.line();
  std::vector<ExpressionPtr> parts;
  parts.push_back(product());
  int below = parts.front()->depth;
  while (tokens_.skip_symbol("~")) {
    parts.push_back(product());
    below = std::max(below, parts.back()->depth);
  }
  if (parts.size() == 1) return std::move(parts.front());
  return make(line, below, Concatenation{std::move(parts)});
}

ExpressionPtr ExpressionParser::product() {
  static constexpr ArithmeticSymbol kSymbols[] = {{"*", Arithmetic::multiply},
                                                  {"/", Arithmetic::divide},
                                                  {"//", Arithmetic::floor_divide},
                                                  {"%", Arithmetic::modulo}};
  return arithmetic(kSymbols, &ExpressionParser::power);
}

ExpressionPtr ExpressionParser::power() {
  static constexpr ArithmeticSymbol kSymbols[] = {{"**", Arithmetic::power}};
  return arithmetic(kSymbols, &ExpressionParser::filtered_unary);
}

ExpressionPtr ExpressionParser::filtered_unary() { return postfix_filters(unary()); }

// A sign binds tighter than a filter: -x | abs is the absolute value of -x.
ExpressionPtr ExpressionParser::unary() {
  const int line = tokens_.line();
  ExpressionPtr value;
  if (tokens_.current().is_symbol("-") || tokens_.current().is_symbol("+")) {
    const Nesting nesting(depth, line);
    const bool minus = tokens_.next().text == "-";
    ExpressionPtr operand = unary();
    const int below = deepest(operand);
    value = make(line, below, Unary{minus ? Unary::Operation::negate : Unary::Operation::plus, std::move(operand)});
  } else {
    value = primary();
  }
  return postfix(std::move(value));
}

ExpressionPtr ExpressionParser::primary() {
  const Token& token = tokens_.current();
  const int line = token.line;
  switch (token.kind) {
    case TokenKind::name: return name();
    case TokenKind::string: {
      std::string text;
      while (tokens_.current().kind == TokenKind::string) text += tokens_.next().text;
      return make(line, 0, Literal{make_constant_text(std::move(text), Source::own)});
    }
    case TokenKind::integer: return make(line, 0, Literal{tokens_.next().integer});
    case TokenKind::real: return make(line, 0, Literal{tokens_.next().real});
    default: break;
  }
  if (token.is_symbol("(")) return parenthesized();
  if (token.is_symbol("[")) return list();
  if (token.is_symbol("{")) return dict();
  fail_syntax(fmt::format("unexpected '{}'", describe(token)), line);
}

ExpressionPtr ExpressionParser::name() {
  const Token token = tokens_.next();
  const std::string& text = token.text;
  if (text == "true" || text == "True") return make(token.line, 0, Literal{true});
  if (text == "false" || text == "False") return make(token.line, 0, Literal{false});
  if (text == "none" || text == "None") return make(token.line, 0, Literal{Value()});
  for (MacroDefinition* macro : macros) {
    macro->uses_caller |= text == "caller";
    macro->uses_varargs |= text == "varargs";
    macro->uses_kwargs |= text == "kwargs";
  }
  return make(token.line, 0, Name{name_id(text)});
}

ExpressionPtr ExpressionParser::parenthesized() {
  const int line = tokens_.next().line;
  if (tokens_.skip_symbol(")")) return make(line, 0, ListDisplay{SequenceKind::tuple, {}});
  ExpressionPtr value = tuple(true);
  tokens_.expect_symbol(")");
  return value;
}

ExpressionPtr ExpressionParser::list() {
  const int line = tokens_.next().line;
  std::vector<ExpressionPtr> items;
  int below = 0;
  while (!tokens_.current().is_symbol("]")) {
    if (!items.empty()) tokens_.expect_symbol(",");
    if (tokens_.current().is_symbol("]")) break;
    items.push_back(expression());
    below = std::max(below, items.back()->depth);
  }
  tokens_.expect_symbol("]");
  return make(line, below, ListDisplay{SequenceKind::list, std::move(items)});
}

ExpressionPtr ExpressionParser::dict() {
  const int line = tokens_.next().line;
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
  int below = 0;
  while (!tokens_.current().is_symbol("}")) {
    if (!items.empty()) tokens_.expect_symbol(",");
    if (tokens_.current().is_symbol("}")) break;
    ExpressionPtr key = expression();
    tokens_.expect_symbol(":");
    ExpressionPtr value = expression();
    below = std::max(below, deepest(key, value));
    items.emplace_back(std::move(key), std::move(value));
  }
  tokens_.expect_symbol("}");
  return make(line, below, DictDisplay{std::move(items)});
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr object) {
  while (true) {
    const Token& token = tokens_.current();
    if (token.is_symbol(".") || token.is_symbol("[")) {
      object = subscript(std::move(object));
    } else if (token.is_symbol("(")) {
      object = call(std::move(object));
    } else {
      return object;
    }
  }
}

ExpressionPtr ExpressionParser::postfix_filters(ExpressionPtr input) {
  while (true) {
    const Token& token = tokens_.current();
    if (token.is_symbol("|")) {
      tokens_.next();
      input = filter(std::move(input));
    } else if (token.is_name("is")) {
      input = test(std::move(input));
    } else if (token.is_symbol("(")) {
      input = call(std::move(input));
    } else {
      return input;
    }
  }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr object) {
  const Token opening = tokens_.next();
  const int line = opening.line;
  const int below = depth_of(object);
  if (opening.text == ".") {
    const Token name = tokens_.next();
    if (name.kind == TokenKind::name) return make(line, below, AttributeOf{std::move(object), name.text});
    if (name.kind != TokenKind::integer) fail_syntax("expected name or number", name.line);
    return make(line, below, ItemOf{std::move(object), make(name.line, 0, Literal{name.integer})});
  }
  const auto part = [this]() -> ExpressionPtr {
    const Token& token = tokens_.current();
    return token.is_symbol(":") || token.is_symbol("]") || token.is_symbol(",") ? nullptr : expression();
  };
  ExpressionPtr first = part();
  if (tokens_.skip_symbol(":")) {
    ExpressionPtr stop = part();
    ExpressionPtr step = tokens_.skip_symbol(":") ? part() : nullptr;
    tokens_.expect_symbol("]");
    const int deep = std::max(below, deepest(first, stop, step));
    return make(line, deep, SliceOf{std::move(object), std::move(first), std::move(stop), std::move(step)});
  }
  if (tokens_.current().is_symbol(",")) {
    std::vector<ExpressionPtr> items;
    int deep = depth_of(first);
    if (first != nullptr) items.push_back(std::move(first));
    while (tokens_.skip_symbol(",")) {
      items.push_back(expression());
      deep = std::max(deep, items.back()->depth);
    }
    first = make(line, deep, ListDisplay{SequenceKind::tuple, std::move(items)});
  }
  tokens_.expect_symbol("]");
  if (first == nullptr) fail_syntax("expected subscript expression", line);
  const int deep = std::max(below, depth_of(first));
  return make(line, deep, ItemOf{std::move(object), std::move(first)});
}

ArgumentList ExpressionParser::arguments(int& below) {
  const int line = tokens_.line();
  tokens_.expect_symbol("(");
  ArgumentList list;
  const auto ensure = [line](bool good) {
    if (!good) fail_syntax("invalid syntax for function call expression", line);
  };
  const auto argument = [&] {
    ExpressionPtr value = expression();
    below = std::max(below, value->depth);
    return value;
  };
  bool first = true;
  while (!tokens_.current().is_symbol(")")) {
    if (!first) tokens_.expect_symbol(",");
    if (!first && tokens_.current().is_symbol(")")) break;
    first = false;
    if (tokens_.skip_symbol("*")) {
      ensure(list.more_positional == nullptr && list.more_named == nullptr);
      list.more_positional = argument();
    } else if (tokens_.skip_symbol("**")) {
      ensure(list.more_named == nullptr);
      list.more_named = argument();
    } else if (tokens_.current().kind == TokenKind::name && tokens_.look().is_symbol("=")) {
      ensure(list.more_named == nullptr);
      std::string name = tokens_.next().text;
      tokens_.next();
      list.named.emplace_back(std::move(name), argument());
    } else {
      ensure(list.more_positional == nullptr && list.more_named == nullptr && list.named.empty());
      list.positional.push_back(argument());
    }
  }
  tokens_.expect_symbol(")");
  return list;
}

ExpressionPtr ExpressionParser::call(ExpressionPtr callee) {
  const int line = tokens_.line();
  int below = depth_of(callee);
  ArgumentList list = arguments(below);
  return make(line, below, Call{std::move(callee), std::move(list)});
}

std::string ExpressionParser::dotted_name() {
  std::string name = tokens_.expect(TokenKind::name).text;
  while (tokens_.skip_symbol(".")) name += "." + tokens_.expect(TokenKind::name).text;
  return name;
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr input) {
  const int line = tokens_.line();
  std::string name = dotted_name();
  int below = depth_of(input);
  ArgumentList list;
  if (tokens_.current().is_symbol("(")) list = arguments(below);
  const Filter* found = find_filter(name);
  return make(line, below, FilterUse{std::move(input), std::move(name), found, std::move(list)});
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr input, bool first) {
  while (first || tokens_.current().is_symbol("|")) {
    if (!first) tokens_.next();
    first = false;
    if (input == nullptr) input = make(tokens_.line(), 0, Captured{});
    input = filter(std::move(input));
  }
  return input;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr input) {
  const int line = tokens_.next().line;
  const bool negated = tokens_.skip_name("not");
  std::string name = dotted_name();
  int below = depth_of(input);
  ArgumentList list;
  const Token& token = tokens_.current();
  const bool starts_value = token.kind == TokenKind::name || token.kind == TokenKind::string ||
                            token.kind == TokenKind::integer || token.kind == TokenKind::real || token.is_symbol("[") ||
                            token.is_symbol("{");
  if (token.is_symbol("(")) {
    list = arguments(below);
  } else if (starts_value && !token.is_name("else") && !token.is_name("or") && !token.is_name("and")) {
    if (token.is_name("is")) fail_syntax("You cannot chain multiple tests with is", token.line);
    list.positional.push_back(postfix(primary()));
    below = std::max(below, list.positional.back()->depth);
  }
  const Test* found = find_test(name);
  ExpressionPtr result = make(line, below, TestUse{std::move(input), std::move(name), found, std::move(list)});
  if (!negated) return result;
  const int deep = depth_of(result);
  return make(line, deep, Unary{Unary::Operation::logical_not, std::move(result)});
}

Target ExpressionParser::single_target(bool with_namespace) {
  const int line = tokens_.line();
  if (tokens_.current().is_symbol("(")) {
    const Nesting nesting(depth, line);
    tokens_.next();
    Target inner = target(")", false);
    tokens_.expect_symbol(")");
    return inner;
  }
  const Token token = tokens_.current();
  if (token.kind != TokenKind::name) {
    fail_syntax(fmt::format("can't assign to '{}'", describe(token)), line);
  }
  for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
    if (token.text == constant) fail_syntax("can't assign to 'const'", line);
  }
  tokens_.next();
  Target result;
  result.name = name_id(token.text);
  if (with_namespace && tokens_.skip_symbol(".")) result.attribute = tokens_.expect(TokenKind::name).text;
  return result;
}

Target ExpressionParser::target(std::string_view end, bool with_namespace) {
  std::vector<Target> parts;
  bool is_tuple = false;
  while (true) {
    const Token& token = tokens_.current();
    const bool at_end = token.kind == TokenKind::block_end || token.is_symbol(")") || token.is_symbol("=") ||
                        (!end.empty() && token.is_name(end));
    if (is_tuple && at_end) break;
    parts.push_back(single_target(with_namespace));
    if (!tokens_.skip_symbol(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) return std::move(parts.front());
  Target result;
  result.parts = std::move(parts);
  result.is_tuple = true;
  return result;
}

}  // namespace quire::jinja
