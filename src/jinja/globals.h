// The functions that every template can call: range, dict, namespace, raise_exception, strftime_now.
//
// Who may call: the interpreter, on the thread of its rendering.
// How it fails: with a Fault that has Python's message.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "quire/jinja/methods.h"

namespace quire::jinja {

// Null if the name is unknown.
const Method* find_global(std::string_view name);

// strftime() in the C locale, as in Python's datetime: there is no time zone, so %z and %Z are empty.
std::string format_time(std::chrono::local_seconds time, const std::string& format);

}  // namespace quire::jinja
