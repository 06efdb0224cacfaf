#include "quire/cli/app.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "quire/base/error.h"
#include "quire/base/utf8.h"
#include "quire/cli/completion.h"
#include "quire/cli/constrain.h"
#include "quire/cli/constraint_options.h"
#include "quire/cli/date.h"
#include "quire/cli/info.h"
#include "quire/cli/input.h"
#include "quire/cli/keys.h"
#include "quire/cli/man_page.h"
#include "quire/cli/model_commands.h"
#include "quire/cli/option_sources.h"
#include "quire/cli/option_text.h"
#include "quire/cli/options.h"
#include "quire/cli/printable.h"
#include "quire/cli/render.h"
#include "quire/cli/replay.h"
#include "quire/cli/serve.h"
#include "quire/cli/session.h"
#include "quire/cli/simulate.h"
#include "quire/cli/synth.h"
#include "quire/cli/tokenize.h"

#ifndef QUIRE_VERSION
#error "the build says which version this is"
#endif

namespace quire::cli {

namespace {

// What is to be printed, and the exit code.
struct Answer {
  Answer(std::string output, int code = kSuccess) : text(std::move(output)), exit_code(code) {}  // NOLINT: implicit
  std::string text;
  int exit_code;
};
// Runs a command whose options are filled in.
using Command = std::function<Result<Answer>(const Style&)>;

constexpr std::string_view kUsages[] = {
    "quire COMMAND ...",
    "quire run [-m FILE] -p TEXT|- | -f FILE [OPTIONS]",
    "quire chat [-m FILE] [TEXT] [-f FILE] [OPTIONS]",
    "quire serve [-m FILE] [--port N] [OPTIONS]",
    "quire session info|save|load FILE [TEXT | -f FILE] [-m FILE] [OPTIONS]",
    "quire keys add|list|set|revoke [NAME] --keys FILE [OPTIONS]",
    "quire bench [-m FILE | --shape NAMES [--type NAMES]] [-w NAMES] [OPTIONS]",
    "quire simulate TRACE... [-m FILE | --shape NAME] [--memory SIZES] [OPTIONS]",
    "quire synth (--shape NAME | --arch NAME) --type TYPE -o FILE [OPTIONS]",
    "quire replay FILE [--json]",
    "quire logits -m FILE --ids 1,2,3 [OPTIONS]",
    "quire info FILE|--devices [--json]",
    "quire tokenize -m FILE [--ids] [--special] [--no-bos | --decode] [--json] TEXT|-",
    "quire render (-m FILE | --template FILE) --messages FILE [OPTIONS]",
    "quire constrain (--schema FILE | --regex TEXT | --grammar FILE) [-m FILE] [OPTIONS] FILE...",
    "quire completion bash|zsh|fish",
    "quire man [COMMAND] [-o DIR]",
};

// CLI11's help with our usage lines, and without types where CLI11 would repeat them.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(28); }

  std::string make_usage(const CLI::App* app, std::string name) const override {
    for (const std::string_view usage : kUsages) {
      if (app->get_parent() == nullptr || usage.substr(std::string_view("quire ").size()).starts_with(name)) {
        return fmt::format("\nUsage: {}\n", usage);
      }
    }
    return "\n" + CLI::Formatter::make_usage(app, "quire " + name);
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() == 0 || option->get_type_name().empty() ? "" : " " + option->get_type_name();
  }
};

constexpr const char* kModelHelp = "The model: a GGUF file, or any part of a split one";
constexpr const char* kJsonHelp = "Print one line of JSON";

constexpr const char* kExamples = R"(Examples:
  quire run -p "Once upon a time there was"
  quire chat
  quire chat "What is a quire?"
  quire serve
  quire info model.gguf
  quire tokenize -m model.gguf "Once upon a time"
  quire tokenize -m model.gguf --ids - < story.txt
  quire render -m model.gguf --messages chat.json --add-generation-prompt

'quire COMMAND --help' lists the options of a command.
Exit codes: 0 success, 1 failure, 2 wrong usage; constrain: 3 not admitted.)";

