// A model without weights, for tests. Its layers store a hash of all tokens up to each position. Every step reads the
// whole history back through the pool's views and compares. The logits come from the same hash, so a wrong byte
// anywhere is reported or changes the answer. It is cheap enough for millions of steps.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "quire/engine/engine.h"
#include "quire/engine/executor.h"

namespace quire::engine::testing {

inline std::uint64_t scramble(std::uint64_t x) {
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93;
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93;
  return x ^ (x >> 32);
}

inline constexpr std::uint64_t kBeginning = 0x5155495245;
inline std::uint64_t remember(std::uint64_t before, Token token) {
  return scramble(before + 0x9E3779B97F4A7C15 * (static_cast<std::uint64_t>(token) + 1));
}
inline void logits_after(std::uint64_t memory, std::span<float> logits) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(scramble(memory + i * 0x9E3779B97F4A7C15) >> 40) * 0x1p-22f;  // [0, 4)
  }
}

// The hidden state follows from the same hash.
inline constexpr std::uint32_t kHiddenWidth = 6;
inline void hidden_after(std::uint64_t memory, std::span<float> hidden) { logits_after(~memory, hidden); }

// Kinds of memory. ShortConv is a hybrid whose states have a convolution only.
enum class Kind { Attention, Windowed, Latent, Recurrent, Hybrid, ShortConv };
inline constexpr Kind kAllKinds[] = {Kind::Attention, Kind::Windowed, Kind::Latent,
                                     Kind::Recurrent, Kind::Hybrid,   Kind::ShortConv};
// Without the kind whose sequences do not grow.
inline constexpr Kind kGrowingKinds[] = {Kind::Attention, Kind::Windowed, Kind::Latent, Kind::Hybrid, Kind::ShortConv};
inline constexpr Kind kKindsWithoutStates[] = {Kind::Attention, Kind::Windowed, Kind::Latent};
inline constexpr Kind kKindsWithStates[] = {Kind::Recurrent, Kind::Hybrid, Kind::ShortConv};
inline const char* name(Kind kind) {
  constexpr const char* kNames[] = {"Attention", "Windowed", "Latent", "Recurrent", "Hybrid", "ShortConv"};
  return kNames[static_cast<int>(kind)];
}

inline StateLayout weightless_layout(Kind kind, std::uint32_t block_size = 8) {
  std::vector<LayerDesc> layers;
  const LayerDesc full = LayerDesc::attention(1, 4, ElementType::F32);
  const LayerDesc window = LayerDesc::attention(1, 4, ElementType::F32, 20);
  const LayerDesc latent = LayerDesc::latent(8, ElementType::F32);
  const LayerDesc recurrent = LayerDesc::recurrent(32, 96);
  const LayerDesc convolution = LayerDesc::recurrent(32, 0);
  switch (kind) {
    case Kind::Attention: layers = {full, full}; break;
    case Kind::Windowed: layers = {full, window}; break;
    case Kind::Latent: layers = {latent, latent}; break;
    case Kind::Recurrent: layers = {recurrent, recurrent}; break;
    case Kind::Hybrid: layers = {recurrent, full, recurrent}; break;
    case Kind::ShortConv: layers = {convolution, full, convolution}; break;
  }
  return *StateLayout::from_layers(layers, block_size);
}

class Weightless final : public Executor {
 public:
  // `sampling`: what it samples by itself; nothing: the engine does. `max_logits`: 0: as many as rows.
  Weightless(SequencePool& pool, std::uint32_t vocabulary, std::uint32_t max_rows,
             const sampling::Limits& sampling = {}, std::uint32_t max_logits = 0)
      : pool_(&pool),
        vocabulary_(vocabulary),
        max_rows_(max_rows),
        max_logits_(max_logits == 0 ? max_rows : max_logits),
        limits_(sampling),
        scratch_(vocabulary) {
    picked_.reserve(sampling.jobs);
    places_.resize(sampling.reported);
    logits_.resize(std::size_t{max_rows} * vocabulary);
    hidden_.resize(std::size_t{max_rows} * kHiddenWidth);
    history_.reserve(pool.config().max_tokens);
  }
  std::uint32_t vocabulary() const override { return vocabulary_; }
  std::uint32_t max_rows() const override { return max_rows_; }
  std::uint32_t max_logits() const override { return max_logits_; }
  std::uint32_t hidden_width() const override { return kHiddenWidth; }

  sampling::Limits sampling_limits() const override { return limits_; }

