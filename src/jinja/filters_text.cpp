// Filters whose result is a text, and filters that count in a text.
#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "quire/base/utf8.h"
#include "quire/jinja/access.h"
#include "quire/jinja/filters.h"
#include "quire/jinja/format.h"
#include "quire/jinja/methods.h"
#include "quire/jinja/operators.h"
#include "quire/jinja/print.h"
#include "quire/jinja/unicode.h"

namespace quire::jinja {
namespace {

// These filters accept any value and convert it to text.
template <auto Convert, bool by_character>
Value converted(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind_nothing("this filter", arguments);
  return convert_text(runtime, *to_text(runtime.meter, self).text(), Convert, by_character);
}

// Capitalizes every word. A word begins after white space, a hyphen or an opening bracket.
std::string title(std::string_view text) {
  std::string out;
  bool inside_word = false;
  for_each_character(text, [&](char32_t c) {
    inside_word ? append_lower(out, c) : append_upper(out, c);
    inside_word = !is_space(c) && std::u32string_view(U"-({[<").find(c) == std::u32string_view::npos;
  });
  return out;
}

Value trim(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [characters] = bind("trim", arguments, {"chars"}, 0);
  Arguments passed;
  if (characters != nullptr) passed.positional.push_back(*characters);
  const Value text = to_text(runtime.meter, self);
  return find_method(text, "strip")->native(runtime, text, passed);
}

Value replace(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [old_text, new_text, limit] = bind("replace", arguments, {"old", "new", "count"}, 2);
  const Value text = to_plain_text(runtime.meter, self);
  const Value from = to_plain_text(runtime.meter, *old_text);
  const Value to = to_plain_text(runtime.meter, *new_text);
  const Int count = limit != nullptr && !limit->is_none() ? require_index(*limit) : -1;
  return replace_all(runtime, *text.text(), from.text()->bytes, *to.text(), count);
}

Value string(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind_nothing("string", arguments);
  return to_text(runtime.meter, self);
}

Value safe(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind_nothing("safe", arguments);
  const Value text = to_text(runtime.meter, self);
  return make_text(runtime.meter, text.text()->bytes, text.text()->origin, true);
}

Value escape(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind_nothing("escape", arguments);
  Value text = to_text(runtime.meter, self);
  runtime.meter.scanned(text.text()->bytes.size());
  if (text.text()->markup) return text;
  TextBuilder out(runtime.meter);
  append_escaped(out, *text.text());
  return out.finish(true);
}

Value spaces(Runtime& runtime, Int count) {
  return repeat(runtime, *make_constant_text(" ", Source::own).text(), count);
}

Value indent(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [width, first, blank] = bind("indent", arguments, {"width", "first", "blank"}, 0);
  require_defined(self);
  if (self.text() == nullptr) {
    fail_operation(fmt::format("unsupported operand type(s) for +=: '{}' and 'str'", self.type_name()));
  }
  const Value margin = width != nullptr && width->text() != nullptr
                           ? *width
                           : spaces(runtime, width != nullptr ? require_index(*width) : 4);
  const bool indent_blank = blank != nullptr && truthy(*blank);
  TextBuilder out(runtime.meter);
  if (first != nullptr && truthy(*first)) out.append(*margin.text());
  runtime.meter.scanned(self.text()->bytes.size());
  // The added line end makes an empty text one line, and keeps the line end of a text that has one.
  const std::string text = self.text()->bytes + "\n";
  std::size_t end = 0;  // of the previous line
  for (const std::string_view line : lines_of(runtime.meter, text, false)) {
    const auto begin = static_cast<std::size_t>(line.data() - text.data());
    if (begin > 0) {
      out.append("\n", self.text()->origin.at(end));
      if (indent_blank || !line.empty()) out.append(*margin.text());
    }
    out.append(*self.text(), begin, line.size());
    end = begin + line.size();
  }
  return out.finish(self.text()->markup);
}

Value format(Runtime& runtime, const Value& self, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    fail_operation("can't handle positional and keyword arguments at the same time");
  }
  const Value text = to_text(runtime.meter, self);
  if (arguments.named.empty()) {
    return format_percent(runtime, *text.text(), make_tuple(runtime.meter, arguments.positional));
  }
  Dict named(runtime.meter);
  for (const auto& [name, value] : arguments.named) named.set(runtime.text(name, arguments.names), value);
  return format_percent(runtime, *text.text(), make_dict(std::move(named)));
}

Value to_json(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [ascii, indentation, separators, sort] =
      bind("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
  JsonStyle style;
  style.ensure_ascii = ascii != nullptr && truthy(*ascii);
  style.sort_keys = sort != nullptr && truthy(*sort);
  if (indentation != nullptr && !indentation->is_none()) {
    const Value margin = indentation->text() != nullptr ? *indentation : spaces(runtime, require_index(*indentation));
    style.indent = margin.text()->bytes;
    style.source = margin.text()->origin.worst();
    style.item_separator = ",";
  }
  if (separators != nullptr && !separators->is_none()) {
    const ListBuilder pair = collect(runtime, *separators);
    if (pair.items.size() != 2) fail_operation("tojson() needs two separators");
    style.item_separator = require_text("tojson", pair.items[0]);
    style.key_separator = require_text("tojson", pair.items[1]);
    for (const Value& separator : pair.items) style.source = worst(style.source, separator.text()->origin.worst());
  }
  TextBuilder out(runtime.meter);
  append_json(out, runtime.meter, self, style);
  return out.finish();
}

constexpr Filter kFilters[] = {{"trim", trim},
                               {"upper", converted<upper, true>},
                               {"lower", converted<lower, true>},
                               {"title", converted<title, false>},
                               {"capitalize", converted<capitalize, false>},
                               {"replace", replace},
                               {"string", string},
                               {"tojson", to_json},
                               {"indent", indent},
                               {"safe", safe},
                               {"escape", escape},
                               {"e", escape},
                               {"format", format}};

}  // namespace

std::span<const Filter> text_filters() { return kFilters; }

}  // namespace quire::jinja
