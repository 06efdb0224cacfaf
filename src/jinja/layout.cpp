#include "quire/jinja/layout.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "quire/jinja/print.h"
#include "quire/jinja/unicode.h"

namespace quire::jinja {
namespace {

constexpr int kMaxPrecision = 300;

std::string with_groups(std::string digits, char separator, std::size_t group) {
  if (separator == 0) return digits;
  for (std::size_t at = digits.size(); at > group; at -= group) digits.insert(at - group, 1, separator);
  return digits;
}

std::string sign_of(bool negative, char wanted) {
  if (negative) return "-";
  return wanted == '-' ? "" : std::string(1, wanted);
}

Value laid_out(Runtime& runtime, const Layout& layout, std::string_view sign, std::string_view body, bool is_number) {
  const char align = layout.align != 0 ? layout.align : (is_number ? '>' : '<');
  const std::size_t length = count_characters(sign) + count_characters(body);
  const std::size_t missing = layout.width > length ? layout.width - length : 0;
  std::size_t before = 0;
  if (align == '>' || align == '=') before = missing;
  if (align == '^') before = missing / 2;
  TextBuilder out(runtime.meter);
  if (align == '=') out.append(sign);
  out.append_repeated(layout.fill, static_cast<Int>(before));
  if (align != '=') out.append(sign);
  out.append(body);
  out.append_repeated(layout.fill, static_cast<Int>(missing - before));
  return out.finish();
}

std::string digits_of(Int value, int base) {
  std::string digits;
  do {
    const int digit = static_cast<int>(value % base < 0 ? -(value % base) : value % base);
    digits += "0123456789abcdef"[digit];
    value /= base;
  } while (value != 0);
  std::ranges::reverse(digits);
  return digits;
}

std::string upper_ascii(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return text;
}

// `type` is one of e f g E F G.
std::string format_real(double value, char type, int precision, bool alternate) {
  const bool is_upper = type >= 'A' && type <= 'Z';
  const char lower_type = is_upper ? static_cast<char>(type + 32) : type;
  std::string out;
  if (std::isnan(value) || std::isinf(value)) {
    out = std::isnan(value) ? "nan" : (value < 0 ? "-inf" : "inf");
  } else {
    const auto format = lower_type == 'e'   ? std::chars_format::scientific
                        : lower_type == 'f' ? std::chars_format::fixed
                                            : std::chars_format::general;
    out.resize(static_cast<std::size_t>(precision) + 350);
    out.resize(static_cast<std::size_t>(
        std::to_chars(out.data(), out.data() + out.size(), value, format, precision).ptr - out.data()));
    if (alternate && out.find('.') == std::string::npos) out += '.';
  }
  return is_upper ? upper_ascii(out) : out;
}

}  // namespace

Value layout_integer(Runtime& runtime, const Layout& layout, Int value) {
  int base = 10;
  std::string prefix;
  switch (layout.type) {
    case 'b':
      base = 2;
      prefix = "0b";
      break;
    case 'o':
      base = 8;
      prefix = "0o";
      break;
    case 'x':
      base = 16;
      prefix = "0x";
      break;
    case 'X':
      base = 16;
      prefix = "0X";
      break;
    default: break;
  }
  std::string digits = digits_of(value, base);
  if (layout.has_precision() && static_cast<std::size_t>(layout.precision) > digits.size()) {
    digits.insert(0, static_cast<std::size_t>(layout.precision) - digits.size(), '0');
  }
  if (layout.type == 'X') digits = upper_ascii(digits);
  digits = with_groups(digits, layout.grouping, base == 10 ? 3 : 4);
  const std::string sign = sign_of(value < 0, layout.sign) + (layout.alternate ? prefix : "");
  return laid_out(runtime, layout, sign, digits, true);
}

Value layout_real(Runtime& runtime, const Layout& layout, double value) {
  const bool percent = layout.type == '%';
  std::string body;
  if (layout.type == 0 && !layout.has_precision()) {
    body = float_to_string(std::abs(value));
  } else {
    const char type = percent ? 'f' : (layout.type == 0 || layout.type == 'n' ? 'g' : layout.type);
    body = format_real(std::abs(percent ? value * 100 : value), type, layout.has_precision() ? layout.precision : 6,
                       layout.alternate);
    const bool bare = body.find_first_not_of("0123456789") == std::string::npos;
    if (layout.type == 0 && bare) body += ".0";
  }
  const std::size_t whole = std::min(body.find_first_not_of("0123456789"), body.size());
  body = with_groups(body.substr(0, whole), layout.grouping, 3) + body.substr(whole) + (percent ? "%" : "");
  return laid_out(runtime, layout, sign_of(std::signbit(value), layout.sign), body, true);
}

Value layout_text(Runtime& runtime, const Layout& layout, std::string_view text) {
  if (layout.has_precision()) {
    text = text.substr(0, byte_of_character(text, static_cast<std::size_t>(layout.precision)));
  }
  return laid_out(runtime, layout, "", text, false);
}

std::size_t read_number(std::string_view& rest) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error == std::errc::result_out_of_range) fail_operation("Too many decimal digits in format string");
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  return value;
}

int checked_precision(Int value) {
  if (value > kMaxPrecision) fail_operation("precision too big");
  return static_cast<int>(std::max<Int>(value, 0));
}

}  // namespace quire::jinja
