#include "quire/jinja/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "quire/jinja/access.h"
#include "quire/jinja/methods.h"
#include "quire/jinja/operators.h"
#include "quire/jinja/print.h"
#include "quire/jinja/unicode.h"

namespace quire::jinja {
namespace {

// The format of one value.
struct Layout {
  bool left = false;   // left-aligned
  bool zeros = false;  // numbers: leading zeros up to the width
  std::size_t width = 0;
  std::optional<std::size_t> precision;
  char type = 0;  // s r d i f; 0: depends on the value
};

std::optional<std::size_t> read_number(std::string_view& rest) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error == std::errc::result_out_of_range) fail_operation("Too many decimal digits in format string");
  if (error != std::errc()) return std::nullopt;
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  return value;
}

// [0][width][.precision][type], from the front of `rest`.
Layout read_layout(std::string_view& rest) {
  Layout layout;
  if (rest.starts_with('0')) {
    layout.zeros = true;
    rest.remove_prefix(1);
  }
  layout.width = read_number(rest).value_or(0);
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    layout.precision = read_number(rest);
    if (!layout.precision) fail_operation("Format specifier missing precision");
  }
  if (!rest.empty()) {
    layout.type = rest.front();
    rest.remove_prefix(1);
  }
  return layout;
}

std::string fixed_point(double value, std::size_t precision) {
  constexpr std::size_t kMaxPrecision = 300;
  if (precision > kMaxPrecision) fail_operation("precision too big");
  if (!std::isfinite(value)) return float_to_string(value);
  std::string out(precision + 350, '\0');
  const auto end =
      std::to_chars(out.data(), out.data() + out.size(), value, std::chars_format::fixed, static_cast<int>(precision));
  out.resize(static_cast<std::size_t>(end.ptr - out.data()));
  return out;
}

void append_repeated(TextBuilder& out, char character, std::size_t count) {
  static const Value kSpace = make_constant_text(" ", Source::own);
  static const Value kZero = make_constant_text("0", Source::own);
  out.append_repeated(*(character == '0' ? kZero : kSpace).text(), static_cast<Int>(count));
}

void append_number(TextBuilder& out, const Layout& layout, std::string_view digits) {
  const std::size_t missing = layout.width > digits.size() ? layout.width - digits.size() : 0;
  if (layout.zeros && !layout.left) {
    const std::size_t sign = digits.starts_with('-') ? 1 : 0;
    out.append(digits.substr(0, sign), Source::own);
    append_repeated(out, '0', missing);
    return out.append(digits.substr(sign), Source::own);
  }
  if (!layout.left) append_repeated(out, ' ', missing);
  out.append(digits, Source::own);
  if (layout.left) append_repeated(out, ' ', missing);
}

void append_number(TextBuilder& out, const Layout& layout, const Value& value, bool integers_only) {
  const std::optional<Int> integer = as_index(value);
  if (!integer && (value.real() == nullptr || integers_only)) {
    require_defined(value);
    fail_operation(fmt::format("format '{}': a number is required, not {}", layout.type, value.type_name()));
  }
  if (layout.type == 'f') {
    const double real = integer ? static_cast<double>(*integer) : *value.real();
    return append_number(out, layout, fixed_point(real, layout.precision.value_or(6)));
  }
  if (layout.precision) fail_operation("a precision for integers is not supported in chat templates");
  if (!integer && !(std::abs(*value.real()) < 0x1p126)) fail_operation("cannot convert float to integer");
  append_number(out, layout, int_to_string(integer ? *integer : static_cast<Int>(*value.real())));
}

void append_text(Runtime& runtime, TextBuilder& out, const Layout& layout, const Value& value, bool markup) {
  const bool escape = markup && !(value.text() != nullptr && value.text()->markup);
  Value text = layout.type == 'r' ? to_repr(runtime.meter, value) : to_plain_text(runtime.meter, value);
  if (layout.precision) {
    text = make_piece(runtime.meter, *text.text(), 0, byte_of_character(text.text()->bytes, *layout.precision));
  }
  if (escape) text = convert_text(runtime, *text.text(), escape_html, true);
  const std::size_t length = text.text()->length;
  const std::size_t missing = layout.width > length ? layout.width - length : 0;
  if (!layout.left) append_repeated(out, ' ', missing);
  out.append(*text.text());
  if (layout.left) append_repeated(out, ' ', missing);
}

