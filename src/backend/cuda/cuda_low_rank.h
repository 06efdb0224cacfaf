// Adapters on a GPU: the host's part. It says which rows of a product have which pair of matrices, and launches.
//
// Who may call: one thread. Launches can be captured in a CUDA graph, as long as the groups of the step's rows are the
// same (AdaptedRows); the lists of rows are read from device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cuda_runtime_api.h>

#include "quire/backend/adapted_rows.h"
#include "quire/backend/backend.h"
#include "quire/backend/cuda/device_batch.h"
#include "quire/backend/cuda/low_rank_kernels.h"
#include "quire/backend/cuda/product_kernels.h"

namespace quire::cuda {

class CudaLowRank {
 public:
  // Device memory for steps of this size; 0 if there are no adapters.
  static std::uint64_t scratch_bytes(const Backend::Sizes& sizes);
  void prepare(const Backend::Sizes& sizes, std::byte* scratch);

  // Groups the rows of a step. Lists of rows are in device memory from then on: the caller uploads them.
  void begin(const Batch& batch) { rows_.group(batch); }
  const AdaptedRows& rows() const { return rows_; }
  void set_lists(const std::uint32_t* all, const std::uint32_t* wanted) {
    all_ = all;
    wanted_ = wanted;
  }

  // A product: A x before it, since its outputs may lie on its input; B t after it.
  bool adapts(std::span<const Product> products) const;
  void before(cudaStream_t stream, std::span<const Product> products, const Input& input,
              const PreparedInput& prepared) const;
  void after(cudaStream_t stream, std::span<const Product> products, std::uint32_t rows) const;
  void embed(cudaStream_t stream, Tensor out, const Weight& table, float scale, const DeviceBatch& batch) const;
  // One matrix of the chosen experts: x is by row, or by place; the result is added to `out`, by place.
  void add_to_chosen(cudaStream_t stream, const Product& product, const float* x, std::uint64_t x_stride,
                     bool x_by_place, const Choices& choices) const;

 private:
  template <typename Use>
  void for_each_set(std::span<const Product> products, std::uint32_t rows, Use use) const;
  const std::uint32_t* list_of(const AdaptedRows::Rows& rows) const {
    return &rows == &rows_.of_all() ? all_ : wanted_;
  }

  AdaptedRows rows_;
  const std::uint32_t *all_ = nullptr, *wanted_ = nullptr;
  float* t_ = nullptr;
  std::uint32_t t_stride_ = 0, max_rows_ = 0;
};

}  // namespace quire::cuda
