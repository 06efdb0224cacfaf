// Runs a parsed template once. interpreter.cpp has the expressions, statements.cpp the statements.
//
// Who may call: one thread, which owns the Runtime.
// How it fails: with a Fault; the Runtime knows the line.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/json/object.hpp>

#include "quire/jinja/ast.h"
#include "quire/jinja/runtime.h"
#include "quire/jinja/scope.h"

namespace quire::jinja {

class Interpreter {
 public:
  Interpreter(const Program& program, Runtime& runtime) : program_(program), runtime_(runtime), meter_(runtime.meter) {}
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;
  // Scopes and the macros defined in them refer to each other.
  ~Interpreter() {
    for (const Ref<Scope>& scope : kept_) scope->variables.clear();
  }

  Rendered run(const boost::json::object& variables, std::span<const std::string_view> own);

 private:
  friend class ItemSource;
  using ScopeRef = Ref<Scope>;
  enum class Flow { onward, break_loop, next_iteration };

  // While it lives, output is collected here.
  class Capture {
   public:
    explicit Capture(Interpreter& interpreter)
        : interpreter_(interpreter), text_(interpreter.meter_), before_(std::exchange(interpreter.out_, &text_)) {}
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    ~Capture() { interpreter_.out_ = before_; }
    Value text() { return text_.finish(); }

   private:
    Interpreter& interpreter_;
    TextBuilder text_;
    TextBuilder* before_;
  };

  ScopeRef inner_scope(const ScopeRef& outer) { return std::make_shared<Scope>(meter_, outer); }
  void keep(const ScopeRef& scope);

  Value evaluate(const Expression& expression, const ScopeRef& scope);
  Value evaluate(const Literal& node, int line, const ScopeRef& scope);
  Value evaluate(const Name& node, int line, const ScopeRef& scope);
  Value evaluate(const AttributeOf& node, int line, const ScopeRef& scope);
  Value evaluate(const ItemOf& node, int line, const ScopeRef& scope);
  Value evaluate(const SliceOf& node, int line, const ScopeRef& scope);
  Value evaluate(const Call& node, int line, const ScopeRef& scope);
  Value evaluate(const Captured& node, int line, const ScopeRef& scope);
  Value evaluate(const FilterUse& node, int line, const ScopeRef& scope);
  Value evaluate(const TestUse& node, int line, const ScopeRef& scope);
  Value evaluate(const Unary& node, int line, const ScopeRef& scope);
  Value evaluate(const Binary& node, int line, const ScopeRef& scope);
  Value evaluate(const Logical& node, int line, const ScopeRef& scope);
  Value evaluate(const Comparisons& node, int line, const ScopeRef& scope);
  Value evaluate(const Concatenation& node, int line, const ScopeRef& scope);
  Value evaluate(const Conditional& node, int line, const ScopeRef& scope);
  Value evaluate(const ListDisplay& node, int line, const ScopeRef& scope);
  Value evaluate(const DictDisplay& node, int line, const ScopeRef& scope);
  Arguments evaluate(const ArgumentList& list, const ScopeRef& scope);

  Value call(const Value& callee, Arguments arguments);
  Value call_macro(const Macro& macro, Arguments arguments);
  void bind_parameters(const Macro& macro, Arguments& arguments, const ScopeRef& scope);

  Flow execute(const Block& block, const ScopeRef& scope);
  Flow execute(const Data& node, const ScopeRef& scope);
  Flow execute(const Print& node, const ScopeRef& scope);
  Flow execute(const IfStatement& node, const ScopeRef& scope);
  Flow execute(const ForStatement& node, const ScopeRef& scope);
  Flow execute(const SetStatement& node, const ScopeRef& scope);
  Flow execute(const SetBlock& node, const ScopeRef& scope);
  Flow execute(const MacroDefinition& node, const ScopeRef& scope);
  Flow execute(const CallBlock& node, const ScopeRef& scope);
  Flow execute(const FilterBlock& node, const ScopeRef& scope);
  Flow execute(const WithStatement& node, const ScopeRef& scope);
  Flow execute(const Generation& node, const ScopeRef& scope);
  Flow execute(const Break&, const ScopeRef&) { return Flow::break_loop; }
  Flow execute(const Continue&, const ScopeRef&) { return Flow::next_iteration; }

  Flow run_loop(const ForStatement& node, const Value& items, const ScopeRef& scope);
  void assign(const Target& target, Value value, const ScopeRef& scope);
  void unpack(const Target& target, const Value& value, const ScopeRef& scope);
  Value filtered(const ExpressionPtr& filters, const Value& text, const ScopeRef& scope);
  Value define(const MacroDefinition& macro, const ScopeRef& scope);

  const Program& program_;
  Runtime& runtime_;
  Meter& meter_;
  TextBuilder* out_ = nullptr;       // output goes here
  const Value* captured_ = nullptr;  // the input of a block's filters
  std::vector<ScopeRef> kept_;
};

// A variable as the template sees it. Its texts are from outside, except those that `own` names (RenderOptions::own).
// Invalid UTF-8 is repaired. Nothing is charged to a meter.
Value import_variable(std::string_view name, const boost::json::value& value, std::span<const std::string_view> own);

}  // namespace quire::jinja
