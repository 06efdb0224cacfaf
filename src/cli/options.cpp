#include "quire/cli/options.h"

#include <algorithm>
#include <cctype>

#include <fmt/ranges.h>

#include "quire/cli/printable.h"
#include "quire/cli/sizes.h"
#include "quire/engine/drafter.h"

namespace quire::cli {

void refuse(const std::string& option, const std::string& value, std::string_view why) {
  throw CLI::ValidationError(option, fmt::format("{} {}", printable(value, {.limit = 40, .quotes = true}), why));
}

void check_name(const std::string& option, const std::string& value, const std::string& name,
                const std::vector<std::string>& known) {
  if (std::ranges::find(known, name) != known.end()) return;
  refuse(option, value, fmt::format("is not one of {}", fmt::join(known, ", ")));
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

CLI::Option* add_bytes(CLI::App& command, const std::string& name, std::uint64_t& value, const std::string& help,
                       Zero zero) {
  return command
      .add_option_function<std::string>(
          name,
          [name, zero, &value](const std::string& text) {
            const bool is_none = zero == Zero::Allowed && text == "0";
            const auto bytes = is_none ? 0 : parse_bytes(text);
            if (!bytes) {
              refuse(name, text,
                     fmt::format("is not an amount of memory like 512M, 2G or {}",
                                 zero == Zero::Allowed ? "0" : "100000000"));
            }
            value = *bytes;
          },
          help)
      ->type_name("SIZE");
}

namespace {

// An option whose value has one of these names.
template <typename T>
void add_choice(CLI::App& command, const std::string& option, T& value,
                const std::vector<std::pair<std::string, T>>& choices, const std::string& help) {
  std::vector<std::string> names;
  names.reserve(choices.size());
  for (const auto& choice : choices) names.push_back(choice.first);
  command
      .add_option_function<std::string>(
          option,
          [option, choices, names, &value](const std::string& text) {
            check_name(option, text, text, names);
            value = choices[static_cast<std::size_t>(std::ranges::find(names, text) - names.begin())].second;
          },
          help)
      ->type_name(fmt::format("{}", fmt::join(names, "|")));
}

// An option whose value is the name of one of these types.
void add_type(CLI::App& command, const std::string& option, ElementType& value, const std::vector<ElementType>& types,
              const std::string& help) {
  std::vector<std::string> names;
  names.reserve(types.size());
  for (const ElementType type : types) names.emplace_back(name(type));
  command
      .add_option_function<std::string>(
          option,
          [option, types, names, &value](const std::string& text) {
            check_name(option, text, text, names);
            value = types[static_cast<std::size_t>(std::ranges::find(names, text) - names.begin())];
          },
          help)
      ->type_name(fmt::format("{}", fmt::join(names, "|")));
}

}  // namespace

void add_model_options(CLI::App& command, ModelOptions& options, const std::string& memory,
                       std::vector<std::uint32_t>* thread_counts) {
  // make_backend() knows the names and refuses others.
  command
      .add_option("--device", options.device,
                  "Device to compute on; 'quire info --devices' lists them (default: auto,\na GPU if there is one)")
      ->type_name("auto|cpu|cuda[:N]");
  constexpr std::uint32_t kMostThreads = 1024;
  if (thread_counts != nullptr) {
    command
        .add_option(
            "-t,--threads", *thread_counts,
            "Number of threads (default: one per core). Several: everything is\nmeasured with each, and compared "
            "with the first")
        ->delimiter(',')
        ->check(CLI::Range(1u, kMostThreads).description(""))
        ->type_name("N,...");
  } else {
    add_number<std::uint32_t>(command, "-t,--threads", options.threads, {1, kMostThreads},
                              "Number of threads (default: one per core)");
  }
  add_choice<Pin>(command, "--pin", options.placement.pin,
                  {{"auto", Pin::Automatic}, {"cores", Pin::Cores}, {"off", Pin::Off}},
                  "Where threads run (default: auto, a thread that has a core to itself\nstays on it; needs hwloc)");
  add_choice<Numa>(
      command, "--numa", options.placement.numa,
      {{"auto", Numa::Automatic}, {"interleave", Numa::Interleaved}, {"local", Numa::Local}, {"off", Numa::Off}},
      "Where memory is, with several NUMA nodes (default: auto, on the threads'\nnode, or interleaved over their "
      "nodes)");
  add_number<std::uint32_t>(
      command, "-c,--ctx", options.context, {1},
      "Context length in tokens (default: the model's, or what fits into the\npool if that is less)");
  add_bytes(command, "--memory", options.memory, memory);
  add_type(command, "--kv-type", options.kv_type,
           {ElementType::F16, ElementType::BF16, ElementType::F32, ElementType::Q8_0},
           "Element type of keys and values (default: f16). q8_0 takes about\nhalf the memory of f16");
  add_type(command, "--state-type", options.state_type, {ElementType::F32, ElementType::BF16, ElementType::F16},
           "Element type of recurrent states; bf16 and f16 take half the memory\n(default: f32)");
  add_block_size(command, options.block_size);
}

void add_adapter_options(CLI::App& command, ModelOptions& options, bool chooses) {
  command
      .add_option_function<std::vector<std::string>>(
          "--lora",
          [&options](const std::vector<std::string>& all) {
            options.adapters.clear();
            for (const std::string& text : all) {
              auto adapter = model::parse_adapter(text);
              if (!adapter) throw CLI::ValidationError("--lora", adapter.error().message);
              options.adapters.push_back(std::move(*adapter));
            }
          },
          chooses
              ? "A LoRA adapter, a GGUF file, with a name; FILE:SCALE: times this scale\n(may be given several times)"
              : "A LoRA adapter, a GGUF file: requests choose it as model:NAME.\nFILE:SCALE: times this scale (may "
                "be given several times)")
      ->allow_extra_args(false)
      ->type_name("NAME=FILE");
  if (!chooses) return;
  command
      .add_option("--adapter", options.adapter, "The adapter to answer with (default: the only --lora that is given)")
      ->type_name("NAME");
}

void add_speculation_options(CLI::App& command, ModelOptions& options) {
  options.speculate = Speculate::Auto;
  command
      .add_option_function<std::string>(
          "--speculate",
          [&options](const std::string& text) {
            check_name("--speculate", text, text, {"auto", "off", "ngram", "heads"});
            options.speculate = text == "off"     ? Speculate::Off
                                : text == "ngram" ? Speculate::Ngram
                                : text == "heads" ? Speculate::Heads
                                                  : Speculate::Auto;
          },
          "Guess the next tokens, with the model's own next-token head if its file\nhas one (heads) or from what the "
          "conversation repeats (ngram), and\ncompute them in the same step where that pays. Answers stay the same to\n"
          "the last bit (default: auto)")
      ->type_name("auto|off|ngram|heads");
  command.add_option("--draft", options.draft, "A smaller model with the same vocabulary that guesses instead")
      ->type_name("FILE");
  add_number<std::uint32_t>(command, "--draft-tokens", options.draft_tokens, {1, engine::kMostDrafts},
                            "Guesses for an answer in one step, at most (default: 8)");
}

void add_block_size(CLI::App& command, std::uint32_t& block_size) {
  constexpr std::uint32_t kMost = 1024;
  add_number<std::uint32_t>(command, "--block-size", block_size, {1, kMost},
                            fmt::format("Tokens in a page of the pool (default: {})", block_size));
}

}  // namespace quire::cli
