#include "quire/bench/workloads.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>

#include <fmt/format.h>

#include "quire/backend/cpu/cpu_backend.h"
#include "quire/base/numbers.h"
#include "quire/bench/serve_workload.h"
#include "quire/bench/speculation_workload.h"
#include "quire/bench/step_workloads.h"

namespace quire::bench {
namespace {

using engine::Event;
using engine::HostedModel;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// A request as its client sees it.
class Client final : public engine::Listener {
 public:
  void on_event(const Event& event) override {
    if (event.kind == Event::Kind::Token) {
      if (answer.empty()) first_token_seconds = seconds_since(asked);
      answer.push_back(event.token);
    } else if (event.kind == Event::Kind::Finished) {
      usage = *event.usage;
      ended = event.last;
      error = event.error;
    }
  }
  Clock::time_point asked = Clock::now();
  double first_token_seconds = 0;
  std::vector<Token> answer;
  engine::Usage usage;
  bool ended = false;
  std::string error;  // of a request that failed
};

// One repetition of a workload on a host.
class Run {
 public:
  Run(HostedModel& host, std::uint64_t seed) : host_(host), random_(seed), before_(host.engine().stats()) {}

  std::vector<Token> prompt(std::uint32_t tokens) {
    std::vector<Token> ids(tokens);
    for (Token& id : ids) id = static_cast<Token>(random_() % host_.engine().vocabulary());
    return ids;
  }

  Result<std::shared_ptr<Client>> ask(std::vector<Token> prompt, std::uint32_t tokens, bool reuse = true) {
    auto client = std::make_shared<Client>();
    engine::Request request{.prompt = std::move(prompt), .max_tokens = tokens, .reuse = reuse};
    request.sampling.temperature = 0;
    if (auto id = host_.engine().submit(std::move(request), client); !id) return fail(id.error().message);
    clients_.push_back(client);
    return client;
  }
  void finish() {
    while (host_.engine().step()) {
    }
  }
  std::uint64_t random() { return random_(); }

  // A request that failed makes the measurement worthless.
  Result<void> nothing_failed() const {
    for (const auto& client : clients_) {
      if (!client->error.empty()) return fail(client->error);
    }
    return {};
  }

  // The result of the repetition. The rate counts decoded tokens; a workload that measures something else replaces it.
  BenchRow row(std::string workload, std::uint32_t batch, std::uint32_t context) const {
    const engine::EngineStats now = host_.engine().stats();
    BenchRow row{.workload = std::move(workload), .batch = batch, .context = context};
    const double total = now.total_seconds - before_.total_seconds;
    const double model = now.model_seconds - before_.model_seconds;
    row.overhead = total > 0 ? (total - model) / total : 0;
    row.tokens_per_second = static_cast<double>(now.generated_tokens - before_.generated_tokens) / total;
    const auto asked = static_cast<double>(now.prompt_tokens - before_.prompt_tokens);
    row.hit_rate = asked > 0 ? static_cast<double>(now.cached_tokens - before_.cached_tokens) / asked : 0;
    row.suspensions = now.suspensions_by_copy + now.suspensions_by_recompute - before_.suspensions_by_copy -
                      before_.suspensions_by_recompute;
    row.ttft_ms = median_ttft(clients_);
    return row;
  }
  static double median_ttft(std::span<const std::shared_ptr<Client>> clients) {
    std::vector<double> times;
    for (const auto& client : clients) times.push_back(client->first_token_seconds * 1e3);
    if (times.empty()) return 0;
    std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
    return times[times.size() / 2];
  }
  std::span<const std::shared_ptr<Client>> clients() const { return clients_; }
  HostedModel& host() { return host_; }

