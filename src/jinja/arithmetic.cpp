// calculate() and its helpers.
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "quire/jinja/access.h"
#include "quire/jinja/format.h"
#include "quire/jinja/operators.h"
#include "quire/jinja/print.h"

namespace quire::jinja {
namespace {

std::string_view symbol(Arithmetic operation) {
  switch (operation) {
    case Arithmetic::add: return "+";
    case Arithmetic::subtract: return "-";
    case Arithmetic::multiply: return "*";
    case Arithmetic::divide: return "/";
    case Arithmetic::floor_divide: return "//";
    case Arithmetic::modulo: return "%";
    case Arithmetic::power: return "** or pow()";
  }
  return "";
}

[[noreturn]] void fail_types(Arithmetic operation, const Value& a, const Value& b) {
  fail_operation(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", symbol(operation), a.type_name(),
                             b.type_name()));
}

[[noreturn]] void fail_size() { fail_limit("an integer is too large"); }

bool zero(Int value) { return value == 0; }

// Python rounds the quotient down; the remainder has the sign of the divisor.
Int floor_divide(Int a, Int b) {
  if (b == -1) {
    Int result = 0;
    if (__builtin_sub_overflow(Int{0}, a, &result)) fail_size();
    return result;
  }
  const Int quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Int modulo(Int a, Int b) {
  if (b == -1) return 0;
  const Int remainder = a % b;
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

double modulo(double a, double b) {
  const double remainder = std::fmod(a, b);
  if (remainder == 0) return std::copysign(0.0, b);
  return (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

double floor_divide(double a, double b) {
  const double remainder = modulo(a, b);
  const double quotient = (a - remainder) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

Int integer_power(Int base, Int exponent) {
  Int result = 1;
  while (exponent > 0) {
    if (exponent % 2 != 0 && __builtin_mul_overflow(result, base, &result)) fail_size();
    exponent /= 2;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_size();
  }
  return result;
}

Value real_power(double base, double exponent) {
  if (base == 0 && exponent < 0) fail_operation("0.0 cannot be raised to a negative power");
  if (base < 0 && std::isfinite(base) && std::isfinite(exponent) && exponent != std::floor(exponent)) {
    fail_operation("complex numbers are not supported");
  }
  const double result = std::pow(base, exponent);
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent)) {
    fail_operation("(34, 'Numerical result out of range')");
  }
  return result;
}

Value calculate_integers(Arithmetic operation, Int a, Int b) {
  Int result = 0;
  switch (operation) {
    case Arithmetic::add:
      if (__builtin_add_overflow(a, b, &result)) fail_size();
      return result;
    case Arithmetic::subtract:
      if (__builtin_sub_overflow(a, b, &result)) fail_size();
      return result;
    case Arithmetic::multiply:
      if (__builtin_mul_overflow(a, b, &result)) fail_size();
      return result;
    case Arithmetic::divide:
      if (zero(b)) fail_operation("division by zero");
      return static_cast<double>(a) / static_cast<double>(b);
    case Arithmetic::floor_divide:
      if (zero(b)) fail_operation("integer division or modulo by zero");
      return floor_divide(a, b);
    case Arithmetic::modulo:
      if (zero(b)) fail_operation("integer modulo by zero");
      return modulo(a, b);
    case Arithmetic::power:
      if (b < 0) return real_power(static_cast<double>(a), static_cast<double>(b));
      return integer_power(a, b);
  }
  return result;
}

Value calculate_reals(Arithmetic operation, double a, double b) {
  switch (operation) {
    case Arithmetic::add: return a + b;
    case Arithmetic::subtract: return a - b;
    case Arithmetic::multiply: return a * b;
    case Arithmetic::divide:
      if (b == 0) fail_operation("float division by zero");
      return a / b;
    case Arithmetic::floor_divide:
      if (b == 0) fail_operation("float floor division by zero");
      return floor_divide(a, b);
    case Arithmetic::modulo:
      if (b == 0) fail_operation("float modulo");
      return modulo(a, b);
    case Arithmetic::power: return real_power(a, b);
  }
  return 0.0;
}

Value concatenate(Runtime& runtime, const Text& a, const Text& b) {
  TextBuilder out(runtime.meter);
  const bool markup = a.markup || b.markup;
  out.reserve(a.bytes.size() + b.bytes.size());
  for (const Text* text : {&a, &b}) {
    if (markup && !text->markup) {
      append_escaped(out, *text);
    } else {
      out.append(*text);
    }
  }
  return out.finish(markup);
}

Value concatenate(Runtime& runtime, const Sequence& a, const Sequence& b) {
  runtime.meter.step(a.items.size() + b.items.size());
  ListBuilder out(runtime.meter);
  for (const Value& item : a.items) out.push(item);
  for (const Value& item : b.items) out.push(item);
  return out.finish(a.is_tuple() ? SequenceKind::tuple : SequenceKind::list);
}

Value add(Runtime& runtime, const Value& a, const Value& b) {
  if (const Text* text = a.text()) {
    if (b.text() == nullptr) {
      fail_operation(fmt::format("can only concatenate str (not \"{}\") to str", b.type_name()));
    }
    return concatenate(runtime, *text, *b.text());
  }
  if (const Sequence* sequence = a.sequence(); sequence != nullptr && sequence->indexable()) {
    const Sequence* other = b.sequence();
    if (other == nullptr || !other->indexable() || other->is_tuple() != sequence->is_tuple()) {
      fail_operation(fmt::format("can only concatenate {0} (not \"{1}\") to {0}", a.type_name(), b.type_name()));
    }
    return concatenate(runtime, *sequence, *other);
  }
  fail_types(Arithmetic::add, a, b);
}

Value repeat_items(Runtime& runtime, const Sequence& sequence, Int count) {
  ListBuilder out(runtime.meter);
  if (sequence.items.empty()) count = 0;
  for (Int i = 0; i < count; ++i) {
    runtime.meter.step(1 + sequence.items.size());
    for (const Value& item : sequence.items) out.push(item);
  }
  return out.finish(sequence.is_tuple() ? SequenceKind::tuple : SequenceKind::list);
}

std::optional<Value> multiply(Runtime& runtime, const Value& repeated, const Value& count) {
  const std::optional<Int> times = as_index(count);
  if (!times) return std::nullopt;
  if (const Text* text = repeated.text()) return repeat(runtime, *text, *times);
  const Sequence* sequence = repeated.sequence();
  if (sequence == nullptr || !sequence->indexable()) return std::nullopt;
  return repeat_items(runtime, *sequence, *times);
}

std::optional<double> as_real(const Value& value) {
  if (const double* real = value.real()) return *real;
  const std::optional<Int> integer = as_index(value);
  return integer ? std::optional(static_cast<double>(*integer)) : std::nullopt;
}

}  // namespace

Value repeat(Runtime& runtime, const Text& text, Int count) {
  TextBuilder out(runtime.meter);
  out.append_repeated(text, count);
  return out.finish(text.markup);
}

Value calculate(Runtime& runtime, Arithmetic operation, const Value& a, const Value& b) {
  const std::optional<Int> x = as_index(a);
  const std::optional<Int> y = as_index(b);
  if (x && y) return calculate_integers(operation, *x, *y);
  const std::optional<double> real_x = as_real(a);
  const std::optional<double> real_y = as_real(b);
  if (real_x && real_y) return calculate_reals(operation, *real_x, *real_y);

  // "..." % value accepts an undefined value.
  if (operation == Arithmetic::modulo && a.text() != nullptr) return format_percent(runtime, *a.text(), b);
  require_defined(a);
  require_defined(b);
  if (operation == Arithmetic::add) return add(runtime, a, b);
  if (operation == Arithmetic::multiply) {
    if (auto product = multiply(runtime, a, b)) return *std::move(product);
    if (auto product = multiply(runtime, b, a)) return *std::move(product);
    if (a.text() != nullptr || b.text() != nullptr || a.sequence() != nullptr || b.sequence() != nullptr) {
      const bool left = a.text() != nullptr || a.sequence() != nullptr;
      fail_operation(fmt::format("can't multiply sequence by non-int of type '{}'", (left ? b : a).type_name()));
    }
  }
  fail_types(operation, a, b);
}

Value negate(const Value& value) {
  if (const double* real = value.real()) return -*real;
  require_defined(value);
  const std::optional<Int> integer = as_index(value);
  if (!integer) fail_operation(fmt::format("bad operand type for unary -: '{}'", value.type_name()));
  return calculate_integers(Arithmetic::subtract, 0, *integer);
}

Value plus(const Value& value) {
  if (value.real() != nullptr) return value;
  require_defined(value);
  const std::optional<Int> integer = as_index(value);
  if (!integer) fail_operation(fmt::format("bad operand type for unary +: '{}'", value.type_name()));
  return *integer;
}

}  // namespace quire::jinja
