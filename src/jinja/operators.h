// Python's operators on values.
//
// Who may call: the interpreter, on its rendering's thread. How it fails: with a Fault in Python's words where a type
// does not support an operation, where an undefined value is used, and at the limits.
#pragma once

#include <string_view>

#include "quire/jinja/runtime.h"
#include "quire/jinja/value.h"

namespace quire::jinja {

enum class Arithmetic { add, subtract, multiply, divide, floor_divide, modulo, power };
enum class Comparison { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };

[[noreturn]] void fail_undefined(const Undefined& undefined);
// Uses the value: fails if it is undefined.
void require_defined(const Value& value);

bool truthy(const Value& value);
bool equal(Meter& meter, const Value& a, const Value& b);
bool less(Meter& meter, const Value& a, const Value& b);
bool same_object(const Value& a, const Value& b);  // Python's `is`
bool contains(Runtime& runtime, const Value& container, const Value& item);
bool compare(Runtime& runtime, Comparison operation, const Value& a, const Value& b);

Value calculate(Runtime& runtime, Arithmetic operation, const Value& a, const Value& b);
Value negate(const Value& value);
Value plus(const Value& value);

// `count` times the text.
Value repeat(Runtime& runtime, const Text& text, Int count);

}  // namespace quire::jinja
