#include "quire/base/readable.h"

#include <array>
#include <cstdio>
#include <span>
#include <string_view>

namespace quire {

namespace {

// With one decimal digit, in the largest unit in which the value is at least one.
std::string scaled(std::uint64_t number, double step, std::span<const std::string_view> units) {
  double value = static_cast<double>(number);
  std::size_t unit = 0;
  // A value that would be printed as 1024.0 becomes 1.0 of the next unit.
  while (value >= step - 0.05 && unit + 1 < units.size()) {
    value /= step;
    ++unit;
  }
  if (unit == 0) return std::to_string(number).append(units[0]);
  std::array<char, 32> digits;
  const int length = std::snprintf(digits.data(), digits.size(), "%.1f", value);
  return std::string(digits.data(), static_cast<std::size_t>(length)).append(units[unit]);
}

}  // namespace

std::string grouped(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return digits;
}

std::string in_units(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 7> kUnits = {" bytes", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
  return scaled(bytes, 1024, kUnits);
}

std::string in_millions(std::uint64_t number) {
  constexpr std::array<std::string_view, 5> kUnits = {"", " K", " M", " B", " T"};
  return scaled(number, 1000, kUnits);
}

}  // namespace quire
