// Products on a GPU: the host's part. It owns no memory: the backend allocates what scratch_bytes() says, and uploads
// what arrange() has written.
//
// How exactness is kept: one arithmetic per type of weights. A weight is a half (or a bf16, or a float), an input is a
// half times a power of two per row, and sums run over the columns in an order that the shape of the matrix decides
// (product_layout.h). The number of tokens only decides which kernel does it.
//
// Who may call: one thread. matmul() only launches kernels: it allocates nothing, never waits, and can be captured in a
// CUDA graph. Errors of launches are left for cudaGetLastError().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cuda_runtime_api.h>

#include "quire/backend/backend.h"
#include "quire/backend/cuda/product_kernels.h"
#include "quire/base/thread_team.h"

namespace quire::cuda {

class CudaProducts {
 public:
  // Device memory that products of steps of this size need, besides the weights.
  static std::uint64_t scratch_bytes(const Backend::Sizes& sizes);
  // Takes that memory, aligned to 256 bytes. Also asks the driver for the kernels' shared memory: the current device
  // must be the right one. Before the first matmul(), and not while a stream is captured.
  cudaError_t prepare(const Backend::Sizes& sizes, std::byte* scratch);

  // Device memory of a matrix, a multiple of 256 bytes. Product: the layout of products. Lookup and Heads: the file's
  // rows. Both: one after the other.
  static std::uint64_t weight_bytes(const FileMatrix& matrix, WeightUse use);
  // Writes weight_bytes() bytes to host memory, to be uploaded.
  static void arrange(const FileMatrix& matrix, WeightUse use, ThreadTeam& team, std::byte* staging);
  // The matrix as the kernels know it, once those bytes are at `device`. Lookup: `data` is the file's rows of
  // `unit_bytes`. Both: `table` is.
  static Weight weight(const FileMatrix& matrix, WeightUse use, const std::byte* device);

  // Whether this device has launch_split().
  bool has_split() const { return split_; }
  // Whether kernels may start while the one before them ends (overlap.cuh).
  bool overlaps() const { return prepared_.overlap; }
  // For tests: other kernels than the best ones. The bits are the same.
  enum class Kernels : std::uint8_t { Best, Split, Mma };
  void use(Kernels kernels) { kernels_ = kernels; }

  // For the other products of a step (cuda_experts.h): a matrix and an input as kernels take them, and the place where
  // matmul() makes inputs ready.
  static MatrixArgs args_of(const Product& product);
  static InputArgs args_of(const Input& input);
  const PreparedInput& prepared() const { return prepared_; }

  void matmul(cudaStream_t stream, std::span<const Product> products, const Input& input) const;

 private:
  // All matrices of a set have the same packing and columns.
  void multiply(cudaStream_t stream, Packing packing, const MatrixSet& set, std::uint32_t tokens,
                const InputArgs* raw) const;
  bool takes_ring(Packing packing, std::uint32_t tokens, std::uint32_t cols) const;
  bool takes_split(Packing packing, std::uint32_t tokens) const;
  void multiply_expanded(cudaStream_t stream, Packing packing, const MatrixSet& set, std::uint32_t tokens) const;

  Backend::Sizes sizes_;
  PreparedInput prepared_;         // where inputs are made ready
  std::byte* expanded_ = nullptr;  // kExpandedBytes, for quantised weights as halves
  bool split_ = false;
  std::uint32_t processors_ = 0;  // of the device
  Kernels kernels_ = Kernels::Best;
};

}  // namespace quire::cuda
