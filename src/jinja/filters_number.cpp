// Filters for numbers, conversions to numbers, and default.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "quire/jinja/access.h"
#include "quire/jinja/filters.h"
#include "quire/jinja/methods.h"
#include "quire/jinja/operators.h"
#include "quire/jinja/print.h"
#include "quire/jinja/unicode.h"

namespace quire::jinja {
namespace {

// int(text): accepts white space around it, a sign, and single underscores between digits.
std::optional<Int> parse_integer(std::string_view text) {
  text = strip(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  Int value = 0;
  bool after_digit = false;
  for (const char c : text) {
    if (c == '_' && after_digit) {
      after_digit = false;
      continue;
    }
    if (c < '0' || c > '9') return std::nullopt;
    if (__builtin_mul_overflow(value, Int{10}, &value) || __builtin_add_overflow(value, Int{c - '0'}, &value)) {
      fail_limit("an integer is too large");
    }
    after_digit = true;
  }
  if (!after_digit) return std::nullopt;
  return negative ? -value : value;
}

std::optional<double> parse_real(std::string_view given) {
  std::string text = lower(strip(given));
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto is_digit_at = [&text](std::size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
    if (text[i] == '_' && (i == 0 || !is_digit_at(i - 1) || !is_digit_at(i + 1))) return std::nullopt;
  }
  std::erase(text, '_');
  const bool signed_text = text.starts_with('+') || text.starts_with('-');
  const bool negative = text.starts_with('-');
  const std::string_view body = std::string_view(text).substr(signed_text ? 1 : 0);
  double value = 0;
  if (body == "inf" || body == "infinity") {
    value = std::numeric_limits<double>::infinity();
  } else if (body == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    if (body.empty() || !(body[0] == '.' || (body[0] >= '0' && body[0] <= '9'))) return std::nullopt;
    const auto [end, error] = std::from_chars(body.data(), body.data() + body.size(), value);
    if (end != body.data() + body.size() || error == std::errc::invalid_argument) return std::nullopt;
    if (error == std::errc::result_out_of_range) {
      // Too large or too small: from_chars does not say which.
      const bool small = body.find("e-") != std::string_view::npos || body.starts_with("0") || body.starts_with(".");
      value = small ? 0.0 : std::numeric_limits<double>::infinity();
    }
  }
  return negative ? -value : value;
}

std::optional<double> as_real(const Value& value) {
  require_defined(value);
  if (const double* real = value.real()) return *real;
  if (const std::optional<Int> integer = as_index(value)) return static_cast<double>(*integer);
  if (const Text* text = value.text()) return parse_real(text->bytes);
  return std::nullopt;
}

Int truncated(double value) {
  if (std::isnan(value)) fail_operation("cannot convert float NaN to integer");
  if (std::isinf(value)) fail_operation("cannot convert float infinity to integer");
  if (std::abs(value) >= 0x1p126) fail_limit("an integer is too large");
  return static_cast<Int>(value);
}

Value to_int(Runtime&, const Value& self, const Arguments& arguments) {
  const auto [otherwise, base] = bind("int", arguments, {"default", "base"}, 0);
  if (base != nullptr && require_index(*base) != 10) fail_operation("int(base=...) is not supported in chat templates");
  Value fallback = otherwise != nullptr ? *otherwise : Value(0);
  if (const std::optional<Int> integer = as_index(self)) return *integer;
  if (const double* real = self.real()) return std::isnan(*real) ? fallback : Value(truncated(*real));
  if (const Text* text = self.text()) {
    if (const std::optional<Int> integer = parse_integer(text->bytes)) return *integer;
  }
  const std::optional<double> real = as_real(self);
  return real && std::isfinite(*real) ? Value(truncated(*real)) : fallback;
}

Value to_float(Runtime&, const Value& self, const Arguments& arguments) {
  const auto [otherwise] = bind("float", arguments, {"default"}, 0);
  if (const std::optional<double> real = as_real(self)) return *real;
  return otherwise != nullptr ? *otherwise : Value(0.0);
}

Value absolute(Runtime&, const Value& self, const Arguments& arguments) {
  bind_nothing("abs", arguments);
  require_defined(self);
  if (const double* real = self.real()) return std::abs(*real);
  const std::optional<Int> integer = as_index(self);
  if (!integer) fail_operation(fmt::format("bad operand type for abs(): '{}'", self.type_name()));
  return *integer < 0 ? negate(*integer) : Value(*integer);
}

Value with_default(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [otherwise, boolean] = bind("default", arguments, {"default_value", "boolean"}, 0);
  const bool missing = self.undefined() != nullptr || (boolean != nullptr && truthy(*boolean) && !truthy(self));
  if (!missing) return self;
  return otherwise != nullptr ? *otherwise : runtime.text("", Source::own);
}

constexpr Filter kFilters[] = {
    {"int", to_int}, {"float", to_float}, {"abs", absolute}, {"default", with_default}, {"d", with_default}};

}  // namespace

std::span<const Filter> number_filters() { return kFilters; }

}  // namespace quire::jinja
