// Packed weights from shared memory to registers, for compute capability 9.0a.
#pragma once

#include "quire/backend/cuda/fragments.cuh"
#include "quire/backend/cuda/hopper.cuh"

namespace quire::cuda {

inline constexpr int kQuarter = 4;  // steps of a quarter of a piece

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

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

#endif

}  // namespace quire::cuda
