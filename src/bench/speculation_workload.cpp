#include "quire/bench/speculation_workload.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "quire/engine/constraint.h"
#include "quire/engine/ngram_drafter.h"

namespace quire::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Guesses by n-grams, while it is on.
class Switched final : public engine::Drafter {
 public:
  void propose(std::span<engine::Drafts* const> wanted) override {
    if (on) return ngrams_.propose(wanted);
    for (engine::Drafts* drafts : wanted) drafts->count = 0;
  }
  double expected(std::uint32_t kind) const override { return ngrams_.expected(kind); }
  bool on = false;

 private:
  engine::NgramDrafter ngrams_;
};

// Allows the tokens of a script, one after the other. They are sampled like others.
class Script final : public engine::Constraint {
 public:
  explicit Script(std::shared_ptr<const std::vector<Token>> tokens) : tokens_(std::move(tokens)) {}
  void mask(std::span<std::uint32_t> bits) override {
    std::ranges::fill(bits, 0);
    const auto token = static_cast<std::uint32_t>(next());
    bits[token / 32] |= 1U << (token % 32);
  }
  bool accept(Token token) override { return token == next() && ++at_ <= tokens_->size(); }
  void forced(std::vector<Token>&) override {}
  bool complete() const override { return at_ == tokens_->size(); }
  std::string error() const override { return "not the token of the script"; }

 private:
  Token next() const { return (*tokens_)[std::min(at_, tokens_->size() - 1)]; }
  std::shared_ptr<const std::vector<Token>> tokens_;
  std::size_t at_ = 0;
};

struct Task {
  const char* name;
  bool repeats;
};
constexpr Task kTasks[] = {{"summarise", true}, {"write", false}};

class Writer {
 public:
  Writer(std::uint64_t seed, std::uint32_t vocabulary) : random_(seed), vocabulary_(vocabulary) {}
  // Some tokens are frequent, most are rare.
  Token token() {
    const double u = std::uniform_real_distribution<double>()(random_);
    return static_cast<Token>(std::min<double>(vocabulary_ - 1, vocabulary_ * std::pow(u, 4)));
  }
  std::vector<Token> text(std::uint32_t tokens) {
    std::vector<Token> all(tokens);
    for (Token& each : all) each = token();
    return all;
  }
  // Quotes of 6 to 30 tokens with 1 to 6 others between them.
  std::vector<Token> summary(const std::vector<Token>& of, std::uint32_t tokens) {
    std::vector<Token> all;
    while (all.size() < tokens) {
      const std::size_t length = std::min<std::size_t>(of.size(), 6 + random_() % 25);
      const std::size_t begin = random_() % (of.size() - length + 1);
      all.insert(all.end(), of.begin() + static_cast<long>(begin), of.begin() + static_cast<long>(begin + length));
      for (std::size_t i = 0; i <= random_() % 6; ++i) all.push_back(token());
    }
    all.resize(tokens);
    return all;
  }

 private:
  std::mt19937_64 random_;
  std::uint32_t vocabulary_;
};

class Client final : public engine::Listener {
 public:
  void on_event(const engine::Event& event) override {
    tokens += event.kind == engine::Event::Kind::Token ? 1 : 0;
    ended = event.last;
    if (event.kind == engine::Event::Kind::Finished) error = event.error;
  }
  std::uint32_t tokens = 0;
  bool ended = false;
  std::string error;
};

struct Measured {
  double tokens_per_second = 0;
  double overhead = 0;
};