Command add_info(CLI::App& app) {
  CLI::App* command = app.add_subcommand("info", "Show what a model is: sizes, types, tokenizer, layers, state");
  auto options = std::make_shared<InfoOptions>();
  CLI::Option* const file = command->add_option("FILE", options->path, kModelHelp)->type_name(std::string());
  CLI::Option* const devices =
      command->add_flag("--devices", options->devices, "List the devices of this machine instead")->excludes(file);
  command->add_flag("--json", options->json, kJsonHelp);
  add_block_size(*command, options->block_size);
  command->final_callback([file, devices] {
    if (file->count() + devices->count() == 0) throw CLI::RequiredError("FILE");
  });
  command->footer(
      "The state is the memory that a sequence takes from the pool: keys and values of\n"
      "every token in attention layers, a block of fixed size in recurrent layers. It is\n"
      "shown for each --kv-type.");
  return [options](const Style& style) { return info(*options, style); };
}

Command add_tokenize(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tokenize", "Convert text to the model's tokens, or tokens to text");
  auto options = std::make_shared<TokenizeOptions>();
  command->add_option("-m,--model", options->model, kModelHelp)->required()->type_name("FILE");
  command->add_option("TEXT", options->text, "The text; - reads up to 64 MiB from standard input")
      ->required()
      ->type_name(std::string());
  auto* ids = command->add_flag("--ids", options->ids, "Print only the ids, on one line");
  command->add_flag(
      "--special", options->special,
      "Read <|im_end|> and the like in the text as special tokens;\nwith --decode, print special tokens too");
  auto* no_bos = command->add_flag("--no-bos", options->no_bos, "Do not add the BOS and EOS that the model asks for");
  command->add_flag("--decode", options->decode, "TEXT is token ids (1 2 3 or 1,2,3): print their text")
      ->excludes(ids)
      ->excludes(no_bos);
  command->add_flag("--json", options->json, kJsonHelp);
  command->footer(
      "Put -- before a text that begins with a dash:\n"
      "  quire tokenize -m model.gguf -- --flag\n\n"
      "In JSON, a token that is not valid UTF-8 is an array of its bytes.");
  return [options](const Style& style) -> Result<std::string> {
    if (options->text == "-") {
      auto text = read_text("-", kMaxTokenizeBytes);
      if (!text) return std::unexpected(text.error());
      options->text = std::move(*text);
    }
    return tokenize(*options, style);
  };
}

Command add_render(CLI::App& app) {
  CLI::App* command = app.add_subcommand("render", "Render a conversation with a chat template");
  auto options = std::make_shared<RenderCommandOptions>();
  auto* model = command->add_option("-m,--model", options->model, "Use the template, BOS and EOS of this GGUF file")
                    ->type_name("FILE");
  command->add_option("--template", options->template_path, "Use the template in this file")
      ->type_name("FILE")
      ->excludes(model);
  command->add_option("--messages", options->messages, "The conversation, a JSON file; - reads standard input")
      ->required()
      ->type_name("FILE");
  command->add_flag("--add-generation-prompt", options->add_generation_prompt,
                    "Append the header that begins the assistant's turn");
  command
      ->add_option_function<std::string>(
          "--now",
          [options](const std::string& text) {
            options->now = parse_date(text);
            if (!options->now) {
              throw CLI::ValidationError("--now", fmt::format("{} is not a date like 2024-07-26 or 2024-07-26T09:30:00",
                                                              printable(text, {.limit = 40, .quotes = true})));
            }
          },
          "The current time that the template sees: 2024-07-26 or\n2024-07-26T09:30:00 (default: the clock)")
      ->type_name("DATE");
  command->add_flag("--json", options->json, R"(Print {"text": ...} as one line of JSON)");
  command->footer(
      "The JSON file holds an array of messages, or an object with \"messages\" and\n"
      "optionally \"tools\", \"bos_token\", \"eos_token\" and any other variable of the\n"
      "template. The output is exactly the rendered text; no line break is added.");
  command->callback([options] {
    if (options->model.empty() && options->template_path.empty()) throw CLI::RequiredError("-m or --template");
  });
  return [options](const Style& style) { return render(*options, style); };
}

