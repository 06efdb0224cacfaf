#include "quire/simulate/simulation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include <fmt/format.h>

#include "quire/base/check.h"
#include "quire/engine/engine.h"
#include "quire/simulate/untouched_device.h"

namespace quire::simulate {
namespace {

using engine::Clock;
using engine::Engine;

// Requests that wait in the engine. More than these stay in the trace, where they need no memory for their tokens. The
// scheduler looks at fewer in a step.
constexpr std::uint32_t kQueue = 256;
constexpr std::uint64_t kHashSeed = 1;

class SimulatedClock {
 public:
  Clock::time_point now() const { return now_; }
  double seconds() const { return std::chrono::duration<double>(now_.time_since_epoch()).count(); }
  void advance(double seconds) { now_ += std::chrono::duration_cast<Clock::duration>(in_seconds(seconds)); }
  void advance_to(double seconds) {
    // Rounded up, so that what happens at this time has happened.
    now_ = std::max(now_, Clock::time_point(std::chrono::ceil<Clock::duration>(in_seconds(seconds))));
  }

 private:
  static std::chrono::duration<double> in_seconds(double seconds) { return std::chrono::duration<double>(seconds); }
  Clock::time_point now_;
};

// Computes nothing. Time passes instead.
class CostExecutor final : public engine::Executor {
 public:
  CostExecutor(SimulatedClock& clock, SequencePool& pool, const SimulationOptions& options)
      : clock_(&clock), pool_(&pool), costs_(options.costs), max_rows_(options.step_tokens) {}

  std::uint32_t vocabulary() const override { return kVocabulary; }
  std::uint32_t max_rows() const override { return max_rows_; }
  std::uint32_t max_logits() const override { return max_rows_; }
  PoolResult<model::StepOutput> forward(Batch& batch, const model::StepWants&) override {
    if (auto ok = pool_->bind(batch); !ok) return std::unexpected(ok.error());
    engine::StepShape shape;
    for (const BatchEntry& entry : batch.entries()) {
      if (entry.rows == 1) {
        shape.add_decode(entry.position);
      } else {
        shape.add_prefill(entry.position, entry.rows);
      }
    }
    clock_->advance(costs_.seconds(shape));
    // Every row is the same one, with one logit: every answer consists of token 0.
    const auto rows = static_cast<std::uint32_t>(batch.wanted().size());
    return model::StepOutput{.picked = {}, .logits = {.data = &logit_, .rows = rows, .cols = 1, .stride = 0}};
  }

 private:
  SimulatedClock* clock_;
  SequencePool* pool_;
  engine::StepCosts costs_;
  std::uint32_t max_rows_;
  float logit_ = 0;
};

// When the tokens of all answers came.
struct Times {
  std::vector<float> first_token, between_tokens;
  std::uint64_t ended = 0;
};

class Client final : public engine::Listener {
 public:
  Client(const SimulatedClock& clock, Times& times, double asked) : clock_(&clock), times_(&times), last_(asked) {}
  void on_event(const engine::Event& event) override {
    if (event.kind == engine::Event::Kind::Token) {
      const double now = clock_->seconds();
      (event.index == 0 ? times_->first_token : times_->between_tokens).push_back(static_cast<float>(now - last_));
      last_ = now;
    }
    times_->ended += event.last ? 1 : 0;
  }

 private:
  const SimulatedClock* clock_;
  Times* times_;
  double last_;  // when the last token came; before the first one, when the request came
};

class Simulation {
 public:
  Simulation(const Trace& trace, const SimulationOptions& options)
      : trace_(&trace),
        options_(options),
        device_([this](std::uint64_t bytes) { clock_.advance(options_.copy_seconds * static_cast<double>(bytes)); }) {}

