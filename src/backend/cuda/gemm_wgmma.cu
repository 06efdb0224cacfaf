// Products of many tokens with wgmma (compute capability 9.0a): 128 rows x 256 or 128 tokens at a time. A producer warp
// copies weights and inputs to a ring of stages in shared memory; two warpgroups multiply. Weights go from there to
// registers in fragment order, as for mma.sync, and the sums have the same bits (docs/cuda.md).
//
// A block takes one output after the other: while sums of one are written, copies for the next are on their way.
#include "quire/backend/cuda/fragments.cuh"
#include "quire/backend/cuda/gemm_launch.h"

namespace quire::cuda {

namespace {

constexpr std::uint32_t kBlockTiles = 8;  // of 16 rows; one for each warp that multiplies
constexpr std::uint32_t kStageSteps = 2;
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
// Sums of the parts so far: [tokens / 8][thread] 4 floats
constexpr std::uint32_t total_bytes(std::uint32_t tokens) { return tokens * kBlockTiles * kTileRows * 4; }
[[maybe_unused]] constexpr std::uint32_t stages_for(std::uint32_t tokens) {
  const std::uint32_t fit = (kSharedBytes - kBarrierBytes - total_bytes(tokens)) / stage_bytes(tokens);
  return fit < kMostStages ? fit : kMostStages;
}

// The kernel is empty where it is not compiled for 9.0a. Its most threads say which it is.
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define QUIRE_WGMMA_THREADS kThreads
#else
#define QUIRE_WGMMA_THREADS 32
#endif

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// --- barriers in shared memory

__device__ void init_barrier(std::uint32_t barrier, std::uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ void expect_bytes(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ void wait_for(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done = 0;
  while (done == 0) {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
  }
}
__device__ void copy_bytes(std::uint32_t to, const std::byte* from, std::uint32_t bytes, std::uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

// The ring of stages. `full`: the copies have arrived. `empty`: all warps have read them.
struct Ring {
  std::uint32_t base;    // of shared memory: barriers, then stages
  std::uint32_t stages;  // of the ring
  std::uint32_t stage_bytes;
  std::uint32_t slot = 0, parity = 0;

  __device__ std::uint32_t full() const { return base + slot * 16; }
  __device__ std::uint32_t empty() const { return base + slot * 16 + 8; }
  __device__ std::uint32_t data() const { return base + kBarrierBytes + slot * stage_bytes; }
  __device__ void next() {
    if (++slot < stages) return;
    slot = 0;
    parity ^= 1;
  }
};

// --- matrix instructions

__device__ std::uint64_t input_descriptor(std::uint32_t at) {
  // Rows of 16 bytes: 8 tokens x 8 columns are 128 bytes in a row, the other 8 columns follow, then the next 8 tokens.
  return (std::uint64_t{at >> 4} & 0x3fff) | std::uint64_t{128 >> 4} << 16 | std::uint64_t{256 >> 4} << 32;
}

#define QUIRE_SUMS_4(i) "+f"(sums[i]), "+f"(sums[(i) + 1]), "+f"(sums[(i) + 2]), "+f"(sums[(i) + 3])
#define QUIRE_SUMS_16(i) QUIRE_SUMS_4(i), QUIRE_SUMS_4((i) + 4), QUIRE_SUMS_4((i) + 8), QUIRE_SUMS_4((i) + 12)

// sums += weights * inputs, of 64 rows and kTokens tokens. Element i of a lane's sums: row g + 8 * (i / 2 % 2) of the
// warp's tile, token i / 4 * 8 + 2 t + i % 2.
template <int kTokens>
__device__ void multiply_async(float (&sums)[kTokens / 2], const uint4& a, std::uint64_t inputs) {
  if constexpr (kTokens == 256) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
        "}, {%128, %129, %130, %131}, %132, p, 1, 1, 0;}"
        : QUIRE_SUMS_16(0), QUIRE_SUMS_16(16), QUIRE_SUMS_16(32), QUIRE_SUMS_16(48), QUIRE_SUMS_16(64),
          QUIRE_SUMS_16(80), QUIRE_SUMS_16(96), QUIRE_SUMS_16(112)
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(inputs));
  } else {
    static_assert(kTokens == 128);
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, {%64, %65, %66, %67}, %68, p, 1, 1, 0;}"
        : QUIRE_SUMS_16(0), QUIRE_SUMS_16(16), QUIRE_SUMS_16(32), QUIRE_SUMS_16(48)
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(inputs));
  }
}

#undef QUIRE_SUMS_16
#undef QUIRE_SUMS_4

__device__ void begin_multiply() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void end_multiply() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most kLeft groups run.
template <int kLeft>
__device__ void wait_multiply() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
// The compiler must not read sums before they are there.
template <int kCount>
__device__ void settle(float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

__device__ uint4 weights_at(std::uint32_t at) {
  uint4 a;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(a.x), "=r"(a.y), "=r"(a.z), "=r"(a.w)
               : "r"(at)
               : "memory");
  return a;
}

// --- the two roles

struct Task {
  std::uint32_t outputs, token_blocks;  // of the whole product
  std::uint32_t pieces, tiles;
};

template <int kTokens>
__device__ void produce(const MatrixArgs& m, const PreparedInput& in, const Task& task, Ring ring, std::uint32_t lane) {
  const std::uint64_t one_tile = tile_bytes(Packing::F16, m.cols);
  constexpr std::uint32_t kGroupStep = kTokenGroup / kTokenTile * 256;  // bytes of a step of 256 tokens
  for (std::uint32_t output = blockIdx.x; output < task.outputs; output += gridDim.x) {
    const std::uint32_t first_token = output % task.token_blocks * kTokens;
    const std::uint32_t tile = min(output / task.token_blocks * kBlockTiles + lane % 8, task.tiles - 1);
    const std::byte* weights = m.tiles + tile * one_tile;
    const std::byte* inputs = reinterpret_cast<const std::byte*>(in.halves) +
                              std::uint64_t{first_token / kTokenGroup} * task.pieces * kSteps * kGroupStep +
                              first_token % kTokenGroup / kTokenTile * 256;
    for (std::uint32_t stage = 0; stage < task.pieces * kStagesOfPiece; ++stage, ring.next()) {
      if (lane == 0) {
        wait_for(ring.empty(), ring.parity ^ 1);
        expect_bytes(ring.full(), stage_bytes(kTokens));
      }
      __syncwarp();
      const std::uint32_t to = ring.data();
      if (lane < kBlockTiles) {
        copy_bytes(to + lane * kStageSteps * 512, weights + std::uint64_t{stage} * kStageSteps * 512, kStageSteps * 512,
                   ring.full());
      } else if (lane < kBlockTiles + kStageSteps) {
        const std::uint32_t step = lane - kBlockTiles;
        constexpr std::uint32_t kBytes = kTokens / kTokenTile * 256;
        copy_bytes(to + kWeightBytes + step * kBytes, inputs + (std::uint64_t{stage} * kStageSteps + step) * kGroupStep,
                   kBytes, ring.full());
      }
    }
  }
}

// One stage: starts its instructions, and gives the slot of the stage before back when that is done.
template <int kTokens>
__device__ void multiply_stage(float (&sums)[kTokens / 2], uint4 (&a)[kStageSteps], Ring& ring, std::uint32_t warp,
                               std::uint32_t lane, std::uint32_t before) {
  wait_for(ring.full(), ring.parity);
  const std::uint32_t data = ring.data();
#pragma unroll
  for (std::uint32_t step = 0; step < kStageSteps; ++step) {
    a[step] = weights_at(data + (warp * kStageSteps + step) * 512 + lane * 16);
  }
  begin_multiply();
#pragma unroll
  for (std::uint32_t step = 0; step < kStageSteps; ++step) {
    const std::uint32_t inputs = data + kWeightBytes + step * (kTokens / kTokenTile * 256);
    multiply_async<kTokens>(sums, a[step], input_descriptor(inputs));
  }
  end_multiply();
  wait_multiply<1>();
  if (before != 0 && lane == 0) arrive(before);
}

// The totals of a thread, to the output. They come from shared memory, since a loop cannot index registers.
template <int kTokens>
__device__ void put_totals(const MatrixArgs& m, const PreparedInput& in, std::uint32_t tokens, std::uint32_t first_row,
                           std::uint32_t first_token, const float4* totals, std::uint32_t lane) {
  const std::uint32_t row = first_row + lane / 4;
#pragma unroll 4
  for (int i = 0; i < kTokens / 8; ++i) {
    const float4 total = totals[i * 256];
    const std::uint32_t token = first_token + i * 8 + lane % 4 * 2;
    if (token < tokens) {
      const float inverse = in.inverses[token];
      if (row < m.rows) put(m, token, row, total.x, inverse);
      if (row + 8 < m.rows) put(m, token, row + 8, total.z, inverse);
    }
    if (token + 1 < tokens) {
      const float inverse = in.inverses[token + 1];
      if (row < m.rows) put(m, token + 1, row, total.y, inverse);
      if (row + 8 < m.rows) put(m, token + 1, row + 8, total.w, inverse);
    }
  }
}

template <int kTokens>
__device__ void consume(const MatrixArgs& m, const PreparedInput& in, std::uint32_t tokens, const Task& task, Ring ring,
                        float4* totals, std::uint32_t warp, std::uint32_t lane) {
  for (std::uint32_t output = blockIdx.x; output < task.outputs; output += gridDim.x) {
    float sums[kTokens / 2];
    for (std::uint32_t part = 0; part < m.parts; ++part) {
#pragma unroll
      for (int i = 0; i < kTokens / 2; ++i) sums[i] = 0;
      const std::uint32_t stages =
          (part_begin(part + 1, m.parts, task.pieces) - part_begin(part, m.parts, task.pieces)) * kStagesOfPiece;
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
      if (lane == 0) arrive(before);
        // total = ((0 + first part) + second part) + ..., as in stream_kernel()
#pragma unroll
      for (int i = 0; i < kTokens / 8; ++i) {
        float4 total = part == 0 ? float4{0, 0, 0, 0} : totals[i * 256];
        total.x = __fadd_rn(total.x, sums[4 * i]);
        total.y = __fadd_rn(total.y, sums[4 * i + 1]);
        total.z = __fadd_rn(total.z, sums[4 * i + 2]);
        total.w = __fadd_rn(total.w, sums[4 * i + 3]);
        totals[i * 256] = total;
      }
    }
    put_totals<kTokens>(m, in, tokens, (output / task.token_blocks * kBlockTiles + warp) * kTileRows,
                        output % task.token_blocks * kTokens, totals, lane);
  }
}

#endif

template <int kTokens>
__global__ void __launch_bounds__(QUIRE_WGMMA_THREADS, 1)
    gemm_wgmma_kernel(__grid_constant__ const MatrixArgs m, PreparedInput in, std::uint32_t tokens) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) std::byte shared[];
  const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Ring ring{static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)), stages_for(kTokens), stage_bytes(kTokens)};
  if (threadIdx.x == 0) {
    for (std::uint32_t i = 0; i < ring.stages; ++i) {
      init_barrier(ring.base + i * 16, 1);
      init_barrier(ring.base + i * 16 + 8, kMultiplyWarps);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  Task task;
  task.tiles = tiles_of(m.rows);
  task.pieces = pieces_of(m.cols);
  task.token_blocks = (tokens + kTokens - 1) / kTokens;
  task.outputs = (task.tiles + kBlockTiles - 1) / kBlockTiles * task.token_blocks;
  // The producer needs few registers and leaves them to the others.
  if (warp >= kMultiplyWarps) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (warp == kMultiplyWarps) produce<kTokens>(m, in, task, ring, lane);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    auto* totals = reinterpret_cast<float4*>(shared + kBarrierBytes + ring.stages * stage_bytes(kTokens)) + threadIdx.x;
    consume<kTokens>(m, in, tokens, task, ring, totals, warp, lane);
  }
#endif
}

