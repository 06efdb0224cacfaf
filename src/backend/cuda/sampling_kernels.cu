#include "quire/backend/cuda/sampling_device.h"
#include "quire/backend/cuda/sampling_kernels.h"

namespace quire::cuda {
namespace {

using namespace sampler;
using Wants = SamplingJob::Wants;

// A job as one block sees it.
struct Work {
  const SamplingInputs& in;
  const SamplingOutputs& out;
  const SamplingJob& job;
  JobState& state;
  BlockMemory& memory;
  float highest, range_rate;

  __device__ Work(const SamplingInputs& inputs, const SamplingOutputs& outputs, const SamplingJob& which, JobState& its,
                  BlockMemory& shared, std::uint64_t first)
      : in(inputs),
        out(outputs),
        job(which),
        state(its),
        memory(shared),
        highest(sampling::logit_at(first)),
        range_rate(which.wants == Wants::Logprobs ? kFarRate : fmaxf(which.rule.rate, kNearRate)) {}

  __device__ std::uint64_t weight(float logit) const { return sampling::weight_of(logit, highest, job.rule.rate); }
  __device__ std::uint64_t weight_at(std::uint64_t place) const { return weight(sampling::logit_at(place)); }
  __device__ std::uint32_t range(float logit) const {
    return sampling::depth_of(logit, highest, range_rate) >> kRangeBits;
  }
  __device__ bool keeps(float logit, std::uint32_t id, std::uint64_t weight, std::uint64_t last) const {
    return weight >= job.rule.min_weight && sampling::place(logit, static_cast<std::int32_t>(id)) >= last;
  }

  // Calls call(logit, place) for the tokens of the loaded part whose logits are numbers.
  template <typename Call>
  __device__ void each_token(std::uint32_t part, const Call& call) const {
    for (std::uint32_t i = threadIdx.x; i < kPart; i += kThreads) {
      const std::uint64_t place = place_of(memory.tile[i], part * kPart + i);
      if (place != 0) call(memory.tile[i], place);
    }
  }
  // The same for the whole row: one block reads all parts.
  template <typename Call>
  __device__ void each_token_of_row(const Call& call) const {
    for (std::uint32_t part = 0; part < gridDim.x; ++part) {
      load_part(in, job, part, memory.tile);
      each_token(part, call);
    }
    __syncthreads();
  }

  __device__ void tell_token(std::uint32_t token) const {
    SamplingResult& result = out.results[blockIdx.y];
    result = SamplingResult{};
    result.token = static_cast<std::int32_t>(token);
    result.logit = in.logits[job.row * in.stride + token];
  }
  __device__ void tell_logprobs(std::uint64_t total, std::uint32_t alternatives) const {
    SamplingResult& result = out.results[blockIdx.y];
    result = SamplingResult{};
    result.sum.highest = highest;
    result.sum.total = total;
    result.alternatives = alternatives;
  }
};

__device__ std::uint64_t first_of_row(const JobState& state, BlockMemory& memory) {
  return block_max(threadIdx.x < gridDim.x ? state.part_first[threadIdx.x] : 0, memory);
}

// True in the block of a job that comes here last. It sees what the others have written.
__device__ bool is_last_block(std::uint32_t& ticket, BlockMemory& memory) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) memory.count = atomicAdd(&ticket, 1U);
  __syncthreads();
  const bool last = memory.count == gridDim.x - 1;
  __syncthreads();
  if (last) __threadfence();
  return last;
}

// --- tokens that are kept down to `last`, summed by part ---

__device__ void sum_part(const Work& work, std::uint32_t part, std::uint64_t last) {
  std::uint64_t sum = 0;
  for (std::uint32_t i = threadIdx.x; i < kPart; i += kThreads) {
    const float logit = work.memory.tile[i];
    const std::uint64_t weight = work.weight(logit);
    if (work.keeps(logit, part * kPart + i, weight, last)) sum += weight;
  }
  const std::uint64_t total = block_scan(sum, work.memory).total;
  if (threadIdx.x == 0) work.state.part_sum[part] = total;
}

