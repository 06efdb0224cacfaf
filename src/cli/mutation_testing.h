// For tests: mutates the image of a file in place. Each mutation is undone before the next, so nothing is copied.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "quire/gguf/gguf.h"
#include "quire/gguf/gguf_testing.h"

namespace quire::cli::testing {

class Mutator {
 public:
  enum class Kind { truncation, flips, number, copy, insertion, removal };

  Mutator(const std::string& path, std::uint64_t seed)
      : original_(gguf::testing::read_whole(path)), buffer_(kFront + original_.size()), random_(seed) {
    std::memcpy(buffer_.data() + kFront, original_.data(), original_.size());
    const auto file = gguf::File::from_memory(original_, "original");
    EXPECT_TRUE(file) << file.error().message;
    header_ = file->parts()[0].data_begin;
    for (std::size_t i = 0; i < file->entry_count(); ++i) entries_.push_back(file->entry(i).offset);
  }

  std::span<const std::byte> original() const { return original_; }

  // The next mutated image. It is valid until the next call.
  std::span<const std::byte> next(Kind kind) {
    undo();
    switch (kind) {
      case Kind::truncation: return truncated();
      case Kind::flips:
        for (std::size_t flips = 1 + below(4); flips > 0; --flips) {
          const std::size_t at = place();
          touched_.emplace_back(at, 1);
          image(at) ^= static_cast<std::byte>(1 << below(8));
        }
        return whole();
      case Kind::number: {
        const std::uint64_t value = number();
        overwrite(place(), std::as_bytes(std::span(&value, 1)).first(below(2) == 0 ? 4 : 8));
        return whole();
      }
      case Kind::copy: {
        const std::size_t from = place();
        const std::size_t length = std::min(1 + below(200), original_.size() - from);
        overwrite(place(), std::span(original_).subspan(from, length));
        return whole();
      }
      case Kind::insertion: return inserted();
      case Kind::removal: return removed();
    }
    return whole();
  }

 private:
  // Room before the image: an insertion into the header moves the bytes before it to the front.
  static constexpr std::size_t kFront = 4096;

  std::size_t below(std::size_t limit) { return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random_); }

  // Mostly in the metadata: at the beginning of an entry or in the tensor directory.
  std::size_t place() {
    switch (below(8)) {
      case 0: return below(original_.size());
      case 1:
      case 2: return below(header_);
      case 3:
      case 4: return header_ - 1 - below(std::min<std::size_t>(header_, 8192));
      default: return std::min(header_ - 1, entries_[below(entries_.size())] + below(64));
    }
  }

  std::uint64_t number() {
    constexpr std::uint64_t kNumbers[] = {0,          1,          2,          3,          7,          8,
                                          0x7F,       0xFF,       0x7FFF,     0xFFFF,     0x10000,    0x7FFFFFFF,
                                          0x80000000, 0xFFFFFFFF, 1ULL << 32, 1ULL << 40, 1ULL << 60, ~0ULL};
    switch (below(3)) {
      case 0: return original_.size() - below(64);
      case 1: return kNumbers[below(std::size(kNumbers))];
      default: return std::uint64_t{1} << below(64);
    }
  }

  std::byte& image(std::size_t at) { return buffer_[kFront + at]; }
  std::span<const std::byte> whole() const { return std::span(buffer_).subspan(kFront); }

  void overwrite(std::size_t at, std::span<const std::byte> bytes) {
    const std::size_t count = std::min(bytes.size(), original_.size() - at);
    touched_.emplace_back(at, count);
    std::memcpy(&image(at), bytes.data(), count);
  }

  std::span<const std::byte> truncated() {
    const std::size_t length = below(4) == 0 ? below(original_.size()) : below(header_ + 1);
    // Short images are copied, so that the address sanitizer sees reads beyond their end.
    if (length > header_) return whole().first(length);
    short_.assign(original_.begin(), original_.begin() + static_cast<std::ptrdiff_t>(length));
    short_.shrink_to_fit();
    return short_;
  }

  std::span<const std::byte> inserted() {
    const std::size_t at = std::min(place(), header_), length = 1 + below(64);
    std::memmove(buffer_.data() + kFront - length, buffer_.data() + kFront, at);
    const bool random = below(2) == 0;
    for (std::size_t i = 0; i < length; ++i) {
      buffer_[kFront - length + at + i] = random ? static_cast<std::byte>(below(256)) : original_[at + i];
    }
    touched_.emplace_back(0, at);
    return std::span(buffer_).subspan(kFront - length);
  }

  std::span<const std::byte> removed() {
    const std::size_t length = 1 + below(64), at = std::min(place(), header_ - length);
    std::memmove(buffer_.data() + kFront + length, buffer_.data() + kFront, at);
    touched_.emplace_back(0, at + length);
    return std::span(buffer_).subspan(kFront + length);
  }

  void undo() {
    for (const auto& [at, length] : touched_) std::memcpy(&image(at), original_.data() + at, length);
    touched_.clear();
  }

  std::vector<std::byte> original_, buffer_, short_;
  std::size_t header_ = 0;
  std::vector<std::size_t> entries_;                          // where the metadata entries begin
  std::vector<std::pair<std::size_t, std::size_t>> touched_;  // offset and length of the changed bytes
  std::mt19937_64 random_;
};

// All kinds of mutation, weighted by how useful they are.
inline constexpr Mutator::Kind kMutationKinds[] = {
    Mutator::Kind::truncation, Mutator::Kind::flips, Mutator::Kind::flips,     Mutator::Kind::number,
    Mutator::Kind::number,     Mutator::Kind::copy,  Mutator::Kind::insertion, Mutator::Kind::removal};

}  // namespace quire::cli::testing
