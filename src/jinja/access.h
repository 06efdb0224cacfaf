// Reaching into values: attributes, items, slices, lengths, iteration.
//
// Who may call: the interpreter, on its rendering's thread.
//
// What holds: a template reaches the methods listed in methods.h, the keys of dicts, and nothing else. What
// does not exist is an undefined value, which fails when it is used; so is what the sandbox forbids (methods that would
// change a list or dict, names that begin with an underscore).
// How it fails: with a Fault in Python's words.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "quire/jinja/runtime.h"
#include "quire/jinja/value.h"

namespace quire::jinja {

// An int or a bool as Python takes either for an index.
std::optional<Int> as_index(const Value& value);
// Of an argument that must be one; `what` names it in the failure.
Int require_index(const Value& value);

const Value& require_hashable(const Value& key);

bool iterable(const Value& value);
bool sized(const Value& value);
Int length(const Value& value);

Value get_attribute(Runtime& runtime, const Value& object, std::string_view name);                 // object.name
std::optional<Value> own_attribute(Runtime& runtime, const Value& object, std::string_view name);  // no keys
Value get_item(Runtime& runtime, const Value& object, const Value& key);                           // object[key]
Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step);

// Walks whatever can be walked: items, characters, keys. Costs a step an item. The value must outlive its cursor's use
// only as far as the cursor itself holds it.
class Cursor {
 public:
  Cursor(Runtime& runtime, Value value);  // fails if the value is not iterable
  bool next(Value& item);

 private:
  Runtime* runtime_;
  Value value_;
  std::size_t at_ = 0;
};

// All of it as a list's items.
ListBuilder collect(Runtime& runtime, const Value& value);

}  // namespace quire::jinja