__device__ void draw_from_parts(const Work& work, std::uint64_t last) {
  BlockMemory& memory = work.memory;
  const std::uint64_t sum = threadIdx.x < gridDim.x ? load(work.state.part_sum[threadIdx.x]) : 0;
  const Scanned parts = block_scan(sum, memory);
  if (work.job.wants == Wants::Logprobs) {
    if (threadIdx.x == 0) work.tell_logprobs(parts.total, 0);
    return;
  }
  const std::uint64_t drawn = sampling::drawn_place(work.job.random, parts.total);
  if (drawn >= parts.before && drawn - parts.before < sum) {
    memory.found[0] = threadIdx.x;
    memory.found[1] = drawn - parts.before;
  }
  __syncthreads();
  const auto part = static_cast<std::uint32_t>(memory.found[0]);
  const std::uint64_t rest = memory.found[1];
  load_part(work.in, work.job, part, memory.tile);

  // Here each thread has tokens that follow each other.
  constexpr std::uint32_t kEach = kPart / kThreads;
  const std::uint32_t first = threadIdx.x * kEach;
  std::uint64_t own = 0;
  const auto kept_weight = [&](std::uint32_t i) -> std::uint64_t {
    const float logit = memory.tile[i];
    const std::uint64_t weight = work.weight(logit);
    return work.keeps(logit, part * kPart + i, weight, last) ? weight : 0;
  };
  for (std::uint32_t i = first; i < first + kEach; ++i) own += kept_weight(i);
  std::uint64_t before = block_scan(own, memory).before;
  if (rest < before || rest - before >= own) return;
  std::uint32_t i = first;
  for (; rest - before >= kept_weight(i); ++i) before += kept_weight(i);
  work.tell_token(part * kPart + i);
}

// --- ranges of logits ---

// Whether ranges need the weights of their tokens. A top-k that fits into the list needs their numbers only.
__device__ bool weighs_ranges(const sampling::Rule& rule) { return rule.top_k == 0 || rule.top_k > kList; }

__device__ void count_ranges(const Work& work, std::uint32_t part) {
  auto& ranges = work.memory.ranges;
  const bool by_range = weighs_ranges(work.job.rule), in_all = work.job.wants == Wants::Logprobs;
  for (std::uint32_t i = threadIdx.x; i < kRanges; i += kThreads) ranges.counts[i] = ranges.low[i] = ranges.high[i] = 0;
  __syncthreads();
  std::uint64_t sum = 0;
  work.each_token(part, [&](float logit, std::uint64_t) {
    const std::uint32_t range = work.range(logit);
    atomicAdd(&ranges.counts[range], 1U);
    if (in_all) sum += work.weight(logit);
    if (by_range) add(ranges.low[range], ranges.high[range], work.weight(logit));
  });
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < kRanges; i += kThreads) {
    if (ranges.counts[i] == 0) continue;
    atomicAdd(&work.state.counts[i], ranges.counts[i]);
    if (by_range) add(work.state.sums[i], (std::uint64_t{ranges.high[i]} << 32) + ranges.low[i]);
  }
  if (!in_all) return;
  sum = block_scan(sum, work.memory).total;
  if (threadIdx.x == 0) add(work.state.total, sum);
}

struct Range {
  std::uint32_t range;
  std::uint32_t through;  // tokens up to its end
  std::uint64_t before;   // tokens or weight before it
};

// The range in which the number or the weight of the tokens reaches the target.
__device__ Range find_range(const Work& work, bool by_count, std::uint64_t target) {
  constexpr std::uint32_t kEach = (kRanges + kThreads - 1) / kThreads;
  const std::uint32_t first = threadIdx.x * kEach, end = min(first + kEach, kRanges);
  BlockMemory& memory = work.memory;
  std::uint64_t own_count = 0, own_sum = 0;
  for (std::uint32_t i = first; i < end; ++i) {
    own_count += load(work.state.counts[i]);
    own_sum += load(work.state.sums[i]);
  }
  std::uint64_t count = block_scan(own_count, memory).before;
  std::uint64_t before = by_count ? count : block_scan(own_sum, memory).before;
  for (std::uint32_t i = first; i < end; ++i) {
    const std::uint32_t tokens = load(work.state.counts[i]);
    const std::uint64_t size = by_count ? tokens : load(work.state.sums[i]);
    count += tokens;
    if (before < target && target <= before + size) {
      memory.found[0] = i;
      memory.found[1] = count;
      memory.found[2] = before;
    }
    before += size;
  }
  __syncthreads();
  const Range found{static_cast<std::uint32_t>(memory.found[0]), static_cast<std::uint32_t>(memory.found[1]),
                    memory.found[2]};
  __syncthreads();
  return found;
}

// The weight that top-p has to reach. At least 1: the first token always stays.
__device__ std::uint64_t enough_of(std::uint64_t total, const sampling::Rule& rule) {
  const std::uint64_t enough = sampling::share(total, rule.top_p);
  return enough > 0 ? enough : 1;
}

