// Products of many tokens with wgmma (compute capability 9.0a): 128 rows x 256 or 128 tokens at a time. A producer warp
// copies weights and inputs to a ring of stages in shared memory; two warpgroups multiply. Weights go from there to
// registers in fragment order, as for mma.sync, and the sums have the same bits (docs/cuda.md).
//
// Two blocks are a cluster: they have the same tokens and neighbouring rows. Each copies half of the inputs for both,
// since reading everything twice would take more than the L2 cache can give. A cluster takes one output after the
// other: while sums of one are written, copies for the next are on their way.
#include "quire/backend/cuda/fragments.cuh"
#include "quire/backend/cuda/gemm_launch.h"
#include "quire/backend/cuda/hopper.cuh"

namespace quire::cuda {

namespace {

constexpr std::uint32_t kBlockTiles = 8;  // of 16 rows; one for each warp that multiplies
constexpr std::uint32_t kBlockRows = kBlockTiles * kTileRows;
constexpr std::uint32_t kCluster = 2;
constexpr std::uint32_t kStageSteps = 2;
static_assert(kStageSteps == kCluster, "each block copies the inputs of one step");
[[maybe_unused]] constexpr std::uint32_t kStagesOfPiece = kSteps / kStageSteps;
constexpr std::uint32_t kMultiplyWarps = 8;
constexpr std::uint32_t kThreads = kMultiplyWarps * 32 + 128;  // and a warpgroup of which one warp produces
constexpr std::uint32_t kSharedBytes = 227 * 1024;
constexpr std::uint32_t kBarrierBytes = 1024;
constexpr std::uint32_t kMostStages = 12;
constexpr std::uint32_t kWeightBytes = kBlockTiles * kStageSteps * 512;  // of a stage: [tile][step][lane] 16 bytes

// [step][tile of 8 tokens] 256 bytes
constexpr std::uint32_t input_bytes(std::uint32_t tokens) { return kStageSteps * tokens / kTokenTile * 256; }
constexpr std::uint32_t stage_bytes(std::uint32_t tokens) { return kWeightBytes + input_bytes(tokens); }
// Sums of the parts so far: [token][row]
constexpr std::uint32_t total_bytes(std::uint32_t tokens) { return tokens * kBlockRows * 4; }
[[maybe_unused]] constexpr std::uint32_t stages_for(std::uint32_t tokens) {
  const std::uint32_t fit = (kSharedBytes - kBarrierBytes - total_bytes(tokens)) / stage_bytes(tokens);
  return fit < kMostStages ? fit : kMostStages;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// --- the outputs of a cluster, one after the other

struct Output {
  const MatrixArgs* m;
  std::uint32_t tile, first_token;  // the first of the block
};

// [matrix][256 rows][tokens]; first_block counts outputs.
template <int kTokens>
__device__ Output output_of(const MatrixSet& set, std::uint32_t number, std::uint32_t tokens, std::uint32_t rank) {
  std::uint32_t i = 0;
  while (i + 1 < set.count && number >= set.first_block[i + 1]) ++i;
  const std::uint32_t token_blocks = (tokens + kTokens - 1) / kTokens, at = number - set.first_block[i];
  return {&set.matrix[i], (at / token_blocks * kCluster + rank) * kBlockTiles, at % token_blocks * kTokens};
}

// --- the two roles

template <int kTokens>
__device__ void produce(const MatrixSet& set, const PreparedInput& in, std::uint32_t tokens, Ring ring,
                        std::uint32_t rank, std::uint32_t lane) {
  constexpr std::uint32_t kGroupStep = kTokenGroup / kTokenTile * 256;  // bytes of a step of 256 tokens
  constexpr std::uint32_t kInput = kTokens / kTokenTile * 256;          // of a step
  for (std::uint32_t n = blockIdx.x / kCluster; n < set.first_block[set.count]; n += gridDim.x / kCluster) {
    const Output output = output_of<kTokens>(set, n, tokens, rank);
    const std::uint32_t pieces = pieces_of(output.m->cols);
    const std::uint32_t tile = min(output.tile + lane % 8, tiles_of(output.m->rows) - 1);
    const std::byte* weights = output.m->tiles + tile * tile_bytes(Packing::F16, output.m->cols);
    const std::byte* inputs = reinterpret_cast<const std::byte*>(in.halves) +
                              (std::uint64_t{output.first_token / kTokenGroup} * pieces * kSteps + rank) * kGroupStep +
                              output.first_token % kTokenGroup / kTokenTile * 256;
    for (std::uint32_t stage = 0; stage < pieces * kStagesOfPiece; ++stage, ring.next()) {
      if (lane == 0) {
        wait_for(ring.empty(), ring.parity ^ 1);
        expect_bytes(ring.full(), stage_bytes(kTokens));
      }
      __syncwarp();
      const std::uint32_t to = ring.data();
      if (lane < kBlockTiles) {
        copy_bytes(to + lane * kStageSteps * 512, weights + std::uint64_t{stage} * kStageSteps * 512, kStageSteps * 512,
                   ring.full());
      } else if (lane == kBlockTiles) {
        copy_to_blocks(to + kWeightBytes + rank * kInput, inputs + std::uint64_t{stage} * kStageSteps * kGroupStep,
                       kInput, ring.full(), (1u << kCluster) - 1);
      }
    }
  }
}

// Both blocks write to a slot, so both hear that it is empty.
__device__ void give_back(std::uint32_t empty, std::uint32_t lane) {
  if (lane < kCluster) arrive_in_cluster(in_block(empty, lane));
}

// One stage: starts its instructions, and gives the slot of the stage before back when that is done.
template <int kTokens>
__device__ void multiply_stage(float (&sums)[kTokens / 2], uint4 (&a)[kStageSteps], Ring& ring, std::uint32_t warp,
                               std::uint32_t lane, std::uint32_t before) {
  wait_for(ring.full(), ring.parity);
  const std::uint32_t data = ring.data();
#pragma unroll
  for (std::uint32_t step = 0; step < kStageSteps; ++step) {
    a[step] = shared_16(data + (warp * kStageSteps + step) * 512 + lane * 16);
  }
  begin_multiply();
#pragma unroll
  for (std::uint32_t step = 0; step < kStageSteps; ++step) {
    const std::uint32_t inputs = data + kWeightBytes + step * (kTokens / kTokenTile * 256);
    multiply_async<kTokens>(sums, a[step], input_descriptor(inputs));
  }
  end_multiply();
  wait_multiply<1>();
  if (before != 0) give_back(before, lane);
}

// Where a total lies. The two upper bits of a row's place in 32 change with the token: then neither the lanes of a
// matrix instruction nor those that read rows share a bank.
__device__ std::uint32_t total_at(std::uint32_t token, std::uint32_t row) {
  return token * kBlockRows + (row ^ (token / 2 % 4 * 8));
}

// The totals of a warpgroup's 64 rows, to the output.
template <int kTokens>
__device__ void put_totals(const MatrixArgs& m, const PreparedInput& in, std::uint32_t tokens, std::uint32_t first_row,
                           std::uint32_t first_token, std::uint32_t in_block_row, const float* totals) {
  // 16 threads have 64 rows of a token.
  const std::uint32_t thread = threadIdx.x % 128, row = first_row + thread % 16 * 4;
  if (row >= m.rows) return;
#pragma unroll 2
  for (std::uint32_t i = thread / 16; i < kTokens; i += 8) {
    const std::uint32_t token = first_token + i;
    if (token >= tokens) break;
    const float4 total = *reinterpret_cast<const float4*>(totals + total_at(i, in_block_row + thread % 16 * 4));
    put_4(m, token, row, {total.x, total.y, total.z, total.w}, in.inverses[token]);
  }
}

template <int kTokens>
__device__ void consume(const MatrixSet& set, const PreparedInput& in, std::uint32_t tokens, Ring ring,
                        std::uint32_t rank, float* totals, std::uint32_t warp, std::uint32_t lane) {
  const std::uint32_t own_row = warp * kTileRows + lane / 4;
  for (std::uint32_t n = blockIdx.x / kCluster; n < set.first_block[set.count]; n += gridDim.x / kCluster) {
    const Output output = output_of<kTokens>(set, n, tokens, rank);
    const MatrixArgs& m = *output.m;
    const std::uint32_t pieces = pieces_of(m.cols);
    float sums[kTokens / 2];
    for (std::uint32_t part = 0; part < m.parts; ++part) {
#pragma unroll
      for (int i = 0; i < kTokens / 2; ++i) sums[i] = 0;
      const std::uint32_t stages =
          (part_begin(part + 1, m.parts, pieces) - part_begin(part, m.parts, pieces)) * kStagesOfPiece;
      // Registers of weights are in use until their instructions are done: two stages take turns.
      uint4 a[2][kStageSteps];
      std::uint32_t before = 0;
      for (std::uint32_t stage = 0; stage < stages; stage += 2) {
        multiply_stage<kTokens>(sums, a[0], ring, warp, lane, before);
        before = ring.empty();
        ring.next();
        multiply_stage<kTokens>(sums, a[1], ring, warp, lane, before);
        before = ring.empty();
        ring.next();
      }
      wait_multiply<0>();
      settle(sums);
      give_back(before, lane);
      // total = ((0 + first part) + second part) + ..., as in stream_kernel()
#pragma unroll
      for (int i = 0; i < kTokens / 2; ++i) {
        float& total = totals[total_at(i / 4 * 8 + lane % 4 * 2 + i % 2, own_row + i / 2 % 2 * 8)];
        total = __fadd_rn(part == 0 ? 0.0f : total, sums[i]);
      }
    }
    // The rows of a warpgroup are written by all of it.
    asm volatile("bar.sync %0, 128;" ::"r"(1 + warp / 4) : "memory");
    put_totals<kTokens>(m, in, tokens, output.tile * kTileRows + warp / 4 * 64, output.first_token, warp / 4 * 64,
                        totals);
    asm volatile("bar.sync %0, 128;" ::"r"(1 + warp / 4) : "memory");
  }
}

#endif

template <int kTokens>
__global__ void QUIRE_HOPPER_BOUNDS(kThreads, 1)
    gemm_wgmma_kernel(__grid_constant__ const MatrixSet set, PreparedInput in, std::uint32_t tokens) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) std::byte shared[];
  const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, rank = cluster_rank();
  const auto base = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  const Ring ring{base, base + kBarrierBytes, stages_for(kTokens), stage_bytes(kTokens)};
  if (threadIdx.x == 0) {
    ring.init(kMultiplyWarps * kCluster);
    barriers_ready();
  }
  __syncthreads();
  cluster_sync();
  // The producer needs few registers and leaves them to the others.
  if (warp >= kMultiplyWarps) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (warp == kMultiplyWarps) produce<kTokens>(set, in, tokens, ring, rank, lane);
    __syncwarp();
    cluster_sync();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    auto* totals = reinterpret_cast<float*>(shared + kBarrierBytes + stages_for(kTokens) * stage_bytes(kTokens));
    consume<kTokens>(set, in, tokens, ring, rank, totals, warp, lane);
    cluster_sync();  // a block stays as long as the other one writes to it
  }
#endif
}

