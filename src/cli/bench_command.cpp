// The command line of `quire bench`.
#include <algorithm>
#include <memory>

#include <CLI/CLI.hpp>

#include "quire/cli/bench.h"
#include "quire/cli/model_commands.h"
#include "quire/cli/options.h"

namespace quire::cli {
namespace {

// An option with a list of known names.
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

// Options that choose() evaluates when the whole command line has been read.
struct NamedShapes {
  std::vector<std::string> shapes;
  bool targets = false;
};

// Fills in the shapes and targets. With --shape or --type, only the targets of those shapes and types are kept.
void choose(const NamedShapes& named, BenchOptions& options) {
  std::vector<std::string> shapes = named.shapes;
  if (named.targets || !options.report.empty()) {
    for (const bench::Target& target : bench::all_targets()) {
      const auto among = [](const auto& list, const std::string& name) {
        return list.empty() || std::ranges::find(list, name) != list.end();
      };
      if (among(named.shapes, target.shape) && among(options.types, target.type)) options.targets.push_back(target);
    }
    if (options.targets.empty()) throw CLI::ValidationError("--targets: there is no target for this shape and type");
    shapes.clear();
    for (const bench::Target& target : options.targets) {
      if (std::ranges::find(shapes, target.shape) == shapes.end()) shapes.push_back(target.shape);
    }
  } else if (shapes.empty() && !options.types.empty()) {
    throw CLI::RequiredError("with --type, a --shape");
  }
  for (const std::string& name : shapes) {
    const synth::Shape* shape = synth::find_shape(name);
    if (shape == nullptr) throw CLI::ValidationError("--targets: there is no shape " + name);
    options.shapes.push_back(*shape);
  }
}

}  // namespace

std::function<Result<std::string>(const Style&)> add_bench(CLI::App& app, const Console& console) {
  CLI::App* command = app.add_subcommand("bench", "Measure the speed of the engine on this machine");
  auto options = std::make_shared<BenchOptions>();
  auto named = std::make_shared<NamedShapes>();
  auto* model = command->add_option("-m,--model", options->model.model, kBundledHelp)->type_name("FILE");
  add_names(*command, "--shape", named->shapes, synth::shape_names(),
            "Instead of a file, random weights in the shape of a real model:\n"
            "llama-1.1b, qwen3-0.6b, ... (quire synth --help lists them)")
      ->excludes(model);
  add_names(*command, "--type", options->types, synth::type_names(),
            "Weight types of a --shape: F32, F16, BF16, Q8_0, ...\n(default: Q8_0)")
      ->transform(upper)
      ->excludes(model);
  auto* workload = add_names(*command, "-w,--workload", options->workloads, bench::workload_names(),
                             "Workloads: prefill, decode, shared-prefix, chat, mixed,\n"
                             "long-decode, shared-decode, serve, speculation (default: the first\nfive; with "
                             "--shape: prefill, decode, long-decode, shared-decode)");
  command
      ->add_option("--batch", options->workload.batches,
                   "Batch sizes of decode (default: 1,2,4,...,64; with --shape: 1,8,32)")
      ->delimiter(',')
      ->check(CLI::Range(1u, 1024u).description(""))
      ->type_name("N,...");
  add_number<std::uint32_t>(*command, "--prompt", options->workload.context, {1, 1 << 20},
                            "Prompt length in tokens (default: depends on the workload)");
  add_number<std::uint32_t>(*command, "--tokens", options->workload.tokens, {1, 1 << 16},
                            "Tokens per answer (default: 64)");
  add_number<std::uint32_t>(*command, "--repeat", options->workload.repeat, {1, 100},
                            "Measure N times and report the best (default: 3)");
  command
      ->add_flag("--targets", named->targets,
                 "Measure the workloads that have performance targets (limited to --shape\nand --type, if given), and "
                 "report which targets are met")
      ->excludes(model)
      ->excludes(workload);
  command
      ->add_option("--report", options->report,
                   "Like --targets, and write the table into this file, between the lines\n'<!-- bench: begin ... -->' "
                   "and '<!-- bench: end -->'")
      ->type_name("FILE")
      ->excludes(model)
      ->excludes(workload);
  add_model_options(*command, options->model,
                    "Size of the pool that holds the sequences' state, e.g. 512M or 2G\n"
                    "(default: what the workload needs)",
                    &options->threads);
  command->add_flag("--json", options->json, "Print one JSON object per row");
  command->footer(
      "TTFT is the time to the first token. In the row \"later\" of shared-prefix it is the\n"
      "longest of all requests after the first.\n"
      "Overhead is the share of a step spent outside the model: scheduler, pool,\n"
      "sampling. Prompts are random tokens.\n\n"
      "The limit is the most that this machine could reach, measured in the same run.\n"
      "The column \"bound\" names what sets this limit: reading memory (read) or\n"
      "arithmetic (int8, bf16, f32). A --shape is written to $TMPDIR or /tmp and removed afterwards.\n\n"
      "  quire bench --shape llama-1.1b --type Q8_0,Q4_K_M -w prefill,decode\n"
      "  quire bench --shape llama-1.1b --threads 1,2,4,8,16");
  command->callback([options, named] {
    choose(*named, *options);
    if (options->threads.size() > 1 && !options->targets.empty()) {
      throw CLI::ValidationError("--targets", "are those of one number of threads: give --threads one number");
    }
  });
  return [options, &console](const Style&) { return bench(*options, console); };
}

}  // namespace quire::cli
