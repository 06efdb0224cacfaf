// The scan of Mamba-2, token by token with the state in registers. A warp has kRows rows of a head's state; a lane has
// kPer neighbouring elements of each. For an output, a lane adds up its elements in order, then lanes are added in
// pairs 16, 8, 4, 2 and 1 apart. That order is the same for one token and for many.
#include "quire/backend/cuda/overlap.cuh"
#include "quire/backend/cuda/recurrent_kernels.h"
#include "quire/backend/cuda/recurrent_scan.cuh"
#include "quire/backend/cuda/row_kernels.h"

namespace quire::cuda {
namespace {

constexpr unsigned kAllLanes = ~0u;
constexpr std::uint32_t kWarps = 4;

// For states of 32 * kPer elements. A lane has 16 elements of the state, whatever kPer is.
template <int kPer>
struct Tiling {
  static constexpr int kRows = 16 / kPer;                      // of a warp
  static constexpr std::uint32_t kBlockRows = kWarps * kRows;  // of a block of threads
  static constexpr std::uint32_t kState = 32 * kPer;
  static constexpr int kTokens = 8;                                           // that are in shared memory as one stage
  static constexpr int kGroup = kRows * kTokens > 32 ? 32 / kRows : kTokens;  // whose sums are added up together
  static constexpr int kStages = kPer > 4 ? 2 : 4;
  // A stage: b [kTokens][kState], c [kTokens][kState], x [kTokens][kBlockRows]
  static constexpr std::uint32_t kC = kTokens * kState, kX = 2 * kC, kStage = kX + kTokens * kBlockRows;
};

// kCount elements of a state in memory, side by side.
template <ElementType kType, int kCount>
struct alignas(kCount* element_bytes(kType) < 16 ? kCount * element_bytes(kType) : 16) Packed {
  typename StateType<kType>::Bits bits[kCount];
};

// The rows of a head's state that a warp has. Rows from `rows` on do not exist.
template <ElementType kType, int kPer>
struct WarpState {
  static constexpr int kRows = Tiling<kPer>::kRows;
  using Lane = Packed<kType, kPer>;
  float s[kRows][kPer];

  __device__ void load(const std::byte* from, std::uint32_t lane, int rows) {
    Lane packed[kRows] = {};  // all loads are on their way before the first is used
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r < rows) packed[r] = reinterpret_cast<const Lane*>(from)[r * 32 + lane];
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int j = 0; j < kPer; ++j) s[r][j] = StateType<kType>::load(packed[r].bits[j]);
    }
  }
  __device__ void store(std::byte* to, std::uint32_t lane, int rows) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      Lane packed;
#pragma unroll
      for (int j = 0; j < kPer; ++j) packed.bits[j] = StateType<kType>::store(s[r][j]);
      if (r < rows) reinterpret_cast<Lane*>(to)[r * 32 + lane] = packed;
    }
  }
  // One token. sums[r] is this lane's part of row r's output.
  __device__ void advance(Step step, const float (&x)[kRows], const float (&b)[kPer], const float (&c)[kPer],
                          float* sums) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float input = __fmul_rn(step.step, x[r]);
      float sum = 0;
#pragma unroll
      for (int j = 0; j < kPer; ++j) {
        const float next = __fmaf_rn(s[r][j], step.decay, __fmul_rn(input, b[j]));
        sum = j == 0 ? __fmul_rn(next, c[0]) : __fmaf_rn(next, c[j], sum);
        s[r][j] = rounded<kType>(next);
      }
      sums[r] = sum;
    }
  }
};

