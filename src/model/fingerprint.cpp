#include "quire/model/fingerprint.h"

#include <algorithm>
#include <atomic>
#include <span>
#include <thread>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace quire::model {
namespace {

constexpr unsigned kMostThreads = 8;  // more do not read memory faster

// Two 128-bit hashes with different seeds.
class Hasher {
 public:
  Hasher() {
    XXH3_128bits_reset_withSeed(&states_[0], 1);
    XXH3_128bits_reset_withSeed(&states_[1], 2);
  }
  void bytes(std::span<const std::byte> data) {
    const std::uint64_t size = data.size();
    for (XXH3_state_t& state : states_) {
      XXH3_128bits_update(&state, &size, sizeof size);
      if (size > 0) XXH3_128bits_update(&state, data.data(), data.size());
    }
  }
  void text(std::string_view text) { bytes(std::as_bytes(std::span(text))); }
  void number(std::uint64_t value) { bytes(std::as_bytes(std::span(&value, 1))); }
  Fingerprint value() const {
    const XXH128_hash_t a = XXH3_128bits_digest(&states_[0]), b = XXH3_128bits_digest(&states_[1]);
    return {{a.low64, a.high64, b.low64, b.high64}};
  }

 private:
  XXH3_state_t states_[2] = {};
};

// The hash of every tensor's bytes, computed by several threads: models are large.
std::vector<XXH128_hash_t> tensor_hashes(const gguf::File& file) {
  std::vector<XXH128_hash_t> hashes(file.tensor_count());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < hashes.size(); i = next++) {
      const auto data = file.tensor(i).data;
      hashes[i] = XXH3_128bits(data.data(), data.size());
    }
  };
  const unsigned threads = std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads);
  std::vector<std::jthread> team;
  for (unsigned i = 1; i < threads; ++i) team.emplace_back(work);
  work();
  team.clear();
  return hashes;
}

}  // namespace

Fingerprint fingerprint(const gguf::File& file, std::string_view arithmetic) {
  Hasher hasher;
  hasher.text(arithmetic);
  for (std::size_t i = 0; i < file.entry_count(); ++i) {
    const gguf::Entry entry = file.entry(i);
    if (entry.key.starts_with("tokenizer.")) continue;  // the state depends on token ids, not on their text
    hasher.text(entry.key);
    hasher.text(entry.value.describe());
  }
  const auto hashes = tensor_hashes(file);
  for (std::size_t i = 0; i < file.tensor_count(); ++i) {
    const gguf::Tensor tensor = file.tensor(i);
    hasher.text(tensor.name);
    hasher.number(static_cast<std::uint64_t>(tensor.type));
    for (const std::uint64_t length : tensor.shape) hasher.number(length);
    hasher.number(hashes[i].low64);
    hasher.number(hashes[i].high64);
  }
  return hasher.value();
}

}  // namespace quire::model
