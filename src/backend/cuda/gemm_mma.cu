// Products of many tokens with mma.sync: 128 rows x 128 tokens per block, weights and inputs through shared memory in
// four stages. Every GPU since compute capability 8.0 has this.
#include "quire/backend/cuda/fragments.cuh"
#include "quire/backend/cuda/product_kernels.h"

namespace quire::cuda {

namespace {

constexpr std::uint32_t kBlockTiles = 8;  // of 16 rows
constexpr std::uint32_t kBlockTokens = 128;
constexpr std::uint32_t kStageSteps = 4;  // a quarter of a piece
constexpr std::uint32_t kStages = 4;
constexpr std::uint32_t kThreads = 256;
constexpr std::uint32_t kWeightBytes = kBlockTiles * kStageSteps * 512;  // [tile][step][lane] 16 bytes
constexpr std::uint32_t kInputBytes =
    kStageSteps * kBlockTokens / kTokenTile * 256;  // [step][tile of tokens] 256 bytes
constexpr std::uint32_t kSharedBytes = kStages * (kWeightBytes + kInputBytes);
constexpr std::uint32_t kStagesOfPiece = kSteps / kStageSteps;
constexpr int kWarpTiles = 4;   // of 16 rows, of a warp
constexpr int kWarpTokens = 4;  // tiles of 8 tokens

__device__ void copy_16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ void end_of_stage() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__device__ void wait_for_stage() { asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory"); }

// Two tiles of 8 tokens: [2][2 halves of a step][8 tokens] rows of 16 bytes.
__device__ void load_inputs(uint2* b, std::uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(b[0].x), "=r"(b[0].y), "=r"(b[1].x), "=r"(b[1].y)
               : "r"(at)
               : "memory");
}
__device__ uint4 load_weights(std::uint32_t at) {
  uint4 a;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(a.x), "=r"(a.y), "=r"(a.z), "=r"(a.w)
               : "r"(at)
               : "memory");
  return a;
}

struct Source {
  const std::byte* weights;  // of this block's first tile
  const std::byte* inputs;   // of this block's first token
  std::uint64_t tile_bytes;
  std::uint32_t last_tile;  // rows past the end are computed from the last tile, and thrown away

