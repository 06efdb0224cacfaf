// Python's operators on values.
//
// Who may call: the interpreter, on the thread of its rendering.
// How it fails: with a Fault that has Python's message, if a type does not support an operation, an undefined value is
//   used, or a limit is reached.
#pragma once

#include <string_view>

#include "quire/jinja/runtime.h"
#include "quire/jinja/value.h"

namespace quire::jinja {

enum class Arithmetic { add, subtract, multiply, divide, floor_divide, modulo, power };
enum class Comparison { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };

[[noreturn]] void fail_undefined(const Undefined& undefined);
// Fails if the value is undefined.
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

// The text repeated `count` times.
Value repeat(Runtime& runtime, const Text& text, Int count);

}  // namespace quire::jinja
