#include "quire/server/query.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "quire/server/fields.h"

namespace quire::server {
namespace {

// %41 is A, and + is a space. What is no escape stays as it is.
std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

}  // namespace

std::optional<std::string> text_in_query(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view each = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(each.size() + 1, query.size()));
    if (!each.starts_with(name) || each.size() <= name.size() || each[name.size()] != '=') continue;
    return unescaped(each.substr(name.size() + 1));
  }
  return std::nullopt;
}

std::expected<std::optional<std::uint64_t>, ApiError> number_in_query(std::string_view query, std::string_view name) {
  const auto text = text_in_query(query, name);
  if (!text) return std::nullopt;
  std::uint64_t number = 0;
  const char* const end = text->data() + text->size();
  const auto [rest, error] = std::from_chars(text->data(), end, number);
  if (error != std::errc() || rest != end) {
    return std::unexpected(
        invalid(fmt::format("'{}' must be a whole number, not {}", name, in_quotes(*text)), std::string(name)));
  }
  return number;
}

}  // namespace quire::server
