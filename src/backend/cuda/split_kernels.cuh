// A block has 64 or 128 rows, one part of the columns and up to 256 tokens. One warp copies packed weights to a ring in
// shared memory, another one inputs; one or two warpgroups unpack the weights to registers and multiply (wgmma). The
// blocks of a cluster have the parts of the same rows: at the end they read each other's sums and add them in order.
//
// Weights do not depend on the kernel before: their copies start while it still runs (overlap.cuh).
#pragma once

#include "quire/backend/cuda/overlap.cuh"
#include "quire/backend/cuda/shared_fragments.cuh"

namespace quire::cuda {

inline constexpr std::uint32_t kHeaderBytes = 1024;  // barriers
inline constexpr std::uint32_t kMostSlots = 16;      // of a ring

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
  // Slots: some steps of all tiles; those steps of all tokens that are multiplied at a time. With 256 tokens a copy
  // takes as long as several groups of instructions, so what counts is bytes on their way: small slots, soon free
  // again.
  static constexpr int kGroup = kTokens == 256 ? 2 : kQuarter;  // steps
  static constexpr int kSlotSteps = kTokens >= 64 && Weights::kHalves ? kQuarter : Weights::kPortionSteps;
  static constexpr std::uint32_t kTileBytes = Weights::kPortionBytes * kSlotSteps / Weights::kPortionSteps;
  static constexpr std::uint32_t kWeightBytes = kWarps * kTileBytes;
  static constexpr std::uint32_t kInputBytes = kGroup * kTokens * 32;
  static constexpr std::uint32_t kInputSlots = kTokens == 256 ? 9 : kTokens == 128 || kTokens == 8 ? 8 : 4;
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
  for (std::uint32_t i = task.begin * kSteps; i < task.end * kSteps; i += Plan::kSlotSteps, ring.next()) {
    if (lane == 0) {
      wait_for(ring.empty(), ring.parity ^ 1);
      expect_bytes(ring.full(), Plan::kWeightBytes);
    }
    __syncwarp();
    if (lane < Plan::kWarps) {
      copy_bytes(ring.data() + lane * Plan::kTileBytes, from, Plan::kTileBytes, ring.full());
    }
    from += Plan::kTileBytes;
  }
}

