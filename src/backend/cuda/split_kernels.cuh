// A block has 64 or 128 rows, one part of the columns and up to 256 tokens. One warp copies packed weights to a ring in
// shared memory, another one inputs; one or two warpgroups unpack the weights to registers and multiply (wgmma). The
// blocks of a cluster have the parts of the same rows: at the end they read each other's sums and add them in order.
//
// Weights do not depend on the kernel before: their copies start while it still runs (overlap.cuh).
#pragma once

#include "quire/backend/cuda/fragments.cuh"
#include "quire/backend/cuda/hopper.cuh"
#include "quire/backend/cuda/overlap.cuh"

namespace quire::cuda {

inline constexpr std::uint32_t kHeaderBytes = 1024;  // barriers
inline constexpr std::uint32_t kMostSlots = 16;      // of a ring
inline constexpr int kQuarter = 4;                   // steps that are multiplied at a time

template <Packing kPacking, int kTokens>
struct SplitPlan {
  using Weights = Fragments<kPacking>;
  static constexpr std::uint32_t kGroups = kTokens <= 16 ? 1 : 2;  // warpgroups that multiply, 64 rows each
  static constexpr std::uint32_t kWarps = kGroups * 4;             // a tile of 16 rows each
  static constexpr std::uint32_t kRows = kGroups * 64;
  // The warps that copy need few registers. With 256 tokens they are a warpgroup, which leaves its registers to others.
  static constexpr bool kMoveRegisters = kTokens == 256;
  static constexpr std::uint32_t kThreads = kWarps * 32 + (kMoveRegisters ? 128 : 64);
  // Blocks on a multiprocessor. Unpacking takes more warps than reading halves.
  static constexpr std::uint32_t kBlocks = kTokens > 64 ? 1 : kTokens > 16 ? 2 : Weights::kHalves ? 3 : 4;
  static constexpr std::uint32_t kRoom = (kBlocks == 4 ? 55 : kBlocks == 3 ? 74 : kBlocks == 2 ? 113 : 226) * 1024;
  // Slots: a portion of all tiles; a quarter of a piece of all tokens
  static constexpr std::uint32_t kWeightBytes = kWarps * Weights::kPortionBytes;
  static constexpr std::uint32_t kInputBytes = kQuarter * kTokens * 32;
  static constexpr std::uint32_t kInputSlots = kTokens == 8 ? 8 : 4;
  static constexpr std::uint32_t kFit = (kRoom - kHeaderBytes - kInputSlots * kInputBytes) / kWeightBytes;
  static constexpr std::uint32_t kWeightSlots = kFit < kMostSlots ? kFit : kMostSlots;
  static_assert(kWeightSlots >= 2);
  // The sums take the place of the slots.
  static constexpr std::uint32_t kStride = kRows + 4;  // floats of a token: no two lanes share a bank
  static constexpr std::uint32_t kSlotBytes = kWeightSlots * kWeightBytes + kInputSlots * kInputBytes;
  static constexpr std::uint32_t kSumBytes = kTokens * kStride * 4;
  static constexpr std::uint32_t kShared = kHeaderBytes + (kSlotBytes > kSumBytes ? kSlotBytes : kSumBytes);
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// What a block computes.
struct SplitTask {
  std::uint32_t tile, tiles;         // the first of the block; of the matrix
  std::uint32_t begin, end, pieces;  // pieces of the part; of the matrix
  std::uint32_t first_token;
};

template <Packing kPacking, int kTokens>
__device__ void copy_weights(const MatrixArgs& m, const SplitTask& task, Ring ring, std::uint32_t lane) {
  using Plan = SplitPlan<kPacking, kTokens>;
  using Weights = Plan::Weights;
  const std::uint32_t tile = min(task.tile + lane % Plan::kWarps, task.tiles - 1);
  const std::byte* from =
      m.tiles + (std::uint64_t{tile} * task.pieces + task.begin) * Weights::kPortions * Weights::kPortionBytes;
  for (std::uint32_t i = task.begin * Weights::kPortions; i < task.end * Weights::kPortions; ++i, ring.next()) {
    if (lane == 0) {
      wait_for(ring.empty(), ring.parity ^ 1);
      expect_bytes(ring.full(), Plan::kWeightBytes);
    }
    __syncwarp();
    if (lane < Plan::kWarps) {
      copy_bytes(ring.data() + lane * Weights::kPortionBytes, from, Weights::kPortionBytes, ring.full());
    }
    from += Weights::kPortionBytes;
  }
}

template <Packing kPacking, int kTokens>
__device__ void copy_inputs(const PreparedInput& in, const SplitTask& task, Ring ring, std::uint32_t lane) {
  using Plan = SplitPlan<kPacking, kTokens>;
  constexpr std::uint32_t kStep = kTokenGroup / kTokenTile * 256;  // bytes of a step of 256 tokens
  const std::byte* from =
      reinterpret_cast<const std::byte*>(in.halves) +
      ((std::uint64_t{task.first_token / kTokenGroup} * task.pieces + task.begin) * kSteps + lane % kQuarter) * kStep +
      task.first_token % kTokenGroup / kTokenTile * 256;
  for (std::uint32_t i = task.begin * kSteps; i < task.end * kSteps; i += kQuarter, ring.next()) {
    if (lane == 0) {
      wait_for(ring.empty(), ring.parity ^ 1);
      expect_bytes(ring.full(), Plan::kInputBytes);
    }
    __syncwarp();
    if (lane < kQuarter) copy_bytes(ring.data() + lane * kTokens * 32, from, kTokens * 32, ring.full());
    from += kQuarter * kStep;
  }
}

// What a quarter needs of a portion that lies in shared memory; the scales come with the first.
template <Packing kPacking>
__device__ inline void load_quarter(Fragments<kPacking>& to, int quarter, std::uint32_t portion, std::uint32_t lane) {
  using Weights = Fragments<kPacking>;
  constexpr int kVectors = Weights::kLow * kQuarter / Weights::kPortionSteps;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    to.low[quarter * kVectors + i] = shared_16(portion + ((quarter * kVectors + i) * 32 + lane) * 16);
  }
  if constexpr (!Weights::kHalves) {
    std::uint32_t at = portion + Weights::kInfo.low_bytes();
    if constexpr (Weights::kHigh > 0) {
      constexpr int kQuarters = 4 / Weights::kHigh;  // of a vector
      if (quarter % kQuarters == 0) {
        to.high[quarter / kQuarters] = shared_16(at + (quarter / kQuarters * 32 + lane) * 16);
      }
    }
    if (quarter > 0) return;
    at += Weights::kInfo.high_bytes();
    if constexpr (Weights::kScaleBytes == 8) {
      const uint2 pair = shared_8(at + lane * 8);
      to.scales[0] = {pair.x, pair.y, 0, 0};
    } else {
#pragma unroll
      for (int i = 0; i < Weights::kScales; ++i) to.scales[i] = shared_16(at + (i * 32 + lane) * 16);
    }
  }
}

// The sums of a warp's 16 rows, to shared memory at `to`: [token][row].
template <Packing kPacking, int kTokens>
__device__ void multiply_part(const SplitTask& task, Ring weights, Ring inputs, std::uint32_t warp, std::uint32_t lane,
                              float* to) {
  using Plan = SplitPlan<kPacking, kTokens>;
  using Weights = Plan::Weights;
  float sums[kTokens / 2];
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) sums[i] = 0;
  Weights packed;
  uint4 a[2][kQuarter];  // registers are in use until their instructions are done: quarters take turns
  std::uint32_t before = 0;
  const std::uint32_t portions = (task.end - task.begin) * Weights::kPortions;
  for (std::uint32_t portion = 0; portion < portions; ++portion) {
    wait_for(weights.full(), weights.parity);
    const std::uint32_t data = weights.data() + warp * Weights::kPortionBytes;
#pragma unroll
    for (int quarter = 0; quarter < Weights::kPortionSteps / kQuarter; ++quarter) {
      load_quarter(packed, quarter, data, lane);
#pragma unroll
      for (int i = 0; i < kQuarter; ++i) a[quarter % 2][i] = packed.step(quarter * kQuarter + i);
      wait_for(inputs.full(), inputs.parity);
      const std::uint32_t x = inputs.data();
      begin_multiply();
#pragma unroll
      for (int i = 0; i < kQuarter; ++i) {
        multiply_async<kTokens>(sums, a[quarter % 2][i], input_descriptor(x + i * kTokens * 32));
      }
      end_multiply();
      wait_multiply<1>();
      if (before != 0 && lane == 0) arrive(before);
      before = inputs.empty();
      inputs.next();
    }
    if (lane == 0) arrive(weights.empty());
    weights.next();
  }
  wait_multiply<0>();
  settle(sums);
  asm volatile("bar.sync 1, %0;" ::"n"(Plan::kWarps * 32) : "memory");  // nobody reads the slots any more
  to += lane % 4 * 2 * Plan::kStride + warp * kTileRows + lane / 4;
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) to[(i / 4 * 8 + i % 2) * Plan::kStride + i / 2 % 2 * 8] = sums[i];
}

