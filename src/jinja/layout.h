// How one value is laid out in a field: what "%5.2f" % x and "{:5.2f}".format(x) come down to. Used by those two alone.
//
// How it fails: with a Fault in Python's words, and at the limits.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "quire/jinja/runtime.h"
#include "quire/jinja/value.h"

namespace quire::jinja {

struct Layout {
  std::string fill = " ";
  char align = 0;  // < > ^ =, 0: numbers to the right, the rest to the left
  char sign = '-';
  bool alternate = false;
  std::size_t width = 0;
  char grouping = 0;   // , or _
  int precision = -1;  // below 0: none
  char type = 0;

  bool has_precision() const { return precision >= 0; }
};

Value layout_integer(Runtime& runtime, const Layout& layout, Int value);
Value layout_real(Runtime& runtime, const Layout& layout, double value);
Value layout_text(Runtime& runtime, const Layout& layout, std::string_view text);

// A number out of a format, such as a width, is taken from the front of `rest`; 0 where there is none.
std::size_t read_number(std::string_view& rest);

int checked_precision(Int value);

}  // namespace quire::jinja
