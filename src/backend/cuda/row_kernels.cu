#include "quire/backend/cuda/overlap.cuh"
#include "quire/backend/cuda/row_kernels.h"

namespace quire::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;

struct Rows {
  float* data;
  std::uint64_t stride;
  std::uint32_t cols;

  __device__ float* row(std::uint32_t i) const { return data + i * stride; }
};

Rows rows_of(Tensor t) { return {reinterpret_cast<float*>(t.data), t.stride, t.cols}; }

// A row per blockIdx.x, and kThreads columns of it per blockIdx.y.
dim3 grid_for(Tensor t) { return {t.rows, (t.cols + kThreads - 1) / kThreads}; }
bool empty(Tensor t) { return t.rows == 0 || t.cols == 0; }
__device__ std::uint32_t column() { return blockIdx.y * kThreads + threadIdx.x; }

// One block per row. A thread adds up the columns that are its own modulo kThreads, then warps and the block add up
// their threads: always in this order.
__global__ void __launch_bounds__(kThreads) rms_norm_kernel(Rows out, Rows x, const float* weight, float epsilon) {
  let_next_start();
  wait_for_previous();
  const float* from = x.row(blockIdx.x);
  float* to = out.row(blockIdx.x);
  float sum = 0;
  for (std::uint32_t i = threadIdx.x; i < x.cols; i += kThreads) sum = __fmaf_rn(from[i], from[i], sum);
  for (int mask = 16; mask > 0; mask /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, mask));
  __shared__ float warps[kThreads / 32];
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = warps[0];
  for (std::uint32_t w = 1; w < kThreads / 32; ++w) sum = __fadd_rn(sum, warps[w]);
  const float mean = __fdiv_rn(sum, static_cast<float>(x.cols));
  const float factor = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, epsilon)));
  // In place, a thread overwrites only what it alone reads again.
  for (std::uint32_t i = threadIdx.x; i < x.cols; i += kThreads)
    to[i] = __fmul_rn(__fmul_rn(from[i], factor), weight[i]);
}

__global__ void __launch_bounds__(kThreads) gather_kernel(Rows out, Rows x, const std::uint32_t* wanted) {
  let_next_start();
  wait_for_previous();
  const std::uint32_t col = column();
  if (col < out.cols) out.row(blockIdx.x)[col] = x.row(wanted[blockIdx.x])[col];
}

__global__ void __launch_bounds__(kThreads) add_kernel(Rows x, Rows y, float scale) {
  let_next_start();
  wait_for_previous();
  const std::uint32_t col = column();
  if (col < x.cols) x.row(blockIdx.x)[col] = __fmaf_rn(y.row(blockIdx.x)[col], scale, x.row(blockIdx.x)[col]);
}

__global__ void __launch_bounds__(kThreads) cap_kernel(Rows x, float cap, float scale) {
  let_next_start();
  wait_for_previous();
  const std::uint32_t col = column();
  if (col >= x.cols) return;
  float value = x.row(blockIdx.x)[col];
  if (cap > 0) value = __fmul_rn(cap, tanhf(__fdiv_rn(value, cap)));
  x.row(blockIdx.x)[col] = __fmul_rn(value, scale);
}

// The angle is a float product, as on the CPU; cosf and sinf are accurate for every angle.
__global__ void __launch_bounds__(kThreads)
    angles_kernel(Rows cosines, Rows sines, const float* frequencies, float magnitude, const std::uint32_t* positions) {
  const std::uint32_t col = column();
  if (col >= cosines.cols) return;
  const float angle = __fmul_rn(__uint2float_rn(positions[blockIdx.x]), frequencies[col]);
  cosines.row(blockIdx.x)[col] = __fmul_rn(cosf(angle), magnitude);
  sines.row(blockIdx.x)[col] = __fmul_rn(sinf(angle), magnitude);
}

__global__ void __launch_bounds__(kThreads)
    words_kernel(std::uint32_t* to, const WordWrite* words, std::uint32_t count) {
  const std::uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i < count) to[words[i].index] = words[i].value;
}

__global__ void probe_kernel() {}

}  // namespace

bool kernels_overlap() {
  constexpr int kDevices = 64;
  static signed char known[kDevices] = {};  // by device: 1 yes, -1 no
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device >= kDevices) return false;
  if (known[device] == 0) {
    cudaFuncAttributes attributes{};
    const bool found = cudaFuncGetAttributes(&attributes, probe_kernel) == cudaSuccess;
    known[device] = found && attributes.ptxVersion >= 90 ? 1 : -1;
  }
  return known[device] > 0;
}

void launch_rms_norm(cudaStream_t stream, Tensor out, Tensor x, Tensor weight, float epsilon) {
  if (empty(x)) return;
  launch(kernels_overlap(), stream, x.rows, kThreads, 0, rms_norm_kernel, rows_of(out), rows_of(x),
         rows_of(weight).data, epsilon);
}

void launch_gather_wanted(cudaStream_t stream, Tensor out, Tensor x, const DeviceBatch& batch) {
  if (empty(out)) return;
  launch(kernels_overlap(), stream, grid_for(out), kThreads, 0, gather_kernel, rows_of(out), rows_of(x), batch.wanted);
}

void launch_add(cudaStream_t stream, Tensor x, Tensor y, float scale) {
  if (empty(x)) return;
  launch(kernels_overlap(), stream, grid_for(x), kThreads, 0, add_kernel, rows_of(x), rows_of(y), scale);
}

void launch_cap_and_scale(cudaStream_t stream, Tensor x, float cap, float scale) {
  if (empty(x)) return;
  launch(kernels_overlap(), stream, grid_for(x), kThreads, 0, cap_kernel, rows_of(x), cap, scale);
}

void launch_rope_angles(cudaStream_t stream, Tensor cosines, Tensor sines, Tensor frequencies, float magnitude,
                        const DeviceBatch& batch) {
  if (empty(cosines)) return;
  angles_kernel<<<grid_for(cosines), kThreads, 0, stream>>>(rows_of(cosines), rows_of(sines), rows_of(frequencies).data,
                                                            magnitude, batch.positions);
}

void launch_write_words(cudaStream_t stream, void* to, const WordWrite* words, std::uint32_t count) {
  if (count == 0) return;
  words_kernel<<<(count + kThreads - 1) / kThreads, kThreads, 0, stream>>>(static_cast<std::uint32_t*>(to), words,
                                                                           count);
}

}  // namespace quire::cuda