  PoolResult<model::StepOutput> forward(Batch& batch, const model::StepWants& wants) override {
    ++steps;
    const std::string before = problem;
    if (auto ok = pool_->bind(batch); !ok) return std::unexpected(ok.error());
    Device& device = pool_->arena().device();
    if (before_kernels) before_kernels();
    std::uint32_t rows = 0;
    for (const BatchEntry& entry : batch.entries()) {
      step(batch, entry);
      for (std::uint32_t i = entry.rows - entry.wanted_rows(); i < entry.rows; ++i) {
        const std::uint64_t memory = history_[entry.position + i];
        hidden_after(memory, std::span(hidden_).subspan(std::size_t{rows} * kHiddenWidth, kHiddenWidth));
        logits_after(memory, std::span(logits_).subspan(std::size_t{rows++} * vocabulary_, vocabulary_));
      }
    }
    if (batch.rows() > max_rows_) complain("more tokens in a step than it takes");
    if (rows > max_logits_) complain("more logits in a step than it gives");
    if (rows != batch.wanted().size()) complain("the batch wants other logits than its entries");
    tokens_computed += batch.rows();
    most_tokens = std::max(most_tokens, batch.rows());
    if (on_step) on_step(batch);
    if (auto ok = device.fence(); !ok) {
      problem = before;  // the step is void, so what it read means nothing
      return std::unexpected(ok.error());
    }
    if (wants.masks != nullptr) wants.masks->wait();
    sample(wants.jobs);
    hide(logits_, vocabulary_, rows, wants.logits);
    hide(hidden_, kHiddenWidth, rows, wants.hidden);
    logits_shown += wants.logits.size();
    return model::StepOutput{
        picked_, {logits_.data(), rows, vocabulary_, vocabulary_}, {hidden_.data(), rows, kHiddenWidth, kHiddenWidth}};
  }

  std::string problem;  // the first one that was seen
  std::uint64_t steps = 0, tokens_computed = 0;
  std::uint32_t most_tokens = 0;                // in one step
  std::uint64_t sampled = 0, logits_shown = 0;  // jobs and rows
  std::function<void(const Batch&)> on_step;
  std::function<void()> before_kernels;  // for a device that executes its work late

 private:
  void complain(std::string what) {
    if (problem.empty()) problem = std::move(what);
  }

  void sample(std::span<const sampling::Job> jobs) {
    picked_.clear();
    sampling::Budget budget(limits_);
    std::uint64_t* places = places_.data();
    for (const sampling::Job& job : jobs) {
      if (!budget.take(job)) {
        complain("more to sample than it takes");
        picked_.push_back({});
        continue;
      }
      const auto row = std::span(logits_).subspan(std::size_t{job.row} * vocabulary_, vocabulary_);
      sampling::Picked picked = sampling::pick(row, job, scratch_);
      std::ranges::copy(picked.places, places);
      picked.places = {places, picked.places.size()};
      places += picked.places.size();
      picked_.push_back(picked);
    }
    sampled += jobs.size();
  }

  // Nobody may look at rows that were not asked for.
  static void hide(std::span<float> values, std::uint32_t cols, std::uint32_t rows,
                   std::span<const std::uint32_t> shown) {
    for (std::uint32_t i = 0; i < rows; ++i) {
      if (std::ranges::binary_search(shown, i)) continue;
      std::ranges::fill(values.subspan(std::size_t{i} * cols, cols), std::numeric_limits<float>::quiet_NaN());
    }
  }

  void step(const Batch& batch, const BatchEntry& entry) {
    history_.clear();
    std::uint64_t memory = kBeginning;
    const std::span<const Token> before = pool_->tokens(entry.sequence).value();
    for (const Token token : before) history_.push_back(memory = remember(memory, token));
    const auto held = static_cast<std::uint32_t>(history_.size());
    if (held != entry.position) complain("the batch has another position than the sequence");
    for (const Token token : batch.tokens(entry)) history_.push_back(memory = remember(memory, token));
    for (std::uint32_t group = 0; group < pool_->layout().groups.size(); ++group) {
      for (std::uint32_t layer = 0; layer < pool_->layout().groups[group].num_layers; ++layer) {
        attend(batch.kv()[group].sequence(entry.table, layer), pool_->layout().groups[group], held);
      }
    }
    if (!pool_->layout().has_recurrent()) return;
    const std::uint32_t certain = held + entry.certain_rows();
    recur(batch.states().at(entry.state), held, certain);
    if (entry.drafts == 0) return;
    copy_state(batch.states().at(entry.scratch), batch.states().at(entry.state));
    recur(batch.states().at(entry.scratch), certain, static_cast<std::uint32_t>(history_.size()));
  }

