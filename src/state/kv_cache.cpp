#include "quire/state/kv_cache.h"

#include <algorithm>
#include <vector>

#include "quire/state/out_of_memory.h"

namespace quire {

PoolResult<KvCache> KvCache::contiguous(Device& device, std::uint32_t num_kv_heads, std::uint32_t capacity,
                                        std::uint32_t head_dim, ElementType type) {
  const PageShape shape{
      .block_size = 1, .num_layers = 1, .num_kv_heads = num_kv_heads, .head_dim = head_dim, .type = type};
  if (auto ok = shape.check(); !ok) return std::unexpected(ok.error());
  const auto bytes = checked_mul<std::uint64_t>(shape.layer_bytes(), capacity);
  if (!bytes) return std::unexpected(PoolError::invalid_argument("more bytes than can be counted"));
  auto memory = DeviceBuffer::create(device, *bytes);
  if (!memory) return std::unexpected(memory.error());
  KvCache cache;
  cache.device_ = &device;
  cache.memory_ = std::move(*memory);
  cache.num_kv_heads_ = num_kv_heads;
  cache.head_dim_ = head_dim;
  cache.type_ = type;
  cache.capacity_ = capacity;
  return cache;
}

PoolResult<KvCache> KvCache::paged(PagedSeqState& sequence, std::uint32_t layer) {
  const PageShape& shape = sequence.pool().shape();
  if (layer >= shape.num_layers) return std::unexpected(PoolError::invalid_argument("no such layer in the group"));
  KvCache cache;
  cache.device_ = &sequence.pool().device();
  cache.sequence_ = &sequence;
  cache.generation_ = sequence.generation_;
  cache.layer_ = layer;
  cache.num_kv_heads_ = shape.num_kv_heads;
  cache.head_dim_ = shape.head_dim;
  cache.planes_ = shape.planes;
  cache.type_ = shape.type;
  return cache;
}

std::uint32_t KvCache::written() const {
  if (sequence_ == nullptr) return written_;
  return std::max(sequence_->length(), sequence_->written_[layer_]);
}

std::uint32_t KvCache::room() const { return sequence_ == nullptr ? capacity_ : sequence_->capacity(); }

PoolResult<std::uint32_t> KvCache::length() const {
  if (auto ok = check_alive(); !ok) return std::unexpected(ok.error());
  return written();
}

PoolResult<std::uint32_t> KvCache::capacity() const {
  if (auto ok = check_alive(); !ok) return std::unexpected(ok.error());
  return room();
}

PoolResult<KvView> KvCache::view() const {
  if (auto ok = check_alive(); !ok) return std::unexpected(ok.error());
  if (sequence_ != nullptr) {
    if (auto ok = sequence_->sync(); !ok) return std::unexpected(ok.error());
  }
  return plain_view();
}

KvView KvCache::plain_view() const {
  if (sequence_ != nullptr) return sequence_->view(layer_);
  KvView view;
  view.base = memory_.data();
  view.token_stride = row_bytes(type_, head_dim_);
  view.head_stride = view.token_stride * capacity_;
  view.v_offset = (planes_ - 1) * view.head_stride * num_kv_heads_;
  view.num_kv_heads = num_kv_heads_;
  view.head_dim = head_dim_;
  view.type = type_;
  view.length = written_;
  view.capacity = capacity_;
  return view;
}

PoolResult<void> KvCache::check_alive() const {
  if (sequence_ == nullptr || generation_ == sequence_->generation_) return {};
  return std::unexpected(PoolError::stale(layer_));
}

KvView KvCache::host_view() const {
  KvView result = plain_view();
  if (sequence_ != nullptr) result.table = sequence_->locations().data();
  return result;
}

PoolResult<std::uint32_t> KvCache::rows_in(std::uint64_t k_bytes, std::uint64_t v_bytes) const {
  const std::uint64_t expected = planes_ == 1 ? 0 : k_bytes;
  if (expected != v_bytes) return std::unexpected(PoolError::shape_mismatch("K and V", expected, v_bytes));
  if (k_bytes % token_bytes() != 0) {
    return std::unexpected(PoolError::shape_mismatch("rows of K and V", token_bytes(), k_bytes % token_bytes()));
  }
  return static_cast<std::uint32_t>(k_bytes / token_bytes());
}

// Calls move(offset of the row in the buffers, K address, V address, bytes) for each head of each position.
template <typename Move>
PoolResult<void> KvCache::for_each_run(std::uint32_t position, std::uint32_t count, Move move) const {
  const KvView kv = host_view();
  for (std::uint32_t i = 0; i < count; ++i) {
    for (std::uint32_t head = 0; head < num_kv_heads_; ++head) {
      const std::uint64_t offset = i * token_bytes() + head * kv.token_stride;
      if (auto ok = move(offset, kv.k(head, position + i), kv.v(head, position + i), kv.token_stride); !ok) return ok;
    }
  }
  return {};
}

PoolResult<void> KvCache::write(std::uint32_t position, std::span<const std::byte> k, std::span<const std::byte> v) {
  if (auto ok = check_alive(); !ok) return ok;
  const auto rows = rows_in(k.size(), v.size());
  if (!rows) return std::unexpected(rows.error());
  const std::uint64_t end = std::uint64_t{position} + *rows;
  if (end > room()) return std::unexpected(PoolError::not_reserved(end, room()));
  if (position > written()) return std::unexpected(PoolError::not_written(written()));
  if (sequence_ != nullptr) {
    if (*rows > 0 && position / block_size() < sequence_->table().first()) {
      return std::unexpected(PoolError::not_reserved(position, sequence_->table().first() * block_size()));
    }
    const BlockAllocator& allocator = sequence_->pool().allocator();
    for (std::uint64_t p = position; p < end; p = (p / block_size() + 1) * block_size()) {
      const std::uint32_t page = sequence_->table().page(static_cast<std::uint32_t>(p / block_size())).index;
      if (allocator.references_at(page) > 1 || allocator.is_kept(page)) {
        return std::unexpected(PoolError::shared_page(page));
      }
    }
  }
  // Saves the rows that will be overwritten. If the device refuses half-way, they are written
  // back, so that they can be read as before.
  const std::uint32_t readable = std::min(written(), static_cast<std::uint32_t>(end));
  const std::uint32_t rewritten = readable > position ? readable - position : 0;
  std::vector<std::byte> old_k, old_v;
  const auto room = or_out_of_memory("the rows that are overwritten", [&]() -> PoolResult<void> {
    old_k.resize(rewritten * token_bytes());
    old_v.resize((planes_ - 1) * rewritten * token_bytes());
    return {};
  });
  if (!room) return room;
  if (rewritten > 0) {
    if (auto ok = read(position, rewritten, old_k, old_v); !ok) return ok;
  }
  std::uint32_t& end_of_writes = sequence_ == nullptr ? written_ : sequence_->written_[layer_];
  if (auto ok = upload(position, k, v); !ok) {
    const bool restored = rewritten == 0 || upload(position, old_k, old_v).has_value();
    if (!device_->fence() || !restored) end_of_writes = std::min(end_of_writes, position);
    return ok;
  }
  if (auto ok = device_->fence(); !ok) {
    end_of_writes = std::min(end_of_writes, position);  // the content is undefined now
    return ok;
  }
  end_of_writes = std::max(end_of_writes, static_cast<std::uint32_t>(end));
  return {};
}

PoolResult<void> KvCache::upload(std::uint32_t position, std::span<const std::byte> k, std::span<const std::byte> v) {
  const auto rows = static_cast<std::uint32_t>(k.size() / token_bytes());
  return for_each_run(
      position, rows,
      [&](std::uint64_t offset, std::byte* k_at, std::byte* v_at, std::uint64_t bytes) -> PoolResult<void> {
        if (auto ok = device_->upload(k_at, k.data() + offset, bytes); !ok || planes_ == 1) return ok;
        return device_->upload(v_at, v.data() + offset, bytes);
      });
}

PoolResult<void> KvCache::read(std::uint32_t position, std::uint32_t count, std::span<std::byte> k,
                               std::span<std::byte> v) const {
  if (auto ok = check_alive(); !ok) return ok;
  const auto rows = rows_in(k.size(), v.size());
  if (!rows) return std::unexpected(rows.error());
  if (*rows != count) return std::unexpected(PoolError::shape_mismatch("rows of K and V", count, *rows));
  if (std::uint64_t{position} + count > written()) {
    return std::unexpected(PoolError::not_written(std::max(position, written())));
  }
  if (sequence_ != nullptr && count > 0 && position / block_size() < sequence_->table().first()) {
    return std::unexpected(PoolError::not_written(position));  // its page was given back: it is outside the window
  }
  const auto submitted = for_each_run(
      position, count,
      [&](std::uint64_t offset, const std::byte* k_at, const std::byte* v_at, std::uint64_t bytes) -> PoolResult<void> {
        if (auto ok = device_->download(k.data() + offset, k_at, bytes); !ok || planes_ == 1) return ok;
        return device_->download(v.data() + offset, v_at, bytes);
      });
  const auto fenced = device_->fence();  // also after a refusal: the caller gets its buffers back
  return submitted ? fenced : submitted;
}

}  // namespace quire
