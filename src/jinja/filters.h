// Jinja2's filters: value | name(arguments).
//
// Who may call: the interpreter, on the thread of its rendering.
// How it fails: with a Fault that has Python's message.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "quire/jinja/runtime.h"
#include "quire/jinja/value.h"

namespace quire::jinja {

struct Filter {
  std::string_view name;
  Native apply;  // `self` is the value before the bar
};

// Null if the name is unknown.
const Filter* find_filter(std::string_view name);
[[noreturn]] void fail_no_filter(std::string_view name);

// The `attribute` argument of filters: "a.b.0" is item.a.b[0]. Without it, the item itself.
class AttributePath {
 public:
  AttributePath(Runtime& runtime, const Value* attribute);
  Value of(Runtime& runtime, Value item, const Value* otherwise = nullptr) const;

 private:
  std::vector<Value> parts_;
};

std::span<const Filter> text_filters();       // filters_text.cpp
std::span<const Filter> number_filters();     // filters_number.cpp
std::span<const Filter> sequence_filters();   // filters_sequence.cpp
std::span<const Filter> selection_filters();  // filters_selection.cpp

}  // namespace quire::jinja
