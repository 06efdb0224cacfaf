#include "quire/cli/chat_settings.h"

#include <charconv>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "quire/cli/printable.h"

namespace quire::cli {

namespace {

// A setting and where it is kept.
struct Setting {
  std::string_view name;
  std::variant<double*, std::uint32_t*, std::uint64_t*> value;
};

std::vector<Setting> settings_of(ChatOptions& options) {
  engine::SamplerOptions& sampler = options.sampler;
  return {{"temp", &sampler.temperature},
          {"top-k", &sampler.top_k},
          {"top-p", &sampler.top_p},
          {"min-p", &sampler.min_p},
          {"repeat-penalty", &sampler.repetition_penalty},
          {"presence-penalty", &sampler.presence_penalty},
          {"frequency-penalty", &sampler.frequency_penalty},
          {"seed", &sampler.seed},
          {"tokens", &options.limit}};
}

template <typename T>
bool read(std::string_view text, T& value) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return rest == text.data() + text.size() && error == std::errc();
}

}  // namespace

Result<void> change_setting(ChatOptions& options, std::string_view name, std::string_view value) {
  if (name.starts_with("--")) name.remove_prefix(2);
  if (name == "stop") {
    if (value.empty()) {
      options.stops.clear();
    } else {
      options.stops.emplace_back(value);
    }
    return {};
  }
  ChatOptions changed = options;
  for (const Setting& setting : settings_of(changed)) {
    if (setting.name != name) continue;
    const bool number = std::visit([&](auto* place) { return read(value, *place); }, setting.value);
    if (!number)
      return fail(fmt::format("{}: {} is not a number", name, printable(value, {.limit = 40, .quotes = true})));
    if (const auto ok = check(changed.sampler); !ok) return ok;
    options = std::move(changed);
    return {};
  }
  std::vector<std::string_view> names = {"stop"};
  for (const Setting& setting : settings_of(changed)) names.insert(names.end() - 1, setting.name);
  return fail(
      fmt::format("{} is not one of {}", printable(name, {.limit = 40, .quotes = true}), fmt::join(names, ", ")));
}

std::string describe_settings(const ChatOptions& options) {
  ChatOptions copy = options;
  std::string out;
  for (const Setting& setting : settings_of(copy)) {
    std::visit([&](const auto* value) { out += fmt::format("  {:<18}{}\n", setting.name, *value); }, setting.value);
  }
  out += fmt::format("  {:<18}", "stop");
  for (const std::string& stop : options.stops) out += printable(stop, {.limit = 40, .quotes = true}) + " ";
  return out + (options.stops.empty() ? "none\n" : "\n");
}

}  // namespace quire::cli