// Adds up each of the first kCount values over all lanes, those kDistance apart first. While there are several values,
// the lanes of a pair each keep one half of them, so that 32 values take 31 exchanges. (A template for each distance,
// since every index must be a constant for the values to be in registers.)
template <int kCount, int kDistance = 16, int kSize>
__device__ void add_pairs(float (&v)[kSize], std::uint32_t lane) {
  if constexpr (kCount > 1) {
    constexpr int kHalf = kCount / 2;
    const bool upper = (lane & kDistance) != 0;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float low = v[i], high = v[i + kHalf];
      v[i] = __fadd_rn(upper ? high : low, __shfl_xor_sync(kAllLanes, upper ? low : high, kDistance));
    }
  } else {
    v[0] = __fadd_rn(v[0], __shfl_xor_sync(kAllLanes, v[0], kDistance));
  }
  if constexpr (kDistance > 1) add_pairs<kCount == 1 ? 1 : kCount / 2, kDistance / 2>(v, lane);
}
// Lane l gets the total of value l / (32 / kCount).
template <int kCount>
__device__ float add_lanes(float (&v)[kCount], std::uint32_t lane) {
  static_assert(kCount == 2 || kCount == 4 || kCount == 8 || kCount == 16 || kCount == 32);
  add_pairs<kCount>(v, lane);
  return v[0];
}

template <int kCount>
__device__ void load_floats(float (&to)[kCount], const float* from, bool aligned) {
  if constexpr (kCount % 2 == 0) {
    using Vector = Packed<ElementType::F32, kCount>;
    if (aligned) {
      const Vector packed = *reinterpret_cast<const Vector*>(from);
#pragma unroll
      for (int j = 0; j < kCount; ++j) to[j] = __uint_as_float(packed.bits[j]);
      return;
    }
  }
#pragma unroll
  for (int j = 0; j < kCount; ++j) to[j] = from[j];
}

// Where a warp works.
template <int kPer>
struct Place {
  std::uint32_t lane, head, row;  // its first row of the head
  int rows;                       // that exist, of kRows; at most 0: none

  __device__ explicit Place(const Scan& scan) : lane(threadIdx.x % 32) {
    const std::uint32_t slices = (scan.head_dim + Tiling<kPer>::kBlockRows - 1) / Tiling<kPer>::kBlockRows;
    head = blockIdx.x / slices;
    row = blockIdx.x % slices * Tiling<kPer>::kBlockRows + threadIdx.x / 32 * Tiling<kPer>::kRows;
    rows = static_cast<int>(scan.head_dim) - static_cast<int>(row);
  }
};

// Entries of few tokens. Everything comes directly from device memory.
template <ElementType kType, int kPer>
__global__ void __launch_bounds__(kWarps * 32) scan_few_kernel(Scan scan) {
  let_next_start();
  wait_for_previous();
  constexpr int kRows = Tiling<kPer>::kRows;
  const DeviceEntry entry = scan.entries[blockIdx.y];
  const Place<kPer> at(scan);
  if (entry.rows == 0 || at.rows <= 0) return;
  std::byte* memory = scan.state(entry, at.head, at.row);
  WarpState<kType, kPer> state;
  state.load(memory, at.lane, at.rows);
  const float dt_bias = scan.dt_bias[at.head], a = scan.a[at.head], d = scan.d[at.head];
  const std::uint32_t own = scan.group_offset(at.head) + at.lane * kPer, channel = at.head * scan.head_dim + at.row;
  for (std::uint32_t i = 0; i < entry.rows; ++i) {
    const std::uint64_t token = entry.first_row + i;
    const float* x_row = scan.x + token * scan.x_stride + channel;
    float b[kPer], c[kPer], x[kRows], sums[kRows];
    load_floats(b, scan.b + token * scan.b_stride + own, scan.aligned);
    load_floats(c, scan.c + token * scan.c_stride + own, scan.aligned);
#pragma unroll
    for (int r = 0; r < kRows; ++r) x[r] = r < at.rows ? x_row[r] : 0.0f;
    const Step step = discretize(scan.dt[token * scan.dt_stride + at.head], dt_bias, a);
    state.advance(step, x, b, c, sums);
    const float total = add_lanes(sums, at.lane);
    constexpr int kShare = 32 / kRows;  // lanes with the same total
    const int r = static_cast<int>(at.lane) / kShare;
    if (at.lane % kShare == 0 && r < at.rows) {
      scan.out[token * scan.out_stride + channel + r] = __fmaf_rn(d, x_row[r], total);
    }
  }
  state.store(memory, at.lane, at.rows);
}

