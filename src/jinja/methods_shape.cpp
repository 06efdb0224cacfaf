// Methods of texts that change or test their letters.
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

template <auto Convert, bool by_character>
Value converted(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind_nothing("this method", arguments);
  return convert_text(runtime, *self.text(), Convert, by_character);
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

// Whether the text is not empty and the predicate holds for every character.
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

Value is_lower_text(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind_nothing("islower", arguments);
  return has_case(scanned(runtime, self), false);
}

Value is_upper_text(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind_nothing("isupper", arguments);
  return has_case(scanned(runtime, self), true);
}

constexpr Method kMethods[] = {{"upper", converted<upper, true>},  {"lower", converted<lower, true>},
                               {"title", converted<title, false>}, {"capitalize", converted<capitalize, false>},
                               {"isdigit", all_are<is_digit>},     {"isspace", all_are<is_space>},
                               {"islower", is_lower_text},         {"isupper", is_upper_text}};

}  // namespace

std::span<const Method> text_shape_methods() { return kMethods; }

Value convert_text(Runtime& runtime, const Text& text, std::string (*convert)(std::string_view), bool by_character) {
  runtime.meter.scanned(text.bytes.size());
  if (!by_character || text.origin.worst() == Source::own) {
    return make_text(runtime.meter, convert(text.bytes), text.origin.worst(), text.markup);
  }
  TextBuilder out(runtime.meter);
  text.for_each_run([&](std::string_view run, Source source) { out.append(convert(run), source); });
  return out.finish(text.markup);
}

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
