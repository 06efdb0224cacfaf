// For tests that count heap allocations or let them fail. Replaces operator new and delete of the whole program.
// Include it in exactly one file of a test program. The operators are not inlined: if GCC 12 inlines only one of a
// pair, it warns that memory from new is passed to free.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include <malloc.h>

namespace quire::testing {

// Totals of all threads.
inline std::atomic<std::uint64_t> allocations = 0;
inline std::atomic<std::size_t> live_bytes = 0;
inline std::atomic<std::size_t> peak_bytes = 0;  // a test resets it to live_bytes before it measures

inline void* counted(void* block) noexcept {
  if (block == nullptr) return nullptr;
  ++allocations;
  const std::size_t live = live_bytes += ::malloc_usable_size(block);
  if (live > peak_bytes) peak_bytes = live;
  return block;
}

// The allocation after so many more fails, once. A negative value means that none fails.
inline std::atomic<std::int64_t> heap_fails_after = -1;
inline bool heap_fails() noexcept { return heap_fails_after >= 0 && heap_fails_after-- == 0; }

inline void* plain_block(std::size_t bytes) noexcept {
  return heap_fails() ? nullptr : counted(std::malloc(bytes == 0 ? 1 : bytes));
}

inline void* aligned_block(std::size_t bytes, std::align_val_t alignment) noexcept {
  const auto a = static_cast<std::size_t>(alignment);
  return heap_fails() ? nullptr : counted(std::aligned_alloc(a, (bytes + a - 1) / a * a));
}

inline void* or_throw(void* block) {
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

inline void uncounted(void* block) noexcept {
  if (block != nullptr) live_bytes -= ::malloc_usable_size(block);
  std::free(block);
}

}  // namespace quire::testing

// clang-format off
[[gnu::noinline]] void* operator new(std::size_t n) { return quire::testing::or_throw(quire::testing::plain_block(n)); }
[[gnu::noinline]] void* operator new[](std::size_t n) { return quire::testing::or_throw(quire::testing::plain_block(n)); }
[[gnu::noinline]] void* operator new(std::size_t n, std::align_val_t a) { return quire::testing::or_throw(quire::testing::aligned_block(n, a)); }
[[gnu::noinline]] void* operator new[](std::size_t n, std::align_val_t a) { return quire::testing::or_throw(quire::testing::aligned_block(n, a)); }
[[gnu::noinline]] void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return quire::testing::plain_block(n); }
[[gnu::noinline]] void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return quire::testing::plain_block(n); }
[[gnu::noinline]] void operator delete(void* block) noexcept { quire::testing::uncounted(block); }
[[gnu::noinline]] void operator delete[](void* block) noexcept { quire::testing::uncounted(block); }
[[gnu::noinline]] void operator delete(void* block, std::size_t) noexcept { quire::testing::uncounted(block); }
[[gnu::noinline]] void operator delete[](void* block, std::size_t) noexcept { quire::testing::uncounted(block); }
[[gnu::noinline]] void operator delete(void* block, std::align_val_t) noexcept { quire::testing::uncounted(block); }
[[gnu::noinline]] void operator delete[](void* block, std::align_val_t) noexcept { quire::testing::uncounted(block); }
[[gnu::noinline]] void operator delete(void* block, std::size_t, std::align_val_t) noexcept { quire::testing::uncounted(block); }
[[gnu::noinline]] void operator delete[](void* block, std::size_t, std::align_val_t) noexcept { quire::testing::uncounted(block); }
[[gnu::noinline]] void operator delete(void* block, const std::nothrow_t&) noexcept { quire::testing::uncounted(block); }
[[gnu::noinline]] void operator delete[](void* block, const std::nothrow_t&) noexcept { quire::testing::uncounted(block); }
// clang-format on