  Result<SimulationResult> run(const Progress& progress) {
    if (auto ok = create(); !ok) return std::unexpected(ok.error());
    const std::uint64_t all = trace_->requests.size();
    while (next_ < all || !engine_->idle()) {
      while (next_ < all && arrival(next_) <= clock_.seconds() && engine_->stats().waiting < kQueue) submit();
      if (engine_->step()) {
        if (progress) progress(times_.ended + result_.refused, all);
        continue;
      }
      QUIRE_CHECK(engine_->idle(), "the engine always gets on");
      if (next_ < all) clock_.advance_to(arrival(next_));
    }
    return finish();
  }

 private:
  double arrival(std::uint64_t request) const {
    return (trace_->requests[request].seconds - trace_->requests.front().seconds) / options_.rate;
  }

  Result<void> create() {
    std::uint32_t context = options_.context;
    if (context == 0) context = facts_of(*trace_).longest;
    PoolConfig config{.layout = options_.layout,
                      .budget_bytes = options_.memory,
                      .max_sequences = options_.max_sequences,
                      .max_tokens = context};
    config.event_capacity = 1;
    config.hash_seed = kHashSeed;
    config.eviction = options_.policy;
    config.checkpoint_unit = options_.checkpoint_unit;
    auto pool = SequencePool::create(device_, config);
    if (!pool) return fail(pool.error().message());
    pool_ = std::move(*pool);
    executor_ = std::make_unique<CostExecutor>(clock_, *pool_, options_);
    engine::EngineOptions engine{.queue_limit = kQueue, .target_itl = options_.target_itl};
    engine.suspend_by = engine::SuspendBy::Recompute;
    engine.check_integrity = options_.check_integrity;
    engine.now = [this] { return clock_.now(); };
    auto made = Engine::create(*executor_, *pool_, engine);
    if (!made) return std::unexpected(made.error());
    engine_ = std::move(*made);
    return {};
  }

  void submit() {
    const TraceRequest& asked = trace_->requests[next_];
    engine::Request request{.prompt = trace_->prompt_of(asked), .max_tokens = asked.output};
    request.sampling.temperature = 0;
    const auto id =
        engine_->submit(std::move(request), std::make_shared<Client>(clock_, times_, arrival(next_)), next_ + 1);
    if (!id) {
      ++result_.refused;
      result_.refused_tokens += asked.input;
    }
    ++next_;
  }

  SimulationResult finish() {
    const engine::EngineStats stats = engine_->stats();
    result_.finished = stats.finished;
    result_.prompt_tokens = stats.prompt_tokens;
    result_.hit_tokens = stats.cached_tokens;
    result_.output_tokens = times_.first_token.size() + times_.between_tokens.size();
    result_.first_token = percentiles_of(times_.first_token);
    result_.between_tokens = percentiles_of(times_.between_tokens);
    result_.suspensions = stats.suspensions_by_copy + stats.suspensions_by_recompute;
    result_.steps = stats.steps;
    result_.seconds = clock_.seconds();
    result_.busy_seconds = stats.total_seconds;
    return result_;
  }

  const Trace* trace_;
  SimulationOptions options_;
  SimulatedClock clock_;
  UntouchedDevice device_;
  Times times_;
  std::unique_ptr<SequencePool> pool_;
  std::unique_ptr<CostExecutor> executor_;
  std::unique_ptr<Engine> engine_;
  std::uint64_t next_ = 0;  // request of the trace
  SimulationResult result_;
};

}  // namespace

std::string_view name(Eviction policy) {
  switch (policy) {
    case Eviction::Lru: return "lru";
    case Eviction::Value: return "value";
  }
  return "?";
}

const std::vector<Eviction>& all_policies() {
  static const std::vector<Eviction> all = {Eviction::Lru, Eviction::Value};
  return all;
}

Result<SimulationResult> simulate(const Trace& trace, const SimulationOptions& options, const Progress& progress) {
  if (!(options.rate > 0)) return fail("a rate is above 0");
  if (!(options.costs.base > 0)) return fail("a step that takes no time is not simulated: its base cost is 0");
  return Simulation(trace, options).run(progress);
}

}  // namespace quire::simulate