// Decides what the next launch does with the job.
__device__ void choose_next(const Work& work) {
  JobState& state = work.state;
  const sampling::Rule& rule = work.job.rule;
  const bool weighed = weighs_ranges(rule);
  std::uint64_t count = 0, total = 0;
  for (std::uint32_t i = threadIdx.x; i < kRanges; i += kThreads) {
    count += load(state.counts[i]);
    total += load(state.sums[i]);
  }
  count = block_scan(count, work.memory).total;
  total = weighed ? block_scan(total, work.memory).total : load(state.total);
  __syncthreads();
  const bool by_count = rule.top_k > 0 && rule.top_k < count;
  Range range{kRanges - 1, static_cast<std::uint32_t>(count), 0};
  const bool limited = by_count || (weighed && rule.top_p < sampling::kAllOfIt);
  if (limited) range = find_range(work, by_count, by_count ? rule.top_k : enough_of(total, rule));
  if (threadIdx.x != 0) return;
  state.count = static_cast<std::uint32_t>(count);
  state.total = total;
  state.last = 0;
  state.last_range = range.range;
  state.next = range.through <= kList ? Next::List : limited ? Next::Search : Next::Parts;
}

// --- a short list ---

__device__ void tell_alternatives(const Work& work, std::uint32_t count) {
  for (std::uint32_t i = threadIdx.x; i < count; i += kThreads) {
    work.out.alternatives[work.job.first_alternative + i] = work.memory.list.places[i];
  }
  if (threadIdx.x == 0) work.tell_logprobs(work.state.total, count);
}

// How many tokens of the sorted list stay: top-k, top-p, min-p. The list's sums are those of the weights afterwards.
__device__ std::uint32_t kept_of_list(const Work& work, std::uint32_t count) {
  BlockMemory& memory = work.memory;
  const sampling::Rule& rule = work.job.rule;
  if (rule.top_k > 0) count = min(count, rule.top_k);
  const std::uint64_t sum =
      sum_list(memory, count, [&](std::uint32_t i) { return work.weight_at(memory.list.places[i]); });
  if (rule.top_p < sampling::kAllOfIt) {
    count = first_reaching(memory, count, enough_of(weighs_ranges(rule) ? work.state.total : sum, rule)) + 1;
  }
  const auto stays = [&](std::uint32_t i) { return work.weight_at(memory.list.places[i]) >= rule.min_weight; };
  for (std::uint32_t i = threadIdx.x; i < count; i += kThreads) {
    if (stays(i) && (i + 1 == count || !stays(i + 1))) memory.count = i + 1;
  }
  __syncthreads();
  count = memory.count;
  __syncthreads();
  return count;
}

__device__ void draw_from_list(const Work& work, std::uint32_t count) {
  BlockMemory& memory = work.memory;
  std::uint64_t* const places = memory.list.places;
  sort_places(memory, count);
  if (work.job.wants == Wants::Logprobs) return tell_alternatives(work, min(count, work.job.rule.top_k));
  count = kept_of_list(work, count);
  const std::uint64_t drawn = sampling::drawn_place(work.job.random, memory.list.sums[count - 1]);
  __syncthreads();
  // Sorted by id now.
  const auto swapped = [](std::uint64_t place) { return (place << 32) | (place >> 32); };
  for (std::uint32_t i = threadIdx.x; i < count; i += kThreads) places[i] = swapped(places[i]);
  sort_places(memory, count);
  sum_list(memory, count, [&](std::uint32_t i) { return work.weight_at(swapped(places[i])); });
  const std::uint32_t at = first_reaching(memory, count, drawn + 1);
  if (threadIdx.x == 0) work.tell_token(static_cast<std::uint32_t>(sampling::id_at(swapped(places[at]))));
}

// --- long lists ---

