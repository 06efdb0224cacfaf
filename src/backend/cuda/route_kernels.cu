// How routers choose, the sorting of choices by expert, and the sum of a row's experts.
#include <cfloat>

#include "quire/backend/cuda/expert_kernels.h"
#include "quire/backend/cuda/overlap.cuh"

namespace quire::cuda {
namespace {

constexpr std::uint32_t kAll = ~0u;  // lanes
constexpr std::uint32_t kSortThreads = 1024;
constexpr std::uint32_t kMixThreads = 256;

using Scores = RouterArgs::Scores;

__device__ float sigmoid(float x) { return __fdiv_rn(1.0f, __fadd_rn(1.0f, expf(-x))); }

__device__ float sum_of_lanes(float x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) x = __fadd_rn(x, __shfl_xor_sync(kAll, x, distance));
  return x;
}

// The highest score and its number, the lowest of equal ones. Scores are numbers.
struct Best {
  float score;
  std::uint32_t number;
};
__device__ bool better(const Best& a, const Best& b) {
  return a.score > b.score || (a.score == b.score && a.number < b.number);
}
// A float as an integer in the same order. Both zeros are the same.
__device__ std::uint32_t ordered(float score) {
  const std::uint32_t bits = __float_as_uint(score + 0.0f);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
__device__ std::uint32_t best_of_lanes(const Best& best) {
  const std::uint32_t key = ordered(best.score), highest = __reduce_max_sync(kAll, key);
  return __reduce_min_sync(kAll, key == highest ? best.number : ~0u);
}
// All lanes get its number.
__device__ std::uint32_t best_of(const float* scores, std::uint32_t count) {
  Best best{-INFINITY, ~0u};
  for (std::uint32_t i = threadIdx.x; i < count; i += 32) {
    if (better({scores[i], i}, best)) best = {scores[i], i};
  }
  return best_of_lanes(best);
}

// One lane each. A group is as good as its best expert, or as the sum of its two best ones.
__device__ float group_score(const float* scores, std::uint32_t count, bool two) {
  float first = -INFINITY, second = -INFINITY;
  for (std::uint32_t i = 0; i < count; ++i) {
    second = fmaxf(second, fminf(first, scores[i]));
    first = fmaxf(first, scores[i]);
  }
  return two && count > 1 ? __fadd_rn(first, second) : first;
}

// Leaves the best groups; experts of others cannot be chosen. `groups`: room for a score per group.
__device__ void leave_groups(const RouterArgs& router, float* scores, float* groups) {
  const std::uint32_t each = router.experts / router.groups;
  for (std::uint32_t g = threadIdx.x; g < router.groups; g += 32) {
    groups[g] = group_score(scores + g * each, each, router.scores == Scores::Sigmoid);
  }
  __syncwarp();
  for (std::uint32_t g = threadIdx.x; g < router.groups; g += 32) {
    std::uint32_t ahead = 0;
    for (std::uint32_t other = 0; other < router.groups; ++other) {
      ahead += groups[other] > groups[g] || (groups[other] == groups[g] && other < g) ? 1 : 0;
    }
    if (ahead < router.groups_used) continue;
    for (std::uint32_t i = 0; i < each; ++i) scores[g * each + i] = -INFINITY;
  }
  __syncwarp();
}

// e^(logit - highest) of a logit, and the sum of these over all.
struct Softmax {
  float highest, sum;
  __device__ float operator()(float logit) const { return __fdiv_rn(expf(__fsub_rn(logit, highest)), sum); }
};
__device__ Softmax softmax_over(const float* logits, std::uint32_t count) {
  Softmax softmax{-INFINITY, 0};
  for (std::uint32_t i = threadIdx.x; i < count; i += 32) softmax.highest = fmaxf(softmax.highest, logits[i]);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    softmax.highest = fmaxf(softmax.highest, __shfl_xor_sync(kAll, softmax.highest, distance));
  }
  float sum = 0;
  for (std::uint32_t i = threadIdx.x; i < count; i += 32) {
    sum = __fadd_rn(sum, expf(__fsub_rn(logits[i], softmax.highest)));
  }
  softmax.sum = sum_of_lanes(sum);
  return softmax;
}

// A warp per row. Everything is in the order of experts and ranks, whatever the number of rows.
__global__ void __launch_bounds__(32)
    route_kernel(Tensor numbers, Tensor weights, Tensor logits, const float* selection_bias, RouterArgs router) {
  extern __shared__ float scores[];  // [experts], then [groups], the row's logits and the weights of the chosen
  let_next_start();
  const std::uint32_t row = blockIdx.x, count = router.experts, used = router.used;
  float* const from = scores + count + router.groups;
  float* const chosen = from + count;
  float* const to_number = reinterpret_cast<float*>(numbers.data) + row * numbers.stride;
  float* const to_weight = reinterpret_cast<float*>(weights.data) + row * weights.stride;
  wait_for_previous();
  const float* const given = reinterpret_cast<const float*>(logits.data) + row * logits.stride;
  for (std::uint32_t i = threadIdx.x; i < count; i += 32) from[i] = given[i];
  __syncwarp();
  Softmax softmax{};
  if (router.scores == Scores::Softmax) softmax = softmax_over(from, count);
  for (std::uint32_t i = threadIdx.x; i < count; i += 32) {
    float score = from[i];
    if (router.scores == Scores::Sigmoid) score = sigmoid(score);
    if (selection_bias != nullptr) {
      score = __fadd_rn(router.scores == Scores::Softmax ? softmax(score) : score, selection_bias[i]);
    }
    scores[i] = score >= -FLT_MAX ? score : -FLT_MAX;  // above those that cannot be chosen, also where it is a NaN
  }
  __syncwarp();
  if (router.groups > 1) leave_groups(router, scores, scores + count);
  for (std::uint32_t k = 0; k < used; ++k) {
    const std::uint32_t best = best_of(scores, count);
    __syncwarp();
    if (threadIdx.x == 0) {
      scores[best] = -INFINITY;
      to_number[k] = static_cast<float>(best);
      chosen[k] = from[best];
    }
    __syncwarp();
  }
  for (std::uint32_t k = threadIdx.x; k < used; k += 32) {
    if (router.scores == Scores::Softmax) chosen[k] = softmax(chosen[k]);
    if (router.scores == Scores::Sigmoid) chosen[k] = sigmoid(chosen[k]);
  }
  __syncwarp();
  if (router.scores == Scores::ChosenSoftmax) {
    softmax = softmax_over(chosen, used);
    __syncwarp();
    for (std::uint32_t k = threadIdx.x; k < used; k += 32) chosen[k] = softmax(chosen[k]);
    __syncwarp();
  }
  float factor = router.scale;
  if (router.normed) {
    float sum = 0;
    for (std::uint32_t k = 0; k < used; ++k) sum = __fadd_rn(sum, chosen[k]);
    factor = __fdiv_rn(factor, fmaxf(sum, router.least_sum));
  }
  __syncwarp();
  for (std::uint32_t k = threadIdx.x; k < used; k += 32) to_weight[k] = __fmul_rn(chosen[k], factor);
}

// The sum of a value over all threads before this one, and over all.
struct Before {
  std::uint32_t before, all;
};
__device__ Before sum_before(std::uint32_t value, std::uint32_t (&room)[32]) {
  std::uint32_t sum = value;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const std::uint32_t other = __shfl_up_sync(kAll, sum, distance);
    if (threadIdx.x % 32 >= static_cast<std::uint32_t>(distance)) sum += other;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 31) room[threadIdx.x / 32] = sum;
  __syncthreads();
  std::uint32_t before = 0, all = 0;
  for (std::uint32_t w = 0; w < kSortThreads / 32; ++w) {
    if (w < threadIdx.x / 32) before += room[w];
    all += room[w];
  }
  return {before + sum - value, all};
}

