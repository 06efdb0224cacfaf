// Jinja2's tests: value is name(arguments).
//
// Who may call: the interpreter, on its rendering's thread. How it fails: with a Fault in Python's words.
#pragma once

#include <string_view>

#include "quire/jinja/runtime.h"
#include "quire/jinja/value.h"

namespace quire::jinja {

struct Test {
  std::string_view name;
  bool (*holds)(Runtime& runtime, const Value& value, const Arguments& arguments);
};

// Null where there is none of that name.
const Test* find_test(std::string_view name);

}  // namespace quire::jinja
