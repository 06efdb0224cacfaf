// How much a constraint costs: a batch of answers that are free, and the same number of tokens that must fit a schema.
// Both take turns, and the best of each counts: on a shared machine the speed changes within seconds.
//
// Where the time goes, for a step in the mean: in the model, and of that waiting for masks (the thread that samples
// helps to compute them); outside of it (what is accepted, what is forced, the schedule). Steps that have several
// tokens of some answer, because they were forced, are counted beside the others: they have more rows.
//
//   constrained_bench MODEL [SEQUENCES] [TOKENS] [ROUNDS]      default: 32 answers of 64 tokens, 5 rounds
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "quire/engine/hosted_model.h"
#include "quire/model/model.h"
#include "quire/server/grammar_constraints.h"
#include "quire/text/tokenizer.h"

namespace quire::server {
namespace {

using Clock = std::chrono::steady_clock;

// Keys, texts, numbers and lists; never complete before the tokens are used up.
constexpr std::string_view kSchema = R"({"type": "array", "minItems": 100000, "items": {"type": "object",
    "properties": {"name": {"type": "string", "maxLength": 40}, "kind": {"enum": ["small", "large", "other"]},
                   "score": {"type": "number", "minimum": 0, "maximum": 1000}, "flags": {"type": "array", "items": {"type": "boolean"}},
                   "comment": {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 80}]}},
    "required": ["name", "kind", "score", "flags"], "additionalProperties": false}})";

struct Counting final : engine::Listener {
  void on_event(const engine::Event& event) override {
    tokens += event.kind == engine::Event::Kind::Token;
    if (event.kind == engine::Event::Kind::Finished && event.finish == engine::Finish::Failed) error = event.error;
  }
  std::uint64_t tokens = 0;
  std::string error;
};

// Some steps of a round.
struct Steps {
  std::uint64_t count = 0, rows = 0;
  double seconds = 0, model = 0, masks = 0, waiting = 0;

  void add(const engine::EngineStats& before, const engine::EngineStats& after, double own) {
    ++count;
    rows += after.computed_tokens + after.generated_tokens - before.computed_tokens - before.generated_tokens;
    seconds += own;
    model += after.model_seconds - before.model_seconds;
    masks += after.mask_seconds - before.mask_seconds;
    waiting += after.mask_wait_seconds - before.mask_wait_seconds;
  }
  void print(std::string_view name) const {
    if (count == 0) return;
    const double each = 1e6 / static_cast<double>(count);
    fmt::print(
        "  {}: {} steps of {:.1f} rows: {:.0f} us, of which model {:.0f}, outside {:.0f}; masks took {:.0f} us of "
        "CPU time, waited for {:.0f}\n",
        name, count, static_cast<double>(rows) / static_cast<double>(count), seconds * each, model * each,
        (seconds - model) * each, masks * each, waiting * each);
  }
};

struct Round {
  double seconds = 0;
  std::uint64_t tokens = 0, steps = 0;
  Steps single, several;  // with one row for each answer; with more for some
};

// Prefill is the same for both and is not counted: the time begins when every answer has its first token.
Round answer(engine::Engine& engine, std::uint32_t sequences, std::uint32_t tokens, const ConstraintFactory& constraint,
             std::uint64_t seed, std::uint32_t vocabulary) {
  const auto counting = std::make_shared<Counting>();
  for (std::uint32_t i = 0; i < sequences; ++i) {
    engine::Request request{.max_tokens = tokens};
    for (std::uint32_t t = 0; t < 16; ++t) {
      request.prompt.push_back(static_cast<Token>((seed * 7919 + i * 104729 + t * 31) % std::min(vocabulary, 1000u)));
    }
    request.sampling = {.temperature = 1, .top_k = 40, .top_p = 0.95, .min_p = 0.05, .seed = seed + i};
    request.constraint = constraint;
    if (!engine.submit(std::move(request), counting)) std::exit(1);
  }
  while (counting->tokens < sequences) engine.step();
  const std::uint64_t first = counting->tokens;
  Round round;
  const Clock::time_point start = Clock::now();
  Clock::time_point last = start;
  for (engine::EngineStats before = engine.stats(); engine.step();) {
    const engine::EngineStats after = engine.stats();
    const Clock::time_point now = Clock::now();
    const bool forced = after.computed_tokens > before.computed_tokens;  // forced tokens are computed as prompts are
    (forced ? round.several : round.single).add(before, after, std::chrono::duration<double>(now - last).count());
    round.steps += after.steps - before.steps;
    before = after;
    last = now;
  }
  if (!counting->error.empty()) fmt::print("{}\n", counting->error);
  round.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  round.tokens = counting->tokens - first;
  return round;
}

int run(const std::string& path, std::uint32_t sequences, std::uint32_t tokens, std::uint32_t rounds) {
  auto model = model::Model::load(path);
  if (!model) return fmt::print("{}\n", model.error().message), 1;
  engine::HostOptions options;
  options.context = tokens + 32;
  options.max_sequences = sequences;
  auto host = engine::HostedModel::create(std::move(*model), options);
  if (!host) return fmt::print("{}\n", host.error().message), 1;
  auto tokenizer = text::Tokenizer::from_gguf((*host)->model().file());
  if (!tokenizer) return fmt::print("{}\n", tokenizer.error().message), 1;
  const std::uint32_t vocabulary = (*host)->model().hyperparameters().vocabulary;
  GrammarConstraints constraints(*tokenizer, vocabulary);
  const auto schema = grammar::parse_schema(kSchema);
  auto factory = constraints.make({.kind = grammar::ConstraintSpec::Kind::JsonSchema, .schema = *schema});
  if (!factory) return fmt::print("{}\n", factory.error().message), 1;

  double free = std::numeric_limits<double>::infinity(), shaped = free, step = free;
  for (std::uint32_t i = 0; i < rounds; ++i) {
    const Round a = answer((*host)->engine(), sequences, tokens, {}, i, vocabulary);
    const Round b = answer((*host)->engine(), sequences, tokens, *factory, i, vocabulary);
    free = std::min(free, a.seconds / static_cast<double>(a.tokens));
    shaped = std::min(shaped, b.seconds / static_cast<double>(b.tokens));
    step = std::min(step, b.seconds / static_cast<double>(b.steps));
    fmt::print("round {}: free {:.3f} s for {} tokens in {} steps; constrained {:.3f} s for {} tokens in {} steps\n", i,
               a.seconds, a.tokens, a.steps, b.seconds, b.tokens, b.steps);
    a.single.print("free");
    b.single.print("constrained, one token each");
    b.several.print("constrained, forced tokens");
  }
  fmt::print(
      "{} answers, vocabulary {}: free {:.1f} us a token, constrained {:.1f} us: {:.3f} times; a constrained step "
      "{:.2f} ms\n",
      sequences, vocabulary, free * 1e6, shaped * 1e6, shaped / free, step * 1e3);
  return 0;
}

}  // namespace
}  // namespace quire::server

int main(int count, char** arguments) {
  const auto number = [&](int index, std::uint32_t otherwise) {
    return index < count ? static_cast<std::uint32_t>(std::strtoul(arguments[index], nullptr, 10)) : otherwise;
  };
  if (count < 2) {
    fmt::print(stderr, "constrained_bench MODEL [SEQUENCES] [TOKENS] [ROUNDS]\n");
    return 2;
  }
  return quire::server::run(arguments[1], number(2, 32), number(3, 64), number(4, 5));
}
