#include "quire/cli/model_commands.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "quire/cli/chat.h"
#include "quire/cli/input.h"
#include "quire/cli/line_reader.h"
#include "quire/cli/logits.h"
#include "quire/cli/options.h"
#include "quire/cli/run.h"

namespace quire::cli {

namespace {

// What was not given comes from the clock of chance, so that two runs differ; the report says which it was.
void add_sampler_options(CLI::App& command, engine::SamplerOptions& options) {
  options.seed = std::random_device()();
  command.add_option("--temp", options.temperature, "Temperature; 0 takes the likeliest token always (default: 0.8)")
      ->type_name("T");
  add_number<std::uint32_t>(command, "--top-k", options.top_k, {},
                            "Of the k likeliest tokens only; 0: of all (default: 40)");
  command.add_option("--top-p", options.top_p, "Of the likeliest that together have this probability (default: 0.95)")
      ->type_name("P");
  command
      .add_option("--min-p", options.min_p, "Of those with this share of the likeliest's probability (default: 0.05)")
      ->type_name("P");
  add_number<std::uint64_t>(command, "--seed", options.seed, {},
                            "The same seed gives the same text (default: another each time)");
  command.parse_complete_callback([&options] {
    if (const auto ok = check(options); !ok) throw CLI::ValidationError(ok.error().message);
  });
}

}  // namespace

std::function<Result<std::string>(const Style&)> add_run(CLI::App& app, const Console& console) {
  CLI::App* command = app.add_subcommand("run", "Go on with a text");
  auto options = std::make_shared<RunOptions>();
  command->add_option("-m,--model", options->model.model, kBundledHelp)->type_name("FILE");
  command->add_option("-p,--prompt", options->prompt, "The text; - reads it from standard input, up to 64 MiB")
      ->required()
      ->type_name("TEXT");
  add_number<std::uint32_t>(*command, "-n,--tokens", options->limit, {1},
                            "Write so many tokens at most (default: until the model ends it or\nthe context is full)");
  add_sampler_options(*command, options->sampler);
  add_model_options(*command, options->model);
  command->add_flag("--special", options->special,
                    "Take <|im_end|> and the like in the prompt for the tokens they spell");
  command->add_flag("--echo", options->echo, "Write the prompt too");
  command->add_flag("--json", options->json, "Print one line of JSON when all is done, with the text in it");
  command->footer(
      "The prompt is gone on with as it is, without a chat template; quire chat uses\n"
      "that. Of standard input one line break at the end is left out.");
  return [options, &console](const Style&) -> Result<std::string> {
    if (options->prompt == "-") {
      auto text = read_input("-", kMaxPromptBytes);
      if (!text) return text;
      if (text->ends_with('\n')) text->pop_back();
      options->prompt = std::move(*text);
    }
    return run_prompt(*options, console);
  };
}

std::function<Result<std::string>(const Style&)> add_chat(CLI::App& app, const Console& console) {
  CLI::App* command = app.add_subcommand("chat", "Talk with a model");
  auto options = std::make_shared<ChatOptions>();
  command->add_option("-m,--model", options->model.model, kBundledHelp)->type_name("FILE");
  command->add_option("--system", options->system, "What the model is told before the conversation")->type_name("TEXT");
  add_number<std::uint32_t>(*command, "-n,--tokens", options->limit, {1},
                            "Tokens of an answer at most (default: as the model ends it)");
  add_sampler_options(*command, options->sampler);
  add_model_options(*command, options->model);
  command->footer(
      "/help lists the commands of a conversation. In a pipe each line is a turn, and\n"
      "only the answers are printed:\n"
      "  printf 'Hello!\\nWhat is 2 + 3?\\n' | quire chat");
  return [options, &console](const Style& style) -> Result<std::string> {
    const auto chat = Chat::create(*options, console);
    if (!chat) return std::unexpected(chat.error());
    if (!style.terminal || ::isatty(STDIN_FILENO) != 1) {
      PipeReader lines(STDIN_FILENO);
      return converse(**chat, lines, console, nullptr);
    }
    Interrupt interrupt;
    const auto lines = make_line_editor("> ", history_path(), interrupt);
    return converse(**chat, *lines, console, &interrupt);
  };
}

std::function<Result<std::string>(const Style&)> add_logits(CLI::App& app, const Console& console) {
  CLI::App* command = app.add_subcommand("logits", "Compute the logits of a list of tokens, to verify a model");
  auto options = std::make_shared<LogitsOptions>();
  command->add_option("-m,--model", options->model.model, "The model: a GGUF file, or any part of a split one")
      ->required()
      ->type_name("FILE");
  command->add_option("--ids", options->ids, "The tokens: 1,2,3")->required()->type_name("IDS");
  command->add_flag("--all", options->all, "Logits of every position, not only of the last");
  command->add_option("-o,--output", options->output, "Write them there, as little-endian 32-bit floats")
      ->type_name("FILE.f32");
  add_number<std::uint32_t>(*command, "--top", options->top, {1},
                            "Without -o: print so many of the likeliest tokens (default: 10)");
  command
      ->add_option_function<std::string>(
          "--variant",
          [options](const std::string& text) {
            if (text != "scalar" && text != "avx2" && text != "avx512") {
              refuse("--variant", text, "is none of scalar, avx2 and avx512");
            }
            options->model.variant = text;
          },
          "The instructions to compute with (default: the best there are)")
      ->type_name("scalar|avx2|avx512");
  add_model_options(*command, options->model);
  command->add_flag("--json", options->json, "Print one line of JSON");
  command->footer(
      "To compare with other programs, keep keys and values in full: --kv-type f32.\n"
      "The file holds a row of floats for each position asked for, as long as the\n"
      "model's vocabulary.");
  return [options, &console](const Style&) { return logits(*options, console); };
}

}  // namespace quire::cli
