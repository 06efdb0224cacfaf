// The command line of `quire bench`.
#include <algorithm>
#include <memory>

#include <CLI/CLI.hpp>

#include "quire/cli/bench.h"
#include "quire/cli/model_commands.h"
#include "quire/cli/options.h"

namespace quire::cli {
namespace {

// An option with a list of names out of those that are known.
CLI::Option* add_names(CLI::App& command, const std::string& flags, std::vector<std::string>& names,
                       const std::vector<std::string>& known, const std::string& help) {
  const std::string flag = flags.substr(flags.find("--"));
  return command
      .add_option_function<std::vector<std::string>>(
          flags,
          [flag, &names, &known](const std::vector<std::string>& given) {
            for (const std::string& name : given) check_name(flag, name, name, known);
            names = given;
          },
          help)
      ->delimiter(',')
      ->type_name("NAMES");
}

// What the command line says of synthetic models, before it is known whether targets are asked for.
struct NamedShapes {
  std::vector<std::string> shapes;
  bool targets = false;
};

// Of the targets only those of the shapes and types that were named, if any were.
void choose(const NamedShapes& named, BenchOptions& options) {
  std::vector<std::string> shapes = named.shapes;
  if (named.targets || !options.report.empty()) {
    for (const bench::Target& target : bench::all_targets()) {
      const auto among = [](const auto& list, const std::string& name) {
        return list.empty() || std::ranges::find(list, name) != list.end();
      };
      if (among(named.shapes, target.shape) && among(options.types, target.type)) options.targets.push_back(target);
    }
    if (options.targets.empty()) throw CLI::ValidationError("--targets: there is none for such a shape and type");
    shapes.clear();
    for (const bench::Target& target : options.targets) {
      if (std::ranges::find(shapes, target.shape) == shapes.end()) shapes.push_back(target.shape);
    }
  } else if (shapes.empty() && !options.types.empty()) {
    throw CLI::RequiredError("--shape, where there is a --type");
  }
  for (const std::string& name : shapes) {
    const synth::Shape* shape = synth::find_shape(name);
    if (shape == nullptr) throw CLI::ValidationError("--targets: there is no shape " + name);
    options.shapes.push_back(*shape);
  }
}

}  // namespace

std::function<Result<std::string>(const Style&)> add_bench(CLI::App& app, const Console& console) {
  CLI::App* command = app.add_subcommand("bench", "Measure the engine on this machine");
  auto options = std::make_shared<BenchOptions>();
  auto named = std::make_shared<NamedShapes>();
  auto* model = command->add_option("-m,--model", options->model.model, kBundledHelp)->type_name("FILE");
  add_names(*command, "--shape", named->shapes, synth::shape_names(),
            "Instead of a model, random weights in the shape of one: llama-1.1b,\n"
            "qwen3-0.6b, mamba2-370m, ... (quire synth --help lists them)")
      ->excludes(model);
  add_names(*command, "--type", options->types, synth::type_names(),
            "Types of the weights of a --shape: F32, F16, BF16, Q8_0, ...\n(default: Q8_0)")
      ->transform(upper)
      ->excludes(model);
  auto* workload = add_names(*command, "-w,--workload", options->workloads, bench::workload_names(),
                             "Of prefill, decode, shared-prefix, chat, mixed (default: these;\n"
                             "for a --shape prefill, decode and the following), long-decode,\n"
                             "shared-decode");
  command
      ->add_option("--batch", options->workload.batches,
                   "Sequences at once in decode (default: 1,2,4,...,64; for a\n--shape 1,8,32)")
      ->delimiter(',')
      ->check(CLI::Range(1u, 1024u))
      ->type_name("N,...");
  add_number<std::uint32_t>(*command, "--prompt", options->workload.context, {1, 1 << 20},
                            "Tokens of the prompts (default: as the workload has it)");
  add_number<std::uint32_t>(*command, "--tokens", options->workload.tokens, {1, 1 << 16},
                            "Tokens of an answer (default: 64)");
  add_number<std::uint32_t>(*command, "--repeat", options->workload.repeat, {1, 100},
                            "Measure so often and tell the best (default: 3)");
  command
      ->add_flag("--targets", named->targets,
                 "Measure what there are targets for (of --shape and --type, if\ngiven), and say which are met")
      ->excludes(model)
      ->excludes(workload);
  command
      ->add_option("--report", options->report,
                   "Do that, and write the table into this page, between the two\nlines that say where")
      ->type_name("FILE")
      ->excludes(model)
      ->excludes(workload);
  add_model_options(*command, options->model,
                    "Size of the pool that holds the sequences' state, e.g. 512M or 2G\n"
                    "(default: what the workload needs)");
  command->add_flag("--json", options->json, "Print one JSON object per row");
  command->footer(
      "TTFT is the time to the first token (of shared-prefix, later: the longest).\n"
      "Overhead is the share of a step spent outside the model: scheduler, pool,\n"
      "sampling. Prompts are random tokens.\n\n"
      "The limit is what this machine could reach at most, measured in the same run:\n"
      "by reading the weights and the state (bound: read) or by multiplying (int8,\n"
      "f32). A --shape is written to $TMPDIR or /tmp and gone when it was measured.\n\n"
      "  quire bench --shape llama-1.1b --type Q8_0,Q4_K_M -w prefill,decode");
  command->callback([options, named] { choose(*named, *options); });
  return [options, &console](const Style&) { return bench(*options, console); };
}

}  // namespace quire::cli
