// Attention of a step on the GPU: scratch memory, the plan, and the calls of the kernels.
//
// The plan (which queries go over which part of the context) is made on the device, by the first store_kv() or
// attention() of a group in a step: only there are the page tables, which say what sequences share. So there is nothing
// to upload, and a captured step is right for every later batch with as many entries and rows.
#pragma once

#include <cstdint>
#include <vector>

#include <cuda_runtime_api.h>

#include "quire/backend/backend.h"
#include "quire/backend/cuda/attention_kernels.h"
#include "quire/backend/cuda/device_batch.h"

namespace quire::cuda {

class CudaAttention {
 public:
  void prepare(const Backend::Sizes& sizes, std::uint32_t multiprocessors);
  // Device memory that it needs, aligned to 256 bytes.
  std::uint64_t scratch_bytes() const;
  void set_scratch(std::byte* scratch) { scratch_ = scratch; }

  // A new step. Its plans are made when they are needed. Call it before launches are recorded, too.
  void begin(const Batch& batch);
  void store_kv(cudaStream_t stream, const AttentionShape& shape, const KvGroupView& kv, Tensor q, Tensor k, Tensor v,
                const HeadChanges& changes, const DeviceBatch& batch);
  void attention(cudaStream_t stream, Tensor out, Tensor q, const AttentionShape& shape, const KvGroupView& kv,
                 const DeviceBatch& batch);

 private:
  // What a plan depends on, besides the batch. All layers of a group have the same, as a rule.
  struct Key {
    std::uint32_t per_head = 0, kv_heads = 0, window = 0, wide = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };
  std::uint64_t parts_at() const;
  AttendKind kind_of(const AttentionShape& shape, const KvGroupView& kv) const;
  // Makes the group's plan, if this step has none that fits. Before keys are stored, not after: attention() looks into
  // the plan while store_kv() still runs.
  bool plan(cudaStream_t stream, const AttentionShape& shape, const KvGroupView& kv, const DeviceBatch& batch);

  Backend::Sizes sizes_;
  std::uint32_t multiprocessors_ = 1;
  std::uint32_t most_shared_ = 0;  // bytes of a block
  bool overlap_ = false;           // kernels may start while the one before ends
  PlanSizes plan_sizes_;
  std::byte* scratch_ = nullptr;
  std::vector<Key> planned_;                              // [groups]; per_head 0: no plan yet
  bool decodes_ = false, many_ = false, chunks_ = false;  // what the batch has; many: decodes
  std::uint32_t shortest_ = 0;                            // rows of a chunk
};

}  // namespace quire::cuda
