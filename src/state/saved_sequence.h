// What a sequence remembers, outside the pool: a copy of its pages and its state in plain host memory, from which the
// pool makes the sequence again. An engine keeps these for sequences that have to wait for room; others may write them
// out and read them back.
//
// A saved sequence says what it is: format version, model, layout, length and checksum. SequencePool::restore() takes
// nothing on trust and refuses one of another model or layout, one that is cut short, and one of which a bit has
// changed. The checksum finds accidents. It does not find forgeries: whoever can write the file can write the checksum.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "quire/state/ids.h"
#include "quire/state/layout.h"

namespace quire {

// Host memory of a known size, not initialized.
class HostBytes {
 public:
  HostBytes() = default;
  static PoolResult<HostBytes> create(std::uint64_t size);

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::uint64_t size() const { return size_; }

 private:
  std::unique_ptr<std::byte[]> data_;
  std::uint64_t size_ = 0;
};

struct Hash128 {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};

// Of a model, its weights and the arithmetic that computes with them; the caller's, for instance a SHA-256. Two that
// are equal promise that the same tokens give the same bytes.
struct Fingerprint {
  std::array<std::uint64_t, 4> words{};
  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

struct SavedSequence {
  static constexpr std::uint32_t kVersion = 1;  // of what the fields below mean

  std::uint32_t version = kVersion;
  Fingerprint model;  // of the pool that saved it
  Hash128 layout;     // likewise
  Namespace name_space = 0;
  std::vector<Token> tokens;
  std::vector<std::uint32_t> first_blocks;  // by layer group: blocks before this one had been given back
  std::uint64_t bytes = 0;                  // of data
  // Group by group the pages from the first block to the last, then the recurrent state; each as it lies in the arena.
  HostBytes data;
  Hash128 checksum;  // of all the above

  Hash128 compute_checksum() const;
};

// Of everything that decides how pages and states are read. Not of how long a sequence may be.
Hash128 fingerprint_of(const StateLayout& layout);

}  // namespace quire
