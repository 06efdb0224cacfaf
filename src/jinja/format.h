// The part of Python's two ways to format that templates use: "..." % values, and "...".format(values).
//
// Both have text (s, r), integers (d, i) and fixed-point numbers (f), with a width, zeros in front and a precision; `%`
// also has a minus for the left side and names in parentheses; braces have places, names and !r. Everything else of
// either (other types, signs, alignment, groups of digits, fields that reach into a value) fails, and says what.
//
// Who may call: the interpreter, on its rendering's thread. How it fails: with a Fault.
#pragma once

#include "quire/jinja/runtime.h"
#include "quire/jinja/value.h"

namespace quire::jinja {

// `values` is a tuple, a dict (for %(name)s), or one value.
Value format_percent(Runtime& runtime, const Text& format, const Value& values);

Value format_braces(Runtime& runtime, const Text& format, const Arguments& arguments);

}  // namespace quire::jinja
