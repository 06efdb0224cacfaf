// format_braces(): "...".format(values).
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "quire/jinja/access.h"
#include "quire/jinja/format.h"
#include "quire/jinja/layout.h"
#include "quire/jinja/operators.h"
#include "quire/jinja/print.h"
#include "quire/jinja/unicode.h"

namespace quire::jinja {
namespace {

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Text& format, const Arguments& arguments)
      : runtime_(runtime), format_(format), arguments_(arguments), out_(runtime.meter) {}

  Value run() {
    std::string_view rest = format_.bytes;
    while (!rest.empty()) {
      const std::size_t brace = std::min(rest.find_first_of("{}"), rest.size());
      out_.append(rest.substr(0, brace));
      rest.remove_prefix(brace);
      if (rest.empty()) break;
      runtime_.meter.step();
      if (rest.size() > 1 && rest[1] == rest[0]) {
        out_.append(rest.substr(0, 1));
        rest.remove_prefix(2);
        continue;
      }
      if (rest.front() == '}') fail_operation("Single '}' encountered in format string");
      const std::size_t close = rest.find('}');
      if (close == std::string_view::npos) fail_operation("Single '{' encountered in format string");
      field(rest.substr(1, close - 1));
      rest.remove_prefix(close + 1);
    }
    return out_.finish(format_.markup);
  }

 private:
  void field(std::string_view text) {
    if (text.find('{') != std::string_view::npos) fail_operation("nested fields in a format are not supported");
    std::string_view spec;
    char conversion = 0;
    if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
      spec = text.substr(colon + 1);
      text = text.substr(0, colon);
    }
    if (const std::size_t mark = text.find('!'); mark != std::string_view::npos) {
      if (text.size() != mark + 2) fail_operation("expected ':' after conversion specifier");
      conversion = text.back();
      text = text.substr(0, mark);
    }
    Value value = value_of(text);
    if (conversion == 'r' || conversion == 'a') value = runtime_.text(repr(runtime_.meter, value));
    if (conversion == 's') value = to_plain_text(runtime_.meter, value);
    const Value result = spec.empty() ? to_plain_text(runtime_.meter, value) : formatted(value, spec);
    out_.append(format_.markup ? escape_html(result.text()->bytes) : result.text()->bytes);
  }

  // "name", "0", "" (the next one), and then .attribute and [item] as often as wanted.
  Value value_of(std::string_view path) {
    const std::size_t size = std::min(path.find_first_of(".["), path.size());
    const std::string_view first = path.substr(0, size);
    path.remove_prefix(size);
    Value value = argument(first);
    while (!path.empty()) {
      const bool item = path.front() == '[';
      path.remove_prefix(1);
      const std::size_t end = std::min(item ? path.find(']') : path.find_first_of(".["), path.size());
      const std::string_view name = path.substr(0, end);
      path.remove_prefix(std::min(path.size(), item ? end + 1 : end));
      if (name.empty()) fail_operation("Empty attribute in format string");
      const std::optional<std::size_t> index = item ? number(name) : std::nullopt;
      value = index ? get_item(runtime_, value, Value(*index))
                    : (item ? get_item(runtime_, value, runtime_.text(std::string(name)))
                            : get_attribute(runtime_, value, name));
    }
    return value;
  }

  static std::optional<std::size_t> number(std::string_view text) {
    if (text.empty() || !std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; })) return std::nullopt;
    return read_number(text);
  }

  Value argument(std::string_view name) {
    const std::optional<std::size_t> index = number(name);
    if (name.empty() || index) {
      const bool automatic = !index.has_value();
      if (numbering_ && *numbering_ != automatic) {
        fail_operation("cannot switch between manual field specification and automatic field numbering");
      }
      numbering_ = automatic;
      const std::size_t at = index ? *index : next_++;
      if (at >= arguments_.positional.size()) {
        fail_operation(fmt::format("Replacement index {} out of range for positional args tuple", at));
      }
      return arguments_.positional[at];
    }
    const auto found =
        std::ranges::find_if(arguments_.named, [name](const auto& named) { return named.first == name; });
    if (found == arguments_.named.end()) fail_operation(quoted(name));
    return found->second;
  }

  // [[fill]align][sign][#][0][width][grouping][.precision][type]
  static Layout layout_of(std::string_view spec) {
    Layout layout;
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    const std::size_t first = character_bytes(spec.front());
    if (spec.size() > first && is_align(spec[first])) {
      layout.fill = spec.substr(0, first);
      layout.align = spec[first];
      spec.remove_prefix(first + 1);
    } else if (is_align(spec.front())) {
      layout.align = spec.front();
      spec.remove_prefix(1);
    }
    const auto take_any = [&spec](std::string_view characters) -> char {
      if (spec.empty() || characters.find(spec.front()) == std::string_view::npos) return 0;
      const char c = spec.front();
      spec.remove_prefix(1);
      return c;
    };
    if (const char sign = take_any("+- ")) layout.sign = sign;
    layout.alternate = take_any("#") != 0;
    if (take_any("0") != 0 && layout.align == 0) {
      layout.fill = "0";
      layout.align = '=';
    }
    layout.width = read_number(spec);
    layout.grouping = take_any(",_");
    if (take_any(".") != 0) {
      if (spec.empty() || spec.front() < '0' || spec.front() > '9')
        fail_operation("Format specifier missing precision");
      layout.precision = checked_precision(static_cast<Int>(read_number(spec)));
    }
    if (spec.size() > 1) fail_operation("Invalid format specifier");
    if (!spec.empty()) layout.type = spec.front();
    return layout;
  }

  Value formatted(const Value& value, std::string_view spec) {
    Layout layout = layout_of(spec);
    const auto unknown = [&] {
      fail_operation(fmt::format("Unknown format code '{}' for object of type '{}'", layout.type, value.type_name()));
    };
    const std::optional<Int> integer = as_index(value);
    const bool real_type = std::string_view("eEfFgG%").find(layout.type) != std::string_view::npos && layout.type != 0;
    if (value.real() != nullptr || (integer && real_type)) {
      if (!real_type && layout.type != 0 && layout.type != 'n') unknown();
      return layout_real(runtime_, layout, integer ? static_cast<double>(*integer) : *value.real());
    }
    if (integer) {
      if (layout.type != 0 && std::string_view("bodnxX").find(layout.type) == std::string_view::npos) unknown();
      if (layout.has_precision()) fail_operation("Precision not allowed in integer format specifier");
      return layout_integer(runtime_, layout, *integer);
    }
    if (const Text* text = value.text()) {
      if (layout.type != 0 && layout.type != 's') unknown();
      if (layout.align == '=' && layout.fill == "0") layout.align = '<';
      return layout_text(runtime_, layout, text->bytes);
    }
    require_defined(value);
    fail_operation(fmt::format("unsupported format string passed to {}.__format__", value.type_name()));
  }

  Runtime& runtime_;
  const Text& format_;
  const Arguments& arguments_;
  TextBuilder out_;
  std::size_t next_ = 0;
  std::optional<bool> numbering_;  // true: automatic
};

}  // namespace

Value format_braces(Runtime& runtime, const Text& format, const Arguments& arguments) {
  return BraceFormatter(runtime, format, arguments).run();
}

}  // namespace quire::jinja
