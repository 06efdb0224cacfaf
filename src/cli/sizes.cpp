#include "quire/cli/sizes.h"

#include <charconv>
#include <cmath>

namespace quire::cli {

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  // from_chars would accept a sign or "inf".
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc()) return std::nullopt;
  std::string_view unit(rest, static_cast<std::size_t>(end - rest));

  constexpr std::string_view kUnits = "kmgt";
  int power = 0;
  if (!unit.empty()) {
    const std::size_t found = kUnits.find(static_cast<char>(unit[0] | 0x20));
    if (found != std::string_view::npos) {
      power = static_cast<int>(found) + 1;
      unit.remove_prefix(1);
    }
    if (!unit.empty() && unit != "B" && unit != "b" && (power == 0 || (unit != "iB" && unit != "ib")))
      return std::nullopt;
  }
  const double bytes = std::floor(std::ldexp(number, 10 * power));
  if (bytes < 1 || bytes >= 0x1p64) return std::nullopt;
  return static_cast<std::uint64_t>(bytes);
}

}  // namespace quire::cli