// Radix selection among the tokens of a range: the place in which the number or weight reaches the target.
__device__ std::uint64_t select_in_range(const Work& work, std::uint32_t range, bool by_count, std::uint64_t target) {
  auto& digits = work.memory.digits;
  std::uint64_t found = 0;  // the upper bits of the place
  // The bits of the logit, then those of the id: all bits of ~id above the vocabulary are ones.
  for (std::uint32_t step = 0; step < 5; ++step) {
    const std::uint32_t bits = step < 2 ? 11 : 10;
    const std::uint32_t shift = step == 0 ? 53 : step == 1 ? 42 : step == 2 ? 32 : step == 3 ? 10 : 0;
    if (step == 3) found = (found << 12) | 0xFFF;
    for (std::uint32_t i = threadIdx.x; i < kDigits; i += kThreads) digits.low[i] = digits.high[i] = 0;
    work.each_token_of_row([&](float logit, std::uint64_t place) {
      const std::uint64_t upper = step == 0 ? 0 : place >> (shift + bits);
      if (upper != found || work.range(logit) != range) return;
      const auto digit = static_cast<std::uint32_t>(place >> shift) & ((1U << bits) - 1);
      add(digits.low[digit], digits.high[digit], by_count ? 1 : work.weight(logit));
    });
    // The largest digit comes first.
    constexpr std::uint32_t kEach = kDigits / kThreads;
    const auto size = [&](std::uint32_t i) {
      return (std::uint64_t{digits.high[kDigits - 1 - i]} << 32) + digits.low[kDigits - 1 - i];
    };
    const std::uint32_t first = threadIdx.x * kEach;
    std::uint64_t own = 0;
    for (std::uint32_t i = first; i < first + kEach; ++i) own += size(i);
    std::uint64_t before = block_scan(own, work.memory).before;
    for (std::uint32_t i = first; i < first + kEach; ++i) {
      if (before < target && target <= before + size(i)) {
        work.memory.found[0] = kDigits - 1 - i;
        work.memory.found[1] = before;
      }
      before += size(i);
    }
    __syncthreads();
    found = (found << bits) | work.memory.found[0];
    target -= work.memory.found[1];
    __syncthreads();
  }
  return found;
}

// The place in which the number or the weight of the row's tokens reaches the target.
__device__ std::uint64_t find_place(const Work& work, bool by_count, std::uint64_t target) {
  BlockMemory& memory = work.memory;
  const Range range = find_range(work, by_count, target);
  target -= range.before;
  if (work.state.counts[range.range] > kList) return select_in_range(work, range.range, by_count, target);
  if (threadIdx.x == 0) memory.count = 0;
  work.each_token_of_row([&](float logit, std::uint64_t place) {
    if (work.range(logit) == range.range) memory.list.places[atomicAdd(&memory.count, 1U)] = place;
  });
  const std::uint32_t count = memory.count;
  sort_places(memory, count);
  sum_list(memory, count,
           [&](std::uint32_t i) -> std::uint64_t { return by_count ? 1 : work.weight_at(memory.list.places[i]); });
  const std::uint64_t place = memory.list.places[first_reaching(memory, count, target)];
  __syncthreads();
  return place;
}

// One block finds the last token that top-k and top-p keep, or all that top-k keeps if they fit into the list.
__device__ void search(const Work& work) {
  const sampling::Rule& rule = work.job.rule;
  BlockMemory& memory = work.memory;
  const bool by_count = rule.top_k > 0 && rule.top_k < work.state.count;
  std::uint64_t last = by_count ? find_place(work, true, rule.top_k) : 0;
  if (!weighs_ranges(rule)) {
    if (threadIdx.x == 0) memory.count = 0;
    work.each_token_of_row([&](float, std::uint64_t place) {
      if (place >= last) memory.list.places[atomicAdd(&memory.count, 1U)] = place;
    });
    return draw_from_list(work, rule.top_k);
  }
  if (rule.top_p < sampling::kAllOfIt) {
    std::uint64_t total = work.state.total;
    if (by_count) {
      std::uint64_t sum = 0;
      work.each_token_of_row([&](float logit, std::uint64_t place) {
        if (place >= last) sum += work.weight(logit);
      });
      total = block_scan(sum, memory).total;
    }
    last = find_place(work, false, enough_of(total, rule));
  }
  if (threadIdx.x != 0) return;
  work.state.last = last;
  work.state.next = Next::Parts;
}

// --- the launches ---

__global__ void __launch_bounds__(kThreads)
    first_of_parts(const __grid_constant__ SamplingInputs in, JobState* states) {
  __shared__ BlockMemory memory;
  const SamplingJob& job = in.jobs[blockIdx.y];
  JobState& state = states[blockIdx.y];
  const std::uint32_t part = blockIdx.x;
  if (part == 0 && threadIdx.x == 0) {
    state.next = Next::Nothing;
    state.tickets[0] = state.tickets[1] = state.tickets[2] = 0;
    state.list_count = 0;
    state.total = 0;
  }
  if (cuts(job.rule)) {
    for (std::uint32_t i = part * kThreads + threadIdx.x; i < kRanges; i += gridDim.x * kThreads) {
      state.counts[i] = 0;
      state.sums[i] = 0;
    }
  }
  load_part(in, job, part, memory.tile);
  std::uint64_t first = 0;
  for (std::uint32_t i = threadIdx.x; i < kPart; i += kThreads) {
    const std::uint64_t place = place_of(memory.tile[i], part * kPart + i);
    first = place > first ? place : first;
  }
  first = block_max(first, memory);
  if (threadIdx.x == 0) state.part_first[part] = first;
}

