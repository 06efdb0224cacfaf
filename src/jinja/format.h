// Python's two ways to format: "..." % values, and "...".format(...).
//
// Who may call: the interpreter, on its rendering's thread. How it fails: with a Fault in Python's words.
#pragma once

#include "quire/jinja/runtime.h"
#include "quire/jinja/value.h"

namespace quire::jinja {

// `values` is a tuple, a dict (for %(name)s), or one value.
Value format_printf(Runtime& runtime, const Text& format, const Value& values);

Value format_braces(Runtime& runtime, const Text& format, const Arguments& arguments);

}  // namespace quire::jinja
