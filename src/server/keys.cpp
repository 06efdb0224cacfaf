#include "quire/server/keys.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include <fmt/format.h>

namespace quire::server {
namespace {

constexpr std::string_view kScheme = "bearer";

// Always compares the whole key, so that the time does not tell how much is correct.
bool same(std::string_view key, std::string_view sent) {
  volatile unsigned char difference = key.size() == sent.size() ? 0 : 1;
  for (std::size_t i = 0; i < key.size(); ++i) {
    const char other = i < sent.size() ? sent[i] : '\0';
    difference = static_cast<unsigned char>(difference | static_cast<unsigned char>(key[i] ^ other));
  }
  return difference == 0;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

}  // namespace

Result<Keys> Keys::create(std::vector<std::string> keys) {
  Keys made;
  for (std::string& key : keys) {
    const bool printable = std::ranges::all_of(key, [](char c) { return c > 0x20 && c < 0x7F; });
    if (key.empty()) return fail("an API key is empty");
    if (!printable) return fail("an API key has characters that a header cannot have (spaces or non-ASCII characters)");
    if (std::ranges::find(made.keys_, key) == made.keys_.end()) made.keys_.push_back(std::move(key));
  }
  return made;
}

std::optional<Namespace> Keys::admit(std::string_view authorization) const {
  if (keys_.empty()) return 0;
  const std::size_t space = std::min(authorization.find(' '), authorization.size());
  const bool bearer = std::ranges::equal(authorization.substr(0, space), kScheme, [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == b;
  });
  const std::string_view sent = bearer ? trimmed(authorization.substr(space)) : std::string_view();
  // All keys are compared, so that the time does not tell which one matched. Namespace 0 belongs to no key.
  Namespace found = 0;
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    if (same(keys_[i], sent)) found = i + 1;
  }
  if (found == 0) return std::nullopt;
  return found;
}

std::vector<std::string> keys_in(std::string_view text) {
  std::vector<std::string> keys;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    if (!line.empty() && !line.starts_with('#')) keys.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return keys;
}

}  // namespace quire::server
