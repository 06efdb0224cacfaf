// Statements, macros, and the entry point Interpreter::run().
#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "quire/jinja/access.h"
#include "quire/jinja/globals.h"
#include "quire/jinja/interpreter.h"
#include "quire/jinja/operators.h"
#include "quire/jinja/print.h"

namespace quire::jinja {

// The items of a for statement that satisfy its condition.
class ItemSource final : public LoopSource {
 public:
  ItemSource(Interpreter& interpreter, const ForStatement& statement, const Value& items, const Ref<Scope>& scope)
      : interpreter_(interpreter), statement_(statement), cursor_(interpreter.runtime_, items), scope_(scope) {}

  bool next(Value& item) override {
    while (cursor_.next(item)) {
      if (statement_.condition == nullptr) return true;
      const Ref<Scope> scope = interpreter_.inner_scope(scope_);
      interpreter_.assign(statement_.target, item, scope);
      if (truthy(interpreter_.evaluate(*statement_.condition, scope))) return true;
    }
    return false;
  }

 private:
  Interpreter& interpreter_;
  const ForStatement& statement_;
  Cursor cursor_;
  const Ref<Scope>& scope_;
};

void Interpreter::keep(const ScopeRef& scope) {
  ScopeRef each = scope;
  while (!each->kept) {
    each->kept = true;
    kept_.push_back(each);
    if (each->outer == nullptr) break;
    each = each->outer;
  }
}

Rendered Interpreter::run(const boost::json::object& variables, std::span<const std::string_view> own) {
  const ScopeRef given = inner_scope(nullptr);
  for (std::size_t i = 0; i < program_.names.size(); ++i) {
    const std::string& name = program_.names[i];
    const auto id = static_cast<NameId>(i);
    if (const boost::json::value* value = variables.if_contains(name)) {
      given->set(id, import_variable(name, *value, own));
    } else if (const Method* global = find_global(name)) {
      given->set(id, make_function(meter_, global->name, Value(), global->native));
    }
  }
  TextBuilder out(meter_);
  out_ = &out;
  execute(program_.body, inner_scope(given));
  out_ = nullptr;
  return {out.take(), out.take_origin().take()};
}

Interpreter::Flow Interpreter::execute(const Block& block, const ScopeRef& scope) {
  const Deeper deeper(runtime_);
  for (const Statement& statement : block) {
    meter_.step();
    runtime_.line = statement.line;
    const Flow flow = std::visit([&](const auto& node) { return execute(node, scope); }, statement.node);
    if (flow != Flow::onward) return flow;
  }
  return Flow::onward;
}

Interpreter::Flow Interpreter::execute(const Data& node, const ScopeRef&) {
  out_->append(node.text, Source::own);
  return Flow::onward;
}

Interpreter::Flow Interpreter::execute(const Print& node, const ScopeRef& scope) {
  append_str(*out_, meter_, evaluate(*node.value, scope));
  return Flow::onward;
}

Interpreter::Flow Interpreter::execute(const IfStatement& node, const ScopeRef& scope) {
  for (const auto& [condition, body] : node.branches) {
    if (truthy(evaluate(*condition, scope))) return execute(body, scope);
  }
  return execute(node.otherwise, scope);
}

Interpreter::Flow Interpreter::execute(const ForStatement& node, const ScopeRef& scope) {
  return run_loop(node, evaluate(*node.items, scope), scope);
}

Interpreter::Flow Interpreter::run_loop(const ForStatement& node, const Value& items, const ScopeRef& scope) {
  ItemSource source(*this, node, items, scope);
  const auto loop = std::make_shared<Loop>();
  loop->source = &source;
  if (node.condition == nullptr && sized(items)) loop->known_length = static_cast<std::int64_t>(length(items));
  const struct End {
    Loop& loop;
    ~End() { loop.end(); }
  } end{*loop};

  while (loop->advance()) {
    meter_.step();
    const ScopeRef inner = inner_scope(scope);
    inner->set(program_.loop, loop);
    assign(node.target, loop->current, inner);
    if (execute(node.body, inner) == Flow::break_loop) break;
  }
  if (loop->index0 < 0) return execute(node.otherwise, scope);
  return Flow::onward;
}

void Interpreter::assign(const Target& target, Value value, const ScopeRef& scope) {
  if (target.is_tuple) return unpack(target, value, scope);
  if (target.attribute.empty()) return scope->set(target.name, std::move(value));
  const Value* object = scope->find(target.name);
  if (object == nullptr || object->name_space() == nullptr) {
    fail_operation("cannot assign attribute on non-namespace object");
  }
  object->name_space()->attributes.set(make_text(meter_, target.attribute, Source::own), std::move(value));
}

void Interpreter::unpack(const Target& target, const Value& value, const ScopeRef& scope) {
  if (!iterable(value)) {
    fail_operation(fmt::format("cannot unpack non-iterable {} object", value.type_name()));
  }
  Cursor cursor(runtime_, value);
  std::vector<Value> items;
  for (Value item; items.size() <= target.parts.size() && cursor.next(item);) items.push_back(item);
  if (items.size() > target.parts.size()) {
    fail_operation(fmt::format("too many values to unpack (expected {})", target.parts.size()));
  }
  if (items.size() < target.parts.size()) {
    fail_operation(fmt::format("not enough values to unpack (expected {}, got {})", target.parts.size(), items.size()));
  }
  for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], std::move(items[i]), scope);
}

