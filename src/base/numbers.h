// Arithmetic on sizes from outside, where an overflow must be detected and must not wrap.
#pragma once

#include <concepts>
#include <limits>
#include <optional>

namespace quire {

template <std::unsigned_integral T>
constexpr std::optional<T> checked_add(T a, T b) {
  if (a > std::numeric_limits<T>::max() - b) return std::nullopt;
  return static_cast<T>(a + b);
}

template <std::unsigned_integral T>
constexpr std::optional<T> checked_mul(T a, T b) {
  if (b != 0 && a > std::numeric_limits<T>::max() / b) return std::nullopt;
  return static_cast<T>(a * b);
}

template <std::unsigned_integral T>
constexpr T divide_up(T a, T b) {
  return static_cast<T>(a / b + (a % b != 0 ? 1 : 0));
}

// The smallest multiple of `alignment` (any positive number, not only powers of two) that is at least `value`.
template <std::unsigned_integral T>
constexpr T round_up(T value, T alignment) {
  return static_cast<T>(divide_up(value, alignment) * alignment);
}

}  // namespace quire
