// Parts of the sampling kernels: a part of a row in shared memory, and sums, sorts and searches of one block.
#pragma once

#include <cstdint>

#include "quire/backend/cuda/sampling_kernels.h"

// A namespace of its own: other kernels have threads and parts too.
namespace quire::cuda::sampler {

inline constexpr std::uint32_t kThreads = 256;
inline constexpr std::uint32_t kPart = 4096;                             // tokens
inline constexpr std::uint32_t kMostParts = kMostSampledTokens / kPart;  // one for each thread
inline constexpr std::uint32_t kList = 1024;                             // tokens that a block sorts
inline constexpr std::uint32_t kDigits = 2048;                           // of radix selection
static_assert(kMostParts <= kThreads && kMostAlternatives <= kList);

// Ranges of logits: 1/32 of a factor of two at the job's temperature, or at temperature 1 where the job's is higher.
// The last range has everything that is further down.
inline constexpr std::uint32_t kRangeBits = sampling::kFractionBits - 5;
inline constexpr std::uint32_t kRanges = (sampling::kDepths >> kRangeBits) + 1;
// Log-probabilities are for confident models too: the ranges reach further down, in wider steps.
inline constexpr float kFarRate = sampling::rate_of(8), kNearRate = sampling::rate_of(1);

enum class Next : std::uint32_t { Nothing, List, Search, Parts };

// What the kernels of a job tell each other.
struct JobState {
  Next next;
  std::uint32_t tickets[3];  // blocks that have finished step 2, 3, 4
  std::uint32_t list_count;
  std::uint32_t count;                   // of tokens whose logit is a number
  std::uint32_t last_range;              // List: its tokens are those down to this range
  std::uint64_t total;                   // weight of all tokens; with a short top-k only for Logprobs
  std::uint64_t last;                    // Parts: the place of the last kept token; 0: all are kept
  std::uint64_t part_first[kMostParts];  // the first place of each part; 0: all are NaN
  std::uint64_t part_sum[kMostParts];
  std::uint32_t counts[kRanges];
  std::uint64_t sums[kRanges];
  std::uint64_t list[kList];
};

struct BlockMemory {
  float tile[kPart];
  union {
    struct {
      std::uint64_t places[kList];
      std::uint64_t sums[kList];
    } list;
    struct {
      std::uint32_t low[kDigits], high[kDigits];
    } digits;
    struct {
      std::uint32_t counts[kRanges], low[kRanges], high[kRanges];
    } ranges;
  };
  std::uint64_t warps[kThreads / 32];
  std::uint64_t found[3];
  std::uint32_t count;
};

using Atomic64 = unsigned long long;

__device__ inline void add(std::uint64_t& sum, std::uint64_t value) {
  atomicAdd(reinterpret_cast<Atomic64*>(&sum), static_cast<Atomic64>(value));
}

// Adds to a sum in shared memory that is in two words: 64-bit additions there are slow loops.
__device__ inline void add(std::uint32_t& low, std::uint32_t& high, std::uint64_t value) {
  const auto part = static_cast<std::uint32_t>(value);
  const std::uint32_t before = atomicAdd(&low, part);
  const std::uint32_t carry = before + part < before ? 1 : 0;
  const std::uint32_t rest = static_cast<std::uint32_t>(value >> 32) + carry;
  if (rest != 0) atomicAdd(&high, rest);
}

// What other blocks of the same launch have written.
__device__ inline std::uint64_t load(const std::uint64_t& from) {
  return __ldcg(reinterpret_cast<const Atomic64*>(&from));
}
__device__ inline std::uint32_t load(const std::uint32_t& from) { return __ldcg(&from); }

// The place of a token; 0 if its logit is NaN.
__device__ inline std::uint64_t place_of(float logit, std::uint32_t id) {
  return sampling::ordered(logit) == 0 ? 0 : sampling::place(logit, static_cast<std::int32_t>(id));
}

__device__ inline std::uint64_t block_max(std::uint64_t value, BlockMemory& memory) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const std::uint64_t other = __shfl_xor_sync(0xFFFFFFFF, static_cast<Atomic64>(value), lanes);
    value = other > value ? other : value;
  }
  if (threadIdx.x % 32 == 0) memory.warps[threadIdx.x / 32] = value;
  __syncthreads();
  for (std::uint32_t i = 0; i < kThreads / 32; ++i) value = memory.warps[i] > value ? memory.warps[i] : value;
  __syncthreads();
  return value;
}

// The sum of the values of all threads before this one.
struct Scanned {
  std::uint64_t before, total;
};
__device__ inline Scanned block_scan(std::uint64_t value, BlockMemory& memory) {
  std::uint64_t sum = value;
  for (unsigned lanes = 1; lanes < 32; lanes *= 2) {
    const std::uint64_t other = __shfl_up_sync(0xFFFFFFFF, static_cast<Atomic64>(sum), lanes);
    if (threadIdx.x % 32 >= lanes) sum += other;
  }
  if (threadIdx.x % 32 == 31) memory.warps[threadIdx.x / 32] = sum;
  __syncthreads();
  Scanned scanned{sum - value, 0};
  for (std::uint32_t i = 0; i < kThreads / 32; ++i) {
    if (i < threadIdx.x / 32) scanned.before += memory.warps[i];
    scanned.total += memory.warps[i];
  }
  __syncthreads();
  return scanned;
}