  void attend(const KvView& view, const PageShape& shape, std::uint32_t held) {
    const std::uint32_t window = shape.window;
    // Without a plane of values, the value is the last part of the key.
    const std::uint64_t behind = shape.planes == 2 ? 0 : shape.row_bytes() - sizeof(std::uint64_t);
    for (std::uint32_t p = window == 0 || held + 1 <= window ? 0 : held + 1 - window; p < held; ++p) {
      std::uint64_t k = 0, v = 0;
      std::memcpy(&k, view.k(0, p), sizeof k);
      std::memcpy(&v, view.v(0, p) + behind, sizeof v);
      if (k != history_[p] || v != ~history_[p]) {
        complain(fmt::format("position {} of {} does not hold what was written there", p, held));
      }
    }
    for (std::uint32_t p = held; p < history_.size(); ++p) {
      const std::uint64_t k = history_[p], v = ~history_[p];
      std::memcpy(view.k(0, p), &k, sizeof k);
      std::memcpy(view.v(0, p) + behind, &v, sizeof v);
    }
  }

  void copy_state(const StateView& to, const StateView& from) {
    for (std::uint32_t layer = 0; layer < to.num_layers; ++layer) {
      std::memcpy(to.conv(layer), from.conv(layer), pool_->layout().recurrent.conv_bytes);
      std::memcpy(to.ssm(layer), from.ssm(layer), pool_->layout().recurrent.ssm_bytes);
    }
  }

  void recur(const StateView& view, std::uint32_t held, std::uint32_t until) {
    const std::uint64_t expected = held == 0 ? 0 : history_[held - 1];
    const auto update = [&](std::byte* at) {
      std::uint64_t memory = 0;
      std::memcpy(&memory, at, sizeof memory);
      if (memory != expected) complain(fmt::format("the state after {} tokens is another one's", held));
      std::memcpy(at, &history_[until - 1], sizeof memory);
    };
    for (std::uint32_t layer = 0; layer < view.num_layers; ++layer) {
      update(view.conv(layer));
      if (pool_->layout().recurrent.ssm_bytes > 0) update(view.ssm(layer));
    }
  }

  SequencePool* pool_;
  std::uint32_t vocabulary_;
  std::uint32_t max_rows_;
  std::uint32_t max_logits_;
  std::vector<std::uint64_t> history_;
  std::vector<float> logits_;
  std::vector<float> hidden_;
  sampling::Limits limits_;
  sampling::Scratch scratch_;
  std::vector<sampling::Picked> picked_;
  std::vector<std::uint64_t> places_;
};

// The expected answer, computed without engine or pool.
struct Answer {
  std::vector<Token> tokens;
  Finish finish = Finish::Length;
  friend bool operator==(const Answer&, const Answer&) = default;
};
inline Answer right_answer(const Request& request, std::uint32_t choice, std::uint32_t vocabulary,
                           std::uint32_t context) {
  Answer answer;
  std::uint64_t memory = kBeginning;
  for (const Token token : request.prompt) memory = remember(memory, token);
  SamplerOptions options = request.sampling;
  options.seed += choice;
  Sampler sampler(options, vocabulary);
  SamplerScratch scratch(vocabulary);
  sampler.see_prompt(request.prompt);
  std::vector<float> logits(vocabulary);
  std::size_t length = request.prompt.size();
  const std::unique_ptr<Constraint> constraint = request.constraint ? request.constraint() : nullptr;
  std::vector<std::uint32_t> mask(constraint ? (vocabulary + 31) / 32 : 0);
  std::vector<Token> forced;
  while (answer.tokens.size() < request.max_tokens && length < context) {
    if (constraint && forced.empty()) constraint->forced(forced);
    std::optional<Token> token;
    if (forced.empty()) {
      if (constraint) constraint->mask(mask);
      logits_after(memory, logits);
      token = sampler.sample(logits, length, scratch, mask).token;
    } else {
      token = forced.front();
      forced.erase(forced.begin());
    }
    ++length;
    if (!token || std::ranges::find(request.stop_tokens, *token) != request.stop_tokens.end()) {
      answer.finish = token ? Finish::Stop : Finish::Failed;
      break;
    }
    if (constraint) constraint->accept(*token);
    sampler.see(*token);
    answer.tokens.push_back(*token);
    memory = remember(memory, *token);
    if (constraint && constraint->complete()) {
      answer.finish = Finish::Stop;
      break;
    }
  }
  return answer;
}

