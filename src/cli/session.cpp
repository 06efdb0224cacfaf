#include "quire/cli/session.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "quire/base/readable.h"
#include "quire/base/utf8.h"
#include "quire/cli/ask.h"
#include "quire/cli/input.h"
#include "quire/cli/model_commands.h"
#include "quire/cli/options.h"
#include "quire/cli/printable.h"
#include "quire/cli/progress.h"
#include "quire/cli/report.h"
#include "quire/cli/run.h"
#include "quire/cli/terminal_text.h"
#include "quire/server/grammar_constraints.h"
#include "quire/session/session_file.h"
#include "quire/session/session_state.h"

namespace quire::cli {
namespace {

namespace json = boost::json;
using session::Contents;
using session::SessionFile;

std::unexpected<Error> wrong(const std::string& file, const std::string& why) {
  return fail(fmt::format("{} {}", printable(file), why));
}

// One sequence, and the prefix cache in which the state of a session is kept.
engine::HostOptions with_cache() { return {.max_sequences = 2, .event_capacity = 64}; }

std::string described(const session::Section& section) {
  using Kind = session::SectionKind;
  if (section.kind == Kind::Pages) return fmt::format("pages of group {}", section.group);
  if (section.kind == Kind::Checkpoint) return fmt::format("checkpoint at {}", section.at);
  return name(section.kind);
}

// What a server wrote of the answers that it gives (docs/state-format.md); null: nothing.
const json::object* object_in(const json::object& metadata, std::string_view field) {
  const json::value* const value = metadata.if_contains(field);
  return value != nullptr && value->is_object() && !value->get_object().empty() ? &value->get_object() : nullptr;
}

// What `load` does not use of a server's session, for the user. Empty: nothing is left out.
std::string left_out(const json::object& metadata) {
  constexpr Printable kShort{.limit = 1000};
  std::string out;
  if (const json::object* const answer = object_in(metadata, "answer")) {
    const json::object* const options = object_in(*answer, "options");
    out +=
        "was saved in the middle of an answer. The text goes on after its last token, but not with the answer's "
        "options";
    if (options != nullptr) out += fmt::format(": {}", printable(json::serialize(*options), kShort));
  }
  if (const json::object* const options = object_in(metadata, "options")) {
    out += fmt::format("{} default options for answers, which load does not use: {}",
                       out.empty() ? "has" : "; and it has", printable(json::serialize(*options), kShort));
  }
  return out;
}

// How many tokens an answer has that begins where `answer` says; null if it does not say so.
std::optional<std::size_t> length_of(const json::object& answer, std::size_t tokens) {
  const json::value* const begin = answer.if_contains("begin");
  if (begin == nullptr || !begin->is_int64() || begin->get_int64() < 0) return std::nullopt;
  const auto at = static_cast<std::uint64_t>(begin->get_int64());
  return at <= tokens ? std::optional(tokens - static_cast<std::size_t>(at)) : std::nullopt;
}

// The line of `info` about an answer that has not ended, without the line break.
std::string unfinished(const json::object& answer, std::size_t tokens) {
  const json::object* const options = object_in(answer, "options");
  const auto length = length_of(answer, tokens);
  return fmt::format(
      "answer      not ended{}; a server continues it{}, session load goes on without {}",
      length ? fmt::format(" after {} tokens", grouped(*length)) : "",
      options == nullptr ? "" : fmt::format(" with the options {}", printable(json::serialize(*options))),
      options == nullptr ? "its options" : "them");
}

Result<std::string> show(const SessionOptions& options) {
  const auto file = SessionFile::open(options.file);
  if (!file) return wrong(options.file, file.error().message);
  const Contents& contents = file->contents();
  json::error_code error;
  const json::value metadata = json::parse(json::string_view(contents.metadata), error);
  if (error || !metadata.is_object()) return wrong(options.file, "is damaged: its metadata is not a JSON object");
  const json::value* const messages = metadata.get_object().if_contains("messages");
  const std::size_t spoken = messages != nullptr && messages->is_array() ? messages->get_array().size() : 0;
  const auto object_or_null = [&](std::string_view field) {
    const json::object* const found = object_in(metadata.get_object(), field);
    return found == nullptr ? json::value() : json::value(*found);
  };
  if (options.json) {
    json::array sections;
    for (const session::Section& section : contents.sections) {
      sections.push_back({{"what", described(section)}, {"offset", section.offset}, {"bytes", section.length}});
    }
    return json_line(json::object{{"file", options.file},
                                  {"version", contents.version},
                                  {"model", session::short_name(contents.model)},
                                  {"layout", session::short_name(contents.layout)},
                                  {"block_size", contents.block_size},
                                  {"tokens", contents.tokens.size()},
                                  {"computed", contents.computed},
                                  {"messages", spoken},
                                  {"options", object_or_null("options")},
                                  {"answer", object_or_null("answer")},
                                  {"checkpoints", contents.checkpoints.size()},
                                  {"bytes", file->bytes()},
                                  {"sections", std::move(sections)}});
  }
  std::string out;
  out += fmt::format("version     {}\n", contents.version);
  out += fmt::format("model       {}\n", session::short_name(contents.model));
  out +=
      fmt::format("layout      {}, blocks of {} tokens\n", session::short_name(contents.layout), contents.block_size);
  out += fmt::format("tokens      {}, the state of {} of them\n", grouped(contents.tokens.size()),
                     grouped(contents.computed));
  if (const json::value* const adapter = metadata.get_object().if_contains("adapter")) {
    out += fmt::format("adapter     {}\n", printable(json::serialize(*adapter)));
  }
  if (spoken > 0) out += fmt::format("messages    {}\n", grouped(spoken));
  if (const json::object* const defaults = object_in(metadata.get_object(), "options")) {
    out += fmt::format("options     {}\n", printable(json::serialize(*defaults)));
  }
  if (const json::object* const answer = object_in(metadata.get_object(), "answer")) {
    out += unfinished(*answer, contents.tokens.size()) + "\n";
  }
  out += fmt::format("bytes       {} ({}), all checksums right\n", grouped(file->bytes()), in_units(file->bytes()));
  for (const session::Section& section : contents.sections) {
    out += fmt::format("  {:<24} {:>15}\n", described(section), grouped(section.length));
  }
  return out;
}

// The adapter that a file was made with, if it names one. It must be among those of the model, with the same contents.
Result<std::uint32_t> adapter_of_file(const json::object& metadata, const model::Model& model) {
  const json::value* const named = metadata.if_contains("adapter");
  if (named == nullptr) return 0;
  const auto text = [&](std::string_view field) {
    const json::value* const value = named->is_object() ? named->get_object().if_contains(field) : nullptr;
    return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
  };
  const std::string name = text("name");
  const std::uint32_t number = model.adapter_number(name);
  if (number == 0)
    return fail(fmt::format("was made with adapter '{0}': give it with --lora {0}=FILE", printable(name)));
  if (text("fingerprint") != session::short_name(model.adapters()[number - 1].fingerprint())) {
    return fail(fmt::format("was made with another adapter '{}', or with another scale of it", printable(name)));
  }
  return number;
}

Result<std::string> save(const SessionOptions& options, const Console& console) {
  const auto adapter = chosen_adapter(options.model);
  if (!adapter) return std::unexpected(adapter.error());
  auto host = load(options.model, with_cache(), console);
  if (!host) return std::unexpected(host.error());
  const auto tokenizer = text::Tokenizer::from_gguf((*host)->model().file());
  if (!tokenizer) return std::unexpected(tokenizer.error());
  const auto ids = prompt_ids(options.prompt, options.special, *tokenizer);
  if (!ids) return std::unexpected(ids.error());
  const std::vector<Token> tokens(ids->begin(), ids->end());
  Progress progress(console.err, console.err_style, "prefill");
  const auto computed = compute(**host, tokens, *adapter, [&](std::uint32_t done, std::uint32_t total) {
    if (done < total) progress.update(done, total);
  });
  progress.clear();
  if (!computed) return std::unexpected(computed.error());
  const model::Adapter* const used = *adapter == 0 ? nullptr : &(*host)->model().adapters()[*adapter - 1];
  const auto snapshot =
      session::take((*host)->pool(), tokens, in_adapter(0, *adapter), used == nullptr ? nullptr : &used->fingerprint());
  if (!snapshot) return fail(snapshot.error().message());
  const auto now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch());
  json::object metadata{{"created", now.count()}};
  if (used != nullptr) {
    metadata["adapter"] = {{"name", used->name()}, {"fingerprint", session::short_name(used->fingerprint())}};
  }
  const auto written = session::write(options.file, tokens, *snapshot, json::serialize(metadata));
  if (!written) return wrong(options.file, written.error().message);
  if (options.json) {
    return json_line(json::object{{"file", options.file},
                                  {"tokens", tokens.size()},
                                  {"computed", snapshot->sequence.tokens.size()},
                                  {"bytes", *written},
                                  {"prefill", to_json(*computed)}});
  }
  (void)console.err.write(fmt::format("prefill  {}\n", describe(*computed)));
  return fmt::format("{}: {} tokens, {}\n", printable(options.file), grouped(tokens.size()), in_units(*written));
}

Result<std::string> continue_text(const SessionOptions& options, const Console& console) {
  const auto file = SessionFile::open(options.file);
  if (!file) return wrong(options.file, file.error().message);
  const Contents& contents = file->contents();
  if (contents.tokens.empty()) return wrong(options.file, "has no tokens");
  auto host = load(options.model, with_cache(), console);
  if (!host) return std::unexpected(host.error());
  SequencePool& pool = (*host)->pool();
  json::error_code error;
  const json::value metadata = json::parse(json::string_view(contents.metadata), error);
  if (error || !metadata.is_object()) return wrong(options.file, "is damaged: its metadata is not a JSON object");
  const auto adapter = adapter_of_file(metadata.get_object(), (*host)->model());
  if (!adapter) return wrong(options.file, adapter.error().message);
  const Fingerprint* const print = *adapter == 0 ? nullptr : &(*host)->model().adapters()[*adapter - 1].fingerprint();
  const Fingerprint origin = print == nullptr ? pool.config().model : adapted(pool.config().model, *print);
  if (const auto ok = check_origin(contents, origin, fingerprint_of(pool.layout())); !ok) {
    return wrong(options.file, ok.error().message);
  }
  const auto tokenizer = text::Tokenizer::from_gguf((*host)->model().file());
  if (!tokenizer) return std::unexpected(tokenizer.error());
  server::GrammarConstraints constraints(*tokenizer, (*host)->model().hyperparameters().vocabulary);
  auto constraint = make_constraint(options.constraint, constraints);
  if (!constraint) return std::unexpected(constraint.error());
  if (const auto given = session::give(pool, contents, in_adapter(0, *adapter), print); !given) {
    return wrong(options.file, given.error().message());
  }
  if (const std::string left = left_out(metadata.get_object()); !left.empty()) {
    (void)console.err.write(fmt::format("quire: {} {}\n", printable(options.file), left));
  }
  return write_text_of(**host, *tokenizer,
                       {.prompt = contents.tokens,
                        .limit = options.limit,
                        .stops = options.stops,
                        .sampling = options.sampler,
                        .constraint = std::move(*constraint),
                        .adapter = *adapter},
                       "", options.json, console);
}

}  // namespace

