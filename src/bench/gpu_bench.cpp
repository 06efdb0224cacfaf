// What a GPU reaches with models of published shapes and random weights: decode of one and of 64 sequences, prefill,
// the engine's part of a step, and sequences that share a prefix. Beside it the limits of this GPU: the time to read
// the weights (and the keys and values) once, at the speed of a copy within its memory measured in the same run.
//
//   gpu_bench [shape:type]...          default: those of docs/cuda.md
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "quire/backend/factory.h"
#include "quire/bench/device_limits.h"
#include "quire/bench/limit.h"
#include "quire/bench/synthetic_model.h"
#include "quire/engine/hosted_model.h"

namespace {

using namespace quire;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kSequences = 64, kContext = 512, kPrompt = 2048, kShared = 4096;

double seconds_of(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

[[noreturn]] void give_up(const std::string& what) {
  fmt::print(stderr, "gpu_bench: {}\n", what);
  std::exit(1);
}

template <typename T>
T must(std::expected<T, PoolError> result) {
  if (!result) give_up(result.error().message());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

class Subject {
 public:
  explicit Subject(engine::HostedModel& host)
      : host_(host),
        batch_(host.executor().max_rows(), host.pool().config().max_sequences,
               static_cast<std::uint32_t>(host.pool().layout().groups.size())) {}

  std::vector<Token> random_prompt(std::uint32_t tokens) {
    std::vector<Token> prompt(tokens);
    for (Token& token : prompt) token = random_token();
    return prompt;
  }
  SequenceId prefill(std::span<const Token> prompt) {
    const SequenceId id = must(host_.pool().create({.prompt = prompt, .reuse = false})).id;
    while (!prompt.empty()) {
      const auto piece = prompt.first(std::min<std::size_t>(prompt.size(), host_.executor().max_rows()));
      prompt = prompt.subspan(piece.size());
      batch_.clear();
      batch_.add(id, piece, prompt.empty() ? Logits::Last : Logits::None);
      step();
    }
    return id;
  }
  void decode(std::span<const SequenceId> ids) {
    batch_.clear();
    for (const SequenceId id : ids) {
      const Token token = random_token();
      batch_.add(id, {&token, 1});
    }
    step();
  }
  // Seconds of a step: the best of some runs of eight, after a few to warm up.
  double decode_time(std::span<const SequenceId> ids) {
    for (int i = 0; i < 4; ++i) decode(ids);
    double best = 1e9;
    for (int round = 0; round < 4; ++round) {
      best = std::min(best, seconds_of([&] {
                              for (int i = 0; i < 8; ++i) decode(ids);
                            }) / 8);
    }
    return best;
  }
  double prefill_time() {
    double best = 1e9;
    for (int round = 0; round < 4; ++round) {
      const auto prompt = random_prompt(kPrompt);
      SequenceId id;
      best = std::min(best, seconds_of([&] { id = prefill(prompt); }));
      must(host_.pool().release(id));
    }
    return best;
  }
  // Steps of the engine in which 64 answers grow, sampled with the default options.
  struct EngineStep {
    double seconds = 0;
    double outside = 0;  // of it, seconds outside the model
  };
  EngineStep engine_time() {
    constexpr std::uint32_t kWarm = 8, kSteps = 48;
    engine::Engine& engine = host_.engine();
    for (std::uint32_t i = 0; i < kSequences; ++i) {
      engine::Request request{.prompt = random_prompt(kContext), .max_tokens = 1024, .reuse = false};
      request.sampling.seed = i;
      if (auto id = engine.submit(std::move(request), nullptr); !id) give_up(id.error().message);
    }
    const auto decoding = [&] {
      const auto all = engine.sequences();
      return std::ranges::count(all, engine::SequenceInfo::State::Decode, &engine::SequenceInfo::state) == kSequences;
    };
    while (!decoding()) {
      if (!engine.step()) give_up("the engine's requests have failed: " + engine.device_lost());
    }
    for (std::uint32_t i = 0; i < kWarm; ++i) engine.step();
    const engine::EngineStats before = engine.stats();
    for (std::uint32_t i = 0; i < kSteps; ++i) engine.step();
    const engine::EngineStats after = engine.stats();
    engine.cancel_all();
    const double total = (after.total_seconds - before.total_seconds) / kSteps;
    return {total, total - (after.model_seconds - before.model_seconds) / kSteps};
  }
  void release(std::vector<SequenceId>& ids) {
    for (const SequenceId id : ids) must(host_.pool().release(id));
    ids.clear();
  }

 private:
  Token random_token() { return static_cast<Token>(random_() % host_.executor().vocabulary()); }
  void step() {
    must(host_.pool().reserve(batch_.entries()));
    jobs_.clear();  // greedy
    for (std::uint32_t i = 0; i < batch_.wanted().size(); ++i) jobs_.push_back({.row = i});
    must(host_.executor().forward(batch_, {.jobs = jobs_, .logits = {}}));
    must(host_.pool().commit(batch_));
  }

  engine::HostedModel& host_;
  Batch batch_;
  std::vector<sampling::Job> jobs_;
  std::mt19937_64 random_{1};
};

void measure(const std::string& shape_name, const std::string& type, double copy) {
  const synth::Shape* shape = synth::find_shape(shape_name);
  if (shape == nullptr) give_up("there is no shape '" + shape_name + "'");
  const auto file = bench::SyntheticModel::create(*shape, type);
  if (!file) give_up(file.error().message);
  auto model = model::Model::load(file->path());
  if (!model) give_up(model.error().message);
  engine::HostOptions options{.backend = {.device = "cuda"},
                              .context = std::min<std::uint32_t>((*model)->hyperparameters().context_length, 8192),
                              .max_sequences = 2 * kSequences,
                              .step_tokens = kPrompt,
                              .prefix_cache = false};
  auto host = engine::HostedModel::create(std::move(*model), options);
  if (!host) give_up(host.error().message);
  Subject subject(**host);

  const double prefill = subject.prefill_time();
  std::vector<SequenceId> ids = {subject.prefill(subject.random_prompt(64))};
  const double one = subject.decode_time(ids);
  subject.release(ids);
  for (std::uint32_t i = 0; i < kSequences; ++i) ids.push_back(subject.prefill(subject.random_prompt(kContext)));
  const double many = subject.decode_time(ids);
  subject.release(ids);
  // What one sequence reads in a step: of the experts those that a token chooses.
  const bench::ModelCost cost = bench::cost_of((*host)->model().file(), (*host)->pool().layout());
  const double read = bench::work_of(cost, {.tokens = 1, .logits = 1, .context = 64}).bytes;
  fmt::print("{:<16} {:<7} decode {:7.1f} tok/s (limit {:7.1f}, {:.2f})   64 sequences {:8.0f}   prefill {:8.0f}\n",
             shape_name, type, 1 / one, copy / read, read / copy / one, kSequences / many, kPrompt / prefill);
  std::fflush(stdout);
  const Subject::EngineStep step = subject.engine_time();
  fmt::print("{:<16} {:<7} 64 answers of the engine: {:.3f} ms a step, {:.0f} us ({:.1f} %) of it outside the model\n",
             shape_name, type, 1e3 * step.seconds, 1e6 * step.outside, 100 * step.outside / step.seconds);
  std::fflush(stdout);
  if (shape_name != "mistral-7b" || type != "F16") return;

  // Sequences that share 4 k tokens, against sequences with pages of their own.
  const SequenceId first = subject.prefill(subject.random_prompt(kShared));
  ids = {first};
  for (std::uint32_t i = 1; i < kSequences; ++i) ids.push_back(must((*host)->pool().fork(first, kShared)).id);
  const double shared = subject.decode_time(ids);
  subject.release(ids);
  for (std::uint32_t i = 0; i < kSequences; ++i) ids.push_back(subject.prefill(subject.random_prompt(kShared)));
  const double apart = subject.decode_time(ids);
  subject.release(ids);
  fmt::print("{:<16} {:<7} 64 sequences at 4 k: shared {:.0f} tok/s, apart {:.0f}, {:.2f} times\n", shape_name, type,
             kSequences / shared, kSequences / apart, apart / shared);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> wanted(argv + 1, argv + argc);
  if (wanted.empty()) {
    wanted = {"mistral-7b:F16",   "mistral-7b:Q8_0",     "mistral-7b:Q4_K_M",    "llama-1.1b:F16",
              "mamba2-370m:Q8_0", "granite-h-350m:Q8_0", "qwen3-30b-a3b:Q4_K_M", "gpt-oss-20b:MXFP4_MOE"};
  }
  double copy = 0;
  {
    const auto backend = make_backend({.device = "cuda"});
    if (!backend) give_up(backend.error().message);
    const auto limits = bench::measure_device((*backend)->device());
    if (!limits) give_up(limits.error().message);
    copy = limits->read;
  }
  fmt::print("copy within the memory: {:.0f} GB/s, read and written\n", copy / 1e9);
  for (const std::string& one : wanted) {
    const std::size_t colon = one.find(':');
    if (colon == std::string::npos) give_up("'" + one + "' is not shape:type");
    measure(one.substr(0, colon), one.substr(colon + 1), copy);
  }
  return 0;
}