// Copies to shared memory in the background; without `real`, writes zeros.
template <int kBytes>
__device__ void copy_async(float* to, const float* from, bool real) {
  const auto shared = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  const int bytes = real ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from), "r"(bytes) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(from), "r"(bytes) : "memory");
  }
}

// One of b and c: [kTokens][kState] of the tokens from `first` on.
template <int kPer, int kFloats>
__device__ void copy_shared_rows(float* to, const float* from, std::uint64_t stride, std::uint32_t first,
                                 std::uint32_t rows) {
  using T = Tiling<kPer>;
  constexpr std::uint32_t kPieces = T::kState / kFloats;
#pragma unroll
  for (std::uint32_t i = threadIdx.x; i < T::kTokens * kPieces; i += kWarps * 32) {
    const std::uint32_t token = first + i / kPieces, at = i % kPieces * kFloats;
    const bool real = token < rows;
    copy_async<4 * kFloats>(to + i * kFloats, from + (real ? token * stride + at : 0), real);
  }
}

// What a block of threads reads for one entry and head. b, c and x point to its first token.
template <int kPer>
struct Source {
  const float *b, *c, *x;
  std::uint32_t rows, channels;  // tokens; rows of the head from the block's first on

  __device__ void fetch(float* stage, const Scan& scan, std::uint32_t first) const {
    using T = Tiling<kPer>;
    if (scan.aligned) {
      copy_shared_rows<kPer, 4>(stage, b, scan.b_stride, first, rows);
      copy_shared_rows<kPer, 4>(stage + T::kC, c, scan.c_stride, first, rows);
    } else {
      copy_shared_rows<kPer, 1>(stage, b, scan.b_stride, first, rows);
      copy_shared_rows<kPer, 1>(stage + T::kC, c, scan.c_stride, first, rows);
    }
    for (std::uint32_t i = threadIdx.x; i < T::kTokens * T::kBlockRows; i += kWarps * 32) {
      const std::uint32_t token = first + i / T::kBlockRows, channel = i % T::kBlockRows;
      const bool real = token < rows && channel < channels;
      copy_async<4>(stage + T::kX + i, x + (real ? token * scan.x_stride + channel : 0), real);
    }
  }
};

// kGroup tokens of a stage, the first `count` of which exist. Lane l returns the total of token l / kShare / kRows and
// row l / kShare % kRows of the group.
template <ElementType kType, int kPer, bool kWhole>
__device__ float advance_group(WarpState<kType, kPer>& state, const float* stage, std::uint32_t lane, Step steps,
                               int first, int first_step, int count) {
  using T = Tiling<kPer>;
  float sums[T::kGroup * T::kRows];
#pragma unroll
  for (int t = 0; t < T::kGroup; ++t) {
    float* own = sums + t * T::kRows;
    if (kWhole || t < count) {
      float b[kPer], c[kPer], x[T::kRows];
      load_floats(b, stage + (first + t) * T::kState + lane * kPer, true);
      load_floats(c, stage + T::kC + (first + t) * T::kState + lane * kPer, true);
      load_floats(x, stage + T::kX + (first + t) * T::kBlockRows + threadIdx.x / 32 * T::kRows, true);
      const Step step{__shfl_sync(kAllLanes, steps.step, first_step + t),
                      __shfl_sync(kAllLanes, steps.decay, first_step + t)};
      state.advance(step, x, b, c, own);
    } else {
#pragma unroll
      for (int r = 0; r < T::kRows; ++r) own[r] = 0;
    }
  }
  return add_lanes(sums, lane);
}

