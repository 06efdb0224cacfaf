#include "quire/backend/cuda/cuda_attention.h"

#include <algorithm>

#include "quire/backend/cuda/row_kernels.h"

namespace quire::cuda {
namespace {

// Parts that the scratch memory holds: 64 sequences of 32k tokens. Sequences beyond that are not divided, which costs
// nothing where there are so many of them.
constexpr std::uint32_t kParts = 8192;

// The largest power of two up to 16 that divides the addresses of all rows.
std::uint32_t alignment_of(const KvGroupView& kv) {
  const std::uint64_t all = reinterpret_cast<std::uintptr_t>(kv.base) | kv.page_unit | kv.layer_stride | kv.v_offset |
                            kv.head_stride | kv.token_stride | row_bytes(kv.type, kv.head_dim) | 16;
  return static_cast<std::uint32_t>(all & (~all + 1));
}

}  // namespace

void CudaAttention::prepare(const Backend::Sizes& sizes, std::uint32_t multiprocessors) {
  sizes_ = sizes;
  multiprocessors_ = multiprocessors;
  int device = 0, most = 48 << 10;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  most_shared_ = static_cast<std::uint32_t>(most);
  overlap_ = attention_overlaps();
  plan_sizes_ = {sizes.rows, kParts, sizes.heads};
  planned_.assign(sizes.groups, {});
}

std::uint64_t CudaAttention::parts_at() const { return plan_sizes_.bytes() * sizes_.groups; }

std::uint64_t CudaAttention::scratch_bytes() const {
  if (sizes_.heads == 0) return 0;
  return parts_at() + std::uint64_t{kParts} * (sizes_.heads * sizeof(float2) + sizes_.attention_cols * sizeof(float));
}

void CudaAttention::begin(const Batch& batch) {
  std::ranges::fill(planned_, Key{});
  std::uint32_t singles = 0, chunks = 0;
  shortest_ = kWide;
  for (const BatchEntry& entry : batch.entries()) {
    singles += entry.rows == 1 ? 1 : 0;
    chunks += entry.rows > 1 ? 1 : 0;
    if (entry.rows > 1) shortest_ = std::min(shortest_, entry.rows);
  }
  decodes_ = singles != 0;
  many_ = singles > 1;
  chunks_ = chunks != 0;
}

void CudaAttention::store_kv(cudaStream_t stream, const AttentionShape& shape, const KvGroupView& kv, Tensor q,
                             Tensor k, Tensor v, const HeadChanges& changes, const DeviceBatch& batch) {
  if (q.rows == 0) return;
  // A norm over all heads of a row comes first, as a kernel of its own.
  const auto head_norm = [&](Tensor x, Tensor weight) {
    if (!weight.valid() || weight.cols == shape.head_dim) return weight;
    launch_rms_norm(stream, x, x, weight, changes.epsilon);
    return Tensor{};
  };
  const Tensor q_norm = head_norm(q, changes.q_norm), k_norm = head_norm(k, changes.k_norm);
  plan(stream, shape, kv, batch);
  launch_store_kv(stream, {.kv = kv,
                           .batch = batch,
                           .q = q,
                           .k = k,
                           .v = v,
                           .q_norm = q_norm,
                           .k_norm = k_norm,
                           .cosines = changes.cosines,
                           .sines = changes.sines,
                           .key_balance = kv.type == ElementType::Q8_0 ? changes.key_balance : Tensor{},
                           .epsilon = changes.epsilon,
                           .neighbours = changes.pairs == RopePairs::Neighbours,
                           .layer = shape.layer,
                           .heads = shape.heads,
                           .kv_heads = shape.kv_heads,
                           .head_dim = shape.head_dim,
                           .overlap = overlap_});
}

AttendKind CudaAttention::kind_of(const AttentionShape& shape, const KvGroupView& kv) const {
  // Rows of halves are copied 16 bytes at a time. Those of a pool are aligned to more.
  const bool aligned = kv.type == ElementType::Q8_0 || alignment_of(kv) == 16;
  return aligned ? attend_kind(kv.type, shape.head_dim, most_shared_) : AttendKind::General;
}

bool CudaAttention::plan(cudaStream_t stream, const AttentionShape& shape, const KvGroupView& kv,
                         const DeviceBatch& batch) {
  const std::uint32_t per_head = shape.heads / shape.kv_heads;
  const std::uint32_t wide = wide_queries(kind_of(shape, kv), shape.head_dim);
  const Key key{per_head, shape.kv_heads, shape.window, wide};
  if (planned_[shape.group] == key) return false;
  planned_[shape.group] = key;
  launch_attention_plan(stream,
                        {.kv = kv,
                         .batch = batch,
                         .plan = plan_sizes_.view(scratch_ + shape.group * plan_sizes_.bytes()),
                         .per_head = per_head,
                         .kv_heads = shape.kv_heads,
                         .window = shape.window,
                         .wide = wide,
                         .parts = kParts,
                         .slots = 2 * multiprocessors_},
                        decodes_);
  return true;
}

void CudaAttention::attention(cudaStream_t stream, Tensor out, Tensor q, const AttentionShape& shape,
                              const KvGroupView& kv, const DeviceBatch& batch) {
  if (q.rows == 0) return;
  const bool planned_now = plan(stream, shape, kv, batch);
  const std::uint32_t per_head = shape.heads / shape.kv_heads;
  std::byte* const parts = scratch_ + parts_at();
  const AttendCall call{
      .kv = kv,
      .batch = batch,
      .plan = plan_sizes_.view(scratch_ + shape.group * plan_sizes_.bytes()),
      .out = out,
      .q = q,
      .part_sums = reinterpret_cast<float*>(parts + std::uint64_t{kParts} * sizes_.heads * sizeof(float2)),
      .part_totals = reinterpret_cast<float2*>(parts),
      .layer = shape.layer,
      .heads = shape.heads,
      .kv_heads = shape.kv_heads,
      .per_head = per_head,
      .head_dim = shape.head_dim,
      .scale = shape.scale,
      .soft_cap = shape.soft_cap,
      .window = shape.window,
      .copy_bytes = alignment_of(kv),
      .overlap = overlap_ && !planned_now};
  // A decode row has per_head queries; rows of several sequences that share pages are an item together.
  const bool wide_items = chunks_ || many_ || per_head > kNarrow;
  const bool narrow_items = decodes_ || shortest_ * per_head <= kNarrow;
  launch_attend(stream, kind_of(shape, kv), call, multiprocessors_, narrow_items, wide_items);
}

}  // namespace quire::cuda
