#include "quire/gguf/split.h"

#include <charconv>

#include <fmt/format.h>

#include "quire/gguf/message.h"

namespace quire::gguf {

namespace {

constexpr std::string_view kNumberKey = "split.no";
constexpr std::string_view kCountKey = "split.count";
constexpr std::string_view kTensorsKey = "split.tensors.count";
constexpr std::size_t kDigits = 5;

std::unexpected<Error> refuse(const Entry& entry, const std::string& name, std::string_view why) {
  return fail(fmt::format("{}: metadata {} at byte {}: {}", name, quoted(entry.key), entry.offset, why));
}

// Removes `text` from the end of `path`.
bool strip(std::string_view& path, std::string_view text) {
  if (!path.ends_with(text)) return false;
  path.remove_suffix(text.size());
  return true;
}

std::optional<std::uint32_t> strip_number(std::string_view& path) {
  if (path.size() < kDigits) return std::nullopt;
  const std::string_view digits = path.substr(path.size() - kDigits);
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  path.remove_suffix(kDigits);
  return number;
}

}  // namespace

std::optional<SplitName> parse_split_name(std::string_view path) {
  if (!strip(path, ".gguf")) return std::nullopt;
  const auto count = strip_number(path);
  if (!count || !strip(path, "-of-")) return std::nullopt;
  const auto number = strip_number(path);
  if (!number || !strip(path, "-")) return std::nullopt;
  if (*number < 1 || *number > *count) return std::nullopt;
  return SplitName{std::string(path), *number, *count};
}

std::string split_path(std::string_view prefix, std::uint32_t number, std::uint32_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, number, count);
}

Result<std::uint32_t> split_count(const Index& part, const std::string& name) {
  const std::optional<Entry> entry = part.find(kCountKey);
  if (!entry) return 1;
  // A name has room for five digits.
  const auto count = entry->value.as<std::uint32_t>();
  if (!count || *count > 99999) {
    return refuse(*entry, name, fmt::format("wanted a number of parts, found {}", entry->value.describe()));
  }
  return *count == 0 ? 1 : *count;
}

Result<void> check_part(const Index& part, const std::string& name, std::uint32_t number, std::uint32_t count) {
  const auto check = [&](std::string_view key, std::uint32_t expected) -> Result<void> {
    const std::optional<Entry> entry = part.find(key);
    if (!entry)
      return fail(fmt::format("{}: is named as a part of a split model, but has no metadata '{}'", name, key));
    if (entry->value.as<std::uint32_t>() == expected) return {};
    return refuse(
        *entry, name,
        fmt::format("wanted {} for part {} of {}, found {}", expected, number, count, entry->value.describe()));
  };
  if (auto ok = check(kCountKey, count); !ok) return ok;
  return check(kNumberKey, number - 1);
}

Result<void> check_tensor_count(const Index& part, const std::string& name, std::uint64_t tensors) {
  const std::optional<Entry> entry = part.find(kTensorsKey);
  if (!entry || entry->value.as<std::uint64_t>() == tensors) return {};
  return refuse(*entry, name,
                fmt::format("the parts have {} tensors together, found {}", tensors, entry->value.describe()));
}

}  // namespace quire::gguf
