// Methods of texts that change their letters, pad them, or ask what they are.
#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "quire/base/utf8.h"
#include "quire/jinja/access.h"
#include "quire/jinja/methods.h"
#include "quire/jinja/unicode.h"

namespace quire::jinja {
namespace {

std::string_view scanned(Runtime& runtime, const Value& self) {
  runtime.meter.scanned(self.text()->bytes.size());
  return self.text()->bytes;
}

Value like(Runtime& runtime, const Value& self, std::string bytes) {
  return make_text(runtime.meter, std::move(bytes), self.text()->markup);
}

template <auto Convert>
Value converted(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind_nothing("this method", arguments);
  return like(runtime, self, Convert(scanned(runtime, self)));
}

template <typename Append>
std::string each_character(std::string_view text, Append append) {
  std::string out;
  out.reserve(text.size());
  for_each_character(text, [&](char32_t c) { append(out, c); });
  return out;
}

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_titlecase(c); }

std::string title(std::string_view text) {
  bool inside_word = false;
  return each_character(text, [&inside_word](std::string& out, char32_t c) {
    inside_word ? append_lower(out, c) : append_title(out, c);
    inside_word = is_cased(c);
  });
}

std::string swap_case(std::string_view text) {
  return each_character(
      text, [](std::string& out, char32_t c) { is_upper(c) ? append_lower(out, c) : append_upper(out, c); });
}

// Full case folding differs from lower case for few characters; of these, only the one that people write is done.
std::string fold_case(std::string_view text) {
  return each_character(text,
                        [](std::string& out, char32_t c) { c == U'ß' ? void(out += "ss") : append_lower(out, c); });
}

enum class Align { left, right, center };

template <Align align>
Value padded(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [width, fill] = bind("this method", arguments, {"", ""}, 1);
  const Text& text = *self.text();
  std::string filler = " ";
  if (fill != nullptr) filler = require_text("this method", *fill);
  if (count_characters(filler) != 1) fail_operation("The fill character must be exactly one character long");
  const Int missing = require_index(*width) - static_cast<Int>(text.length);
  if (missing <= 0) return self;
  Int before = 0;
  if (align == Align::right) before = missing;
  // Where the padding is odd, Python puts the greater half on the left if the width is odd too.
  if (align == Align::center) before = missing / 2 + (missing & require_index(*width) & 1);
  TextBuilder out(runtime.meter);
  out.append_repeated(filler, before);
  out.append(text.bytes);
  out.append_repeated(filler, missing - before);
  return out.finish(text.markup);
}

Value zero_filled(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [width] = bind("zfill", arguments, {""}, 1);
  const Text& text = *self.text();
  const Int missing = require_index(*width) - static_cast<Int>(text.length);
  std::string_view rest = text.bytes;
  TextBuilder out(runtime.meter);
  if (rest.starts_with('+') || rest.starts_with('-')) {
    out.append(rest.substr(0, 1));
    rest.remove_prefix(1);
  }
  out.append_repeated("0", missing);
  out.append(rest);
  return out.finish(text.markup);
}

Value tabs_expanded(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [size] = bind("expandtabs", arguments, {"tabsize"}, 0);
  const Int width = size != nullptr ? require_index(*size) : 8;
  TextBuilder out(runtime.meter);
  Int column = 0;
  for (std::string_view rest = scanned(runtime, self); !rest.empty();) {
    const std::string_view character = first_character(rest);
    if (character != "\t") {
      out.append(character);
      column = character == "\n" || character == "\r" ? 0 : column + 1;
    } else if (width > 0) {
      const Int spaces = width - column % width;
      out.append_repeated(" ", spaces);
      column += spaces;
    }
    rest.remove_prefix(character.size());
  }
  return out.finish(self.text()->markup);
}

// Not empty, and true of every character.
template <auto Predicate>
Value all_are(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind_nothing("this method", arguments);
  std::string_view rest = scanned(runtime, self);
  if (rest.empty()) return false;
  while (!rest.empty()) {
    const std::string_view character = first_character(rest);
    if (!Predicate(utf8_decode(character))) return false;
    rest.remove_prefix(character.size());
  }
  return true;
}

bool is_alphanumeric(char32_t c) { return is_alphabetic(c) || is_numeric(c); }

Value is_ascii(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind_nothing("isascii", arguments);
  return std::ranges::all_of(scanned(runtime, self), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

Value all_printable(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return self.text()->bytes.empty() ? Value(true) : all_are<is_printable>(runtime, self, arguments);
}

Value is_lower_text(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind_nothing("islower", arguments);
  return has_case(scanned(runtime, self), false);
}

Value is_upper_text(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind_nothing("isupper", arguments);
  return has_case(scanned(runtime, self), true);
}

Value is_title_text(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind_nothing("istitle", arguments);
  bool any = false;
  bool inside_word = false;
  for (std::string_view rest = scanned(runtime, self); !rest.empty();) {
    const std::string_view character = first_character(rest);
    const char32_t c = utf8_decode(character);
    const bool capital = is_upper(c) || is_titlecase(c);
    if (capital ? inside_word : is_lower(c) && !inside_word) return false;
    inside_word = capital || is_lower(c);
    any |= inside_word;
    rest.remove_prefix(character.size());
  }
  return any;
}

Value is_identifier(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind_nothing("isidentifier", arguments);
  const std::string_view text = scanned(runtime, self);
  if (text.empty()) return false;
  const char32_t first = utf8_decode(first_character(text));
  return (first == U'_' || is_alphabetic(first)) && all_are<is_word>(runtime, self, arguments).boolean()[0];
}

constexpr Method kMethods[] = {{"upper", converted<upper>},         {"lower", converted<lower>},
                               {"title", converted<title>},         {"capitalize", converted<capitalize>},
                               {"casefold", converted<fold_case>},  {"swapcase", converted<swap_case>},
                               {"center", padded<Align::center>},   {"ljust", padded<Align::left>},
                               {"rjust", padded<Align::right>},     {"zfill", zero_filled},
                               {"expandtabs", tabs_expanded},       {"isalnum", all_are<is_alphanumeric>},
                               {"isalpha", all_are<is_alphabetic>}, {"isdecimal", all_are<is_decimal>},
                               {"isdigit", all_are<is_digit>},      {"isnumeric", all_are<is_numeric>},
                               {"isspace", all_are<is_space>},      {"isascii", is_ascii},
                               {"isprintable", all_printable},      {"islower", is_lower_text},
                               {"isupper", is_upper_text},          {"istitle", is_title_text},
                               {"isidentifier", is_identifier}};

}  // namespace

std::span<const Method> text_shape_methods() { return kMethods; }

bool has_case(std::string_view text, bool is_upper_case) {
  bool any = false;
  while (!text.empty()) {
    const std::string_view character = first_character(text);
    const char32_t c = utf8_decode(character);
    if (is_titlecase(c) || (is_upper_case ? is_lower(c) : is_upper(c))) return false;
    any |= is_upper_case ? is_upper(c) : is_lower(c);
    text.remove_prefix(character.size());
  }
  return any;
}

}  // namespace quire::jinja