// One block. Which of an expert's places a choice gets is left to chance: no result depends on it.
__global__ void __launch_bounds__(kSortThreads) sort_kernel(Tensor numbers, std::uint32_t experts, ChoiceBlocks to) {
  __shared__ std::uint32_t ends[kMostSortedExperts];  // counts, then the next free place
  __shared__ std::uint32_t room[32];
  let_next_start();
  wait_for_previous();
  const std::uint32_t choices = numbers.rows * numbers.cols;
  const auto expert_of = [&](std::uint32_t choice) {
    return static_cast<std::uint32_t>(
        reinterpret_cast<const float*>(numbers.data)[choice / numbers.cols * numbers.stride + choice % numbers.cols]);
  };
  for (std::uint32_t e = threadIdx.x; e < experts; e += kSortThreads) ends[e] = 0;
  for (std::uint32_t i = threadIdx.x; i < to.count * to.block; i += kSortThreads) to.choices[i] = kNoChoice;
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < choices; i += kSortThreads) atomicAdd(&ends[expert_of(i)], 1u);
  __syncthreads();
  std::uint32_t first = 0;
  for (std::uint32_t base = 0; base < experts; base += kSortThreads) {
    const std::uint32_t e = base + threadIdx.x;
    const std::uint32_t blocks = e < experts ? (ends[e] + to.block - 1) / to.block : 0;
    const Before sums = sum_before(blocks, room);
    for (std::uint32_t b = 0; b < blocks; ++b) to.experts[first + sums.before + b] = e;
    if (e < experts) ends[e] = (first + sums.before) * to.block;
    first += sums.all;
  }
  for (std::uint32_t b = first + threadIdx.x; b < to.count; b += kSortThreads) to.experts[b] = kNoChoice;
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < choices; i += kSortThreads) {
    to.choices[atomicAdd(&ends[expert_of(i)], 1u)] = i;
  }
}