  // Copies stage s of the whole matrix. Each thread copies 4 x 16 bytes of either.
  __device__ void copy(std::uint32_t stage, std::uint32_t to) const {
    const std::byte* from = weights + std::uint64_t{stage} * kStageSteps * 512;
#pragma unroll
    for (std::uint32_t i = threadIdx.x; i < kWeightBytes / 16; i += kThreads) {
      const std::uint32_t tile = i / (kStageSteps * 32);
      copy_16(to + i * 16, from + min(tile, last_tile) * tile_bytes + i % (kStageSteps * 32) * 16);
    }
    from = inputs + std::uint64_t{stage} * kStageSteps * kTokenGroup / kTokenTile * 256;
#pragma unroll
    for (std::uint32_t i = threadIdx.x; i < kInputBytes / 16; i += kThreads) {
      constexpr std::uint32_t kStep = kBlockTokens / kTokenTile * 16;  // 16-byte words of a step
      copy_16(to + kWeightBytes + i * 16, from + i / kStep * (kTokenGroup / kTokenTile * 256) + i % kStep * 16);
    }
  }
};

__global__ void __launch_bounds__(kThreads, 1)
    gemm_mma_kernel(__grid_constant__ const MatrixArgs m, PreparedInput in, std::uint32_t tokens) {
  extern __shared__ __align__(128) std::byte shared[];
  const auto base = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  const std::uint32_t pieces = pieces_of(m.cols), first_token = blockIdx.x * kBlockTokens;
  const std::uint32_t first_tile = blockIdx.y * kBlockTiles;
  Source source;
  source.tile_bytes = tile_bytes(Packing::F16, m.cols);
  source.weights = m.tiles + first_tile * source.tile_bytes;
  source.last_tile = min(kBlockTiles, tiles_of(m.rows) - first_tile) - 1;
  source.inputs = reinterpret_cast<const std::byte*>(in.halves) +
                  (std::uint64_t{first_token / kTokenGroup} * pieces * kSteps * (kTokenGroup / kTokenTile) +
                   first_token % kTokenGroup / kTokenTile) *
                      256;
  const std::uint32_t stages = pieces * kStagesOfPiece;
  for (std::uint32_t s = 0; s < kStages - 1; ++s) {
    if (s < stages) source.copy(s, base + s * (kWeightBytes + kInputBytes));
    end_of_stage();
  }
  const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const std::uint32_t warp_tile = warp % 2 * kWarpTiles, warp_tokens = warp / 2 * kWarpTokens;  // tiles of the block
  float own[kWarpTiles][kWarpTokens][4] = {}, total[kWarpTiles][kWarpTokens][4] = {};
  std::uint32_t part = 1, part_end = part_begin(1, m.parts, pieces) * kStagesOfPiece;
  for (std::uint32_t s = 0; s < stages; ++s) {
    wait_for_stage();
    __syncthreads();
    const std::uint32_t next = s + kStages - 1;
    if (next < stages) source.copy(next, base + next % kStages * (kWeightBytes + kInputBytes));
    end_of_stage();
    const std::uint32_t here = base + s % kStages * (kWeightBytes + kInputBytes);
#pragma unroll
    for (std::uint32_t step = 0; step < kStageSteps; ++step) {
      uint4 a[kWarpTiles];
      uint2 b[kWarpTokens];
#pragma unroll
      for (int i = 0; i < kWarpTiles; ++i)
        a[i] = load_weights(here + ((warp_tile + i) * kStageSteps + step) * 512 + lane * 16);
#pragma unroll
      for (int n = 0; n < kWarpTokens; n += 2) {
        load_inputs(b + n,
                    here + kWeightBytes + (step * (kBlockTokens / kTokenTile) + warp_tokens + n) * 256 + lane * 16);
      }
#pragma unroll
      for (int i = 0; i < kWarpTiles; ++i) {
#pragma unroll
        for (int n = 0; n < kWarpTokens; ++n) multiply<false>(own[i][n], a[i], b[n]);
      }
    }
    if (s + 1 != part_end) continue;
    part_end = part_begin(++part, m.parts, pieces) * kStagesOfPiece;
#pragma unroll
    for (int i = 0; i < kWarpTiles * kWarpTokens * 4; ++i) {
      float& sum = own[i / 16][i / 4 % 4][i % 4];
      float& all = total[i / 16][i / 4 % 4][i % 4];
      all = __fadd_rn(all, sum);
      sum = 0;
    }
  }
#pragma unroll
  for (int i = 0; i < kWarpTiles; ++i) {
#pragma unroll
    for (int n = 0; n < kWarpTokens; ++n) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const std::uint32_t row = (first_tile + warp_tile + i) * kTileRows + lane / 4 + k / 2 * 8;
        const std::uint32_t token = first_token + (warp_tokens + n) * kTokenTile + lane % 4 * 2 + k % 2;
        if (row < m.rows && token < tokens) put(m, token, row, total[i][n][k], in.inverses[token]);
      }
    }
  }
}

}  // namespace

cudaError_t prepare_gemm() {
  return cudaFuncSetAttribute(gemm_mma_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
}

void launch_gemm(cudaStream_t stream, const MatrixSet& set, std::uint32_t tokens, const PreparedInput& in) {
  for (std::uint32_t i = 0; i < set.count; ++i) {
    const MatrixArgs& m = set.matrix[i];
    const dim3 grid((tokens + kBlockTokens - 1) / kBlockTokens, (tiles_of(m.rows) + kBlockTiles - 1) / kBlockTiles);
    gemm_mma_kernel<<<grid, kThreads, kSharedBytes, stream>>>(m, in, tokens);
  }
}

}  // namespace quire::cuda
