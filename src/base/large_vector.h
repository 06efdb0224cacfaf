// A vector for large tables with random access. From a few megabytes on it asks for huge pages: with small pages,
// address translation would be half the cost of an access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

#include <sys/mman.h>

#include "quire/base/numbers.h"

namespace quire {

template <typename T>
struct LargeAllocator {
  using value_type = T;

  LargeAllocator() = default;
  template <typename U>
  LargeAllocator(const LargeAllocator<U>&) {}

  T* allocate(std::size_t count) {
    constexpr std::size_t kHugePage = std::size_t{2} << 20;
    if (count > PTRDIFF_MAX / 2 / sizeof(T)) throw std::bad_array_new_length();
    const std::size_t bytes = count * sizeof(T);
    const bool large = bytes >= 2 * kHugePage;
    const std::size_t alignment = large ? kHugePage : alignof(T) > 64 ? alignof(T) : 64;
    void* memory = std::aligned_alloc(alignment, round_up(bytes, alignment));
    if (memory == nullptr) throw std::bad_alloc();
    if (large) madvise(memory, round_up(bytes, alignment), MADV_HUGEPAGE);
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t) { std::free(memory); }

  template <typename U>
  bool operator==(const LargeAllocator<U>&) const {
    return true;
  }
};

template <typename T>
using LargeVector = std::vector<T, LargeAllocator<T>>;

}  // namespace quire