Result<std::string> session_command(const SessionOptions& options, const Console& console) {
  if (options.action == "info") return show(options);
  return options.action == "save" ? save(options, console) : continue_text(options, console);
}

std::function<Result<std::string>(const Style&)> add_session(CLI::App& app, const Console& console) {
  CLI::App* command = app.add_subcommand("session", "Save what a model remembers of a text, and continue from there");
  auto options = std::make_shared<SessionOptions>();
  auto from = std::make_shared<std::string>();
  command
      ->add_option_function<std::string>(
          "ACTION",
          [options](const std::string& text) {
            check_name("ACTION", text, text, {"info", "save", "load"});
            options->action = text;
          },
          "info: show and check a file; save: compute a text and write a file;\nload: continue the text of a file")
      ->required()
      ->type_name(std::string());
  command->add_option("FILE", options->file, "The session file")->required()->type_name(std::string());
  CLI::Option* const text =
      command->add_option("TEXT", options->prompt, "save: the text; - reads up to 64 MiB from standard input")
          ->type_name(std::string());
  CLI::Option* const input =
      command->add_option("-f,--file", *from, "save: the text in this file; - reads standard input")
          ->type_name("FILE")
          ->excludes(text);
  command->add_option("-m,--model", options->model.model, kBundledHelp)->type_name("FILE");
  add_number<std::uint32_t>(
      *command, "-n,--tokens", options->limit, {1},
      "load: write at most N tokens (default: until the model ends the text\nor the context is full)");
  add_sampler_options(*command, options->sampler, options->stops);
  add_constraint_options(*command, options->constraint);
  add_model_options(*command, options->model);
  add_adapter_options(*command, options->model, true);
  command->add_flag("--special", options->special, "save: read <|im_end|> and the like as special tokens");
  command->add_flag("--json", options->json, "Print one line of JSON");
  command->footer(
      "A file can be loaded with the model, the device and the types of its pages that\n"
      "it was saved with. So can the files of a server (quire serve --session-dir). If\n"
      "one was saved in the middle of an answer, info and load say so; load goes on\n"
      "after its last token, with the options given here.\n\n"
      "  quire session save story.qs -f story.txt\n"
      "  quire session info story.qs\n"
      "  quire session load story.qs -n 100 --temp 0");
  command->final_callback([options, text, input] {
    const bool given = text->count() + input->count() > 0;
    if (options->action == "save" && !given) throw CLI::RequiredError("TEXT or --file");
    if (options->action != "save" && given) {
      throw CLI::ValidationError(fmt::format("session {} takes no text", options->action));
    }
  });
  return [options, from, &console](const Style&) -> Result<std::string> {
    if (options->prompt == "-" || !from->empty()) {
      auto read = read_prompt(from->empty() ? "-" : *from);
      if (!read) return read;
      options->prompt = std::move(*read);
    }
    return session_command(*options, console);
  };
}

}  // namespace quire::cli
