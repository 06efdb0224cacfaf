#include "quire/bench/serve_workload.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <thread>

#include <fmt/format.h>

namespace quire::bench {
namespace {

using engine::Engine;
using engine::StepCosts;
using engine::StepShape;
using Clock = std::chrono::steady_clock;

// The case with a shared prefix: 16 requests, 8 at once, each with 32 tokens of its own.
constexpr std::uint32_t kRequests = 16, kAtOnce = 8, kOwn = 32;
constexpr std::uint32_t kSequences = 16;
// The mix: so many requests, every fourth with a prompt of up to twice the usual length, the others with up to an
// eighth of it. They come as fast as kLoad times what the machine can do.
constexpr std::uint32_t kMixed = 24, kLongEvery = 4;
constexpr double kLoad = 0.7;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Times {
  std::vector<float> first_token, between_tokens;
  std::uint32_t ended = 0;
  std::string error;  // of a request that failed
};

class Client final : public engine::Listener {
 public:
  Client(Clock::time_point start, double asked, Times& times) : start_(start), last_(asked), times_(&times) {}
  void on_event(const engine::Event& event) override {
    if (event.kind == engine::Event::Kind::Token) {
      const double now = seconds_since(start_);
      (event.index == 0 ? times_->first_token : times_->between_tokens).push_back(static_cast<float>(now - last_));
      last_ = now;
    }
    if (!event.error.empty()) times_->error = event.error;
    times_->ended += event.last ? 1 : 0;
  }

 private:
  Clock::time_point start_;
  double last_;  // when the last token came; before the first one, when the request came
  Times* times_;
};

// The mean of what the engine knew of the costs after each step.
class MeanCosts {
 public:
  void add(const StepCosts& costs) {
    for (double StepCosts::*number : kNumbers) sum_.*number += costs.*number;
    ++count_;
  }
  StepCosts mean() const {
    StepCosts costs;
    for (double StepCosts::*number : kNumbers) costs.*number = sum_.*number / std::max(count_, 1.0);
    return costs;
  }

 private:
  static constexpr double StepCosts::*kNumbers[] = {&StepCosts::base, &StepCosts::decode_row, &StepCosts::prefill_row,
                                                    &StepCosts::decode_context, &StepCosts::prefill_context};
  StepCosts sum_;
  double count_ = 0;
};

// Requests to measure: what they ask, and the same for the offline schedule.
struct Load {
  std::vector<std::vector<Token>> prompts;
  OfflineLoad offline;
};

class Server {
 public:
  Server(engine::HostedModel& host, std::uint64_t seed) : host_(host), engine_(host.engine()), random_(seed) {}

  std::vector<Token> prompt(std::uint32_t tokens) {
    std::vector<Token> ids(tokens);
    for (Token& id : ids) id = static_cast<Token>(random_() % engine_.vocabulary());
    return ids;
  }
  double random() { return std::uniform_real_distribution<double>(0, 1)(random_); }

  // Requests that begin with `shared`. Warm: it is in the pool.
  Load with_prefix(const std::vector<Token>& shared, bool warm, std::uint32_t output) {
    Load load{.offline = {.at_once = kAtOnce}};
    const auto common = static_cast<std::uint32_t>(shared.size());
    for (std::uint32_t i = 0; i < kRequests; ++i) {
      load.prompts.push_back(shared);
      const std::vector<Token> own = prompt(kOwn);
      load.prompts.back().insert(load.prompts.back().end(), own.begin(), own.end());
      load.offline.requests.push_back({.prompt = common + kOwn, .output = output});
      (warm ? load.offline.requests.back().cached : load.offline.requests.back().shared) = common;
    }
    return load;
  }

  // Short and long prompts at random times: a Poisson process.
  Load mix(std::uint32_t usual, std::uint32_t output, const StepCosts& costs) {
    Load load;
    const auto between = [&](std::uint32_t least, std::uint32_t most) {
      return least + static_cast<std::uint32_t>(random() * (std::max(least, most) - least));
    };
    for (std::uint32_t i = 0; i < kMixed; ++i) {
      const bool is_long = i % kLongEvery == kLongEvery - 1;
      const std::uint32_t tokens = is_long ? between(usual, 2 * usual) : between(1, std::max(usual / 8, 1u));
      load.prompts.push_back(prompt(tokens));
      load.offline.requests.push_back({.prompt = tokens, .output = between(std::max(output / 4, 1u), output)});
    }
    OfflineLoad at_full_speed = load.offline;
    at_full_speed.at_once = kAtOnce;
    const double apart = ideal_of(at_full_speed, costs, engine::default_target(0)).total / kLoad / kMixed;
    double time = 0;
    for (OfflineRequest& request : load.offline.requests) {
      request.arrival = time;
      time += -std::log(1 - random()) * apart;
    }
    return load;
  }

