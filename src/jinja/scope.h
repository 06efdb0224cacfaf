// What names stand for while a template runs: scopes, the loop variable, macros.
//
// Who may call: the interpreter, on its rendering's thread.
//
// What holds: a scope is searched from the inside out and set only on the inside, which is Jinja2's rule (what a loop
// body sets is gone with the iteration). A scope that a macro may still come back to is kept by the interpreter until
// the rendering ends. A loop refers to values and to its source only while it runs.
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
  bool kept = false;  // by the interpreter, until the end
  Charge charge;
};

struct Macro {
  std::string_view name;
  const MacroDefinition* definition = nullptr;
  Ref<Scope> scope;  // in which it was defined
  Charge charge;
};

// Where a loop's items come from, one at a time: the condition of `for x in y if condition` is evaluated only when its
// turn comes, and may depend on what the body did before.
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
  std::list<Value> ahead;        // looked at already, by loop.last or loop.length
  LoopSource* source = nullptr;  // null once the loop has ended

  bool advance();  // to the next item; false at the end
  bool peek();     // is there another?
  std::int64_t length();
  void end();  // lets go of everything but the numbers
};

// An attribute of `loop`; empty where it has none of that name.
std::optional<Value> loop_attribute(Runtime& runtime, const Value& loop, std::string_view name);

}  // namespace quire::jinja
