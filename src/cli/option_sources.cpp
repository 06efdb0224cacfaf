#include "quire/cli/option_sources.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "quire/cli/input.h"
#include "quire/cli/printable.h"

namespace quire::cli {

namespace {

constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;
constexpr std::string_view kSpace = " \t\r";
// These are not for a file or a variable.
constexpr std::array<std::string_view, 2> kOwn = {"--help", "--config"};

std::string_view trimmed(std::string_view text) {
  const std::size_t from = text.find_first_not_of(kSpace);
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(kSpace) - from + 1);
}

std::string show(std::string_view text) { return printable(text, {.limit = 60, .quotes = true}); }

// Reads the values of one line. Fails with what is wrong, without its place.
class ValueReader {
 public:
  explicit ValueReader(std::string_view text) : rest_(trimmed(text)) {}

  Result<std::vector<std::string>> read() {
    std::vector<std::string> values;
    if (!rest_.starts_with('[')) {
      auto value = one("#");
      if (!value) return std::unexpected(value.error());
      values.push_back(std::move(*value));
      return end() ? Result<std::vector<std::string>>(std::move(values)) : fail("there is more after the value");
    }
    rest_.remove_prefix(1);
    for (;;) {
      rest_ = trimmed(rest_);
      if (rest_.starts_with(']')) break;
      auto value = one(",]#");
      if (!value) return std::unexpected(value.error());
      values.push_back(std::move(*value));
      rest_ = trimmed(rest_);
      if (rest_.starts_with(',')) {
        rest_.remove_prefix(1);
      } else if (!rest_.starts_with(']')) {
        return fail("the list is not closed");
      }
    }
    rest_.remove_prefix(1);
    return end() ? Result<std::vector<std::string>>(std::move(values)) : fail("there is more after the list");
  }

 private:
  bool end() {
    rest_ = trimmed(rest_);
    return rest_.empty() || rest_.starts_with('#');
  }

  // A text in quotes, or a word that ends before one of these characters.
  Result<std::string> one(std::string_view ends) {
    if (rest_.starts_with('"') || rest_.starts_with('\'')) return quoted();
    const std::size_t end = std::min(rest_.find_first_of(ends), rest_.size());
    const std::string word(trimmed(rest_.substr(0, end)));
    rest_.remove_prefix(end);
    if (word.empty()) return fail("the value is missing");
    return word;
  }

  Result<std::string> quoted() {
    const char quote = rest_.front();
    std::string out;
    for (std::size_t i = 1; i < rest_.size(); ++i) {
      if (rest_[i] == quote) {
        rest_.remove_prefix(i + 1);
        return out;
      }
      if (quote == '"' && rest_[i] == '\\' && i + 1 < rest_.size()) {
        const char c = rest_[++i];
        out += c == 'n' ? '\n' : c == 't' ? '\t' : c;
      } else {
        out += rest_[i];
      }
    }
    return fail("the text has no closing quote");
  }

  std::string_view rest_;
};

std::optional<bool> truth(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const std::string_view yes : {"1", "true", "yes", "on"}) {
    if (text == yes) return true;
  }
  for (const std::string_view no : {"0", "false", "no", "off"}) {
    if (text == no) return false;
  }
  return std::nullopt;
}

class Collector {
 public:
  Collector(const std::vector<OptionText>& options, const std::vector<std::string>& given) : options_(options) {
    for (const std::string& argument : given) {
      if (argument == "--") break;
      for (const OptionText& option : options) {
        const bool is_long = argument == option.long_name || argument.starts_with(option.long_name + "=");
        const bool is_short =
            !option.short_name.empty() && !argument.starts_with("--") && argument.starts_with(option.short_name);
        if (is_long || is_short) taken_.insert(option.long_name);
      }
    }
  }

  bool taken(const std::string& name) const { return taken_.contains(name); }
  void settle() { taken_.merge(std::exchange(fresh_, {})); }

  // Null: there is no such option.
  const OptionText* find(std::string_view name) const {
    const auto found = std::ranges::find(options_, name, &OptionText::long_name);
    const bool own = std::ranges::find(kOwn, name) != kOwn.end();
    return found == options_.end() || own ? nullptr : &*found;
  }

  Result<void> add(const OptionText& option, const std::vector<std::string>& values, const std::string& origin) {
    if (!option.repeats && values.size() != 1) return fail(fmt::format("{}: takes one value, not a list", origin));
    sources_.origins[option.long_name] = origin;
    fresh_.insert(option.long_name);
    if (option.takes_value()) {
      // One argument, so that a value that begins with a dash is no option.
      for (const std::string& value : values) sources_.arguments.push_back(option.long_name + "=" + value);
      return {};
    }
    const auto on = truth(values.front());
    if (!on) return fail(fmt::format("{}: {} is neither true nor false", origin, show(values.front())));
    if (*on) sources_.arguments.push_back(option.long_name);
    return {};
  }

