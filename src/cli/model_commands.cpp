#include "quire/cli/model_commands.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "quire/backend/cpu/kernels.h"
#include "quire/cli/chat.h"
#include "quire/cli/dialogue.h"
#include "quire/cli/input.h"
#include "quire/cli/interrupt.h"
#include "quire/cli/line_reader.h"
#include "quire/cli/logits.h"
#include "quire/cli/options.h"
#include "quire/cli/run.h"

namespace quire::cli {

void add_sampler_options(CLI::App& command, engine::SamplerOptions& options, std::vector<std::string>& stops) {
  options.seed = std::random_device()();
  command.add_option("--temp", options.temperature, "Temperature; 0: always the most likely token (default: 0.8)")
      ->type_name("T");
  add_number<std::uint32_t>(command, "--top-k", options.top_k, {},
                            "Keep the K most likely tokens (0: all; default: 40)")
      ->type_name("K");
  command
      .add_option("--top-p", options.top_p,
                  "Nucleus sampling: keep the most likely tokens whose probabilities\nadd up to P (default: 0.95)")
      ->type_name("P");
  command
      .add_option("--min-p", options.min_p,
                  "Keep tokens that have at least P times the probability of the most\nlikely one (default: 0.05)")
      ->type_name("P");
  add_number<std::uint64_t>(command, "-s,--seed", options.seed, {},
                            "Random seed; the same seed gives the same text (default: a new one\neach time)");
  command
      .add_option("--repeat-penalty", options.repetition_penalty,
                  "Above 1: tokens of the prompt and the answer become less likely\n(default: 1)")
      ->type_name("X");
  command
      .add_option("--presence-penalty", options.presence_penalty,
                  "Subtracted from the logits of tokens that the answer has\n(default: 0)")
      ->type_name("X");
  command
      .add_option("--frequency-penalty", options.frequency_penalty,
                  "Subtracted each time that the answer has the token (default: 0)")
      ->type_name("X");
  command.add_option("--stop", stops, "End at this text, which is left out (may be given several times)")
      ->allow_extra_args(false)
      ->type_name("TEXT");
  command.parse_complete_callback([&options] {
    if (const auto ok = check(options); !ok) throw CLI::ValidationError(ok.error().message);
  });
}

Result<std::string> read_prompt(const std::string& file) {
  auto text = read_text(file, kMaxPromptBytes);
  if (text && text->ends_with('\n')) text->pop_back();
  return text;
}

std::function<Result<std::string>(const Style&)> add_run(CLI::App& app, const Console& console) {
  CLI::App* command = app.add_subcommand("run", "Continue a text");
  auto options = std::make_shared<RunOptions>();
  command->add_option("-m,--model", options->model.model, kBundledHelp)->type_name("FILE");
  CLI::Option* const prompt =
      command
          ->add_option("-p,--prompt", options->prompt, "The text to continue; - reads up to 64 MiB from standard input")
          ->type_name("TEXT");
  auto file = std::make_shared<std::string>();
  CLI::Option* const from =
      command->add_option("-f,--file", *file, "Continue the text in this file; - reads standard input")
          ->type_name("FILE")
          ->excludes(prompt);
  add_number<std::uint32_t>(*command, "-n,--tokens", options->limit, {1},
                            "Write at most N tokens (default: until the model ends the text or\nthe context is full)");
  add_sampler_options(*command, options->sampler, options->stops);
  add_constraint_options(*command, options->constraint);
  add_model_options(*command, options->model);
  add_adapter_options(*command, options->model, true);
  add_speculation_options(*command, options->model);
  command->add_flag("--special", options->special, "Read <|im_end|> and the like in the prompt as special tokens");
  command->add_flag("--echo", options->echo, "Print the prompt too");
  command->add_flag("--json", options->json, "Print one line of JSON at the end instead of streaming the text");
  command->footer(
      "The prompt is continued as it is, without a chat template; quire chat uses the\n"
      "template. One line break at the end of a file or of standard input is dropped.");
  command->final_callback([prompt, from] {
    if (prompt->count() + from->count() == 0) throw CLI::RequiredError("--prompt or --file");
  });
  return [options, file, &console](const Style&) -> Result<std::string> {
    if (options->prompt == "-" || !file->empty()) {
      auto text = read_prompt(file->empty() ? "-" : *file);
      if (!text) return text;
      options->prompt = std::move(*text);
    }
    return run_prompt(*options, console);
  };
}

std::function<Result<std::string>(const Style&)> add_chat(CLI::App& app, const Console& console) {
  CLI::App* command = app.add_subcommand("chat", "Chat with a model, or ask it one question");
  auto options = std::make_shared<ChatOptions>();
  auto question = std::make_shared<std::string>();
  auto file = std::make_shared<std::string>();
  const CLI::Option* const asked =
      command->add_option("TEXT", *question, "A question: print the answer and end; - reads standard input")
          ->type_name(std::string());
  const CLI::Option* const from =
      command
          ->add_option("-f,--file", *file,
                       "Ask what is in this file, print the answer and end; - reads standard\ninput. After TEXT, if "
                       "both are given")
          ->type_name("FILE");
  command->add_option("-m,--model", options->model.model, kBundledHelp)->type_name("FILE");
  command->add_option("--system", options->system, "System prompt: what the model is told before the conversation")
      ->type_name("TEXT");
  command->add_option("--chat-template-file", options->template_path, "Use the chat template in this file")
      ->type_name("FILE");
  add_number<std::uint32_t>(
      *command, "-n,--tokens", options->limit, {1},
      "Write at most N tokens per answer (default: until the model ends\nthe answer or the context is full)");
  add_sampler_options(*command, options->sampler, options->stops);
  add_constraint_options(*command, options->constraint);
  add_model_options(*command, options->model);
  add_adapter_options(*command, options->model, true);
  add_speculation_options(*command, options->model);
  command->footer(
      "/help lists the commands of a conversation. In a pipe, each line is a turn and\n"
      "only the answers are printed:\n"
      "  printf 'Hello!\\nWhat is 2 + 3?\\n' | quire chat\n"
      "  quire chat \"What is 2 + 3?\"\n"
      "  quire chat - < question.txt\n"
      "  quire chat -f report.txt \"Say it in one sentence:\"");
  command->final_callback([question, file] {
    if (*question == "-" && *file == "-") throw CLI::ValidationError("--file", "TEXT reads standard input already");
  });
  return [options, question, file, asked, from, &console](const Style& style) -> Result<std::string> {
    if (*question == "-") {
      auto text = read_prompt("-");
      if (!text) return text;
      *question = std::move(*text);
    }
    if (from->count() > 0) {
      auto text = read_prompt(*file);
      if (!text) return text;
      *question += (question->empty() ? "" : "\n\n") + *text;
    }
    const auto chat = Chat::create(*options, console);
    if (!chat) return std::unexpected(chat.error());
    if (asked->count() + from->count() > 0) {
      Interrupt interrupt;
      return answer_once(**chat, *question, console, interrupt);
    }
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
  command->add_option("--ids", options->ids, "Token ids: 1,2,3")->required()->type_name("IDS");
  command->add_flag("--all", options->all, "Logits of every position, not only of the last one");
  command->add_option("-o,--output", options->output, "Write the logits to this file, as little-endian 32-bit floats")
      ->type_name("FILE.f32");
  add_number<std::uint32_t>(*command, "--top", options->top, {1},
                            "Without -o: print the N most likely tokens (default: 10)");
  command
      ->add_option_function<std::string>(
          "--variant",
          [options](const std::string& text) {
            if (std::ranges::find(cpu::kVariants, text) == std::end(cpu::kVariants)) {
              refuse("--variant", text, fmt::format("is not one of {}", fmt::join(cpu::kVariants, ", ")));
            }
            options->model.variant = text;
          },
          "Instruction set to compute with (default: the best of this machine)")
      ->type_name("scalar|avx2|avx512|avx512bf16|amx");
  add_model_options(*command, options->model);
  add_adapter_options(*command, options->model, true);
  command->add_flag("--json", options->json, "Print one line of JSON");
  command->footer(
      "To compare with other programs, use --kv-type f32. The file holds one row of\n"
      "floats per position; a row is as long as the model's vocabulary.");
  return [options, &console](const Style&) { return logits(*options, console); };
}

}  // namespace quire::cli