__global__ void __launch_bounds__(kThreads)
    weigh(const __grid_constant__ SamplingInputs in, const __grid_constant__ SamplingOutputs out, JobState* states) {
  __shared__ BlockMemory memory;
  const SamplingJob& job = in.jobs[blockIdx.y];
  JobState& state = states[blockIdx.y];
  const std::uint32_t part = blockIdx.x;
  const std::uint64_t first = first_of_row(state, memory);
  const Work work(in, out, job, state, memory, first);
  const bool certain = job.wants == Wants::Token && (job.rule.rate == 0 || isinf(work.highest));
  if (first == 0 || certain) {
    if (part != 0 || threadIdx.x != 0) return;
    if (first == 0) {
      out.results[blockIdx.y] = SamplingResult{};
    } else {
      work.tell_token(static_cast<std::uint32_t>(sampling::id_at(first)));
    }
    return;
  }
  load_part(in, job, part, memory.tile);
  if (cuts(job.rule)) {
    count_ranges(work, part);
    if (is_last_block(state.tickets[0], memory)) choose_next(work);
  } else {
    sum_part(work, part, 0);
    if (is_last_block(state.tickets[0], memory)) draw_from_parts(work, 0);
  }
}

__global__ void __launch_bounds__(kThreads)
    list_or_search(const __grid_constant__ SamplingInputs in, const __grid_constant__ SamplingOutputs out,
                   JobState* states) {
  __shared__ BlockMemory memory;
  JobState& state = states[blockIdx.y];
  const std::uint32_t part = blockIdx.x;
  const Next next = state.next;
  if (next != Next::List && (next != Next::Search || part != 0)) return;
  const SamplingJob& job = in.jobs[blockIdx.y];
  const Work work(in, out, job, state, memory, first_of_row(state, memory));
  if (next == Next::Search) return search(work);
  load_part(in, job, part, memory.tile);
  work.each_token(part, [&](float logit, std::uint64_t place) {
    if (work.range(logit) <= state.last_range) state.list[atomicAdd(&state.list_count, 1U)] = place;
  });
  if (!is_last_block(state.tickets[1], memory)) return;
  const std::uint32_t count = load(state.list_count);
  for (std::uint32_t i = threadIdx.x; i < count; i += kThreads) memory.list.places[i] = load(state.list[i]);
  __syncthreads();
  draw_from_list(work, count);
}

__global__ void __launch_bounds__(kThreads)
    sum_kept(const __grid_constant__ SamplingInputs in, const __grid_constant__ SamplingOutputs out, JobState* states) {
  __shared__ BlockMemory memory;
  JobState& state = states[blockIdx.y];
  if (state.next != Next::Parts) return;
  const SamplingJob& job = in.jobs[blockIdx.y];
  const Work work(in, out, job, state, memory, first_of_row(state, memory));
  load_part(in, job, blockIdx.x, memory.tile);
  sum_part(work, blockIdx.x, state.last);
  if (is_last_block(state.tickets[2], memory)) draw_from_parts(work, state.last);
}

}  // namespace

std::size_t sampling_scratch_bytes(std::uint32_t job_count) { return job_count * sizeof(JobState); }

void launch_sampling(cudaStream_t stream, const SamplingInputs& inputs, const SamplingOutputs& outputs, void* scratch) {
  if (inputs.job_count == 0 || inputs.vocabulary == 0) return;
  auto* const states = static_cast<JobState*>(scratch);
  const dim3 grid((inputs.vocabulary + kPart - 1) / kPart, inputs.job_count);
  first_of_parts<<<grid, kThreads, 0, stream>>>(inputs, states);
  weigh<<<grid, kThreads, 0, stream>>>(inputs, outputs, states);
  if (!inputs.any_cuts) return;
  list_or_search<<<grid, kThreads, 0, stream>>>(inputs, outputs, states);
  sum_kept<<<grid, kThreads, 0, stream>>>(inputs, outputs, states);
}

}  // namespace quire::cuda