  Result<BenchRow> measure(const Load& load, const std::string& phase) {
    const engine::EngineStats before = engine_.stats();
    MeanCosts costs;
    Times times;
    const auto total = run(load, times, costs);
    if (!total) return std::unexpected(total.error());
    const engine::EngineStats now = engine_.stats();
    BenchRow row{.workload = "serve", .phase = phase, .batch = load.offline.at_once};
    if (row.batch == 0) row.batch = kSequences;
    std::uint64_t output = 0;
    for (const OfflineRequest& request : load.offline.requests) {
      row.context = std::max(row.context, request.prompt);
      output += request.output;
    }
    row.tokens_per_second = static_cast<double>(output) / *total;
    const double seconds = now.total_seconds - before.total_seconds;
    row.overhead = 1 - (now.model_seconds - before.model_seconds) / seconds;
    row.hit_rate = static_cast<double>(now.cached_tokens - before.cached_tokens) /
                   static_cast<double>(now.prompt_tokens - before.prompt_tokens);
    row.suspensions = now.suspensions_by_copy + now.suspensions_by_recompute - before.suspensions_by_copy -
                      before.suspensions_by_recompute;
    ServeTimes serve{.costs = costs.mean()};
    serve.target = target_of(load, serve.costs);
    serve.measured = {.total = *total,
                      .first_token = percentiles_of(times.first_token),
                      .between_tokens = percentiles_of(times.between_tokens)};
    serve.ideal = ideal_of(load.offline, serve.costs, serve.target);
    row.ttft_ms = serve.measured.first_token.p50 * 1e3;
    row.serve = serve;
    return row;
  }

 private:
  // The seconds that it took.
  Result<double> run(const Load& load, Times& times, MeanCosts& costs) {
    const auto& requests = load.offline.requests;
    const Clock::time_point start = Clock::now();
    std::size_t next = 0;
    while (times.ended < requests.size() && times.error.empty()) {
      for (; next < requests.size(); ++next) {
        const double now = seconds_since(start);
        const bool closed = load.offline.at_once != 0;
        if (closed ? next - times.ended >= load.offline.at_once : requests[next].arrival > now) break;
        engine::Request request{.prompt = load.prompts[next], .max_tokens = requests[next].output};
        request.sampling.temperature = 0;
        auto client = std::make_shared<Client>(start, closed ? now : requests[next].arrival, times);
        if (auto id = engine_.submit(std::move(request), client); !id) return fail(id.error().message);
      }
      if (engine_.step()) {
        costs.add(engine_.cost_model().costs());
      } else if (next < requests.size()) {
        const std::chrono::duration<double> wait(requests[next].arrival - seconds_since(start));
        std::this_thread::sleep_for(wait);
      }
    }
    if (!times.error.empty()) return fail(times.error);
    return seconds_since(start);
  }

  // The engine's target with as many decoding sequences as there are at once, at half of their answers. It changes with
  // every step.
  double target_of(const Load& load, const StepCosts& costs) const {
    if (const auto& given = host_.engine().options().target_itl) {
      return std::chrono::duration<double>(*given).count();
    }
    StepShape shape;
    const auto& requests = load.offline.requests;
    for (std::uint32_t i = 0; i < std::min<std::size_t>(kAtOnce, requests.size()); ++i) {
      shape.add_decode(requests[i].prompt + requests[i].output / 2);
    }
    return engine::default_target(costs.seconds(shape));
  }

  engine::HostedModel& host_;
  Engine& engine_;
  std::mt19937_64 random_;
};

}  // namespace

Result<void> serve(const WorkloadOptions& options, const MakeHost& make, const Told& tell) {
  const std::uint32_t usual = options.context != 0 ? options.context : 512;
  const std::uint32_t longest = std::max(usual + kOwn, 2 * usual) + options.tokens;
  auto host = make({.sequences = kSequences, .context = longest});
  if (!host) return std::unexpected(host.error());
  if ((*host)->context() < longest) {
    return fail(fmt::format("serve: needs a context of {} tokens, and the model has {} (--prompt sets shorter prompts)",
                            longest, (*host)->context()));
  }
  std::vector<BenchRow> best(3);
  for (std::uint32_t r = 0; r <= options.repeat; ++r) {
    Server server(**host, r + 1);
    const std::vector<Token> shared = server.prompt(usual);
    const auto keep = [&](std::size_t phase, const Load& load, const char* name) -> Result<StepCosts> {
      auto row = server.measure(load, name);
      if (!row) return std::unexpected(row.error());
      // The first time is not counted: the engine has still to learn the costs.
      const StepCosts costs = row->serve->costs;
      if (r > 0 && row->tokens_per_second > best[phase].tokens_per_second) best[phase] = std::move(*row);
      return costs;
    };
    if (r == 0) {
      if (auto ok = keep(0, server.with_prefix(server.prompt(kOwn), false, 8), "cold"); !ok) {
        return std::unexpected(ok.error());
      }
      continue;
    }
    if (auto ok = keep(0, server.with_prefix(shared, false, options.tokens), "cold"); !ok) {
      return std::unexpected(ok.error());
    }
    const auto costs = keep(1, server.with_prefix(shared, true, options.tokens), "warm");
    if (!costs) return std::unexpected(costs.error());
    if (auto ok = keep(2, server.mix(usual, options.tokens, *costs), "mix"); !ok) return std::unexpected(ok.error());
  }
  for (const BenchRow& row : best) tell.row(row);
  return {};
}

}  // namespace quire::bench