Command add_constrain(CLI::App& app) {
  CLI::App* command = app.add_subcommand("constrain", "Say whether a schema, expression or grammar admits files");
  auto options = std::make_shared<ConstrainOptions>();
  add_constraint_options(*command, options->constraint);
  command->add_option("-m,--model", options->model, "Check token by token too, with the vocabulary of this GGUF file")
      ->type_name("FILE");
  command->add_flag("--special", options->special,
                    "Read <|im_end|> and the like in the files as special tokens; needs -m");
  command->add_flag("--stats", options->stats, "Print how long compiling and, with -m, each mask took");
  command->add_flag("--json", options->json, "Print one line of JSON for each file");
  command->add_option("FILE", options->files, "The texts; - reads standard input")
      ->required()
      ->type_name(std::string());
  command->footer(
      "A file is admitted if the whole of it, byte for byte, is a text of the constraint:\n"
      "a line end after a JSON value is not part of it.\n\n"
      "Exit codes: 0 all files are admitted; 3 some are not; 1 the constraint cannot be\n"
      "enforced (the reason is on standard error), or a file cannot be read.");
  command->final_callback([options] {
    const ConstraintOptions& given = options->constraint;
    if (given.schema.empty() && given.grammar.empty() && !given.has_regex) {
      throw CLI::RequiredError("--schema, --regex or --grammar");
    }
    if (options->special && options->model.empty()) throw CLI::RequiredError("-m (for --special)");
  });
  return [options](const Style& style) -> Result<Answer> {
    auto done = constrain(*options, style);
    if (!done) return std::unexpected(done.error());
    return Answer(std::move(done->text), done->admitted ? kSuccess : kNotAdmitted);
  };
}

Command add_completion(CLI::App& app) {
  CLI::App* command = app.add_subcommand("completion", "Print a script that completes quire's options in a shell");
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")->required()->type_name(std::string());
  command->footer(
      "  source <(quire completion bash)                  # in ~/.bashrc\n"
      "  quire completion zsh > \"${fpath[1]}/_quire\"\n"
      "  quire completion fish > ~/.config/fish/completions/quire.fish\n\n"
      "An installation has these scripts already.");
  return [shell, &app](const Style&) { return completion(describe(app), *shell); };
}

Command add_man(CLI::App& app) {
  CLI::App* command = app.add_subcommand("man", "Print a manual page in roff");
  auto name = std::make_shared<std::string>();
  auto folder = std::make_shared<std::string>();
  CLI::Option* const one =
      command->add_option("COMMAND", *name, "Page of this command (default: of the program)")->type_name(std::string());
  command->add_option("-o,--output", *folder, "Write all pages to this folder instead")
      ->type_name("DIR")
      ->excludes(one);
  command->footer("  quire man serve | man -l -");
  return [name, folder, &app](const Style&) -> Result<std::string> {
    if (folder->empty()) return man_page(describe(app), *name);
    if (const auto done = write_man_pages(describe(app), *folder); !done) return std::unexpected(done.error());
    return "";
  };
}

int fail_with(Output& err, int code, std::string_view message) {
  // A long message is cut in the middle, because the reason stands at its end.
  constexpr std::size_t kHalf = 1000;
  std::string line = printable(message);
  if (line.size() > 2 * kHalf) {
    std::string_view tail = std::string_view(line).substr(line.size() - kHalf);
    while (!tail.empty() && (static_cast<unsigned char>(tail.front()) & 0xC0) == 0x80) tail.remove_prefix(1);
    line = fmt::format("{}...{}", clipped(line, kHalf), tail);
  }
  // If this fails too, there is nowhere left to report it.
  (void)err.write(fmt::format("quire: {}\n", line));
  return code;
}

int print(Output& out, Output& err, std::string_view text) {
  const std::error_code error = out.write(text);
  if (!error) return kSuccess;
  if (error == std::errc::broken_pipe) return kFailure;
  return fail_with(err, kFailure, fmt::format("cannot write to standard output: {}", error.message()));
}

// CLI11's message on one line. An unknown argument is reported before a missing one: the typo "--modl" is the reason
// why "--model" is missing.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error) {
  std::string message = error.what();
  const auto used = app.get_subcommands();
  const bool about_presence = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
                              dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if (const auto extra = app.remaining(true); about_presence && !extra.empty()) {
    const bool option = extra.front().starts_with('-');
    message = fmt::format("{} '{}'",
                          option         ? "unknown option"
                          : used.empty() ? "unknown command"
                                         : "unexpected argument",
                          extra.front());
  }
  return fmt::format("{} (see 'quire{}{} --help')", message, used.empty() ? "" : " ",
                     used.empty() ? "" : used.front()->get_name());
}

// What QUIRE_* variables and the configuration file add to `quire serve`.
Result<OptionSources> serve_sources(const CLI::App& app, const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front() != "serve") return OptionSources{};
  for (const std::string& argument : arguments) {
    if (argument == "-h" || argument == "--help") return OptionSources{};  // help needs no valid file
  }
  const ProgramText program = describe(app);
  const auto serve = std::ranges::find(program.commands, "serve", &CommandText::name);
  return other_sources(serve->options, {arguments.begin() + 1, arguments.end()},
                       [](const std::string& name) { return std::getenv(name.c_str()); });
}

