// Jinja2's tests: value is name(arguments).
//
// Who may call: the interpreter, on the thread of its rendering.
// How it fails: with a Fault that has Python's message.
#pragma once

#include <string_view>

#include "quire/jinja/runtime.h"
#include "quire/jinja/value.h"

namespace quire::jinja {

struct Test {
  std::string_view name;
  bool (*holds)(Runtime& runtime, const Value& value, const Arguments& arguments);
};

// Null if the name is unknown.
const Test* find_test(std::string_view name);

}  // namespace quire::jinja
