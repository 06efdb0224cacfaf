#include "quire/cli/run.h"

#include <string_view>
#include <system_error>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <fmt/format.h>

#include "quire/cli/ask.h"
#include "quire/cli/printable.h"
#include "quire/cli/progress.h"
#include "quire/cli/report.h"
#include "quire/cli/terminal_text.h"
#include "quire/server/grammar_constraints.h"

namespace quire::cli {

namespace {

namespace json = boost::json;

// Streams the text to the output, or keeps it for JSON.
struct Sink {
  const Console& console;
  bool keep = false;
  std::string text;
  json::array ids;
  std::error_code error;

  bool operator()(text::TokenId token, std::string_view piece) {
    if (keep) {
      if (token != text::kNoToken) ids.push_back(token);
      text += piece;
      return true;
    }
    if (!piece.empty() && !error) error = write_text(console.out, console.out_style, piece);
    return !error;
  }
};

}  // namespace

Result<std::vector<text::TokenId>> prompt_ids(const std::string& prompt, bool special,
                                              const text::Tokenizer& tokenizer) {
  auto ids = tokenizer.encode(prompt, {.parse_special = special});
  if (!ids) return ids;
  // Some models ask for an EOS after every text. Here it would end the text before it is continued.
  if (tokenizer.adds_eos() && !ids->empty() && ids->back() == tokenizer.eos()) ids->pop_back();
  if (ids->empty()) return fail("the prompt is empty, and the model has no token to begin a text with");
  return ids;
}

Result<std::string> run_prompt(const RunOptions& options, const Console& console) {
  const auto adapter = chosen_adapter(options.model);
  if (!adapter) return std::unexpected(adapter.error());
  auto host = load(options.model, one_sequence(), console);
  if (!host) return std::unexpected(host.error());
  const auto tokenizer = text::Tokenizer::from_gguf((*host)->model().file());
  if (!tokenizer) return std::unexpected(tokenizer.error());
  const auto ids = prompt_ids(options.prompt, options.special, *tokenizer);
  if (!ids) return std::unexpected(ids.error());

  server::GrammarConstraints constraints(*tokenizer, (*host)->model().hyperparameters().vocabulary);
  auto constraint = make_constraint(options.constraint, constraints);
  if (!constraint) return std::unexpected(constraint.error());

  return write_text_of(**host, *tokenizer,
                       {.prompt = {ids->begin(), ids->end()},
                        .limit = options.limit,
                        .stops = options.stops,
                        .sampling = options.sampler,
                        .constraint = std::move(*constraint),
                        .adapter = *adapter},
                       options.echo ? options.prompt : std::string(), options.json, console);
}

Result<std::string> write_text_of(engine::HostedModel& host, const text::Tokenizer& tokenizer, Question question,
                                  const std::string& echo, bool as_json, const Console& console) {
  const std::uint64_t seed = question.sampling.seed;
  const bool sampled = question.sampling.temperature > 0;
  Sink sink{.console = console, .keep = as_json};
  if (!echo.empty()) (void)sink(text::kNoToken, echo);
  Progress progress(console.err, console.err_style, "prefill");
  const auto answered = ask(
      host, tokenizer, std::move(question),
      [&](std::uint32_t done, std::uint32_t total) {
        if (done < total) progress.update(done, total);
        return true;
      },
      [&](text::TokenId token, std::string_view piece) {
        progress.clear();
        return sink(token, piece);
      });
  if (!answered) return std::unexpected(answered.error());
  const PoolUse use = pool_use(host.pool());
  if (as_json) {
    const BackendFacts facts = host.backend().facts();
    return json_line(json::object{{"text", sink.text},
                                  {"ids", std::move(sink.ids)},
                                  {"ending", word(answered->ending)},
                                  {"seed", seed},
                                  {"context", host.context()},
                                  {"device", facts.device},
                                  {"threads", facts.threads},
                                  {"variant", facts.variant},
                                  {"prefill", to_json(answered->prefill)},
                                  {"decode", to_json(answered->decode)},
                                  {"drafted", answered->drafted},
                                  {"accepted", answered->accepted},
                                  {"pool", to_json(use)}});
  }
  // If standard output is broken, the caller writes the line break, meets the same error and handles it.
  if (sink.error || console.out.write("\n")) return "\n";
  std::string report = fmt::format("\nprefill  {}\ndecode   {}; {}\npool     {}\n", describe(answered->prefill),
                                   describe(answered->decode), reason(answered->ending), describe(use));
  if (answered->drafted > 0) {
    report += fmt::format("drafts   {} of {} guessed tokens were right\n", answered->accepted, answered->drafted);
  }
  if (sampled) report += fmt::format("seed     {}\n", seed);
  (void)console.err.write(report);
  return "";
}

}  // namespace quire::cli
