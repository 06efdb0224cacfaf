// Checks the sampling kernels against the definition (backend/sampling_testing.h) for random rows and options, and
// times them. Exit 1: a token, a logit or a log-probability differs.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include "quire/backend/cuda/sampling_kernels.h"
#include "quire/backend/sampling_testing.h"

namespace {

using namespace quire;
using namespace quire::cuda;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

void require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("FAILED: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

template <typename T>
class OnDevice {
 public:
  explicit OnDevice(std::size_t count) : count_(count) {
    require(cudaMalloc(&data_, std::max<std::size_t>(1, count) * sizeof(T)), "memory");
  }
  explicit OnDevice(const std::vector<T>& from) : OnDevice(from.size()) {
    require(cudaMemcpy(data_, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), "upload");
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(data_); }
  T* get() const { return data_; }
  std::vector<T> read() const {
    std::vector<T> out(count_);
    require(cudaMemcpy(out.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "download");
    return out;
  }

 private:
  std::size_t count_;
  T* data_ = nullptr;
};

struct Problem {
  std::uint32_t vocabulary = 0, rows = 0, stride = 0;
  std::vector<float> logits;
  std::vector<SamplingJob> jobs;
  std::vector<sampling::Seen> seen;
  std::vector<TokenBias> biases;
  std::vector<std::uint32_t> masks;
};

// A problem on the device.
class Uploaded {
 public:
  explicit Uploaded(const Problem& problem)
      : logits_(problem.logits),
        jobs_(problem.jobs),
        seen_(problem.seen),
        biases_(problem.biases),
        masks_(problem.masks),
        results_(problem.jobs.size()),
        alternatives_(problem.jobs.size() * kMostAlternatives),
        scratch_(sampling_scratch_bytes(static_cast<std::uint32_t>(problem.jobs.size()))) {
    require(cudaMemset(scratch_.get(), 0xA5, sampling_scratch_bytes(static_cast<std::uint32_t>(problem.jobs.size()))),
            "memset");
    inputs_.logits = logits_.get();
    inputs_.stride = problem.stride;
    inputs_.vocabulary = problem.vocabulary;
    inputs_.jobs = jobs_.get();
    inputs_.job_count = static_cast<std::uint32_t>(problem.jobs.size());
    inputs_.any_cuts =
        std::any_of(problem.jobs.begin(), problem.jobs.end(), [](const SamplingJob& job) { return cuts(job.rule); });
    inputs_.seen = seen_.get();
    inputs_.biases = biases_.get();
    inputs_.masks = masks_.get();
  }
  void launch(cudaStream_t stream) const {
    launch_sampling(stream, inputs_, {results_.get(), alternatives_.get()}, scratch_.get());
  }
  std::vector<SamplingResult> results() const { return results_.read(); }
  std::vector<std::uint64_t> alternatives() const { return alternatives_.read(); }

 private:
  OnDevice<float> logits_;
  OnDevice<SamplingJob> jobs_;
  OnDevice<sampling::Seen> seen_;
  OnDevice<TokenBias> biases_;
  OnDevice<std::uint32_t> masks_;
  OnDevice<SamplingResult> results_;
  OnDevice<std::uint64_t> alternatives_;
  OnDevice<unsigned char> scratch_;
  SamplingInputs inputs_;
};

// --- random problems ---

// std::mt19937's numbers are of a wider type.
struct Random {
  using result_type = std::uint32_t;
  explicit Random(result_type seed) : engine(seed) {}
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return 0xFFFFFFFF; }
  result_type operator()() { return static_cast<result_type>(engine()); }
  std::mt19937 engine;
};

bool one_in(Random& random, unsigned n) { return random() % n == 0; }

void fill_row(Random& random, float* row, std::uint32_t vocabulary) {
  constexpr float kSpreads[] = {0.001f, 0.3f, 2.5f, 10.0f};
  std::normal_distribution<float> normal(0, kSpreads[random() % 4]);
  const auto kind = random() % 5;
  for (std::uint32_t i = 0; i < vocabulary; ++i) {
    float logit = normal(random);
    if (kind == 1) logit = std::round(logit * 4) / 4;  // many are equal
    if (kind == 2) logit = 1.5f;
    if (kind == 3 && one_in(random, 2)) logit = kNaN;
    if (kind == 4 && one_in(random, 20)) logit = one_in(random, 2) ? -kInfinity : -0.0f;
    row[i] = logit;
  }
  if (one_in(random, 12)) row[random() % vocabulary] = kInfinity;
  if (one_in(random, 6)) row[random() % vocabulary] = 40;
  if (one_in(random, 25)) std::fill(row, row + vocabulary, one_in(random, 2) ? kNaN : -kInfinity);
}

SamplingJob any_job(Random& random, Problem& problem) {
  const std::uint32_t vocabulary = problem.vocabulary;
  constexpr double kTemperatures[] = {0, 0.05, 0.7, 1, 2, 100};
  SamplingJob job;
  const std::uint32_t top_k = one_in(random, 3) ? 0 : 1 + random() % (one_in(random, 2) ? 60 : vocabulary + 5);
  const double top_p = one_in(random, 3) ? 1 : static_cast<double>(random() % 101) / 100;
  const double min_p = one_in(random, 3) ? static_cast<double>(random() % 50) / 100 : 0;
  job.rule = sampling::rule_of(kTemperatures[random() % 6], top_k, top_p, min_p);
  job.random = (std::uint64_t{random()} << 32) | random();
  if (one_in(random, 3)) {
    job.penalties = {1.3f, 0.5f, 0.1f};
    job.first_seen = static_cast<std::uint32_t>(problem.seen.size());
    for (std::uint32_t i = random() % 90; i < vocabulary + 50; i += 1 + random() % 90) {
      problem.seen.push_back({static_cast<std::int32_t>(i), random() % 4});
    }
    job.seen_count = static_cast<std::uint32_t>(problem.seen.size()) - job.first_seen;
  }
  if (one_in(random, 3)) {
    job.first_bias = static_cast<std::uint32_t>(problem.biases.size());
    for (std::uint32_t i = random() % 90; i < vocabulary + 50; i += 1 + random() % 90) {
      problem.biases.push_back({static_cast<std::int32_t>(i), static_cast<float>(random() % 100) / 10 - 5});
    }
    job.bias_count = static_cast<std::uint32_t>(problem.biases.size()) - job.first_bias;
  }
  if (one_in(random, 3)) {
    job.mask = static_cast<std::uint32_t>(problem.masks.size());
    const std::uint32_t allowed = one_in(random, 9) ? 0 : 0xFFFFFFFF;
    for (std::uint32_t i = 0; i < (vocabulary + 31) / 32; ++i) problem.masks.push_back(random() & allowed);
  }
  return job;
}

Problem any_problem(Random& random, std::uint32_t vocabulary, std::uint32_t job_count) {
  Problem problem;
  problem.vocabulary = vocabulary;
  problem.rows = 1 + job_count / 2;
  problem.stride = vocabulary + random() % 3;
  problem.logits.resize(std::size_t{problem.rows} * problem.stride, kInfinity);
  for (std::uint32_t i = 0; i < problem.rows; ++i) {
    fill_row(random, problem.logits.data() + std::size_t{i} * problem.stride, vocabulary);
  }
  for (std::uint32_t i = 0; i < job_count; ++i) {
    const std::uint32_t row = random() % problem.rows;
    if (one_in(random, 4)) {
      problem.jobs.push_back(logprobs_job(row, one_in(random, 3) ? 0 : 1 + random() % 100, i * kMostAlternatives));
    } else {
      problem.jobs.push_back(any_job(random, problem));
      problem.jobs.back().row = row;
    }
  }
  return problem;
}

// --- what the host finds ---

std::vector<float> adjusted(const Problem& problem, const SamplingJob& job) {
  const float* const row = problem.logits.data() + std::size_t{job.row} * problem.stride;
  std::vector<float> logits(row, row + problem.vocabulary);
  for (std::uint32_t i = job.first_seen; i < job.first_seen + job.seen_count; ++i) {
    const auto token = static_cast<std::size_t>(problem.seen[i].token);
    if (token < logits.size()) logits[token] = sampling::penalized(logits[token], problem.seen[i].times, job.penalties);
  }
  for (std::uint32_t i = job.first_bias; i < job.first_bias + job.bias_count; ++i) {
    const auto token = static_cast<std::size_t>(problem.biases[i].token);
    if (token < logits.size()) logits[token] += problem.biases[i].bias;
  }
  for (std::size_t i = 0; i < logits.size() && job.mask != SamplingJob::kNoMask; ++i) {
    if ((problem.masks[job.mask + i / 32] >> (i % 32) & 1) == 0) logits[i] = kNaN;
  }
  return logits;
}

bool token_agrees(const Problem& problem, const SamplingJob& job, const SamplingResult& result) {
  const std::int32_t token = sampling::token_by_definition(adjusted(problem, job), job.rule, job.random).value_or(-1);
  if (result.token != token || token < 0) return result.token == token;
  const float logit = problem.logits[std::size_t{job.row} * problem.stride + static_cast<std::size_t>(token)];
  return sampling::ordered(result.logit) == sampling::ordered(logit);
}

bool logprobs_agree(const Problem& problem, const SamplingJob& job, const SamplingResult& result,
                    const std::vector<std::uint64_t>& alternatives) {
  const std::vector<float> logits = adjusted(problem, job);
  std::vector<std::uint64_t> places;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i])) places.push_back(sampling::place(logits[i], static_cast<std::int32_t>(i)));
  }
  if (places.empty()) return result.sum.total == 0 && result.alternatives == 0;
  const std::size_t count = std::min<std::size_t>(places.size(), job.rule.top_k);
  std::sort(places.begin(), places.end(), std::greater<>());
  const float highest = sampling::logit_at(places[0]);
  std::uint64_t total = 0;
  for (const std::uint64_t one : places) {
    total += sampling::weight_of(sampling::logit_at(one), highest, job.rule.rate);
  }
  return result.sum.highest == highest && result.sum.total == total && result.alternatives == count &&
         std::equal(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(count),
                    alternatives.begin() + job.first_alternative);
}

