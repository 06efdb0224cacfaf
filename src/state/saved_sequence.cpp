#include "quire/state/saved_sequence.h"

#include <new>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace quire {
namespace {

// A hash over numbers and byte runs. The length of each run is hashed before it, so different
// divisions into runs give different hashes.
class Hasher {
 public:
  Hasher() { XXH3_128bits_reset(&state_); }
  void number(std::uint64_t value) { XXH3_128bits_update(&state_, &value, sizeof value); }
  void run(const void* data, std::uint64_t bytes) {
    number(bytes);
    if (bytes > 0) XXH3_128bits_update(&state_, data, bytes);
  }
  Hash128 result() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(&state_);
    return {hash.low64, hash.high64};
  }

 private:
  XXH3_state_t state_;
};

}  // namespace

Fingerprint adapted(const Fingerprint& model, const Fingerprint& adapter) {
  Fingerprint both;
  for (std::uint64_t half = 0; half < 2; ++half) {
    Hasher hasher;
    hasher.number(half);
    for (const std::uint64_t word : model.words) hasher.number(word);
    for (const std::uint64_t word : adapter.words) hasher.number(word);
    const Hash128 hash = hasher.result();
    both.words[2 * half] = hash.low;
    both.words[2 * half + 1] = hash.high;
  }
  return both;
}

PoolResult<HostBytes> HostBytes::create(std::uint64_t size) {
  HostBytes bytes;
  bytes.data_.reset(new (std::nothrow) std::byte[size]);
  if (bytes.data_ == nullptr) return std::unexpected(PoolError::out_of_memory("a saved sequence", size));
  bytes.size_ = size;
  return bytes;
}

Hash128 SavedSequence::compute_checksum() const {
  Hasher hasher;
  hasher.number(version);
  for (const std::uint64_t word : model.words) hasher.number(word);
  hasher.number(layout.low);
  hasher.number(layout.high);
  hasher.number(name_space);
  hasher.run(tokens.data(), std::span(tokens).size_bytes());
  hasher.run(first_blocks.data(), std::span(first_blocks).size_bytes());
  hasher.number(bytes);
  hasher.run(data.data(), data.size());
  return hasher.result();
}

Hash128 hash_of(std::span<const Token> tokens) {
  Hasher hasher;
  hasher.run(tokens.data(), tokens.size_bytes());
  return hasher.result();
}

Hash128 fingerprint_of(const StateLayout& layout) {
  Hasher hasher;
  hasher.number(layout.block_size);
  hasher.number(layout.groups.size());
  for (const PageShape& shape : layout.groups) {
    for (const std::uint64_t value :
         {std::uint64_t{shape.block_size}, std::uint64_t{shape.num_layers}, std::uint64_t{shape.num_kv_heads},
          std::uint64_t{shape.head_dim}, std::uint64_t{shape.planes}, static_cast<std::uint64_t>(shape.type),
          std::uint64_t{shape.window}}) {
      hasher.number(value);
    }
  }
  hasher.number(layout.recurrent.num_layers);
  hasher.number(layout.recurrent.conv_bytes);
  hasher.number(layout.recurrent.ssm_bytes);
  hasher.number(static_cast<std::uint64_t>(layout.recurrent.type));
  hasher.number(layout.places.size());
  for (const StateLayout::Place& place : layout.places) {
    hasher.number(static_cast<std::uint64_t>(place.kind));
    hasher.number(place.group);
    hasher.number(place.index);
  }
  return hasher.result();
}

}  // namespace quire
