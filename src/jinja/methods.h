// The methods of texts, lists, tuples and dicts that a template can call, and binding of arguments to parameters.
//
// Who may call: the interpreter, on the thread of its rendering.
// How it fails: with a Fault that has Python's message.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/jinja/runtime.h"
#include "quire/jinja/value.h"

namespace quire::jinja {

struct Method {
  std::string_view name;
  Native native;  // null: it would change its object, which the sandbox forbids
};

// Null if the type of `object` has no such method.
const Method* find_method(const Value& object, std::string_view name);

std::span<const Method> text_methods();        // methods_text.cpp
std::span<const Method> text_shape_methods();  // methods_shape.cpp

// One pointer per parameter, null if it was not given. The first `required` parameters must be given. A parameter with
// an empty name can only be given by position. Too many, too few or unknown arguments fail.
void bind_arguments(std::string_view function, const Arguments& arguments, std::span<const std::string_view> parameters,
                    std::size_t required, std::span<const Value*> bound);

template <std::size_t N>
std::array<const Value*, N> bind(std::string_view function, const Arguments& arguments,
                                 const std::string_view (&parameters)[N], std::size_t required) {
  std::array<const Value*, N> bound{};
  bind_arguments(function, arguments, parameters, required, bound);
  return bound;
}

// For functions without parameters.
void bind_nothing(std::string_view function, const Arguments& arguments);

// Replaces at most `limit` times, or all if it is negative.
Value replace_all(Runtime& runtime, const Text& text, std::string_view old_text, const Text& new_text, Int limit);

// Converts the letters of a text. by_character: the result of a character depends only on that character. Otherwise, if
// any part of the text is from outside, the whole result counts as outside.
Value convert_text(Runtime& runtime, const Text& text, std::string (*convert)(std::string_view), bool by_character);

// str.isupper() or islower(): there are letters, and none of the other case.
bool has_case(std::string_view text, bool is_upper_case);

// str.splitlines().
std::vector<std::string_view> lines_of(Meter& meter, std::string_view text, bool keep_ends);

// An argument that must be a text. `function` is the name for the error.
const std::string& require_text(std::string_view function, const Value& value);

}  // namespace quire::jinja