// Adds the parts in order. Each block of the cluster has some of the tokens.
template <Packing kPacking, int kTokens>
__device__ void add_parts(const MatrixArgs& m, const PreparedInput& in, std::uint32_t tokens, const SplitTask& task,
                          std::uint32_t rank, std::uint32_t sums) {
  using Plan = SplitPlan<kPacking, kTokens>;
  const std::uint32_t own = kTokens / m.parts;
  for (std::uint32_t i = threadIdx.x; i < own * Plan::kRows / 4; i += Plan::kWarps * 32) {
    const std::uint32_t r = i % (Plan::kRows / 4) * 4, column = rank * own + i / (Plan::kRows / 4);
    const std::uint32_t row = task.tile * kTileRows + r, token = task.first_token + column;
    if (token >= tokens) break;
    if (row >= m.rows) continue;
    const std::uint32_t at = sums + (column * Plan::kStride + r) * 4;
    float4 part[kMostParts];
#pragma unroll
    for (std::uint32_t p = 0; p < kMostParts; ++p) {
      if (p < m.parts) part[p] = floats_in_cluster(in_block(at, p));
    }
    float total[4] = {0, 0, 0, 0};
#pragma unroll
    for (std::uint32_t p = 0; p < kMostParts; ++p) {
      if (p >= m.parts) continue;
      total[0] = __fadd_rn(total[0], part[p].x);
      total[1] = __fadd_rn(total[1], part[p].y);
      total[2] = __fadd_rn(total[2], part[p].z);
      total[3] = __fadd_rn(total[3], part[p].w);
    }
    put_4(m, token, row, total, in.inverses[token]);
  }
}

