// Sampling on the CPU: jobs are divided among the threads, and one thread does a job.
#include <algorithm>

#include "quire/backend/cpu/cpu_backend.h"
#include "quire/backend/cpu/for_each.h"
#include "quire/base/check.h"

namespace quire {

void CpuBackend::prepare_sampling() {
  const sampling::Limits& limits = sizes_.sampling;
  samplers_.clear();
  // One by one: a copy of a scratch buffer would have no room reserved.
  for (std::uint32_t i = 0; i < team_.size() && limits.jobs > 0; ++i) samplers_.emplace_back(limits.vocabulary);
  picked_.reserve(limits.jobs);
  places_.resize(limits.reported);
}

std::span<const sampling::Picked> CpuBackend::sample(Tensor logits, std::span<const sampling::Job> jobs,
                                                     sampling::MaskGate* masks) {
  QUIRE_CHECK(jobs.size() <= sizes_.sampling.jobs && logits.cols <= sizes_.sampling.vocabulary,
              "steps are as large as they were prepared for");
  // Where the places of each job go. Its thread fills them in.
  picked_.clear();
  std::size_t used = 0;
  for (const sampling::Job& job : jobs) {
    const std::size_t own = std::min(static_cast<std::uint32_t>(std::max(job.logprobs, 0)), logits.cols);
    QUIRE_CHECK(used + own <= places_.size(), "steps are as large as they were prepared for");
    picked_.push_back({.places = {places_.data() + used, own}});
    used += own;
  }
  if (masks != nullptr) masks->wait();  // the logits are there
  cpu::for_each_by_thread(team_, static_cast<std::uint32_t>(jobs.size()), 1,
                          [&](std::uint32_t i, std::uint32_t thread) {
                            const sampling::Job& job = jobs[i];
                            sampling::Picked& to = picked_[i];
                            std::uint64_t* const places = places_.data() + (to.places.data() - places_.data());
                            to = sampling::pick({cpu::row_of(logits, job.row), logits.cols}, job, samplers_[thread]);
                            std::ranges::copy(to.places, places);
                            to.places = {places, to.places.size()};
                          });
  return picked_;
}

}  // namespace quire
