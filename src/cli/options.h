// Options that several commands share.
//
// Who may call: only the files that build the command line.
// How it fails: an invalid value is thrown as CLI11's ValidationError, which app.cpp catches.
#pragma once

#include <charconv>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "quire/cli/load.h"

namespace quire::cli {

inline constexpr const char* kBundledHelp =
    "The model: a GGUF file, or any part of a split one (default: the\nbundled demo model)";

[[noreturn]] void refuse(const std::string& option, const std::string& value, std::string_view why);

// Refuses `value` unless `name` is a known name. Types may be given in any case: then `name` is upper(value).
void check_name(const std::string& option, const std::string& value, const std::string& name,
                const std::vector<std::string>& known);
std::string upper(std::string text);

// An option whose value is a whole number in this range.
template <typename T>
struct Range {
  T least = 0;
  T most = std::numeric_limits<T>::max();
};
template <typename T>
CLI::Option* add_number(CLI::App& command, const std::string& name, T& value, Range<T> range, const std::string& help) {
  const std::string flag = name.substr(name.find("--"));
  return command
      .add_option_function<std::string>(
          name,
          [flag, range, &value](const std::string& text) {
            const char* const end = text.data() + text.size();
            const auto [rest, error] = std::from_chars(text.data(), end, value);
            if (rest != end || error != std::errc() || value < range.least || value > range.most) {
              refuse(flag, text, fmt::format("is not a whole number from {} to {}", range.least, range.most));
            }
          },
          help)
      ->type_name("N");
}

// An option whose value is an amount of memory: 512M, 2G. Few options have a meaning for 0.
enum class Zero : std::uint8_t { Refused, Allowed };
CLI::Option* add_bytes(CLI::App& command, const std::string& name, std::uint64_t& value, const std::string& help,
                       Zero zero = Zero::Refused);

// Adds --block-size; what `block_size` holds is the default.
void add_block_size(CLI::App& command, std::uint32_t& block_size);
// Adds --device, --threads, --pin, --numa, --ctx, --memory, --kv-type, --state-type and --block-size. `memory` is the
// help of --memory: what the pool is for, and its default. `thread_counts`: --threads takes several numbers, which go
// there.
void add_model_options(CLI::App& command, ModelOptions& options,
                       const std::string& memory =
                           "Size of the pool that holds the sequence's state, e.g. 512M or "
                           "2G\n(default: enough for one sequence)",
                       std::vector<std::uint32_t>* thread_counts = nullptr);

// Adds --lora, and --adapter for commands that answer by themselves.
void add_adapter_options(CLI::App& command, ModelOptions& options, bool chooses);

// Adds --speculate, --draft and --draft-tokens, for commands that write answers. Drafts are on by default.
void add_speculation_options(CLI::App& command, ModelOptions& options);

}  // namespace quire::cli