// Entries of many tokens. The block copies b, c and x to shared memory, kStages - 1 stages ahead. Each lane computes
// the step of one of 32 tokens.
template <ElementType kType, int kPer>
__global__ void __launch_bounds__(kWarps * 32) scan_many_kernel(Scan scan) {
  using T = Tiling<kPer>;
  __shared__ alignas(16) float stages[T::kStages * T::kStage];
  const DeviceEntry entry = scan.entries[blockIdx.y];
  if (entry.rows == 0) return;
  const Place<kPer> at(scan);
  const std::uint32_t warp_row = threadIdx.x / 32 * T::kRows, block_row = at.row - warp_row;
  const std::uint64_t row = entry.first_row;
  const std::uint32_t group = scan.group_offset(at.head), channel = at.head * scan.head_dim + block_row;
  const Source<kPer> source{scan.b + row * scan.b_stride + group, scan.c + row * scan.c_stride + group,
                            scan.x + row * scan.x_stride + channel, entry.rows, scan.head_dim - block_row};
#pragma unroll
  for (int s = 0; s < T::kStages - 1; ++s) {
    source.fetch(stages + s * T::kStage, scan, s * T::kTokens);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  std::byte* memory = scan.state(entry, at.head, at.row);
  WarpState<kType, kPer> state;
  state.load(memory, at.lane, at.rows);
  const float dt_bias = scan.dt_bias[at.head], a = scan.a[at.head], d = scan.d[at.head];
  const float* dt = scan.dt + row * scan.dt_stride + at.head;
  float* out = scan.out + row * scan.out_stride + channel + warp_row;
  // Of the lane's token among the next 32.
  float next_dt = at.lane < entry.rows ? dt[at.lane * scan.dt_stride] : 0.0f;
  Step steps{};

  std::uint32_t stage = 0;
  for (std::uint32_t base = 0; base < entry.rows; base += T::kTokens) {
    if (base % 32 == 0) {
      steps = discretize(next_dt, dt_bias, a);
      const std::uint32_t token = base + 32 + at.lane;
      if (token < entry.rows) next_dt = dt[token * scan.dt_stride];
    }
    asm volatile("cp.async.wait_group %0;" ::"n"(T::kStages - 2) : "memory");
    __syncthreads();  // this stage is here, and the one before it is free
    const std::uint32_t free = stage == 0 ? T::kStages - 1 : stage - 1;
    source.fetch(stages + free * T::kStage, scan, base + (T::kStages - 1) * T::kTokens);
    asm volatile("cp.async.commit_group;" ::: "memory");
    const float* from = stages + stage * T::kStage;
#pragma unroll
    for (int first = 0; first < T::kTokens; first += T::kGroup) {
      const int left = static_cast<int>(entry.rows - base) - first;
      const int first_step = static_cast<int>(base % 32) + first;
      if (left <= 0) break;
      const float total =
          left >= T::kGroup
              ? advance_group<kType, kPer, true>(state, from, at.lane, steps, first, first_step, T::kGroup)
              : advance_group<kType, kPer, false>(state, from, at.lane, steps, first, first_step, left);
      constexpr int kShare = 32 / (T::kGroup * T::kRows);
      const int index = static_cast<int>(at.lane) / kShare, t = index / T::kRows, r = index % T::kRows;
      if (at.lane % kShare == 0 && t < left && r < at.rows) {
        const float x = from[T::kX + (first + t) * T::kBlockRows + warp_row + r];
        out[(base + first + t) * scan.out_stride + r] = __fmaf_rn(d, x, total);
      }
    }
    stage = stage + 1 == T::kStages ? 0 : stage + 1;
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  if (at.rows > 0) state.store(memory, at.lane, at.rows);
}

// Any size of state. A warp has one row; a lane has every 32nd element of it, in memory.
template <ElementType kType>
__global__ void __launch_bounds__(kWarps * 32) scan_general_kernel(Scan scan) {
  let_next_start();
  wait_for_previous();
  using Bits = typename StateType<kType>::Bits;
  const DeviceEntry entry = scan.entries[blockIdx.y];
  const std::uint32_t lane = threadIdx.x % 32, channel = blockIdx.x * kWarps + threadIdx.x / 32;
  if (channel >= scan.heads * scan.head_dim) return;
  const std::uint32_t head = channel / scan.head_dim, group = scan.group_offset(head);
  auto* state = reinterpret_cast<Bits*>(scan.state(entry, head, channel % scan.head_dim));
  const float dt_bias = scan.dt_bias[head], a = scan.a[head], d = scan.d[head];
  for (std::uint32_t i = 0; i < entry.rows; ++i) {
    const std::uint64_t token = entry.first_row + i;
    const Step step = discretize(scan.dt[token * scan.dt_stride + head], dt_bias, a);
    const float x = scan.x[token * scan.x_stride + channel], input = __fmul_rn(step.step, x);
    const float *b = scan.b + token * scan.b_stride + group, *c = scan.c + token * scan.c_stride + group;
    float sum = 0;
    for (std::uint32_t n = lane; n < scan.state_dim; n += 32) {
      const float next = __fmaf_rn(StateType<kType>::load(state[n]), step.decay, __fmul_rn(input, b[n]));
      sum = __fmaf_rn(next, c[n], sum);
      state[n] = StateType<kType>::store(next);
    }
    for (int distance = 16; distance > 0; distance /= 2) {
      sum = __fadd_rn(sum, __shfl_xor_sync(kAllLanes, sum, distance));
    }
    if (lane == 0) scan.out[token * scan.out_stride + channel] = __fmaf_rn(d, x, sum);
  }
}

template <ElementType kType, int kPer>
void launch_tiled(cudaStream_t stream, const Scan& scan, const DeviceBatch& batch) {
  constexpr std::uint32_t kBlockRows = Tiling<kPer>::kBlockRows;
  const dim3 grid((scan.head_dim + kBlockRows - 1) / kBlockRows * scan.heads, batch.entry_count);
  if (batch.rows > batch.entry_count) {
    // Without overlap: blocks of the next kernel that wait would take room from these (seen: 263 and 346 us).
    launch(false, stream, grid, kWarps * 32, 0, scan_many_kernel<kType, kPer>, scan);
  } else {
    launch(kernels_overlap(), stream, grid, kWarps * 32, 0, scan_few_kernel<kType, kPer>, scan);
  }
}

// Which kernel runs decides the order of sums. So it depends on the shape alone.
template <ElementType kType>
void launch_for(cudaStream_t stream, const Scan& scan, const DeviceBatch& batch) {
  switch (scan.state_dim) {
    case 64: return launch_tiled<kType, 2>(stream, scan, batch);
    case 128: return launch_tiled<kType, 4>(stream, scan, batch);
    case 256: return launch_tiled<kType, 8>(stream, scan, batch);
    default: break;
  }
  const dim3 grid((scan.heads * scan.head_dim + kWarps - 1) / kWarps, batch.entry_count);
  launch(kernels_overlap(), stream, grid, kWarps * 32, 0, scan_general_kernel<kType>, scan);
}

const float* floats(Tensor t) { return reinterpret_cast<const float*>(t.data); }
bool is_aligned(Tensor t) { return reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0 && t.stride % 4 == 0; }

}  // namespace

void launch_mamba2_scan(cudaStream_t stream, Tensor out, const ScanInputs& in, const RecurrentShape& shape,
                        const DeviceBatch& batch, const StatesView& states) {
  if (batch.entry_count == 0 || shape.heads == 0) return;
  const Scan scan{.out = reinterpret_cast<float*>(out.data),
                  .x = floats(in.x),
                  .b = floats(in.b),
                  .c = floats(in.c),
                  .dt = floats(in.dt),
                  .out_stride = out.stride,
                  .x_stride = in.x.stride,
                  .b_stride = in.b.stride,
                  .c_stride = in.c.stride,
                  .dt_stride = in.dt.stride,
                  .dt_bias = floats(in.dt_bias),
                  .a = floats(in.a),
                  .d = floats(in.d),
                  .head_dim = shape.head_dim,
                  .state_dim = shape.state_dim,
                  .heads_per_group = shape.heads / shape.groups,
                  .heads = shape.heads,
                  .layer = shape.layer,
                  .entries = batch.entries,
                  .states = states,
                  .aligned = is_aligned(in.b) && is_aligned(in.c)};
  switch (states.type) {
    case ElementType::F16: return launch_for<ElementType::F16>(stream, scan, batch);
    case ElementType::BF16: return launch_for<ElementType::BF16>(stream, scan, batch);
    default: return launch_for<ElementType::F32>(stream, scan, batch);
  }
}

}  // namespace quire::cuda
