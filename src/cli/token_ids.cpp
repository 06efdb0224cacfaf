#include "quire/cli/token_ids.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "quire/cli/printable.h"

namespace quire::cli {

Result<std::vector<text::TokenId>> parse_token_ids(std::string_view text, std::size_t count) {
  constexpr std::string_view kBetween = " \t\r\n,[]";
  std::vector<text::TokenId> ids;
  for (std::size_t at = text.find_first_not_of(kBetween); at != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    text::TokenId id = 0;
    const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (rest != word.data() + word.size() || error == std::errc::invalid_argument) {
      return fail(fmt::format("{} is not a token id", printable(word, {.limit = 40, .quotes = true})));
    }
    if (error != std::errc() || id < 0 || static_cast<std::size_t>(id) >= count) {
      return fail(fmt::format("there is no token {}: ids are 0 to {}", word.substr(0, 40), count - 1));
    }
    ids.push_back(id);
    at = text.find_first_not_of(kBetween, end);
  }
  return ids;
}

}  // namespace quire::cli
