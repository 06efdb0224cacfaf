#include "quire/cli/run.h"

#include <chrono>
#include <string_view>
#include <system_error>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <fmt/format.h>

#include "quire/cli/generate.h"
#include "quire/cli/printable.h"
#include "quire/cli/progress.h"
#include "quire/cli/report.h"
#include "quire/cli/terminal_text.h"

namespace quire::cli {

namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;

// Streams to the output, or keeps for JSON.
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

Result<std::vector<text::TokenId>> prompt_ids(const RunOptions& options, const text::Tokenizer& tokenizer) {
  auto ids = tokenizer.encode(options.prompt, {.parse_special = options.special});
  if (!ids) return ids;
  // What is put behind every text would end this one before it is gone on with.
  if (tokenizer.adds_eos() && !ids->empty() && ids->back() == tokenizer.eos()) ids->pop_back();
  if (ids->empty()) return fail("the prompt is empty, and the model has no token to begin a text with");
  return ids;
}

}  // namespace

Result<std::string> run_prompt(const RunOptions& options, const Console& console) {
  auto session = load(options.model, {}, console);
  if (!session) return std::unexpected(session.error());
  const auto tokenizer = text::Tokenizer::from_gguf((*session)->model().file());
  if (!tokenizer) return std::unexpected(tokenizer.error());
  const auto ids = prompt_ids(options, *tokenizer);
  if (!ids) return std::unexpected(ids.error());
  if (ids->size() > (*session)->context()) {
    return fail(fmt::format("the prompt has {} tokens, and the context only {}", ids->size(), (*session)->context()));
  }
  engine::LoneSampler sampler(options.sampler, (*session)->model().numbers().vocabulary);

  Sink sink{.console = console, .keep = options.json};
  if (options.echo) (void)sink(text::kNoToken, options.prompt);
  Timing read{.tokens = static_cast<std::uint32_t>(ids->size())};
  {
    const Clock::time_point start = Clock::now();
    Progress progress(console.err, console.err_style, "reading");
    const auto reading = (*session)->read(*ids, [&](std::uint32_t done, std::uint32_t total) {
      progress.update(done, total);
      return true;
    });
    if (!reading) return std::unexpected(reading.error());
    read.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  }
  const auto generated = generate(**session, sampler, *tokenizer, {.limit = options.limit}, std::ref(sink));
  if (!generated) return std::unexpected(generated.error());

  const Timing written{.tokens = generated->tokens, .seconds = generated->seconds};
  const PoolUse use = pool_use((*session)->pool());
  if (options.json) {
    return json_line(json::object{{"text", sink.text},
                                  {"ids", std::move(sink.ids)},
                                  {"ending", word(generated->ending)},
                                  {"seed", options.sampler.seed},
                                  {"context", (*session)->context()},
                                  {"threads", (*session)->backend().threads()},
                                  {"variant", (*session)->backend().variant()},
                                  {"read", to_json(read)},
                                  {"written", to_json(written)},
                                  {"pool", to_json(use)}});
  }
  // Whoever cannot be written to is dealt with by the caller, who will meet the same error.
  if (sink.error || console.out.write("\n")) return "\n";
  std::string report = fmt::format("\nread     {}\nwritten  {}; {}\npool     {}\n", describe(read), describe(written),
                                   reason(generated->ending), describe(use));
  if (options.sampler.temperature > 0) report += fmt::format("seed     {}\n", options.sampler.seed);
  (void)console.err.write(report);
  return "";
}

}  // namespace quire::cli
