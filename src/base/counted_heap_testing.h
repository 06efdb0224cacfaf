// For tests that count what a program takes from the heap: replaces operator new and delete of the whole program. To be
// included by one file of a test program. Not inlined: where GCC 12 sees into only one of the two it warns that memory
// from new is freed.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace quire::testing {

inline std::atomic<std::uint64_t> allocations = 0;  // of all threads

inline void* counted(std::size_t bytes) {
  ++allocations;
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

inline void* counted(std::size_t bytes, std::align_val_t alignment) {
  ++allocations;
  const auto a = static_cast<std::size_t>(alignment);
  void* memory = std::aligned_alloc(a, (bytes + a - 1) / a * a);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace quire::testing

[[gnu::noinline]] void* operator new(std::size_t bytes) { return quire::testing::counted(bytes); }
[[gnu::noinline]] void* operator new[](std::size_t bytes) { return quire::testing::counted(bytes); }
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return quire::testing::counted(bytes, alignment);
}
[[gnu::noinline]] void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return quire::testing::counted(bytes, alignment);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