#endif

// Blocks: [matrix][row block][token block][part].
template <Packing kPacking, int kTokens>
__global__ void QUIRE_HOPPER_BOUNDS((SplitPlan<kPacking, kTokens>::kThreads), (SplitPlan<kPacking, kTokens>::kBlocks))
    split_kernel(__grid_constant__ const MatrixSet set, PreparedInput in, std::uint32_t tokens) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Plan = SplitPlan<kPacking, kTokens>;
  extern __shared__ __align__(1024) std::byte shared[];
  const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto base = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  const std::uint32_t slots = base + kHeaderBytes;
  const Ring weights{base, slots, Plan::kWeightSlots, Plan::kWeightBytes};
  const Ring inputs{base + kMostSlots * 16, slots + Plan::kWeightSlots * Plan::kWeightBytes, Plan::kInputSlots,
                    Plan::kInputBytes};
  let_next_start();
  if (threadIdx.x == 0) {
    weights.init(Plan::kWarps);
    inputs.init(Plan::kWarps);
    barriers_ready();
  }
  std::uint32_t number = 0;
  while (number + 1 < set.count && blockIdx.x >= set.first_block[number + 1]) ++number;
  const MatrixArgs& m = set.matrix[number];
  const std::uint32_t block = blockIdx.x - set.first_block[number], rank = block % m.parts;
  const std::uint32_t token_blocks = (tokens + kTokens - 1) / kTokens, output = block / m.parts;
  SplitTask task;
  task.tile = output / token_blocks * Plan::kWarps;
  task.tiles = tiles_of(m.rows);
  task.pieces = pieces_of(m.cols);
  task.begin = part_begin(rank, m.parts, task.pieces);
  task.end = part_begin(rank + 1, m.parts, task.pieces);
  task.first_token = output % token_blocks * kTokens;
  __syncthreads();
  if (warp >= Plan::kWarps) {
    if constexpr (Plan::kMoveRegisters) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (warp == Plan::kWarps) copy_weights<kPacking, kTokens>(m, task, weights, lane);
    if (warp == Plan::kWarps + 1) {
      wait_for_previous();
      copy_inputs<kPacking, kTokens>(in, task, inputs, lane);
    }
    __syncwarp();
    cluster_sync();
    cluster_sync();
  } else {
    if constexpr (Plan::kMoveRegisters) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    multiply_part<kPacking, kTokens>(task, weights, inputs, warp, lane,
                                     reinterpret_cast<float*>(shared + kHeaderBytes));
    cluster_sync();
    wait_for_previous();  // done long ago; now what it wrote can be read
    add_parts<kPacking, kTokens>(m, in, tokens, task, rank, slots);
    cluster_sync();  // others may still read
  }