__global__ void __launch_bounds__(kMixThreads)
    mix_kernel(Tensor out, const float* from, Tensor weights, bool add, float scale) {
  let_next_start();
  wait_for_previous();
  const std::uint32_t row = blockIdx.x, col = blockIdx.y * kMixThreads + threadIdx.x, used = weights.cols;
  if (col >= out.cols) return;
  const float* const weight = reinterpret_cast<const float*>(weights.data) + row * weights.stride;
  from += std::uint64_t{row} * used * out.cols + col;
  float sum = 0;
  for (std::uint32_t k = 0; k < used; ++k) sum = __fmaf_rn(from[std::uint64_t{k} * out.cols], weight[k], sum);
  float* const to = reinterpret_cast<float*>(out.data) + row * out.stride + col;
  *to = add ? __fmaf_rn(sum, scale, *to) : sum;
}

}  // namespace

cudaError_t prepare_routes() {
  for (const cudaError_t error :
       {want_shared_memory(route_kernel), want_shared_memory(sort_kernel), want_shared_memory(mix_kernel)}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

void launch_route(cudaStream_t stream, bool overlap, Tensor numbers, Tensor weights, Tensor logits,
                  Tensor selection_bias, const RouterArgs& router) {
  if (logits.rows == 0) return;
  const std::size_t shared = (2 * router.experts + router.groups + router.used) * sizeof(float);
  launch(overlap, stream, logits.rows, 32, shared, route_kernel, numbers, weights, logits,
         reinterpret_cast<const float*>(selection_bias.data), router);
}

void launch_sort(cudaStream_t stream, bool overlap, Tensor numbers, std::uint32_t experts, const ChoiceBlocks& to) {
  launch(overlap, stream, 1, kSortThreads, 0, sort_kernel, numbers, experts, to);
}

void launch_mix(cudaStream_t stream, bool overlap, Tensor out, const float* from, Tensor weights, bool add,
                float scale) {
  const dim3 grid(out.rows, (out.cols + kMixThreads - 1) / kMixThreads);
  launch(overlap, stream, grid, kMixThreads, 0, mix_kernel, out, from, weights, add, scale);
}

}  // namespace quire::cuda