template <int kTokens>
std::uint32_t outputs_of(const MatrixArgs& m, std::uint32_t tokens) {
  return (tiles_of(m.rows) + kBlockTiles - 1) / kBlockTiles * ((tokens + kTokens - 1) / kTokens);
}

template <int kTokens>
void start(cudaStream_t stream, const MatrixArgs& m, std::uint32_t tokens, const PreparedInput& in,
           std::uint32_t most) {
  const std::uint32_t outputs = outputs_of<kTokens>(m, tokens), blocks = outputs < most ? outputs : most;
  gemm_wgmma_kernel<kTokens><<<blocks, kThreads, kSharedBytes, stream>>>(m, in, tokens);
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

void gemm_wgmma(cudaStream_t stream, const MatrixArgs& m, std::uint32_t tokens, const PreparedInput& in) {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  const auto most = static_cast<std::uint32_t>(count);
  // Blocks of 128 tokens are a little more than half as long. They pay if those of 256 leave multiprocessors idle.
  const auto rounds = [&](std::uint32_t outputs) { return (outputs + most - 1) / most; };
  if (rounds(outputs_of<256>(m, tokens)) * 9 <= rounds(outputs_of<128>(m, tokens)) * 5) {
    start<256>(stream, m, tokens, in, most);
  } else {
    start<128>(stream, m, tokens, in, most);
  }
}

}  // namespace quire::cuda