// Tokens a second from when all answers have begun until they have grown by `wanted` tokens each, in the mean, or the
// first one ends.
Result<Measured> measure(engine::HostedModel& host, const Task& task, std::uint32_t batch, std::uint32_t context,
                         std::uint32_t tokens, std::uint32_t wanted, std::uint64_t seed) {
  engine::Engine& engine = host.engine();
  std::vector<std::shared_ptr<Client>> clients;
  for (std::uint32_t i = 0; i < batch; ++i) {
    Writer writer(seed * 1000 + i, engine.vocabulary());
    engine::Request request{.prompt = writer.text(context), .max_tokens = tokens, .reuse = false};
    request.sampling.temperature = 0;
    const auto script = std::make_shared<const std::vector<Token>>(task.repeats ? writer.summary(request.prompt, tokens)
                                                                                : writer.text(tokens));
    request.constraint = [script] { return std::make_unique<Script>(script); };
    clients.push_back(std::make_shared<Client>());
    if (auto id = engine.submit(std::move(request), clients.back()); !id) return fail(id.error().message);
  }
  const auto begun = [&] { return std::ranges::all_of(clients, [](const auto& c) { return c->tokens > 0; }); };
  const auto ended = [&] { return std::ranges::any_of(clients, [](const auto& c) { return c->ended; }); };
  const auto written = [&] {
    std::uint64_t sum = 0;
    for (const auto& client : clients) sum += client->tokens;
    return sum;
  };
  while (!begun() && engine.step()) {
  }
  const std::uint64_t before = written();
  const engine::EngineStats stats = engine.stats();
  const Clock::time_point start = Clock::now();
  while (!ended() && written() < before + std::uint64_t{batch} * wanted && engine.step()) {
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const std::uint64_t after = written();
  const engine::EngineStats now = engine.stats();
  engine.cancel_all();
  for (const auto& client : clients) {
    if (!client->error.empty()) return fail(client->error);
  }
  const double total = now.total_seconds - stats.total_seconds, model = now.model_seconds - stats.model_seconds;
  return Measured{.tokens_per_second = static_cast<double>(after - before) / seconds,
                  .overhead = total > 0 ? (total - model) / total : 0};
}

}  // namespace

Result<void> speculation(const WorkloadOptions& options, const MakeHost& make, const Told& tell) {
  std::vector<std::uint32_t> batches = options.batches;
  if (batches.empty()) batches = {1, 8, 32};
  const std::uint32_t context = options.context != 0 ? options.context : 512;
  const std::uint32_t most = *std::ranges::max_element(batches);
  // Those whose prefill is done first write while the others prefill, with drafts several tokens in a step.
  constexpr std::uint32_t kMeanwhile = 32;
  const std::uint32_t tokens = 2 * options.tokens;
  const auto drafter = std::make_shared<Switched>();
  auto host = make(
      {.sequences = most, .context = context + tokens + most * kMeanwhile + 1, .smooth = false, .drafter = drafter});
  if (!host) return std::unexpected(host.error());
  for (const Task& task : kTasks) {
    for (const std::uint32_t batch : batches) {
      if (batch > (*host)->pool().config().max_sequences) {
        tell.note(fmt::format("speculation: batch {} left out, there is memory for {} sequences only", batch,
                              (*host)->pool().config().max_sequences));
        continue;
      }
      BenchRow rows[2];
      for (std::uint32_t r = 0; r < options.repeat; ++r) {
        for (const bool on : {false, true}) {
          drafter->on = on;
          const auto measured =
              measure(**host, task, batch, context, tokens + batch * kMeanwhile, options.tokens, r + 1);
          if (!measured) return std::unexpected(measured.error());
          BenchRow& row = rows[on ? 1 : 0];
          if (measured->tokens_per_second <= row.tokens_per_second) continue;
          row = {.workload = "speculation",
                 .phase = fmt::format("{}, {}", task.name, on ? "on" : "off"),
                 .batch = batch,
                 .context = context,
                 .tokens_per_second = measured->tokens_per_second,
                 .overhead = measured->overhead};
        }
      }
      if (rows[0].tokens_per_second == 0 || rows[1].tokens_per_second == 0) {
        tell.note(
            fmt::format("speculation ({}): batch {} left out, an answer ended before all had begun", task.name, batch));
        continue;
      }
      rows[1].speedup = rows[1].tokens_per_second / rows[0].tokens_per_second;
      for (const BenchRow& row : rows) tell.row(row);
    }
  }
  return {};
}

}  // namespace quire::bench