int differences(const Problem& problem) {
  const Uploaded uploaded(problem);
  uploaded.launch(nullptr);
  require(cudaGetLastError(), "launch");
  require(cudaDeviceSynchronize(), "kernels");
  const std::vector<SamplingResult> results = uploaded.results();
  const std::vector<std::uint64_t> alternatives = uploaded.alternatives();
  int different = 0;
  for (std::size_t i = 0; i < problem.jobs.size(); ++i) {
    const SamplingJob& job = problem.jobs[i];
    const bool agrees = job.wants == SamplingJob::Wants::Token ? token_agrees(problem, job, results[i])
                                                               : logprobs_agree(problem, job, results[i], alternatives);
    if (agrees) continue;
    if (++different < 4) {
      std::printf("  vocabulary %u, job %zu: rate %g, top_k %u, top_p %g, min_p %g: token %d\n", problem.vocabulary, i,
                  job.rule.rate, job.rule.top_k, static_cast<double>(job.rule.top_p) / sampling::kAllOfIt,
                  static_cast<double>(job.rule.min_weight) / sampling::kHighestWeight, results[i].token);
    }
  }
  return different;
}

bool check_all() {
  struct Size {
    std::uint32_t vocabulary;
    int rounds;
  };
  constexpr Size kSizes[] = {{1, 20},    {33, 40},    {700, 60},   {4096, 40},   {4097, 40},
                             {9000, 40}, {32000, 30}, {50257, 20}, {150000, 10}, {1U << 20, 1}};
  Random random(1);
  int jobs = 0, different = 0;
  for (const auto& [vocabulary, rounds] : kSizes) {
    for (int round = 0; round < rounds; ++round) {
      const Problem problem = any_problem(random, vocabulary, round % 4 == 0 ? 1 : 16);
      different += differences(problem);
      jobs += static_cast<int>(problem.jobs.size());
    }
  }
  std::printf("%d rows of random options: %d differ from the definition\n", jobs, different);
  return different == 0;
}