[[noreturn]] void fail_unsupported(std::string_view what) {
  fail_operation(fmt::format("the format '{}' is not supported in chat templates", what));
}

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Text& format, const Value& values)
      : runtime_(runtime), format_(format), rest_(format.bytes), values_(values), out_(runtime.meter) {
    const Sequence* sequence = values.sequence();
    if (sequence != nullptr && sequence->is_tuple()) tuple_ = sequence;
  }

  Value run() {
    while (!rest_.empty()) {
      const std::size_t percent = std::min(rest_.find('%'), rest_.size());
      out_.append(format_, format_.bytes.size() - rest_.size(), percent);
      rest_.remove_prefix(percent);
      if (!rest_.empty()) conversion();
    }
    // Python treats any value with items, except a tuple, as a mapping, of which not all items must be used.
    const bool mapping = tuple_ == nullptr && values_.text() == nullptr && sized(values_);
    const bool all_used = mapping || (tuple_ != nullptr ? next_ == tuple_->items.size() : next_ == 1);
    if (!all_used) fail_operation("not all arguments converted during string formatting");
    return out_.finish(format_.markup);
  }

 private:
  void conversion() {
    runtime_.meter.step();
    const std::string_view whole = rest_;
    rest_.remove_prefix(1);
    const Value* named = rest_.starts_with('(') ? &named_value() : nullptr;
    const bool left = rest_.starts_with('-');
    if (left) rest_.remove_prefix(1);
    Layout layout = read_layout(rest_);
    layout.left = left;
    switch (layout.type) {
      case 0: fail_operation("incomplete format");
      case '%': return out_.append(format_, format_.bytes.size() - rest_.size() - 1, 1);
      case 's':
      case 'r': return append_text(runtime_, out_, layout, named != nullptr ? *named : next_value(), format_.markup);
      case 'd':
      case 'i':
      case 'f': return append_number(out_, layout, named != nullptr ? *named : next_value(), false);
      default: fail_unsupported(whole.substr(0, whole.size() - rest_.size()));
    }
  }

  const Value& next_value() {
    if (tuple_ == nullptr && next_++ == 0) return values_;
    if (tuple_ == nullptr || next_ == tuple_->items.size()) fail_operation("not enough arguments for format string");
    return tuple_->items[next_++];
  }

  const Value& named_value() {
    const std::size_t close = rest_.find(')');
    if (close == std::string_view::npos) fail_operation("incomplete format key");
    const std::string_view name = rest_.substr(1, close - 1);
    rest_.remove_prefix(close + 1);
    if (values_.dict() == nullptr) fail_operation("format requires a mapping");
    const Value* found = values_.dict()->find(name);
    if (found == nullptr) fail_operation(quoted(name));
    return *found;
  }

  Runtime& runtime_;
  const Text& format_;
  std::string_view rest_;
  const Value& values_;
  const Sequence* tuple_ = nullptr;
  std::size_t next_ = 0;
  TextBuilder out_;
};

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Text& format, const Arguments& arguments)
      : runtime_(runtime), format_(format), arguments_(arguments), out_(runtime.meter) {}

  Value run() {
    std::string_view rest = format_.bytes;
    while (!rest.empty()) {
      const std::size_t brace = std::min(rest.find_first_of("{}"), rest.size());
      out_.append(format_, format_.bytes.size() - rest.size(), brace);
      rest.remove_prefix(brace);
      if (rest.empty()) break;
      runtime_.meter.step();
      if (rest.size() > 1 && rest[1] == rest[0]) {
        out_.append(format_, format_.bytes.size() - rest.size(), 1);
        rest.remove_prefix(2);
        continue;
      }
      const std::size_t close = rest.find('}');
      if (rest.front() == '}') fail_operation("Single '}' encountered in format string");
      if (close == std::string_view::npos) fail_operation("Single '{' encountered in format string");
      field(rest.substr(1, close - 1));
      rest.remove_prefix(close + 1);
    }
    return out_.finish(format_.markup);
  }

 private:
  // name[!r][:layout]
  void field(std::string_view whole) {
    const std::size_t colon = std::min(whole.find(':'), whole.size());
    std::string_view name = whole.substr(0, colon);
    std::string_view spec = whole.substr(std::min(colon + 1, whole.size()));
    const bool as_repr = name.ends_with("!r");
    if (as_repr || name.ends_with("!s")) name.remove_suffix(2);
    if (name.find_first_of(".[!{") != std::string_view::npos) fail_unsupported(fmt::format("{{{}}}", whole));
    const Value& value = argument(name);
    Layout layout = read_layout(spec);
    const bool known = layout.type == 0 || layout.type == 's' || layout.type == 'd' || layout.type == 'f';
    if (!spec.empty() || !known) fail_unsupported(fmt::format("{{{}}}", whole));
    const bool number = !as_repr && (as_index(value) || value.real() != nullptr);
    if (layout.type == 'd' || layout.type == 'f') return append_number(out_, layout, value, layout.type == 'd');
    if (number && (layout.type == 's' || layout.precision)) fail_unsupported(fmt::format("{{{}}}", whole));
    if (number) {
      return append_number(out_, layout, std::string_view(to_plain_text(runtime_.meter, value).text()->bytes));
    }
    if (colon + 1 < whole.size() && !as_repr && value.text() == nullptr) {
      fail_operation(fmt::format("unsupported format string passed to {}.__format__", value.type_name()));
    }
    layout.left = true;
    layout.type = as_repr ? 'r' : 's';
    append_text(runtime_, out_, layout, value, format_.markup);
  }

  const Value& argument(std::string_view name) {
    std::string_view digits = name;
    const std::optional<std::size_t> index = read_number(digits);
    if (name.empty() || (index && digits.empty())) {
      if (numbered_ && *numbered_ != index.has_value()) {
        fail_operation("cannot switch between manual field specification and automatic field numbering");
      }
      numbered_ = index.has_value();
      const std::size_t at = index ? *index : next_++;
      if (at < arguments_.positional.size()) return arguments_.positional[at];
      fail_operation(fmt::format("Replacement index {} out of range for positional args tuple", at));
    }
    const auto found =
        std::ranges::find_if(arguments_.named, [name](const auto& named) { return named.first == name; });
    if (found == arguments_.named.end()) fail_operation(quoted(name));
    return found->second;
  }

  Runtime& runtime_;
  const Text& format_;
  const Arguments& arguments_;
  TextBuilder out_;
  std::size_t next_ = 0;
  std::optional<bool> numbered_;  // whether fields have explicit positions
};

}  // namespace

Value format_percent(Runtime& runtime, const Text& format, const Value& values) {
  return PercentFormatter(runtime, format, values).run();
}

Value format_braces(Runtime& runtime, const Text& format, const Arguments& arguments) {
  return BraceFormatter(runtime, format, arguments).run();
}

}  // namespace quire::jinja
