// The part of Python's formatting that templates use: "..." % values and "...".format(values).
//
// Both support text (s, r), integers (d, i) and fixed-point numbers (f), with a width, leading zeros and a precision.
// `%` also supports a minus (left alignment) and names in parentheses. Braces support positions, names and !r.
// Everything else (other types, signs, alignment, digit grouping, attributes and items of fields) fails with an error
// that names it.
//
// Who may call: the interpreter, on the thread of its rendering.
// How it fails: with a Fault.
#pragma once

#include "quire/jinja/runtime.h"
#include "quire/jinja/value.h"

namespace quire::jinja {

// `values` is a tuple, a dict (for %(name)s), or one value.
Value format_percent(Runtime& runtime, const Text& format, const Value& values);

Value format_braces(Runtime& runtime, const Text& format, const Arguments& arguments);

}  // namespace quire::jinja