// --- times ---

struct Workload {
  const char* name;
  sampling::Rule rule;
  bool adjusts = false;
  std::uint32_t logprobs = 0;
  float spread = 2.5f;
};

Problem problem_of(const Workload& workload, std::uint32_t vocabulary, std::uint32_t rows) {
  Random random(7);
  std::normal_distribution<float> normal(0, workload.spread);
  Problem problem;
  problem.vocabulary = problem.stride = vocabulary;
  problem.rows = rows;
  problem.logits.resize(std::size_t{rows} * vocabulary);
  for (float& logit : problem.logits) logit = normal(random);
  for (std::uint32_t row = 0; row < rows; ++row) {
    for (int i = 0; i < 30; ++i) problem.logits[std::size_t{row} * vocabulary + random() % vocabulary] += 8;
    SamplingJob job;
    job.rule = workload.rule;
    job.row = row;
    job.random = (std::uint64_t{random()} << 32) | random();
    if (workload.adjusts) {
      job.penalties = {1.1f, 0.5f, 0.1f};
      job.first_seen = static_cast<std::uint32_t>(problem.seen.size());
      for (std::uint32_t i = 0; i < 500; ++i) problem.seen.push_back({static_cast<std::int32_t>(i * 60), i % 3});
      job.seen_count = 500;
      job.first_bias = static_cast<std::uint32_t>(problem.biases.size());
      for (int i = 0; i < 100; ++i) problem.biases.push_back({i * 100, -1.0f});
      job.bias_count = 100;
      job.mask = static_cast<std::uint32_t>(problem.masks.size());
      problem.masks.resize(problem.masks.size() + (vocabulary + 31) / 32, 0xFFFFFFFE);
    }
    problem.jobs.push_back(job);
  }
  for (std::uint32_t row = 0; row < rows && workload.logprobs > 0; ++row) {
    problem.jobs.push_back(logprobs_job(row, workload.logprobs, row * kMostAlternatives));
  }
  return problem;
}