template <int kTokens>
std::uint32_t outputs_of(MatrixSet& set, std::uint32_t tokens) {
  constexpr std::uint32_t kTiles = kCluster * kBlockTiles;
  std::uint32_t outputs = 0;
  for (std::uint32_t i = 0; i < set.count; ++i) {
    set.first_block[i] = outputs;
    outputs += (tiles_of(set.matrix[i].rows) + kTiles - 1) / kTiles * ((tokens + kTokens - 1) / kTokens);
  }
  return set.first_block[set.count] = outputs;
}

template <int kTokens>
void start(cudaStream_t stream, MatrixSet& set, std::uint32_t tokens, const PreparedInput& in, std::uint32_t most) {
  const std::uint32_t outputs = outputs_of<kTokens>(set, tokens), clusters = outputs < most ? outputs : most;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(clusters * kCluster);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kSharedBytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, gemm_wgmma_kernel<kTokens>, set, in, tokens);
}

}  // namespace

bool has_gemm_wgmma() {
  cudaFuncAttributes facts{};
  return cudaFuncGetAttributes(&facts, gemm_wgmma_kernel<256>) == cudaSuccess &&
         facts.maxThreadsPerBlock >= static_cast<int>(kThreads);
}

cudaError_t prepare_gemm_wgmma() {
  const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  const cudaError_t first = cudaFuncSetAttribute(gemm_wgmma_kernel<256>, attribute, kSharedBytes);
  return first != cudaSuccess ? first : cudaFuncSetAttribute(gemm_wgmma_kernel<128>, attribute, kSharedBytes);
}

void gemm_wgmma(cudaStream_t stream, MatrixSet set, std::uint32_t tokens, const PreparedInput& in) {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  const std::uint32_t most = static_cast<std::uint32_t>(count) / kCluster;
  // Blocks of 128 tokens are a little more than half as long. They pay if those of 256 leave multiprocessors idle.
  const auto rounds = [&](std::uint32_t outputs) { return (outputs + most - 1) / most; };
  if (rounds(outputs_of<256>(set, tokens)) * 9 <= rounds(outputs_of<128>(set, tokens)) * 5) {
    start<256>(stream, set, tokens, in, most);
  } else {
    start<128>(stream, set, tokens, in, most);
  }
}

}  // namespace quire::cuda
