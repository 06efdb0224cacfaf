#include "quire/backend/cuda/cuda_sampling.h"

#include <algorithm>
#include <cstring>

#include "quire/base/check.h"
#include "quire/base/numbers.h"

namespace quire::cuda {
namespace {

static_assert(sampling::kMostTokens <= kMostSampledTokens && sampling::kMostReported <= kMostAlternatives);

constexpr std::uint64_t kAlignment = 256;
constexpr std::uint64_t kWordBits = 32;  // of a mask

std::uint64_t answer_bytes(std::uint64_t jobs, std::uint64_t alternatives) {
  return jobs * sizeof(SamplingResult) + alternatives * sizeof(std::uint64_t);
}

std::uint32_t reported_by(const sampling::Job& job, std::uint32_t vocabulary) {
  return std::min(static_cast<std::uint32_t>(std::max(job.logprobs, 0)), vocabulary);
}

}  // namespace

CudaSampling::Places CudaSampling::places_for(std::uint64_t jobs, std::uint64_t seen, std::uint64_t biases,
                                              std::uint64_t mask_words) {
  Places places;
  places.seen = round_up(jobs * sizeof(SamplingJob), kAlignment);
  places.biases = round_up(places.seen + seen * sizeof(sampling::Seen), kAlignment);
  places.masks = round_up(places.biases + biases * sizeof(TokenBias), kAlignment);
  places.end = places.masks + mask_words * sizeof(std::uint32_t);
  return places;
}

PoolResult<void> CudaSampling::prepare(CudaDevice& device, const sampling::Limits& limits) {
  device_ = &device;
  limits_ = limits;
  job_count_ = 0;
  jobs_host_.reset();
  answers_host_.reset();
  jobs_device_ = {};
  answers_device_ = {};
  scratch_ = {};
  if (limits.jobs == 0) return {};
  QUIRE_CHECK(limits.vocabulary <= sampling::kMostTokens, "the caller knows the limits of sampling");
  const std::uint64_t most_jobs = 2 * std::uint64_t{limits.jobs};  // each may want log-probabilities
  const std::uint64_t mask_words = limits.jobs * divide_up(std::uint64_t{limits.vocabulary}, kWordBits);
  static_assert(sizeof(sampling::Seen) == sizeof(TokenBias), "the two lists share a limit");
  jobs_bytes_ = places_for(most_jobs, limits.listed, 0, mask_words).end + kAlignment;
  const std::uint64_t most_answers = answer_bytes(most_jobs, limits.reported);
  const auto take = [&](DeviceBuffer& to, std::uint64_t bytes) -> PoolResult<void> {
    auto memory = DeviceBuffer::create(device, bytes, kAlignment);
    if (!memory) return std::unexpected(memory.error());
    to = std::move(*memory);
    return {};
  };
  if (auto ok = take(jobs_device_, jobs_bytes_); !ok) return ok;
  if (auto ok = take(answers_device_, most_answers); !ok) return ok;
  if (auto ok = take(scratch_, sampling_scratch_bytes(static_cast<std::uint32_t>(most_jobs))); !ok) return ok;
  const auto pin = [](Pinned& to, std::uint64_t bytes) {
    void* memory = nullptr;
    if (cudaMallocHost(&memory, bytes) != cudaSuccess) return false;
    to.reset(static_cast<std::byte*>(memory));
    return true;
  };
  if (!pin(jobs_host_, jobs_bytes_) || !pin(answers_host_, most_answers)) {
    cudaGetLastError();
    return std::unexpected(PoolError::out_of_memory("pinned host memory", jobs_bytes_ + most_answers));
  }
  picked_.reserve(limits.jobs);
  with_logprobs_.reserve(limits.jobs);
  return {};
}

std::span<const sampling::Picked> CudaSampling::sample(Tensor logits, std::span<const sampling::Job> jobs,
                                                       sampling::MaskGate* masks) {
  QUIRE_CHECK(job_count_ == 0, "a step samples once");
  QUIRE_CHECK(jobs.size() <= limits_.jobs && logits.cols <= limits_.vocabulary,
              "steps are as large as they were prepared for");
  if (jobs.empty()) return {};
  job_count_ = static_cast<std::uint32_t>(jobs.size());
  inputs_ = {.logits = reinterpret_cast<const float*>(logits.data),
             .stride = logits.stride,
             .vocabulary = logits.cols,
             .job_count = job_count_,
             .any_cuts = false};
  const std::uint64_t words = divide_up(std::uint64_t{logits.cols}, kWordBits);
  std::uint64_t seen = 0, biases = 0, mask_words = 0, reported = 0;
  for (const sampling::Job& job : jobs) {
    seen += job.seen.size();
    biases += job.biases.size();
    if (!job.mask.empty()) mask_words += words;
    if (job.logprobs >= 0) ++inputs_.job_count;
    reported += reported_by(job, logits.cols);
  }
  const Places places = places_for(inputs_.job_count, seen, biases, mask_words);
  jobs_ = jobs;
  gate_ = masks;
  places_ = places;
  QUIRE_CHECK(seen + biases <= limits_.listed && reported <= limits_.reported && places.end <= jobs_bytes_,
              "steps are as large as they were prepared for");
  pack(jobs, places);

  std::byte* const there = jobs_device_.data();
  inputs_.jobs = reinterpret_cast<const SamplingJob*>(there);
  inputs_.seen = reinterpret_cast<const sampling::Seen*>(there + places.seen);
  inputs_.biases = reinterpret_cast<const TokenBias*>(there + places.biases);
  inputs_.masks = reinterpret_cast<const std::uint32_t*>(there + places.masks);
  answer_bytes_ = answer_bytes(inputs_.job_count, reported);
  outputs_ = {
      .results = reinterpret_cast<SamplingResult*>(answers_device_.data()),
      .alternatives = reinterpret_cast<std::uint64_t*>(answers_device_.data() + answer_bytes(inputs_.job_count, 0))};
  if (!device_->lost()) {
    device_->note(cudaMemcpyAsync(there, jobs_host_.get(), places.masks, cudaMemcpyHostToDevice, device_->stream()));
  }
  picked_.assign(job_count_, {});
  return picked_;
}

// First the jobs for tokens, then those for log-probabilities.
void CudaSampling::pack(std::span<const sampling::Job> jobs, const Places& places) {
  auto* const to = reinterpret_cast<SamplingJob*>(jobs_host_.get());
  auto* const seen = reinterpret_cast<sampling::Seen*>(jobs_host_.get() + places.seen);
  auto* const biases = reinterpret_cast<TokenBias*>(jobs_host_.get() + places.biases);
  const auto words = static_cast<std::uint32_t>(divide_up(std::uint64_t{inputs_.vocabulary}, kWordBits));
  std::uint32_t seen_count = 0, bias_count = 0, mask_words = 0, reported = 0, logprobs = job_count_;
  with_logprobs_.clear();
  for (std::uint32_t i = 0; i < job_count_; ++i) {
    const sampling::Job& job = jobs[i];
    SamplingJob own;
    own.rule = job.rule;
    own.penalties = job.penalties;
    own.row = job.row;
    own.random = job.random;
    own.first_seen = seen_count;
    own.seen_count = static_cast<std::uint32_t>(job.seen.size());
    own.first_bias = bias_count;
    own.bias_count = static_cast<std::uint32_t>(job.biases.size());
    std::ranges::copy(job.seen, seen + seen_count);
    seen_count += own.seen_count;
    for (const auto& [token, bias] : job.biases) biases[bias_count++] = {token, bias};
    if (!job.mask.empty()) {
      QUIRE_CHECK(job.mask.size() >= words, "a mask has a bit for each token");
      own.mask = mask_words;
      mask_words += words;
    }
    inputs_.any_cuts = inputs_.any_cuts || cuts(own.rule);
    to[i] = own;
    with_logprobs_.push_back(job.logprobs >= 0);
    if (job.logprobs < 0) continue;
    const std::uint32_t count = reported_by(job, inputs_.vocabulary);
    to[logprobs] = logprobs_job(job.row, count, reported);
    inputs_.any_cuts = inputs_.any_cuts || cuts(to[logprobs].rule);
    ++logprobs;
    reported += count;
  }
}

// In the order in which pack() has counted them.
void CudaSampling::submit_masks() {
  if (gate_ != nullptr) gate_->wait();
  if (places_.masks == places_.end) return;
  const std::uint64_t words = divide_up(std::uint64_t{inputs_.vocabulary}, kWordBits);
  auto* to = reinterpret_cast<std::uint32_t*>(jobs_host_.get() + places_.masks);
  for (const sampling::Job& job : jobs_) {
    if (job.mask.empty()) continue;
    std::memcpy(to, job.mask.data(), words * sizeof(std::uint32_t));
    to += words;
  }
  device_->note(cudaMemcpyAsync(jobs_device_.data() + places_.masks, jobs_host_.get() + places_.masks,
                                places_.end - places_.masks, cudaMemcpyHostToDevice, device_->stream()));
}

void CudaSampling::launch() {
  if (job_count_ == 0) return;
  submit_masks();
  launch_sampling(device_->stream(), inputs_, outputs_, scratch_.data());
  device_->note(cudaMemcpyAsync(answers_host_.get(), answers_device_.data(), answer_bytes_, cudaMemcpyDeviceToHost,
                                device_->stream()));
}

void CudaSampling::collect() {
  const auto* const results = reinterpret_cast<const SamplingResult*>(answers_host_.get());
  const auto* const places = reinterpret_cast<const std::uint64_t*>(results + inputs_.job_count);
  std::uint32_t logprobs = job_count_;
  for (std::uint32_t i = 0; i < job_count_; ++i) {
    const SamplingResult* const row = with_logprobs_[i] ? &results[logprobs++] : nullptr;
    if (results[i].token < 0) continue;
    picked_[i] = {.token = results[i].token, .logit = results[i].logit};
    if (row == nullptr) continue;
    picked_[i].sum = row->sum;
    const auto* const jobs = reinterpret_cast<const SamplingJob*>(jobs_host_.get());
    picked_[i].places = {places + jobs[row - results].first_alternative, row->alternatives};
  }
}

}  // namespace quire::cuda
