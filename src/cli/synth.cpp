#include "quire/cli/synth.h"

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "quire/base/readable.h"
#include "quire/cli/options.h"
#include "quire/cli/printable.h"
#include "quire/cli/progress.h"

namespace quire::cli {

namespace {

// The shape on the command line: a name, or sizes, or both.
struct ShapeOptions {
  std::string name, architecture;
  synth::Shape changes;  // 0: not given
  std::optional<bool> tied;
};

void add_name(CLI::App& command, const std::string& flag, std::string& value, const std::vector<std::string>& known,
              const std::string& help) {
  command
      .add_option_function<std::string>(
          flag,
          [flag, &value, &known](const std::string& text) {
            check_name(flag, text, text, known);
            value = text;
          },
          help)
      ->type_name("NAME");
}

void add_shape_options(CLI::App& command, ShapeOptions& options) {
  add_name(command, "--shape", options.name, synth::shape_names(),
           fmt::format("Shape of a real model:\n{}", fmt::join(synth::shape_names(), ", ")));
  add_name(command, "--arch", options.architecture, synth::architecture_names(),
           fmt::format("Architecture of a custom shape:\n{}", fmt::join(synth::architecture_names(), ", ")));
  command.get_option("--arch")->excludes("--shape");
  synth::Shape& changes = options.changes;
  struct Number {
    const char* flag;
    std::uint32_t synth::Shape::*value;
    const char* help;
  };
  constexpr Number kNumbers[] = {
      {"--layers", &synth::Shape::layers, "Number of layers"},
      {"--embedding", &synth::Shape::embedding, "Hidden size: width of the residual stream"},
      {"--vocabulary", &synth::Shape::vocabulary, "Vocabulary size (default: 32000)"},
      {"--context", &synth::Shape::context, "Context length in tokens (default: 4096)"},
      {"--heads", &synth::Shape::heads, "Attention heads"},
      {"--kv-heads", &synth::Shape::kv_heads, "Heads of keys and values (default: as many as --heads)"},
      {"--head-dim", &synth::Shape::head_dim, "Size of a head (default: embedding / heads)"},
      {"--rope-dim", &synth::Shape::rope_dim, "Rotated elements of a head (qwen35, deepseek2)"},
      {"--window", &synth::Shape::window, "Tokens that every other layer sees (gpt-oss)"},
      {"--kv-rank", &synth::Shape::kv_rank, "Compressed size of keys and values (deepseek2)"},
      {"--q-rank", &synth::Shape::q_rank, "Compressed size of queries (deepseek2; default: none)"},
      {"--value-dim", &synth::Shape::value_dim, "Size of a value (deepseek2)"},
      {"--feed-forward", &synth::Shape::feed_forward, "Hidden size of the feed-forward block"},
      {"--experts", &synth::Shape::experts, "Experts of a layer"},
      {"--experts-used", &synth::Shape::experts_used, "Experts that a token uses"},
      {"--expert-feed-forward", &synth::Shape::expert_feed_forward, "Hidden size of an expert"},
      {"--shared-feed-forward", &synth::Shape::shared_feed_forward, "Hidden size of the shared expert (default: none)"},
      {"--dense-layers", &synth::Shape::dense_layers, "First layers without experts (default: none)"},
      {"--inner", &synth::Shape::inner, "Channels of a recurrent layer (default: twice the embedding)"},
      {"--state", &synth::Shape::state, "State size of each channel (default: 128; mamba: 16)"},
      {"--groups", &synth::Shape::groups, "Groups of channels (default: 1)"},
      {"--ssm-heads", &synth::Shape::ssm_heads, "Heads of a recurrent layer (default: inner / 64)"},
      {"--conv", &synth::Shape::conv, "Width of the convolution in tokens (default: 4; lfm2: 3)"},
      {"--dt-rank", &synth::Shape::dt_rank, "Rank of the step size (mamba; default: embedding / 16)"},
      {"--attention-interval", &synth::Shape::attention_interval,
       "Every so many layers, one has attention (default: 4)"},
  };
  for (const Number& number : kNumbers) {
    add_number<std::uint32_t>(command, number.flag, changes.*number.value, {1}, number.help)->group("Sizes of a shape");
  }
  command
      .add_option("--attention-layers", changes.attention_layers, "Attention layers of a hybrid model, counted from 0")
      ->delimiter(',')
      ->check(CLI::TypeValidator<std::uint32_t>(""))
      ->allow_extra_args(false)
      ->type_name("N,...")
      ->group("Sizes of a shape");
  add_number<std::uint32_t>(command, "--outliers", changes.outliers, {2},
                            "Make N channels of keys and of the feed-forward activations a hundred\ntimes larger than "
                            "the others, as in trained models (default: none)");
  auto* tied = command.add_flag_callback(
      "--tied", [&options] { options.tied = true; }, "Use the embedding as the output matrix");
  auto* untied = command.add_flag_callback(
      "--untied", [&options] { options.tied = false; }, "Use a separate output matrix");
  tied->group("Sizes of a shape")->excludes(untied);
  untied->group("Sizes of a shape");
}

synth::Shape shape_of(const ShapeOptions& options) {
  if (options.name.empty() && options.architecture.empty()) throw CLI::RequiredError("--shape or --arch");
  const synth::Shape base =
      options.name.empty() ? synth::usual_shape(options.architecture) : *synth::find_shape(options.name);
  synth::Shape shape = synth::changed(base, options.changes);
  if (options.tied) shape.tied = *options.tied;
  shape.outliers = options.changes.outliers;
  if (const auto ok = synth::check_shape(shape); !ok) throw CLI::ValidationError("--" + ok.error().message);
  return shape;
}

}  // namespace

Result<std::string> synth(const SynthOptions& options, const Console& console) {
  const auto summary = synth::summarize(options.shape, options.type);
  if (!summary) return std::unexpected(summary.error());
  const auto begin = std::chrono::steady_clock::now();
  {
    Progress progress(console.err, console.err_style, "writing");
    const auto ok = synth::write_model(options.shape, options.type, options.seed, options.output,
                                       [&](std::uint64_t done, std::uint64_t all) { progress.update(done, all); });
    if (!ok) return std::unexpected(ok.error());
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(options.output, error);
  std::string text;
  for (const std::string& note : summary->notes) text += fmt::format("{}\n", note);
  return text + fmt::format("{}: {} {}, {} parameters ({}), {} in {:.1f} s\n", printable(options.output),
                            options.shape.name, options.type, grouped(summary->parameters),
                            in_millions(summary->parameters), in_units(error ? summary->bytes : bytes), seconds);
}

std::function<Result<std::string>(const Style&)> add_synth(CLI::App& app, const Console& console) {
  CLI::App* command = app.add_subcommand("synth", "Write a model with random weights, for benchmarks");
  auto options = std::make_shared<SynthOptions>();
  auto shape = std::make_shared<ShapeOptions>();
  add_shape_options(*command, *shape);
  command
      ->add_option_function<std::string>(
          "--type",
          [options](const std::string& text) {
            options->type = upper(text);
            check_name("--type", text, options->type, synth::type_names());
          },
          "Weight type: F32, F16, BF16, Q8_0, ... or a mix like Q4_K_M\nor MXFP4_MOE (experts in MXFP4)")
      ->required()
      ->type_name("TYPE");
  command->add_option("-o,--output", options->output, "The file to write")->required()->type_name("FILE.gguf");
  add_number<std::uint64_t>(*command, "--seed", options->seed, {}, "The same seed gives the same file (default: 1)");
  command->footer(
      "Such a model writes nonsense, but runs as fast as a real one, and other engines\n"
      "can load it. With a single type (not a mix like Q4_K_M) all matrices have it,\n"
      "except that the output is Q6_K for types smaller than Q8_0. Norms are F32. Sizes\n"
      "given together with --shape replace those of the shape.\n\n"
      "  quire synth --shape llama-1.1b --type Q4_K_M -o model.gguf\n"
      "  quire synth --shape llama-8b --layers 4 --type Q8_0 -o short.gguf\n"
      "  quire synth --shape gpt-oss-20b --type MXFP4_MOE -o experts.gguf\n"
      "  quire synth --shape qwen3-0.6b --outliers 4 --type Q8_0 -o outliers.gguf\n"
      "  quire synth --arch llama --layers 4 --embedding 256 --heads 4 \\\n"
      "    --feed-forward 768 --type F16 -o small.gguf");
  command->callback([options, shape] { options->shape = shape_of(*shape); });
  return [options, &console](const Style&) { return synth(*options, console); };
}

}  // namespace quire::cli
