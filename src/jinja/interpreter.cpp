#include "quire/jinja/interpreter.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "quire/jinja/access.h"
#include "quire/jinja/filters.h"
#include "quire/jinja/left_out.h"
#include "quire/jinja/operators.h"
#include "quire/jinja/predicates.h"
#include "quire/jinja/print.h"

namespace quire::jinja {
Value Interpreter::evaluate(const Expression& expression, const ScopeRef& scope) {
  const Deeper deeper(runtime_);
  meter_.step();
  runtime_.line = expression.line;
  return std::visit([&](const auto& node) { return evaluate(node, expression.line, scope); }, expression.node);
}

Value Interpreter::evaluate(const Literal& node, int, const ScopeRef&) { return node.value; }

Value Interpreter::evaluate(const Name& node, int, const ScopeRef& scope) {
  if (const Value* found = scope->find(node.id)) return *found;
  const std::string& name = program_.names[static_cast<std::size_t>(node.id)];
  return runtime_.undefined(is_left_out(kLeftOutGlobals, name) ? left_out_message("the function", name)
                                                               : fmt::format("'{}' is undefined", name));
}

Value Interpreter::evaluate(const AttributeOf& node, int line, const ScopeRef& scope) {
  const Value object = evaluate(*node.object, scope);
  runtime_.line = line;
  return get_attribute(runtime_, object, node.name);
}

Value Interpreter::evaluate(const ItemOf& node, int line, const ScopeRef& scope) {
  const Value object = evaluate(*node.object, scope);
  const Value key = evaluate(*node.key, scope);
  runtime_.line = line;
  return get_item(runtime_, object, key);
}

Value Interpreter::evaluate(const SliceOf& node, int line, const ScopeRef& scope) {
  const Value object = evaluate(*node.object, scope);
  const auto part = [&](const ExpressionPtr& expression) {
    return expression != nullptr ? evaluate(*expression, scope) : Value();
  };
  const Value start = part(node.start);
  const Value stop = part(node.stop);
  const Value step = part(node.step);
  runtime_.line = line;
  return get_slice(runtime_, object, start, stop, step);
}

Value Interpreter::evaluate(const Call& node, int line, const ScopeRef& scope) {
  const Value callee = evaluate(*node.callee, scope);
  Arguments arguments = evaluate(node.arguments, scope);
  runtime_.line = line;
  Value result = call(callee, std::move(arguments));
  runtime_.line = line;
  return result;
}

Value Interpreter::evaluate(const Captured&, int, const ScopeRef&) { return *captured_; }

Value Interpreter::evaluate(const FilterUse& node, int line, const ScopeRef& scope) {
  const Value input = evaluate(*node.input, scope);
  const Arguments arguments = evaluate(node.arguments, scope);
  runtime_.line = line;
  if (node.filter == nullptr) fail_no_filter(node.name);
  return node.filter->apply(runtime_, input, arguments);
}

Value Interpreter::evaluate(const TestUse& node, int line, const ScopeRef& scope) {
  const Value input = evaluate(*node.input, scope);
  const Arguments arguments = evaluate(node.arguments, scope);
  runtime_.line = line;
  if (node.test == nullptr) fail_operation(fmt::format("No test named '{}'.", node.name));
  return node.test->holds(runtime_, input, arguments);
}

Value Interpreter::evaluate(const Unary& node, int line, const ScopeRef& scope) {
  const Value operand = evaluate(*node.operand, scope);
  runtime_.line = line;
  switch (node.operation) {
    case Unary::Operation::negate: return negate(operand);
    case Unary::Operation::plus: return plus(operand);
    case Unary::Operation::logical_not: return !truthy(operand);
  }
  return {};
}

Value Interpreter::evaluate(const Binary& node, int line, const ScopeRef& scope) {
  const Value left = evaluate(*node.left, scope);
  const Value right = evaluate(*node.right, scope);
  runtime_.line = line;
  return calculate(runtime_, node.operation, left, right);
}

Value Interpreter::evaluate(const Logical& node, int, const ScopeRef& scope) {
  Value left = evaluate(*node.left, scope);
  return truthy(left) == node.is_and ? evaluate(*node.right, scope) : left;
}

Value Interpreter::evaluate(const Comparisons& node, int line, const ScopeRef& scope) {
  Value left = evaluate(*node.first, scope);
  for (const auto& [operation, expression] : node.rest) {
    Value right = evaluate(*expression, scope);
    runtime_.line = line;
    if (!compare(runtime_, operation, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::evaluate(const Concatenation& node, int line, const ScopeRef& scope) {
  std::vector<Value> parts;
  parts.reserve(node.parts.size());
  std::size_t size = 0;
  for (const ExpressionPtr& part : node.parts) {
    parts.push_back(evaluate(*part, scope));
    if (const Text* text = parts.back().text()) size += text->bytes.size();
  }
  runtime_.line = line;
  meter_.check_text_size(size);
  TextBuilder out(meter_);
  out.reserve(size);
  for (const Value& part : parts) append_str(out, meter_, part);
  return out.finish();
}

Value Interpreter::evaluate(const Conditional& node, int line, const ScopeRef& scope) {
  if (truthy(evaluate(*node.condition, scope))) return evaluate(*node.then, scope);
  if (node.otherwise != nullptr) return evaluate(*node.otherwise, scope);
  return runtime_.undefined(
      fmt::format("the inline if-expression on line {} evaluated to false and no else section was defined.", line));
}

Value Interpreter::evaluate(const ListDisplay& node, int, const ScopeRef& scope) {
  ListBuilder out(meter_);
  for (const ExpressionPtr& item : node.items) out.push(evaluate(*item, scope));
  return out.finish(node.kind);
}

Value Interpreter::evaluate(const DictDisplay& node, int line, const ScopeRef& scope) {
  Dict dict(meter_);
  for (const auto& [key_expression, value_expression] : node.items) {
    Value key = evaluate(*key_expression, scope);
    Value value = evaluate(*value_expression, scope);
    runtime_.line = line;
    require_hashable(key);
    dict.set(std::move(key), std::move(value));
  }
  return make_dict(std::move(dict));
}

Arguments Interpreter::evaluate(const ArgumentList& list, const ScopeRef& scope) {
  Arguments arguments;
  for (const ExpressionPtr& value : list.positional) arguments.positional.push_back(evaluate(*value, scope));
  const auto add_named = [&](std::string name, Value value) {
    if (std::ranges::any_of(arguments.named, [&](const auto& named) { return named.first == name; })) {
      fail_operation(fmt::format("got multiple values for keyword argument '{}'", name));
    }
    arguments.named.emplace_back(std::move(name), std::move(value));
  };
  if (list.more_positional != nullptr) {
    ListBuilder more = collect(runtime_, evaluate(*list.more_positional, scope));
    std::ranges::move(more.items, std::back_inserter(arguments.positional));
  }
  for (const auto& [name, value] : list.named) add_named(name, evaluate(*value, scope));
  if (list.more_named != nullptr) {
    const Value more = evaluate(*list.more_named, scope);
    require_defined(more);
    if (more.dict() == nullptr) {
      fail_operation(fmt::format("argument after ** must be a mapping, not {}", more.type_name()));
    }
    for (const auto& [key, value] : more.dict()->entries) {
      if (key.text() == nullptr) fail_operation("keywords must be strings");
      meter_.step(1 + arguments.named.size());  // each name is compared with those before it
      arguments.names = worst(arguments.names, key.text()->origin.worst());
      add_named(key.text()->bytes, value);
    }
  }
  return arguments;
}

Value Interpreter::call(const Value& callee, Arguments arguments) {
  if (const Function* function = callee.function()) return function->native(runtime_, function->self, arguments);
  const Deeper deeper(runtime_);
  if (const Macro* macro = callee.macro()) return call_macro(*macro, std::move(arguments));
  if (callee.loop() != nullptr) fail_operation("recursive loops are not supported in chat templates");
  require_defined(callee);
  fail_operation(fmt::format("'{}' object is not callable", callee.type_name()));
}

}  // namespace quire::jinja