// The first entry of a list that is sorted by ascending token and has this token or a later one.
template <typename Entry>
__device__ std::uint32_t entry_from(const Entry* entries, std::uint32_t count, std::uint32_t token) {
  std::uint32_t first = 0, end = count;
  while (first < end) {
    const std::uint32_t middle = (first + end) / 2;
    if (static_cast<std::uint32_t>(entries[middle].token) < token) {
      first = middle + 1;
    } else {
      end = middle;
    }
  }
  return first;
}

// Penalties, then bias, then the mask. Not inlined: few jobs need it, and the division of doubles takes many registers.
__device__ __noinline__ inline void adjust_part(const SamplingInputs& in, const SamplingJob& job, std::uint32_t first,
                                                std::uint32_t count, float* tile) {
  if (job.seen_count > 0) {
    const sampling::Seen* const seen = in.seen + job.first_seen;
    const std::uint32_t end = entry_from(seen, job.seen_count, first + count);
    for (std::uint32_t i = entry_from(seen, job.seen_count, first) + threadIdx.x; i < end; i += kThreads) {
      float& logit = tile[static_cast<std::uint32_t>(seen[i].token) - first];
      logit = sampling::penalized(logit, seen[i].times, job.penalties);
    }
    __syncthreads();
  }
  if (job.bias_count > 0) {
    const TokenBias* const biases = in.biases + job.first_bias;
    const std::uint32_t end = entry_from(biases, job.bias_count, first + count);
    for (std::uint32_t i = entry_from(biases, job.bias_count, first) + threadIdx.x; i < end; i += kThreads) {
      tile[static_cast<std::uint32_t>(biases[i].token) - first] += biases[i].bias;
    }
    __syncthreads();
  }
  if (job.mask != SamplingJob::kNoMask) {
    const std::uint32_t* const words = in.masks + job.mask + first / 32;
    for (std::uint32_t i = threadIdx.x; i < count; i += kThreads) {
      if ((words[i / 32] >> (i % 32) & 1) == 0) tile[i] = __int_as_float(0x7FC00000);
    }
    __syncthreads();
  }
}

// Loads the logits of a part, adjusted. Behind the row there is NaN.
__device__ inline void load_part(const SamplingInputs& in, const SamplingJob& job, std::uint32_t part, float* tile) {
  const std::uint32_t first = part * kPart;
  const std::uint32_t count = min(kPart, in.vocabulary - first);
  const float* const row = in.logits + job.row * in.stride + first;
  __syncthreads();  // the tile may still be in use
#pragma unroll
  for (std::uint32_t i = threadIdx.x; i < kPart; i += kThreads) {
    tile[i] = i < count ? row[i] : __int_as_float(0x7FC00000);
  }
  __syncthreads();
  if (job.seen_count > 0 || job.bias_count > 0 || job.mask != SamplingJob::kNoMask) {
    adjust_part(in, job, first, count, tile);
  }
}

// Sorts places[0 .. count) by falling value. Afterwards there may be zeros behind them, up to a power of two.
__device__ inline void sort_places(BlockMemory& memory, std::uint32_t count) {
  std::uint64_t* const places = memory.list.places;
  std::uint32_t size = 2;
  while (size < count) size *= 2;
  for (std::uint32_t i = count + threadIdx.x; i < size; i += kThreads) places[i] = 0;
  __syncthreads();
  for (std::uint32_t run = 2; run <= size; run *= 2) {
    for (std::uint32_t distance = run / 2; distance > 0; distance /= 2) {
      for (std::uint32_t pair = threadIdx.x; pair < size / 2; pair += kThreads) {
        const std::uint32_t low = 2 * pair - pair % distance, high = low + distance;
        const bool falls = (low & run) == 0;
        const std::uint64_t a = places[low], b = places[high];
        if ((a < b) == falls) {
          places[low] = b;
          places[high] = a;
        }
      }
      __syncthreads();
    }
  }
}

// sums[i] becomes the sum of value(i) up to and including i. Returns the total.
template <typename Value>
__device__ std::uint64_t sum_list(BlockMemory& memory, std::uint32_t count, const Value& value) {
  constexpr std::uint32_t kEach = kList / kThreads;
  const std::uint32_t first = threadIdx.x * kEach;
  std::uint64_t own = 0;
  for (std::uint32_t i = first; i < first + kEach && i < count; ++i) memory.list.sums[i] = own += value(i);
  const Scanned scanned = block_scan(own, memory);
  for (std::uint32_t i = first; i < first + kEach && i < count; ++i) memory.list.sums[i] += scanned.before;
  __syncthreads();
  return scanned.total;
}

// The first i with sums[i] >= target. There is one.
__device__ inline std::uint32_t first_reaching(BlockMemory& memory, std::uint32_t count, std::uint64_t target) {
  const std::uint64_t* const sums = memory.list.sums;
  for (std::uint32_t i = threadIdx.x; i < count; i += kThreads) {
    if (sums[i] >= target && (i == 0 || sums[i - 1] < target)) memory.count = i;
  }
  __syncthreads();
  const std::uint32_t found = memory.count;
  __syncthreads();
  return found;
}

}  // namespace quire::cuda::sampler