Interpreter::Flow Interpreter::execute(const SetStatement& node, const ScopeRef& scope) {
  assign(node.target, evaluate(*node.value, scope), scope);
  return Flow::onward;
}

Value Interpreter::filtered(const ExpressionPtr& filters, const Value& text, const ScopeRef& scope) {
  if (filters == nullptr) return text;
  const Value* const outside = std::exchange(captured_, &text);
  const struct Restore {
    const Value*& place;
    const Value* value;
    ~Restore() { place = value; }
  } restore{captured_, outside};
  return evaluate(*filters, scope);
}

Interpreter::Flow Interpreter::execute(const SetBlock& node, const ScopeRef& scope) {
  Value text;
  {
    Capture capture(*this);
    const Flow flow = execute(node.body, inner_scope(scope));
    if (flow != Flow::onward) return flow;
    text = capture.text();
  }
  assign(node.target, filtered(node.filters, text, scope), scope);
  return Flow::onward;
}

Interpreter::Flow Interpreter::execute(const FilterBlock& node, const ScopeRef& scope) {
  Value text;
  {
    Capture capture(*this);
    const Flow flow = execute(node.body, inner_scope(scope));
    if (flow != Flow::onward) return flow;
    text = capture.text();
  }
  append_str(*out_, meter_, filtered(node.filters, text, scope));
  return Flow::onward;
}

Interpreter::Flow Interpreter::execute(const WithStatement& node, const ScopeRef& scope) {
  const ScopeRef inner = inner_scope(scope);
  for (const auto& [target, value] : node.variables) assign(target, evaluate(*value, scope), inner);
  return execute(node.body, inner);
}

Interpreter::Flow Interpreter::execute(const Generation& node, const ScopeRef& scope) {
  return execute(node.body, inner_scope(scope));
}

Value Interpreter::define(const MacroDefinition& macro, const ScopeRef& scope) {
  keep(scope);
  return std::make_shared<const Macro>(Macro{macro.name, &macro, scope, Charge(meter_, sizeof(Macro))});
}

Interpreter::Flow Interpreter::execute(const MacroDefinition& node, const ScopeRef& scope) {
  scope->set(node.id, define(node, scope));
  return Flow::onward;
}

Interpreter::Flow Interpreter::execute(const CallBlock& node, const ScopeRef& scope) {
  const Call& call_node = std::get<Call>(node.call->node);
  const Value callee = evaluate(*call_node.callee, scope);
  Arguments arguments = evaluate(call_node.arguments, scope);
  arguments.named.emplace_back("caller", define(node.caller, scope));
  runtime_.line = node.call->line;
  append_str(*out_, meter_, call(callee, std::move(arguments)));
  return Flow::onward;
}

void Interpreter::bind_parameters(const Macro& macro, Arguments& arguments, const ScopeRef& scope) {
  const MacroDefinition& definition = *macro.definition;
  auto& named = arguments.named;
  const auto take = [&named](std::string_view name) -> std::optional<Value> {
    const auto found =
        std::ranges::find(named, name, [](const auto& argument) -> std::string_view { return argument.first; });
    if (found == named.end()) return std::nullopt;
    Value value = std::move(found->second);
    named.erase(found);
    return value;
  };
  bool has_caller = false;
  for (std::size_t i = 0; i < definition.parameters.size(); ++i) {
    const Parameter& parameter = definition.parameters[i];
    has_caller |= parameter.id == program_.caller;
    std::optional<Value> value = i < arguments.positional.size() ? arguments.positional[i] : take(parameter.name);
    if (!value && parameter.otherwise != nullptr) value = evaluate(*parameter.otherwise, scope);
    if (!value) value = runtime_.undefined(fmt::format("parameter '{}' was not provided", parameter.name));
    scope->set(parameter.id, *std::move(value));
  }
  if (definition.uses_caller && !has_caller) {
    std::optional<Value> caller = take("caller");
    scope->set(program_.caller, caller ? *std::move(caller) : runtime_.undefined("No caller defined"));
  }
  if (definition.uses_kwargs) {
    Dict rest(meter_);
    for (auto& [name, value] : named) rest.set(runtime_.text(name, arguments.names), std::move(value));
    scope->set(program_.kwargs, make_dict(std::move(rest)));
  } else if (!named.empty()) {
    fail_operation(fmt::format("macro '{}' takes no keyword argument '{}'", macro.name, named.front().first));
  }
  const std::size_t taken = std::min(arguments.positional.size(), definition.parameters.size());
  if (definition.uses_varargs) {
    std::vector<Value> rest(arguments.positional.begin() + static_cast<std::ptrdiff_t>(taken),
                            arguments.positional.end());
    scope->set(program_.varargs, make_tuple(meter_, std::move(rest)));
  } else if (arguments.positional.size() > taken) {
    fail_operation(fmt::format("macro '{}' takes not more than {} argument(s)", macro.name, taken));
  }
}

Value Interpreter::call_macro(const Macro& macro, Arguments arguments) {
  const ScopeRef scope = inner_scope(macro.scope);
  bind_parameters(macro, arguments, scope);
  Capture capture(*this);
  execute(macro.definition->body, scope);
  return capture.text();
}

}  // namespace quire::jinja
