// K and V of one layer of one sequence, in one of two layouts chosen at creation:
//   contiguous  [kv_heads, capacity, head_dim], memory of its own, block size 0 and no table
//   paged       [pages, kv_heads, block_size, head_dim], a view on a PagedSeqState and its pool
// The same tokens give the same bytes in both. Kernels use view(). write() and read() are for code that moves state in
// and out: tests, tools, other engines.
//
// A sequence can read only positions that it has written or inherited with a shared prefix: it never sees bytes of
// another sequence. After its sequence's release() a cache is stale: every call but block_size() and token_bytes()
// returns StaleId. A shared page cannot be written. Positions that an engine declares as written (commit,
// sync_context_len) are not checked.
// write() and read() wait for the device: when they return, the caller's buffers are free or filled.
#pragma once

#include <cstdint>
#include <span>

#include "quire/state/paged_seq_state.h"

namespace quire {

class KvCache {
 public:
  static PoolResult<KvCache> contiguous(Device& device, std::uint32_t num_kv_heads, std::uint32_t capacity,
                                        std::uint32_t head_dim, ElementType type);
  // The sequence must outlive the cache and not move.
  static PoolResult<KvCache> paged(PagedSeqState& sequence, std::uint32_t layer);

  // Rows of `k` and `v` are tokens: [n, kv_heads, head_dim]. Positions are written in order, without gaps. Earlier ones
  // may be written again. In the paged layout the room must have been reserved (ensure_capacity). Where the value is a
  // part of the key (PageShape::planes is 1), `v` is empty.
  PoolResult<void> write(std::uint32_t position, std::span<const std::byte> k, std::span<const std::byte> v);
  PoolResult<void> read(std::uint32_t position, std::uint32_t count, std::span<std::byte> k,
                        std::span<std::byte> v) const;

  PoolResult<std::uint32_t> length() const;    // positions written
  PoolResult<std::uint32_t> capacity() const;  // positions there is room for
  std::uint32_t block_size() const { return sequence_ == nullptr ? 0 : sequence_->table().block_size(); }
  std::uint64_t token_bytes() const { return num_kv_heads_ * row_bytes(type_, head_dim_); }
  // What kernels see. Uploads the table first if it has changed. Valid as long as views of the sequence are.
  PoolResult<KvView> view() const;

 private:
  KvCache() = default;
  std::uint32_t written() const;
  std::uint32_t room() const;
  KvView plain_view() const;  // the cache must not be stale; the device's table may be out of date
  KvView host_view() const;   // with the table on the host instead of the device's
  PoolResult<std::uint32_t> rows_in(std::uint64_t k_bytes, std::uint64_t v_bytes) const;
  PoolResult<void> check_alive() const;
  PoolResult<void> upload(std::uint32_t position, std::span<const std::byte> k, std::span<const std::byte> v);
  template <typename Move>
  PoolResult<void> for_each_run(std::uint32_t position, std::uint32_t count, Move move) const;

  Device* device_ = nullptr;
  DeviceBuffer memory_;                // contiguous
  PagedSeqState* sequence_ = nullptr;  // paged
  std::uint32_t generation_ = 0;       // paged: generation of the sequence when the cache was created
  std::uint32_t layer_ = 0;            // paged
  std::uint32_t num_kv_heads_ = 0;
  std::uint32_t head_dim_ = 0;
  std::uint32_t planes_ = 2;
  ElementType type_ = ElementType::F16;
  std::uint32_t capacity_ = 0;  // contiguous
  std::uint32_t written_ = 0;   // contiguous
};

}  // namespace quire