 private:
  HostedModel& host_;
  std::mt19937_64 random_;
  engine::EngineStats before_;
  std::vector<std::shared_ptr<Client>> clients_;
};

using Repetition = std::function<Result<BenchRow>(Run& run)>;

// The repetition with the most tokens per second.
Result<BenchRow> best_of(HostedModel& host, std::uint32_t repeat, const Repetition& once) {
  std::optional<BenchRow> best;
  for (std::uint32_t i = 0; i < repeat; ++i) {
    Run run(host, i + 1);
    auto row = once(run);
    if (!row) return row;
    if (auto ok = run.nothing_failed(); !ok) return std::unexpected(ok.error());
    if (!best || row->tokens_per_second > best->tokens_per_second) best = std::move(*row);
  }
  return std::move(*best);
}

Result<void> prefill(const WorkloadOptions& options, const MakeHost& make, const Told& tell) {
  std::vector<std::uint32_t> lengths = options.lengths;
  if (lengths.empty()) lengths = {128, 512, 2048};
  if (options.context != 0) lengths = {options.context};
  auto host = make({.sequences = 1, .context = *std::ranges::max_element(lengths) + 1});
  if (!host) return std::unexpected(host.error());
  const ModelCost cost = cost_of((*host)->model().file(), (*host)->pool().layout());
  for (const std::uint32_t length : lengths) {
    if (length + 1 > (*host)->context() && options.context == 0) continue;
    auto best = best_of(**host, options.repeat, [&](Run& run) -> Result<BenchRow> {
      const auto client = run.ask(run.prompt(length), 1, false);
      if (!client) return std::unexpected(client.error());
      run.finish();
      BenchRow row = run.row("prefill", 1, length);
      row.tokens_per_second = length / (*client)->first_token_seconds;
      return row;
    });
    if (!best) return std::unexpected(best.error());
    best->work =
        work_of(cost, {.tokens = static_cast<double>(length), .logits = 1, .context = static_cast<double>(length)});
    tell.row(*best);
  }
  return {};
}

Result<void> decode(const WorkloadOptions& options, const MakeHost& make, const Told& tell) {
  std::vector<std::uint32_t> batches = options.batches;
  if (batches.empty()) batches = {1, 2, 4, 8, 16, 32, 64};
  const std::uint32_t most = *std::ranges::max_element(batches);
  const std::uint32_t context = options.context != 0 ? options.context : 64;
  // Sequences whose prefill is done first decode while the others prefill. They must not end before the last one begins
  // to decode. A step prefills at least a hundred tokens.
  constexpr std::uint32_t kPrefillPerStep = 100;
  const auto prefill_steps = [&](std::uint32_t batch) { return batch + divide_up(batch * context, kPrefillPerStep); };
  auto host = make({.sequences = most, .context = context + options.tokens + prefill_steps(most) + 1, .smooth = false});
  if (!host) return std::unexpected(host.error());
  const ModelCost cost = cost_of((*host)->model().file(), (*host)->pool().layout());
  for (const std::uint32_t batch : batches) {
    if (batch > (*host)->pool().config().max_sequences) {
      tell.note(fmt::format("decode: batch {} left out, there is memory for {} sequences only", batch,
                            (*host)->pool().config().max_sequences));
      continue;
    }
    BestMoment moments(tell.read_rate, *host->team);
    BenchRow best;
    for (std::uint32_t r = 0; r < options.repeat; ++r) {
      Run run(**host, r + 1);
      // Every prefill is done before the clock starts: only decode is measured.
      std::vector<std::shared_ptr<Client>> clients;
      clients.reserve(batch);
      for (std::uint32_t i = 0; i < batch; ++i) {
        auto client = run.ask(run.prompt(context), options.tokens + prefill_steps(batch));
        if (!client) return std::unexpected(client.error());
        clients.push_back(*client);
      }
      const auto all_write = [&] { return std::ranges::all_of(clients, [](auto& c) { return !c->answer.empty(); }); };
      while (!all_write() && run.host().engine().step()) {
      }
      if (auto ok = run.nothing_failed(); !ok) return ok;
      // Tokens that a token attends to, itself included, on average over all sequences.
      const auto seen = [&] {
        double sum = 0;
        for (const auto& client : clients) sum += context + static_cast<double>(client->answer.size());
        return sum / batch;
      };
      for (std::uint32_t done = 0; done < options.tokens;) {
        const std::uint32_t steps = std::min(kStepsInAMoment, options.tokens - done);
        BenchRow row;
        const bool better = moments.beats([&] {
          const double before = seen(), rows = batch;
          Run writing(run.host(), 0);
          for (std::uint32_t i = 0; i < steps; ++i) run.host().engine().step();
          row = writing.row("decode", batch, context);
          row.work =
              work_of(cost, {.tokens = rows, .logits = rows, .sequences = rows, .context = (before + seen()) / 2});
          return row.tokens_per_second;
        });
        done += steps;
        if (!better) continue;
        best = std::move(row);
        best.ttft_ms = Run::median_ttft(run.clients());
      }
      if (auto ok = run.nothing_failed(); !ok) return ok;
      run.host().engine().cancel_all();
    }
    best.read = moments.read();
    tell.row(best);
  }
  return {};
}

// Questions with one long shared prefix, one after the other.
Result<void> shared_prefix(const WorkloadOptions& options, const MakeHost& make, const Told& tell) {
  auto host = make({.sequences = 8});
  if (!host) return std::unexpected(host.error());
  constexpr std::uint32_t kQuestion = 12, kAsked = 8;
  const std::uint32_t prefix = options.context != 0 ? options.context : 1500;
  BenchRow first, later;
  for (std::uint32_t r = 0; r < options.repeat; ++r) {
    Run run(**host, r + 1);
    const std::vector<Token> beginning = run.prompt(prefix);
    const auto question = [&] {
      std::vector<Token> prompt = beginning;
      const std::vector<Token> end = run.prompt(kQuestion);
      prompt.insert(prompt.end(), end.begin(), end.end());
      return prompt;
    };
    if (auto ok = run.ask(question(), 4); !ok) return std::unexpected(ok.error());
    run.finish();
    if (auto ok = run.nothing_failed(); !ok) return ok;
    BenchRow cold = run.row("shared-prefix", 1, prefix + kQuestion);
    cold.phase = "first";
    Run rest(**host, 1000 + r);
    for (std::uint32_t i = 1; i < kAsked; ++i) {
      if (auto ok = rest.ask(question(), 4); !ok) return std::unexpected(ok.error());
      rest.finish();
    }
    if (auto ok = rest.nothing_failed(); !ok) return ok;
    BenchRow warm = rest.row("shared-prefix", 1, prefix + kQuestion);
    warm.phase = "later";
    // TTFT is what this measures. It is the longest, not the median, which could hide a slow second request.
    for (const auto& client : rest.clients()) warm.ttft_ms = std::max(warm.ttft_ms, client->first_token_seconds * 1e3);
    if (r == 0 || cold.ttft_ms < first.ttft_ms) first = cold;
    if (r == 0 || warm.ttft_ms < later.ttft_ms) later = warm;
  }
  tell.row(first);
  tell.row(later);
  return {};
}

// Conversations in turn: the prompt of each turn is the whole conversation so far.
Result<void> chat(const WorkloadOptions& options, const MakeHost& make, const Told& tell) {
  auto host = make({.sequences = 8});
  if (!host) return std::unexpected(host.error());
  constexpr std::uint32_t kConversations = 8, kTurns = 6, kQuestion = 40;
  auto best = best_of(**host, options.repeat, [&](Run& run) -> Result<BenchRow> {
    std::vector<std::vector<Token>> said;
    const std::vector<Token> system = run.prompt(options.context != 0 ? options.context : 100);
    said.assign(kConversations, system);
    std::uint32_t longest = 0;
    for (std::uint32_t turn = 0; turn < kTurns; ++turn) {
      std::vector<std::shared_ptr<Client>> clients;
      for (auto& conversation : said) {
        const std::vector<Token> question = run.prompt(kQuestion);
        conversation.insert(conversation.end(), question.begin(), question.end());
        longest = std::max(longest, static_cast<std::uint32_t>(conversation.size()));
        auto client = run.ask(conversation, options.tokens);
        if (!client) return std::unexpected(client.error());
        clients.push_back(*client);
      }
      run.finish();
      for (std::uint32_t i = 0; i < kConversations; ++i) {
        said[i].insert(said[i].end(), clients[i]->answer.begin(), clients[i]->answer.end());
      }
    }
    return run.row("chat", kConversations, longest);
  });
  if (!best) return std::unexpected(best.error());
  tell.row(*best);
  return {};
}

// Short and long prompts, new and cached, more than fit into the pool: a busy server.
Result<void> mixed(const WorkloadOptions& options, const MakeHost& make, const Told& tell) {
  constexpr std::uint32_t kRequests = 64;
  auto large = make({.sequences = 16});
  if (!large) return std::unexpected(large.error());
  const std::uint32_t context =
      std::min(options.context != 0 ? options.context : 512, (*large)->context() - options.tokens);
  const std::uint64_t whole = (*large)->pool().stats().arena_bytes;
  large->hosted.reset();
  // A pool for a few sequences at a time.
  auto host = make({.sequences = 16, .memory = std::max<std::uint64_t>(whole / 16, 4 << 20)});
  if (!host) return std::unexpected(host.error());
  auto best = best_of(**host, options.repeat, [&](Run& run) -> Result<BenchRow> {
    std::vector<std::vector<Token>> known(4);
    for (auto& beginning : known) beginning = run.prompt(context / 2);
    for (std::uint32_t i = 0; i < kRequests; ++i) {
      std::vector<Token> prompt;
      if (run.random() % 2 == 0) prompt = known[run.random() % known.size()];
      const auto more = 1 + static_cast<std::uint32_t>(run.random() % (context / 2));
      const std::vector<Token> end = run.prompt(more);
      prompt.insert(prompt.end(), end.begin(), end.end());
      auto client = run.ask(std::move(prompt), 1 + static_cast<std::uint32_t>(run.random() % options.tokens));
      if (!client) return std::unexpected(client.error());
      if (i % 4 == 0) run.host().engine().step();
    }
    run.finish();
    return run.row("mixed", 16, context);
  });
  if (!best) return std::unexpected(best.error());
  tell.row(*best);
  return {};
}

struct Workload {
  std::string name;
  Result<void> (*run)(const WorkloadOptions&, const MakeHost&, const Told&);
};
const std::vector<Workload>& workloads() {
  static const std::vector<Workload> all = {{"prefill", prefill},
                                            {"decode", decode},
                                            {"shared-prefix", shared_prefix},
                                            {"chat", chat},
                                            {"mixed", mixed},
                                            {"long-decode", long_decode},
                                            {"shared-decode", shared_decode},
                                            {"serve", serve},
                                            {"speculation", speculation}};
  return all;
}

}  // namespace

const std::vector<std::string>& workload_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Workload& workload : workloads()) all.push_back(workload.name);
    return all;
  }();
  return names;
}

Result<void> run_workload(const std::string& name, const WorkloadOptions& options, const MakeHost& make,
                          const Told& tell) {
  for (const Workload& workload : workloads()) {
    if (workload.name == name) return workload.run(options, make, tell);
  }
  return fail(fmt::format("there is no workload {}", name));
}

}  // namespace quire::bench