// Microseconds of one step's sampling, as part of a CUDA graph.
float time_of(const Problem& problem) {
  constexpr int kRuns = 50;
  const Uploaded uploaded(problem);
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  require(cudaStreamCreate(&stream), "stream");
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < kRuns; ++i) uploaded.launch(stream);
  require(cudaStreamEndCapture(stream, &graph), "capture");
  require(cudaGraphInstantiate(&exec, graph, 0), "graph");
  require(cudaEventCreate(&begin), "event");
  require(cudaEventCreate(&end), "event");
  require(cudaGraphLaunch(exec, stream), "graph");
  require(cudaEventRecord(begin, stream), "event");
  require(cudaGraphLaunch(exec, stream), "graph");
  require(cudaEventRecord(end, stream), "event");
  require(cudaStreamSynchronize(stream), "kernels");
  float milliseconds = 0;
  require(cudaEventElapsedTime(&milliseconds, begin, end), "event");
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  return milliseconds * 1000 / kRuns;
}

void print_times() {
  const auto rule = sampling::rule_of;
  const Workload workloads[] = {
      {"greedy", rule(0, 0, 1, 0)},
      {"no cut", rule(1, 0, 1, 0)},
      {"min-p 0.05", rule(1, 0, 1, 0.05)},
      {"top-k 40, top-p 0.95, min-p 0.05", rule(0.8, 40, 0.95, 0.05)},
      {"top-p 0.95", rule(0.8, 0, 0.95, 0)},
      {"the same, penalties, bias, mask", rule(0.8, 0, 0.95, 0), true},
      {"top-k 40 and 5 log-probabilities", rule(0.8, 40, 1, 0), false, 5},
      {"top-p 0.95 of flat rows", rule(1, 0, 0.95, 0), false, 0, 1.0f},
      {"top-k 20000, top-p 0.9", rule(1, 20000, 0.9, 0)},
  };
  std::printf("\n%-34s %12s %12s %12s %12s   (us per step)\n", "", "1 x 32000", "64 x 32000", "1 x 150000",
              "64 x 150000");
  for (const Workload& workload : workloads) {
    std::printf("%-34s", workload.name);
    for (const std::uint32_t vocabulary : {32000U, 150000U}) {
      for (const std::uint32_t rows : {1U, 64U})
        std::printf(" %12.1f", time_of(problem_of(workload, vocabulary, rows)));
    }
    std::printf("\n");
  }
}

}  // namespace

int main() {
  if (!check_all()) return 1;
  print_times();
  return 0;
}