// Collects the events of a request.
class Collector final : public Listener {
 public:
  struct Choice {
    std::vector<Token> tokens;
    std::vector<float> logprobs;
    std::vector<TokenLogprob> alternatives;
    std::string text, stop, error;
    Token stop_token = -1;
    bool finished = false;
    Finish finish = Finish::Stop;
    Answer answer() const { return {tokens, finish}; }
  };
  void on_event(const Event& event) override {
    if (ended) problem = "an event after the last";
    if (choices.size() <= event.choice) choices.resize(event.choice + 1);
    Choice& choice = choices[event.choice];
    if (choice.finished) problem = "an event for a choice that has finished";
    choice.text += event.text;
    if (event.kind == Event::Kind::Token) {
      if (event.index != choice.tokens.size()) problem = "a token out of order";
      choice.tokens.push_back(event.token);
      choice.logprobs.push_back(event.logprob);
      for (const TokenLogprob& alternative : event.alternatives) choice.alternatives.push_back(alternative);
      if (on_token) on_token(event);
    } else if (event.kind == Event::Kind::Finished) {
      choice.finished = true;
      choice.finish = event.finish;
      choice.stop = event.stop;
      choice.stop_token = event.stop_token;
      choice.error = event.error;
      usage = *event.usage;
    } else if (event.kind == Event::Kind::PromptLogits) {
      if (event.index != prompt_logits.size()) problem = "logits out of order";
      prompt_logits.emplace_back(event.logits.begin(), event.logits.end());
    } else if (event.kind == Event::Kind::PromptToken) {
      if (event.index != prompt_tokens.size() + 1) problem = "a token of the prompt out of order";
      prompt_tokens.push_back({event.token, event.logprob});
      prompt_ranks.push_back(event.rank);
      for (const TokenLogprob& alternative : event.alternatives) prompt_alternatives.push_back(alternative);
    } else if (event.kind == Event::Kind::Embedding) {
      if (!embedding.empty()) problem = "a second embedding";
      embedding.assign(event.logits.begin(), event.logits.end());
    } else if (event.kind == Event::Kind::Accepted) {
      accepted = true;
    } else {
      refused = event.refusal->message;
    }
    ended = event.last;
  }
  std::vector<Choice> choices;
  Usage usage;
  std::vector<std::vector<float>> prompt_logits;
  std::vector<TokenLogprob> prompt_tokens, prompt_alternatives;
  std::vector<std::uint32_t> prompt_ranks;
  std::vector<float> embedding;
  bool accepted = false, ended = false;
  std::string problem, refused;
  std::function<void(const Event&)> on_token;
};

// A pool, a model without weights and an engine.
struct Fixture {
  struct Options {
    Kind kind = Kind::Attention;
    std::uint64_t budget = 1 << 20;
    std::uint32_t max_sequences = 16;  // that run
    std::uint32_t max_tokens = 256;
    std::uint32_t vocabulary = 32;
    std::uint32_t rows = 64;
    std::uint32_t logits = 0;  // rows of them in a step; 0: as many as rows
    bool prefix_cache = true;
    std::uint32_t block_size = 8;
    std::uint32_t checkpoint_unit = 0;  // 0: a block
    Device* device = nullptr;           // null: host memory
    PoolJournal* journal = nullptr;
    tiers::Tiers* tiers = nullptr;
    sampling::Limits sampling = {};  // of the model; nothing: the engine samples
    EngineOptions engine{.check_integrity = true};
  };
  explicit Fixture(const Options& options) {
    PoolConfig config{.layout = weightless_layout(options.kind, options.block_size),
                      .budget_bytes = options.budget,
                      .max_sequences = options.max_sequences + (options.tiers != nullptr ? kTierSequences : 0),
                      .max_tokens = options.max_tokens,
                      .prefix_cache = options.prefix_cache,
                      .checkpoint_interval = 32,
                      .max_recompute = 64,
                      .checkpoint_unit = options.checkpoint_unit};
    config.event_capacity = 64;
    config.journal = options.journal;
    config.observer = options.tiers;
    pool = *SequencePool::create(options.device != nullptr ? *options.device : host, config);
    model = std::make_unique<Weightless>(*pool, options.vocabulary, options.rows, options.sampling, options.logits);
    EngineOptions engine_options = options.engine;
    engine_options.tiers = options.tiers;
    if (options.tiers != nullptr) {
      EXPECT_TRUE(options.tiers->attach(*pool).has_value());
    }
    engine = *Engine::create(*model, *pool, engine_options);
    tiers = options.tiers;
  }
  // The tiers are the test's, and live longer than the device.
  ~Fixture() {
    engine.reset();
    model.reset();
    pool.reset();
    if (tiers != nullptr) tiers->detach();
  }
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;

  std::shared_ptr<Collector> submit(Request request) {
    auto collector = std::make_shared<Collector>();
    auto id = engine->submit(std::move(request), collector);
    if (id) {
      collector->usage.prompt_tokens = 0;
      last = *id;
    } else {
      collector->refused = id.error().message;
      refusal = id.error();
    }
    return collector;
  }
  void run() {
    while (engine->step()) {
    }
  }
  Answer right(const Request& request, std::uint32_t choice = 0) const {
    return right_answer(request, choice, model->vocabulary(), pool->config().max_tokens);
  }

  HostDevice host;
  std::unique_ptr<SequencePool> pool;
  std::unique_ptr<Weightless> model;
  std::unique_ptr<Engine> engine;
  tiers::Tiers* tiers = nullptr;
  RequestId last = 0;
  Refusal refusal;
};

}  // namespace quire::engine::testing
