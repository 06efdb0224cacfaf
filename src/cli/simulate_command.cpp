// The command line of `quire simulate`.
#include <algorithm>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "quire/bench/synth/synth.h"
#include "quire/cli/options.h"
#include "quire/cli/simulate.h"
#include "quire/cli/sizes.h"

namespace quire::cli {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// An option whose value is a number above 0.
CLI::Option* add_positive(CLI::App& command, const std::string& flag, double& value, const std::string& help) {
  return command
      .add_option_function<std::string>(
          flag,
          [flag, &value](const std::string& text) {
            const char* const end = text.data() + text.size();
            const auto [rest, error] = std::from_chars(text.data(), end, value);
            if (rest != end || error != std::errc() || !(value > 0) || !(value <= 1e9)) {
              refuse(flag, text, "is not a number above 0");
            }
          },
          help)
      ->type_name("X");
}

void add_lists(CLI::App& command, SimulateOptions& options) {
  command
      .add_option_function<std::vector<std::string>>(
          "--memory",
          [&options](const std::vector<std::string>& given) {
            options.memory.clear();
            for (const std::string& text : given) {
              const auto bytes = parse_bytes(text);
              if (!bytes) refuse("--memory", text, "is not an amount of memory like 512M, 2G or 100000000");
              options.memory.push_back(*bytes);
            }
          },
          "Sizes of the pool (default: 8G,16G,32G,64G,128G)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("SIZE,...");
  std::vector<std::string> names;
  for (const Eviction policy : simulate::all_policies()) names.emplace_back(simulate::name(policy));
  command
      .add_option_function<std::vector<std::string>>(
          "--policy",
          [&options, names](const std::vector<std::string>& given) {
            options.policies.clear();
            for (const std::string& text : given) {
              check_name("--policy", text, text, names);
              const auto at = std::ranges::find(names, text) - names.begin();
              options.policies.push_back(simulate::all_policies()[static_cast<std::size_t>(at)]);
            }
          },
          fmt::format("What the pool evicts first: {} (default: all)", fmt::join(names, ", ")))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAMES");
}

void add_costs(CLI::App& command, SimulateOptions& options) {
  auto* costs = command
                    .add_option("--costs", options.costs,
                                "How long a step takes, as measured: the output of\n'quire bench -w serve --json'")
                    ->type_name("FILE");
  add_positive(command, "--prefill-rate", options.rates.prefill, "Instead: tokens of prompts a second (default: 30000)")
      ->excludes(costs);
  add_positive(command, "--decode-rate", options.rates.decode, "and tokens a second of one answer alone (default: 160)")
      ->excludes(costs);
}

}  // namespace

std::function<Result<std::string>(const Style&)> add_simulate(CLI::App& app, const Console& console) {
  CLI::App* command =
      app.add_subcommand("simulate", "Simulate a server: what a pool of which size would do for a trace of requests");
  auto options = std::make_shared<SimulateOptions>();
  options->memory = {8 * kGiB, 16 * kGiB, 32 * kGiB, 64 * kGiB, 128 * kGiB};
  options->policies = simulate::all_policies();
  command->add_option("TRACE", options->traces, "Traces in the format of Mooncake (JSON lines)")
      ->required()
      ->type_name(std::string());
  auto* model = command->add_option("-m,--model", options->model, "Simulate the state of this GGUF file's model")
                    ->type_name("FILE");
  command
      ->add_option_function<std::string>(
          "--shape",
          [options](const std::string& text) {
            check_name("--shape", text, text, synth::shape_names());
            options->shape = text;
          },
          "or of this shape: llama-8b, granite-h-1b, ... (default: llama-8b;\nquire synth --help lists them)")
      ->type_name("NAME")
      ->excludes(model);
  add_lists(*command, *options);
  add_costs(*command, *options);
  add_positive(*command, "--rate", options->engine.rate,
               "How fast requests come: 2 is twice as fast as in the trace\n(default: 1)");
  add_number<std::uint64_t>(*command, "--limit", options->limit, {1}, "Only the first N requests");
  add_number<std::uint32_t>(*command, "--max-sequences", options->engine.max_sequences, {1, 65536},
                            "Sequences at once (default: 256)");
  add_number<std::uint32_t>(*command, "--step-tokens", options->engine.step_tokens, {1, 1 << 20},
                            "The most tokens in a step (default: 4096)");
  add_number<std::int32_t>(*command, "--target-itl", options->target_itl, {0, 600'000},
                           "The longest time between two tokens that prompts may cause, in\nmilliseconds, as in quire "
                           "serve (default: twice a step without\nprompts, at least 100)");
  command->add_flag("--json", options->json, "Print one JSON object per pool size and policy");
  command->footer(
      "The scheduler and the pool are those of quire serve. Nothing is computed: a step\n"
      "takes as long as the costs say, and an answer has the length that the trace gives.\n"
      "The defaults are about those of a model of 8 B parameters on an H100.\n\n"
      "  quire simulate conversation_trace.jsonl --memory 16G,64G,256G\n"
      "  quire simulate trace.jsonl --shape granite-h-1b --rate 0.5 --json");
  return [options, &console](const Style&) { return simulate(*options, console); };
}

}  // namespace quire::cli
