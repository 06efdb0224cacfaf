// Makes the input of a product ready: norm, gate or activation, then halves in the order that matrix instructions read.
// One block per token. The number of threads follows from the columns alone, so sums have one order.
#include "quire/backend/cuda/hopper.cuh"
#include "quire/backend/cuda/input_rows.cuh"
#include "quire/backend/cuda/overlap.cuh"

namespace quire::cuda {

namespace {

constexpr std::uint32_t kFew = 128;  // tokens: more of them take kernels with more blocks on a multiprocessor

struct Write {
  PreparedInput to;
  InputForms forms;
  std::uint32_t token, pieces;
  float power = 1;

  __device__ void scale_by(int exponent) {
    power = power_of_two(exponent);
    if (threadIdx.x == 0 && (forms.halves || forms.rows)) to.inverses[token] = power_of_two(-exponent);
  }
  __device__ void operator()(std::uint32_t c, float4 v) const {
    const std::uint64_t at = input_at(pieces, token, c);  // columns c + 2 and c + 3 are 64 halves further
    if (forms.halves) {
      put_pair(to.halves + at, __float2half_rn(v.x * power), __float2half_rn(v.y * power));
      put_pair(to.halves + at + 64, __float2half_rn(v.z * power), __float2half_rn(v.w * power));
    }
    if (forms.rows) {
      std::uint16_t* const row = to.rows + std::uint64_t{token} * pieces * kPieceCols + c;
      put_pair(row, __float2half_rn(v.x * power), __float2half_rn(v.y * power));
      put_pair(row + 2, __float2half_rn(v.z * power), __float2half_rn(v.w * power));
    }
    if (forms.bf16) {
      const float value[4] = {v.x, v.y, v.z, v.w};
      __nv_bfloat16 high[4], low[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        high[i] = __float2bfloat16_rn(value[i]);
        low[i] = __float2bfloat16_rn(value[i] - __bfloat162float(high[i]));
      }
      put_pair(to.high + at, high[0], high[1]);
      put_pair(to.high + at + 64, high[2], high[3]);
      put_pair(to.low + at, low[0], low[1]);
      put_pair(to.low + at + 64, low[2], low[3]);
    }
    if (forms.floats) *reinterpret_cast<float4*>(to.floats + std::uint64_t{token} * pieces * kPieceCols + c) = v;
  }
};

// kMany: a token is mostly waiting, so many tokens need many blocks on a multiprocessor, which leaves each few
// registers.
template <std::uint32_t kHeld, bool kMany, bool kLayer>
__global__ void __launch_bounds__(kMostThreads, kMany ? (kHeld > 2 ? 2 : 3) : (kHeld > 4 ? 1 : 2))
    prepare_kernel(InputArgs input, PreparedInput to, InputForms forms, bool aligned) {
  extern __shared__ float norms[];  // of the groups
  __shared__ float room[32];
  let_next_start();
  const Row row = row_of(input, blockIdx.x, norms, aligned);
  const RowThread thread{threadIdx.x, blockDim.x};
  float4 ahead[kAhead];
  if (!kMany) weights_ahead(row, thread, ahead);
  wait_for_previous();
  Write write{to, forms, blockIdx.x, pieces_of(row.cols)};
  make_ready<kHeld, !kMany, kLayer>(input, row, thread, ahead, room, norms, write);
}

// Gated inputs of few tokens: the blocks of a cluster share a token's columns. (A norm's sum has its order, a maximum
// has none.)
constexpr std::uint32_t kShare = 8;
constexpr std::uint32_t kShareHeld = 2;

__global__ void QUIRE_HOPPER_BOUNDS(kMostThreads, 2)
    gated_kernel(InputArgs input, PreparedInput to, InputForms forms, bool aligned) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __shared__ float room[32];
  __shared__ float most_here;
  let_next_start();
  const std::uint32_t token = blockIdx.x / kShare, cols = input.x.cols, pieces = pieces_of(cols), quads = pieces * 64;
  const std::uint32_t first = cluster_rank() * blockDim.x + threadIdx.x, apart = kShare * blockDim.x;
  const Row row = row_of(input, token, nullptr, aligned);
  wait_for_previous();
  float4 held[kShareHeld];
  quads_before<kShareHeld, true>(row, first, apart, held);
  float most = 0;
#pragma unroll
  for (std::uint32_t h = 0; h < kShareHeld; ++h) most = fmaxf(most, most_of(held[h]));
  const auto larger = [](float a, float b) { return fmaxf(a, b); };
  most = over_block(most, larger, room);
  if (threadIdx.x == 0) most_here = most;
  cluster_sync();
  const auto there = static_cast<std::uint32_t>(__cvta_generic_to_shared(&most_here));
  most = float_in_cluster(in_block(there, threadIdx.x % kShare));
#pragma unroll
  for (int distance = kShare / 2; distance > 0; distance /= 2) {
    most = fmaxf(most, __shfl_xor_sync(~0u, most, distance));
  }
  Write write{to, forms, token, pieces};
  write.scale_by(exponent_for(most));
#pragma unroll
  for (std::uint32_t h = 0; h < kShareHeld; ++h) {
    if (first + h * apart < quads) write(column_of(first + h * apart), held[h]);
  }
  cluster_sync();  // others may still read
#endif
}

void launch_gated(cudaStream_t stream, const InputArgs& input, const PreparedInput& to, InputForms forms,
                  bool aligned) {
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {kShare, 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(input.x.rows * kShare);
  config.blockDim = dim3(kMostThreads);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  cudaLaunchKernelEx(&config, gated_kernel, input, to, forms, aligned);
}

}  // namespace

cudaError_t prepare_inputs() {
  for (auto* const kernel :
       {prepare_kernel<2, false, false>, prepare_kernel<8, false, false>, prepare_kernel<2, true, false>,
        prepare_kernel<4, true, false>, prepare_kernel<8, true, false>, prepare_kernel<2, false, true>,
        prepare_kernel<8, false, true>, gated_kernel}) {
    if (const cudaError_t error = want_shared_memory(kernel); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

void launch_prepare(cudaStream_t stream, const InputArgs& input, const PreparedInput& to, InputForms forms) {
  const std::uint32_t quads = pieces_of(input.x.cols) * 64;
  const bool aligned = is_aligned(input), many = input.x.rows > kFew;
  const bool gated = input.gate.valid() && input.kind != InputKind::GatedNormed && input.kind != InputKind::NormedGated;
  // Overlap means compute capability 9.0.
  if (gated && !many && to.overlap && quads > kMostThreads && quads <= kShare * kShareHeld * kMostThreads) {
    return launch_gated(stream, input, to, forms, aligned);
  }
  const bool short_row = quads <= 2 * kMostThreads;
  auto* kernel = short_row                   ? (many ? prepare_kernel<2, true, false> : prepare_kernel<2, false, false>)
                 : !many                     ? prepare_kernel<8, false, false>
                 : quads <= 4 * kMostThreads ? prepare_kernel<4, true, false>
                                             : prepare_kernel<8, true, false>;
  if (input.kind == InputKind::LayerNormed) {
    kernel = short_row ? prepare_kernel<2, false, true> : prepare_kernel<8, false, true>;
  }
  // One more than there are groups: a LayerNorm has its mean there.
  launch(to.overlap, stream, input.x.rows, row_threads(input.x.cols), (input.groups + 1) * sizeof(float), kernel, input,
         to, forms, aligned);
}

}  // namespace quire::cuda
