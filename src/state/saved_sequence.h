// A sequence outside the pool: a copy of its pages and its recurrent state in host memory.
// SequencePool::restore() recreates the sequence from it, in the same pool or another one. A program may write it to a
// file and read it back. (An engine that makes room in its own pool uses SuspendedSequence, which copies less.)
//
// A saved sequence describes itself: format version, model, layout, length and checksum. SequencePool::restore() checks
// all of them. It refuses a sequence of another model or layout, a truncated one, and one with a changed bit. The
// checksum detects accidents, not forgeries: whoever can change the file can change the checksum.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
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

// Identifies a model, its weights and the arithmetic that computes with them. The caller supplies it, for instance a
// SHA-256. Equal fingerprints promise that the same tokens give the same bytes.
struct Fingerprint {
  std::array<std::uint64_t, 4> words{};
  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

// What was computed with an adapter of a model: as if it were another model.
Fingerprint adapted(const Fingerprint& model, const Fingerprint& adapter);

struct SavedSequence {
  static constexpr std::uint32_t kVersion = 1;  // changes when a field below changes its meaning

  std::uint32_t version = kVersion;
  Fingerprint model;  // of the pool that saved it
  Hash128 layout;     // of the pool that saved it
  Namespace name_space = 0;
  std::vector<Token> tokens;
  std::vector<std::uint32_t> first_blocks;  // by layer group: blocks before this one have no page (sliding window)
  std::uint64_t bytes = 0;                  // of data
  // Group by group, the pages from the first block to the last, then the recurrent
  // state. Each has the bytes it had in the arena.
  HostBytes data;
  Hash128 checksum;  // of all fields above

  Hash128 compute_checksum() const;
};

// The recurrent state of a sequence after its first `position` tokens.
struct SavedCheckpoint {
  std::uint32_t position = 0;
  HostBytes state;
};

// A saved sequence, or the beginning of one, as its bytes lie somewhere else: in a mapped file, for instance. Whoever
// made it has checked the bytes.
struct SavedView {
  Fingerprint model;
  Hash128 layout;
  Namespace name_space = 0;
  std::span<const Token> tokens;
  std::span<const std::uint32_t> first_blocks;  // by layer group, as in SavedSequence
  // By layer group: the pages from the first block to that of the last token.
  std::span<const std::span<const std::byte>> pages;
  std::span<const std::byte> state;  // empty if the model has none
};

Hash128 hash_of(std::span<const Token> tokens);

// Covers everything that decides how the bytes of pages and states are interpreted. The
// maximum sequence length is not part of it.
Hash128 fingerprint_of(const StateLayout& layout);

}  // namespace quire