  OptionSources take() { return std::move(sources_); }

 private:
  const std::vector<OptionText>& options_;
  std::set<std::string> taken_;  // from a place that goes first
  std::set<std::string> fresh_;  // from the place that is being read
  OptionSources sources_;
};

// Kubernetes sets QUIRE_PORT=tcp://10.0.0.1:8080 in every container beside a Service named "quire", and so does
// docker --link. Nobody means the option by it.
bool is_service_link(const OptionText& option, std::string_view value) {
  return option.long_name == "--port" && value.starts_with("tcp://");
}

Result<void> add_variables(Collector& collector, const std::vector<OptionText>& options,
                           const Environment& environment) {
  for (const OptionText& option : options) {
    if (option.long_name.empty() || collector.find(option.long_name) == nullptr || collector.taken(option.long_name)) {
      continue;
    }
    const std::string name = variable_of(option.long_name);
    const char* const value = environment(name);
    if (value == nullptr || *value == '\0' || is_service_link(option, value)) continue;
    std::vector<std::string> values = {value};
    if (option.repeats) {
      values.clear();
      std::string_view rest = value;
      while (!rest.empty()) {
        const std::size_t comma = std::min(rest.find(','), rest.size());
        if (const auto each = trimmed(rest.substr(0, comma)); !each.empty()) values.emplace_back(each);
        rest.remove_prefix(std::min(comma + 1, rest.size()));
      }
    }
    if (const auto added = collector.add(option, values, name); !added) return added;
  }
  collector.settle();
  return {};
}

Result<void> add_file(Collector& collector, const std::string& path) {
  const auto text = read_input(path, kMaxConfigBytes);
  if (!text) return std::unexpected(text.error());
  std::map<std::string, std::size_t> seen;  // key -> line
  std::size_t number = 0;
  for (std::string_view rest = *text; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = trimmed(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::string place = fmt::format("{}:{}", path, ++number);
    if (line.empty() || line.starts_with('#')) continue;
    if (line.starts_with('[')) {
      if (trimmed(line.substr(0, line.find('#'))) == "[serve]") continue;
      return fail(fmt::format("{}: there is no section {}; only [serve] is known", place, show(line)));
    }
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) return fail(fmt::format("{}: {} is not 'key = value'", place, show(line)));
    std::string key(trimmed(line.substr(0, equals)));
    std::ranges::replace(key, '_', '-');
    const OptionText* const option = collector.find("--" + key);
    if (option == nullptr) {
      return fail(fmt::format("{}: there is no option {} (see 'quire serve --help')", place, show(key)));
    }
    const auto [before, fresh] = seen.emplace(key, number);
    if (!fresh) return fail(fmt::format("{}: {} was set in line {} already", place, key, before->second));
    const std::string origin = fmt::format("{}: {}", place, key);
    auto values = ValueReader(line.substr(equals + 1)).read();
    if (!values) return fail(fmt::format("{}: {}", origin, values.error().message));
    if (collector.taken(option->long_name)) continue;
    if (const auto added = collector.add(*option, *values, origin); !added) return added;
  }
  return {};
}

}  // namespace

std::string variable_of(std::string_view long_name) {
  std::string out = "QUIRE_";
  for (const char c : long_name.substr(std::min<std::size_t>(2, long_name.size()))) {
    out += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return out;
}

std::string default_config_path(const Environment& environment) {
  const auto below = [&](const char* variable, std::string_view folder) -> std::string {
    const char* const value = environment(variable);
    if (value == nullptr || *value != '/') return "";
    return (std::filesystem::path(value) / folder / "quire/config.toml").string();
  };
  const std::string path = below("XDG_CONFIG_HOME", "");
  return path.empty() ? below("HOME", ".config") : path;
}

Result<OptionSources> other_sources(const std::vector<OptionText>& options, const std::vector<std::string>& given,
                                    const Environment& environment) {
  std::string path;
  bool asked = false;
  for (std::size_t i = 0; i < given.size() && given[i] != "--"; ++i) {
    if (given[i].starts_with("--config=")) path = given[i].substr(std::string_view("--config=").size());
    if (given[i] == "--config" && i + 1 < given.size()) path = given[i + 1];
    asked = asked || given[i] == "--config" || given[i].starts_with("--config=");
  }
  if (const char* const value = environment("QUIRE_CONFIG"); !asked && value != nullptr && *value != '\0') {
    path = value;
    asked = true;
  }
  std::error_code ignored;
  if (!asked) path = default_config_path(environment);
  if (!asked && !std::filesystem::exists(path, ignored)) path.clear();

  Collector collector(options, given);
  if (const auto added = add_variables(collector, options, environment); !added) return std::unexpected(added.error());
  if (!path.empty()) {
    if (const auto added = add_file(collector, path); !added) return std::unexpected(added.error());
  }
  return collector.take();
}

}  // namespace quire::cli