template <Packing kPacking, int kTokens>
__device__ void copy_inputs(const PreparedInput& in, const SplitTask& task, Ring ring, std::uint32_t lane) {
  using Plan = SplitPlan<kPacking, kTokens>;
  constexpr std::uint32_t kStep = kTokenGroup / kTokenTile * 256;  // bytes of a step of 256 tokens
  const std::byte* from =
      reinterpret_cast<const std::byte*>(in.halves) +
      ((std::uint64_t{task.first_token / kTokenGroup} * task.pieces + task.begin) * kSteps + lane % Plan::kGroup) *
          kStep +
      task.first_token % kTokenGroup / kTokenTile * 256;
  for (std::uint32_t i = task.begin * kSteps; i < task.end * kSteps; i += Plan::kGroup, ring.next()) {
    if (lane == 0) {
      wait_for(ring.empty(), ring.parity ^ 1);
      expect_bytes(ring.full(), Plan::kInputBytes);
    }
    __syncwarp();
    if (lane < Plan::kGroup) copy_bytes(ring.data() + lane * kTokens * 32, from, kTokens * 32, ring.full());
    from += Plan::kGroup * kStep;
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
  [[maybe_unused]] Weights packed;
  constexpr int kGroup = Plan::kGroup;
  uint4 a[2][kGroup];  // registers are in use until their instructions are done: groups take turns
  std::uint32_t before = 0;
  // A slot of one group needs a second slot for the turns. (A part has a multiple of four slots then.)
  constexpr int kTurns = Plan::kSlotSteps == kGroup ? 2 : 1;
  static_assert(Plan::kSlotSteps * kTurns / kGroup % 2 == 0 &&
                static_cast<int>(kSteps) / Plan::kSlotSteps % kTurns == 0);
  const std::uint32_t slots = (task.end - task.begin) * (kSteps / Plan::kSlotSteps);
  for (std::uint32_t slot = 0; slot < slots; slot += kTurns) {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      wait_for(weights.full(), weights.parity);
      const std::uint32_t data = weights.data() + warp * Plan::kTileBytes;
#pragma unroll
      for (int step = 0; step < Plan::kSlotSteps; step += kGroup) {
        uint4(&now)[kGroup] = a[(turn + step / kGroup) % 2];
        if constexpr (Weights::kHalves) {
#pragma unroll
          for (int i = 0; i < kGroup; ++i) now[i] = shared_16(data + ((step + i) * 32 + lane) * 16);
        } else {
          if (step % kQuarter == 0) load_quarter(packed, step / kQuarter, data, lane);
#pragma unroll
          for (int i = 0; i < kGroup; ++i) now[i] = packed.step(step + i);
        }
        wait_for(inputs.full(), inputs.parity);
        const std::uint32_t x = inputs.data();
        begin_multiply();
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
          multiply_async<kTokens>(sums, now[i], input_descriptor(x + i * kTokens * 32));
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
  }
  wait_multiply<0>();
  settle(sums);
  asm volatile("bar.sync 1, %0;" ::"n"(Plan::kWarps * 32) : "memory");  // nobody reads the slots any more
  to += lane % 4 * 2 * Plan::kStride + warp * kTileRows + lane / 4;
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) to[(i / 4 * 8 + i % 2) * Plan::kStride + i / 2 % 2 * 8] = sums[i];
}

// Adds the parts in order. Each block of the cluster has some of the tokens, each thread always the same four rows. It
// reads what it needs for several tokens, then writes them: each read takes long.
template <Packing kPacking, int kTokens>
__device__ void add_parts(const MatrixArgs& m, const PreparedInput& in, std::uint32_t tokens, const SplitTask& task,
                          std::uint32_t rank, std::uint32_t sums) {
  using Plan = SplitPlan<kPacking, kTokens>;
  constexpr std::uint32_t kThreads = Plan::kRows / 4;                // of a token
  constexpr std::uint32_t kAtOnce = Plan::kWarps * 32 / kThreads;    // tokens of all threads
  constexpr int kHeld = kTokens >= 128 ? 4 : kTokens == 64 ? 2 : 1;  // of one thread
  const std::uint32_t r = threadIdx.x % kThreads * 4, row = task.tile * kTileRows + r, own = kTokens / m.parts;
  if (row >= m.rows) return;
  for (std::uint32_t first = threadIdx.x / kThreads; first < own; first += kHeld * kAtOnce) {
    float4 part[kHeld][kMostParts], old[kHeld];
    float inverse[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const std::uint32_t column = rank * own + first + i * kAtOnce, token = task.first_token + column;
      if (first + i * kAtOnce >= own || token >= tokens) continue;
      const std::uint32_t at = sums + (column * Plan::kStride + r) * 4;
#pragma unroll
      for (std::uint32_t p = 0; p < kMostParts; ++p) {
        if (p < m.parts) part[i][p] = floats_in_cluster(in_block(at, p));
      }
      inverse[i] = in.inverses[token];
      old[i] = old_4(m, token, row);
    }
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const std::uint32_t token = task.first_token + rank * own + first + i * kAtOnce;
      if (first + i * kAtOnce >= own || token >= tokens) continue;
      float total[4] = {0, 0, 0, 0};
#pragma unroll
      for (std::uint32_t p = 0; p < kMostParts; ++p) {
        if (p >= m.parts) continue;
        total[0] = __fadd_rn(total[0], part[i][p].x);
        total[1] = __fadd_rn(total[1], part[i][p].y);
        total[2] = __fadd_rn(total[2], part[i][p].z);
        total[3] = __fadd_rn(total[3], part[i][p].w);
      }
      put_4(m, token, row, total, inverse[i], old[i]);
    }
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
