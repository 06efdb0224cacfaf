// Access to values: attributes, items, slices, lengths, iteration.
//
// Who may call: the interpreter, on the thread of its rendering.
// What holds: a template can access the methods in methods.h, the keys of dicts, and nothing else. Anything else is an
//   undefined value, which fails when it is used. So are things that the sandbox forbids: methods that would change a
//   list or dict, and names that begin with an underscore.
// How it fails: with a Fault that has Python's message.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "quire/jinja/runtime.h"
#include "quire/jinja/value.h"

namespace quire::jinja {

// An int or a bool: Python accepts both as an index.
std::optional<Int> as_index(const Value& value);
// The same for an argument that must be an index. `what` names it in the error.
Int require_index(const Value& value);

const Value& require_hashable(const Value& key);

bool iterable(const Value& value);
bool sized(const Value& value);
Int length(const Value& value);

Value get_attribute(Runtime& runtime, const Value& object, std::string_view name);                 // object.name
std::optional<Value> own_attribute(Runtime& runtime, const Value& object, std::string_view name);  // no keys
Value get_item(Runtime& runtime, const Value& object, const Value& key);                           // object[key]
Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step);

// Iterates over any iterable value: items, characters, keys. Each item costs a step. The cursor keeps the value alive.
class Cursor {
 public:
  Cursor(Runtime& runtime, Value value);  // fails if the value is not iterable
  bool next(Value& item);

 private:
  Runtime* runtime_;
  Value value_;
  std::size_t at_ = 0;
};

// All items of an iterable value.
ListBuilder collect(Runtime& runtime, const Value& value);

}  // namespace quire::jinja
