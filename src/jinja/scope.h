// The names of a running template: scopes, the loop variable, macros.
//
// Who may call: the interpreter, on the thread of its rendering.
// What holds: names are searched from the inner scope outwards, but set only in the innermost scope. That is Jinja2's
//   rule: a variable that a loop body sets is gone after the iteration. If a macro may still use a scope, the
//   interpreter keeps it until the rendering ends. A loop refers to values and to its source only while it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/jinja/value.h"

namespace quire::jinja {

struct MacroDefinition;

// Names are numbered when the template is parsed.
using NameId = int;

struct Scope {
  Scope(Meter& meter, Ref<Scope> outer_scope) : outer(std::move(outer_scope)), charge(meter, sizeof(Scope)) {}

  const Value* find(NameId name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->outer.get()) {
      for (const auto& [id, value] : scope->variables) {
        if (id == name) return &value;
      }
    }
    return nullptr;
  }

  void set(NameId name, Value value) {
    for (auto& [id, present] : variables) {
      if (id == name) {
        present = std::move(value);
        return;
      }
    }
    charge.add(sizeof variables[0]);
    if (variables.empty()) variables.reserve(4);
    variables.emplace_back(name, std::move(value));
  }

  Ref<Scope> outer;
  std::vector<std::pair<NameId, Value>> variables;
  bool kept = false;  // the interpreter keeps it until the end
  Charge charge;
};

struct Macro {
  std::string_view name;
  const MacroDefinition* definition = nullptr;
  Ref<Scope> scope;  // where it was defined
  Charge charge;
};

// The items of a loop, one at a time. The condition of `for x in y if condition` is evaluated just before each item, so
// it may depend on earlier iterations.
class LoopSource {
 public:
  LoopSource() = default;
  LoopSource(const LoopSource&) = delete;
  LoopSource& operator=(const LoopSource&) = delete;
  virtual ~LoopSource() = default;
  virtual bool next(Value& item) = 0;
};

// The variable `loop`.
struct Loop {
  std::int64_t index0 = -1;
  std::optional<std::int64_t> known_length;
  Value previous;
  Value current;
  std::list<Value> ahead;        // already fetched, for loop.last or loop.length
  LoopSource* source = nullptr;  // null once the loop has ended

  bool advance();  // to the next item; false at the end
  bool peek();     // whether there is another item
  std::int64_t length();
  void end();  // releases everything except the numbers
};

// An attribute of `loop`. Empty if the name is unknown.
std::optional<Value> loop_attribute(Runtime& runtime, const Value& loop, std::string_view name);

}  // namespace quire::jinja