// Says where a wrong option comes from, if not from the command line.
std::string with_origin(std::string message, const std::map<std::string, std::string>& origins) {
  for (const auto& [option, origin] : origins) {
    if (message.starts_with(option + ": ")) return message.replace(0, option.size(), origin);
  }
  for (const auto& [option, origin] : origins) {
    if (message.find(option) != std::string::npos) message += fmt::format(" ({} is from {})", option, origin);
  }
  return message;
}

// Whether the option is a text, not a path or a number.
bool takes_text(const CLI::Option& option) { return option.get_name() == "TEXT" || option.get_type_name() == "TEXT"; }

// Models expect UTF-8, so a text in another encoding would be misread. (A path may be any bytes.)
std::string refuse_other_encodings(const std::string& argument) {
  const std::size_t valid = utf8_valid_prefix(argument);
  return valid == argument.size() ? "" : fmt::format("the text is not UTF-8 at byte {}", valid);
}

int run_throwing(int argc, const char* const* argv, Output& out, Output& err, const Style& style,
                 const Style& err_style) {
  CLI::App app("Quire: a runtime for large language models.", "quire");
  app.set_version_flag("--version", "quire " QUIRE_VERSION, "Print the version and exit");
  app.set_help_flag("-h,--help", "Print this help and exit");
  // At least 0: with 1, CLI11 would report an unknown command as a missing one.
  app.require_subcommand(0, 1);
  app.footer(kExamples);
  app.formatter(std::make_shared<HelpFormatter>());

  const Console console{.out = out, .err = err, .out_style = style, .err_style = err_style};
  const Command commands[] = {add_run(app, console),     add_chat(app, console),
                              add_serve(app, console),   add_info(app),
                              add_tokenize(app),         add_render(app),
                              add_logits(app, console),  add_bench(app, console),
                              add_synth(app, console),   add_simulate(app, console),
                              add_keys(app, console),    add_replay(app, console),
                              add_session(app, console), add_constrain(app),
                              add_completion(app),       add_man(app)};
  const auto subcommands = app.get_subcommands([](const CLI::App*) { return true; });
  for (CLI::App* command : subcommands) {
    command->group("Commands");
    for (CLI::Option* option : command->get_options([](const CLI::Option* o) { return takes_text(*o); })) {
      option->check(refuse_other_encodings);
    }
  }

  std::vector<const char*> arguments(argv, argv + argc);
  const auto sources = serve_sources(app, {arguments.begin() + std::min(argc, 1), arguments.end()});
  if (!sources) return fail_with(err, kUsage, sources.error().message);
  for (const std::string& argument : sources->arguments) arguments.push_back(argument.c_str());

  try {
    app.parse(static_cast<int>(arguments.size()), arguments.data());
  } catch (const CLI::CallForHelp&) {
    const auto used = app.get_subcommands();
    return print(out, err, used.empty() ? app.help() : used.front()->help());
  } catch (const CLI::CallForVersion& version) {
    return print(out, err, fmt::format("{}\n", version.what()));
  } catch (const CLI::ParseError& error) {
    return fail_with(err, kUsage, with_origin(usage_message(app, error), sources->origins));
  }
  for (std::size_t i = 0; i < std::size(commands); ++i) {
    if (!subcommands[i]->parsed()) continue;
    const auto answer = commands[i](style);
    if (!answer) return fail_with(err, kFailure, answer.error().message);
    const int printed = print(out, err, answer->text);
    return printed == kSuccess ? answer->exit_code : printed;
  }
  return fail_with(err, kUsage, "no command given (see 'quire --help')");
}

}  // namespace

int run(int argc, const char* const* argv, Output& out, Output& err, const Style& style,
        const Style& err_style) noexcept {
  // Exceptions of the standard library and of CLI11 end here.
  try {
    return run_throwing(argc, argv, out, err, style, err_style);
  } catch (const std::bad_alloc&) {
    (void)err.write("quire: out of memory\n");
  } catch (const std::exception& error) {
    (void)err.write("quire: ");
    (void)err.write(error.what());
    (void)err.write("\n");
  }
  return kFailure;
}

}  // namespace quire::cli
