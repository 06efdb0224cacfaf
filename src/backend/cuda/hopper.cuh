// Instructions of compute capability 9.0a that kernels of products use: copies from memory to shared memory that count
// bytes on a barrier, clusters of blocks, and wgmma. Only where the compiler makes code for 9.0a.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

namespace quire::cuda {

// A kernel that is empty elsewhere says so by its most threads.
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define QUIRE_HOPPER_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#else
#define QUIRE_HOPPER_BOUNDS(threads, blocks) __launch_bounds__(32)
#endif

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// --- barriers in shared memory

__device__ inline void init_barrier(std::uint32_t barrier, std::uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
// After the last init_barrier(); then the block (or the cluster) synchronises.
__device__ inline void barriers_ready() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline void expect_bytes(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ inline void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void wait_for(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done = 0;
  while (done == 0) {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
  }
}
__device__ inline void copy_bytes(std::uint32_t to, const std::byte* from, std::uint32_t bytes, std::uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
// Copies that start after this find what the thread has read before it still in place. (A reader that arrives at a
// barrier needs no other fence.)
__device__ inline void reads_before_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A ring of slots in shared memory. `full`: the copies have arrived. `empty`: all warps have read them.
struct Ring {
  std::uint32_t barriers, slots_at;  // in shared memory
  std::uint32_t slots, slot_bytes;
  std::uint32_t slot = 0, parity = 0;

  __device__ std::uint32_t full() const { return barriers + slot * 16; }
  __device__ std::uint32_t empty() const { return barriers + slot * 16 + 8; }
  __device__ std::uint32_t data() const { return slots_at + slot * slot_bytes; }
  __device__ void next() {
    if (++slot < slots) return;
    slot = 0;
    parity ^= 1;
  }
  __device__ void init(std::uint32_t readers) const {
    for (std::uint32_t i = 0; i < slots; ++i) {
      init_barrier(barriers + i * 16, 1);
      init_barrier(barriers + i * 16 + 8, readers);
    }
  }
};

// Some warps of a block, `threads` in all.
__device__ inline void bar_sync(std::uint32_t number, std::uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// --- clusters

__device__ inline std::uint32_t cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The same place in shared memory of another block.
__device__ inline std::uint32_t in_block(std::uint32_t at, std::uint32_t rank) {
  std::uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
  return there;
}
__device__ inline float float_in_cluster(std::uint32_t at) {
  float v;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(at) : "memory");
  return v;
}
__device__ inline float4 floats_in_cluster(std::uint32_t at) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(at)
               : "memory");
  return v;
}

// --- matrix instructions

__device__ inline std::uint64_t input_descriptor(std::uint32_t at) {
  // Rows of 16 bytes: 8 tokens x 8 columns are 128 bytes in a row, the other 8 columns follow, then the next 8 tokens.
  return (std::uint64_t{at >> 4} & 0x3fff) | std::uint64_t{128 >> 4} << 16 | std::uint64_t{256 >> 4} << 32;
}

#define QUIRE_SUMS_4(i) "+f"(sums[i]), "+f"(sums[(i) + 1]), "+f"(sums[(i) + 2]), "+f"(sums[(i) + 3])
#define QUIRE_SUMS_16(i) QUIRE_SUMS_4(i), QUIRE_SUMS_4((i) + 4), QUIRE_SUMS_4((i) + 8), QUIRE_SUMS_4((i) + 12)
#define QUIRE_WGMMA(shape) "{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned." shape ".f32.f16.f16 {"
#define QUIRE_TO_15 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define QUIRE_TO_31 QUIRE_TO_15 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define QUIRE_TO_63                                                                                   \
  QUIRE_TO_31                                                                                         \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, " \
  "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define QUIRE_TO_127                                                                                  \
  QUIRE_TO_63                                                                                         \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, " \
  "%83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, " \
  "%102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, "  \
  "%118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// sums += weights * inputs, of 64 rows and kTokens tokens. Element i of a lane's sums: row g + 8 * (i / 2 % 2) of the
// warp's tile, token i / 4 * 8 + 2 t + i % 2.
template <int kTokens>
__device__ inline void multiply_async(float (&sums)[kTokens / 2], const uint4& a, std::uint64_t inputs) {
  if constexpr (kTokens == 256) {
    asm volatile(QUIRE_WGMMA("m64n256k16") QUIRE_TO_127 "}, {%128, %129, %130, %131}, %132, p, 1, 1, 0;}"
                 : QUIRE_SUMS_16(0), QUIRE_SUMS_16(16), QUIRE_SUMS_16(32), QUIRE_SUMS_16(48), QUIRE_SUMS_16(64),
                   QUIRE_SUMS_16(80), QUIRE_SUMS_16(96), QUIRE_SUMS_16(112)
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(inputs));
  } else if constexpr (kTokens == 128) {
    asm volatile(QUIRE_WGMMA("m64n128k16") QUIRE_TO_63 "}, {%64, %65, %66, %67}, %68, p, 1, 1, 0;}"
                 : QUIRE_SUMS_16(0), QUIRE_SUMS_16(16), QUIRE_SUMS_16(32), QUIRE_SUMS_16(48)
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(inputs));
  } else if constexpr (kTokens == 64) {
    asm volatile(QUIRE_WGMMA("m64n64k16") QUIRE_TO_31 "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0;}"
                 : QUIRE_SUMS_16(0), QUIRE_SUMS_16(16)
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(inputs));
  } else if constexpr (kTokens == 32) {
    asm volatile(QUIRE_WGMMA("m64n32k16") QUIRE_TO_15 "}, {%16, %17, %18, %19}, %20, p, 1, 1, 0;}"
                 : QUIRE_SUMS_16(0)
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(inputs));
  } else if constexpr (kTokens == 16) {
    asm volatile(QUIRE_WGMMA("m64n16k16") "%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, p, 1, 1, 0;}"
                 : QUIRE_SUMS_4(0), QUIRE_SUMS_4(4)
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(inputs));
  } else {
    static_assert(kTokens == 8);
    asm volatile(QUIRE_WGMMA("m64n8k16") "%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, p, 1, 1, 0;}"
                 : QUIRE_SUMS_4(0)
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(inputs));
  }
}

#undef QUIRE_TO_127
#undef QUIRE_TO_63
#undef QUIRE_TO_31
#undef QUIRE_TO_15
#undef QUIRE_WGMMA
#undef QUIRE_SUMS_16
#undef QUIRE_SUMS_4

__device__ inline void begin_multiply() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void end_multiply() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most kLeft groups run.
template <int kLeft>
__device__ inline void wait_multiply() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
// The compiler must not read sums before they are there.
template <int kCount>
__device__ inline void settle(float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

__device__ inline uint4 shared_16(std::uint32_t at) {
  uint4 a;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(a.x), "=r"(a.y), "=r"(a.z), "=r"(a.w)
               : "r"(at)
               : "memory");
  return a;
}
__device__ inline uint2 shared_8(std::uint32_t at) {
  uint2 a;
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(a.x), "=r"(a.y) : "r"(at) : "memory");
  return a;
}

#endif

}  // namespace quire::cuda
