// Converts values to text: Python's str() and repr(), and json.dumps().
//
// Who may call: the interpreter, on the thread of its rendering.
// How it fails: with a Fault, if a value cannot be JSON, or a limit is reached.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "quire/jinja/value.h"

namespace quire::jinja {

std::string int_to_string(Int value);
std::string float_to_string(double value);  // the shortest digits that read back as the same number, Python's layout

// repr() of a text: in quotes, with escapes.
std::string quoted(std::string_view text);

void append_str(TextBuilder& out, Meter& meter, const Value& value);
void append_repr(TextBuilder& out, Meter& meter, const Value& value);

// str(value), as a text that is not markup.
Value to_plain_text(Meter& meter, const Value& value);
// The value itself if it is a text, otherwise str(value).
Value to_text(Meter& meter, const Value& value);
Value to_repr(Meter& meter, const Value& value);
std::string repr(Meter& meter, const Value& value);  // for messages

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // of one level; absent: everything on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  Source source = Source::own;  // of indent and separators
};

void append_json(TextBuilder& out, Meter& meter, const Value& value, const JsonStyle& style);

// Replaces & < > ' " by HTML entities, as the filter `escape` does.
std::string escape_html(std::string_view text);
void append_escaped(TextBuilder& out, const Text& text);

}  // namespace quire::jinja
