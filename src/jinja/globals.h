// The functions every template can call: range, dict, namespace, raise_exception, strftime_now.
//
// Who may call: the interpreter, on its rendering's thread. How it fails: with a Fault in Python's words.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "quire/jinja/methods.h"

namespace quire::jinja {

// Null where there is none of that name.
const Method* find_global(std::string_view name);

// strftime() in the C locale, as Python's datetime has it: without a time zone, %z and %Z are empty.
std::string format_time(std::chrono::local_seconds time, const std::string& format);

}  // namespace quire::jinja