#endif
}

template <Packing kPacking, int kTokens>
void start_split(cudaStream_t stream, MatrixSet& set, std::uint32_t tokens, const PreparedInput& in) {
  using Plan = SplitPlan<kPacking, kTokens>;
  const std::uint32_t parts = set.matrix[0].parts, token_blocks = (tokens + kTokens - 1) / kTokens;
  std::uint32_t blocks = 0;
  for (std::uint32_t i = 0; i < set.count; ++i) {
    set.first_block[i] = blocks;
    blocks += (tiles_of(set.matrix[i].rows) + Plan::kWarps - 1) / Plan::kWarps * token_blocks * parts;
  }
  set.first_block[set.count] = blocks;
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {parts, 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(Plan::kThreads);
  config.dynamicSmemBytes = Plan::kShared;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = in.overlap ? 2 : 1;
  cudaLaunchKernelEx(&config, split_kernel<kPacking, kTokens>, set, in, tokens);
}

template <Packing kPacking>
void split_by_tokens(cudaStream_t stream, MatrixSet& set, std::uint32_t tokens, const PreparedInput& in) {
  if (tokens <= 8) return start_split<kPacking, 8>(stream, set, tokens, in);
  if (tokens <= 16) return start_split<kPacking, 16>(stream, set, tokens, in);
  if (tokens <= 32) return start_split<kPacking, 32>(stream, set, tokens, in);
  // Blocks of more tokens read and unpack the weights less often, but may be less full.
  const auto cost = [&](std::uint32_t block) { return (tokens + block - 1) / block * (block + 64); };
  if (cost(64) < cost(128) && cost(64) < cost(256)) return start_split<kPacking, 64>(stream, set, tokens, in);
  if (cost(128) <= cost(256)) return start_split<kPacking, 128>(stream, set, tokens, in);
  return start_split<kPacking, 256>(stream, set, tokens, in);
}

template <Packing kPacking, int kTokens>
cudaError_t allow_split() {
  const cudaError_t error =
      cudaFuncSetAttribute(split_kernel<kPacking, kTokens>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(SplitPlan<kPacking, kTokens>::kShared));
  return error != cudaSuccess ? error : want_shared_memory(split_kernel<kPacking, kTokens>);
}
template <Packing kPacking>
cudaError_t prepare_split_of() {
  for (const cudaError_t error :
       {allow_split<kPacking, 8>(), allow_split<kPacking, 16>(), allow_split<kPacking, 32>(),
        allow_split<kPacking, 64>(), allow_split<kPacking, 128>(), allow_split<kPacking, 256>()}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace quire::cuda
