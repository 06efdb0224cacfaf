// The methods of texts, lists, tuples and dicts that a template can call, and the binding of arguments to parameters.
//
// Who may call: the interpreter, on its rendering's thread. How it fails: with a Fault in Python's words.
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
  Native native;  // null: it would change its object, and the sandbox forbids it
};

// Null where the type of `object` has no method of that name.
const Method* find_method(const Value& object, std::string_view name);

std::span<const Method> text_methods();        // methods_text.cpp
std::span<const Method> text_shape_methods();  // methods_shape.cpp

// One pointer for each parameter, null where it was not given. The first `required` must be given. A parameter whose
// name is empty can only be given by its place. Too many, too few or unknown arguments fail.
void bind_arguments(std::string_view function, const Arguments& arguments, std::span<const std::string_view> parameters,
                    std::size_t required, std::span<const Value*> bound);

template <std::size_t N>
std::array<const Value*, N> bind(std::string_view function, const Arguments& arguments,
                                 const std::string_view (&parameters)[N], std::size_t required) {
  std::array<const Value*, N> bound{};
  bind_arguments(function, arguments, parameters, required, bound);
  return bound;
}

// For functions that take none.
void bind_nothing(std::string_view function, const Arguments& arguments);

// At most `limit` times, or always if that is negative.
Value replace_all(Runtime& runtime, const Text& text, std::string_view old_text, const Text& new_text, Int limit);

// A text of other letters. What becomes of a character may depend on that character alone (by_character); if not, a
// text of which some came from outside is taken to be from outside as a whole.
Value convert_text(Runtime& runtime, const Text& text, std::string (*convert)(std::string_view), bool by_character);

// str.isupper(), or islower(): some letters, and none of the other case.
bool has_case(std::string_view text, bool is_upper_case);

// str.splitlines().
std::vector<std::string_view> lines_of(Meter& meter, std::string_view text, bool keep_ends);

// An argument that must be a text. `function` names who wants it.
const std::string& require_text(std::string_view function, const Value& value);

}  // namespace quire::jinja
