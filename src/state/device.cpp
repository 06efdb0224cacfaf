#include "quire/state/device.h"

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>

#include "quire/base/machine.h"
#include "quire/base/numbers.h"

namespace quire {
namespace {

// Allocations of at least this size are mapped directly from the kernel: they are zeroed and can use huge pages.
constexpr std::size_t kMapFrom = std::size_t{1} << 20;
constexpr std::size_t kPage = 4096, kHugePage = std::size_t{2} << 20;

// Maps memory. From the size of a huge page on, it is aligned to one: otherwise the parts before the first and after
// the last aligned huge page would consist of small pages.
void* map(std::size_t bytes, int flags = 0) {
  if (bytes > PTRDIFF_MAX) return MAP_FAILED;
  const std::size_t more = bytes >= kHugePage ? kHugePage - kPage : 0;
  void* const memory = mmap(nullptr, bytes + more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (memory == MAP_FAILED || more == 0) return memory;
  const std::size_t address = reinterpret_cast<std::uintptr_t>(memory), before = round_up(address, kHugePage) - address;
  auto* const begin = static_cast<std::byte*>(memory) + before;
  auto* const end = begin + round_up(bytes, kPage);
  if (before > 0) munmap(memory, before);
  if (before < more) munmap(end, more - before);
  return begin;
}

// A buffer of no bytes has no address, and memcpy() wants one even then.
void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

PoolResult<void*> Device::allocate_host(std::size_t bytes) {
  if (bytes == 0) return std::unexpected(PoolError::invalid_argument("an allocation of no bytes"));
  void* const memory = map(bytes, MAP_NORESERVE);
  if (memory == MAP_FAILED) return std::unexpected(PoolError::out_of_memory("host memory", bytes));
  madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

void Device::prepare_host(void* /*memory*/, std::size_t /*bytes*/) noexcept {}

void Device::deallocate_host(void* memory, std::size_t bytes) noexcept { munmap(memory, bytes); }

DeviceMemory HostDevice::memory() const {
  const MachineMemory machine = machine_memory();
  return {.free = machine.available, .total = machine.total};
}

PoolResult<void*> HostDevice::allocate(std::size_t bytes, std::size_t alignment) {
  if (bytes == 0) return std::unexpected(PoolError::invalid_argument("an allocation of no bytes"));
  if (bytes >= kMapFrom) {
    if (alignment > kPage) return std::unexpected(PoolError::invalid_argument("alignment to more than a page"));
    void* memory = map(bytes);
    if (memory == MAP_FAILED) return std::unexpected(PoolError::device_failure("allocate", bytes));
    madvise(memory, bytes, MADV_HUGEPAGE);  // must come before the first access
    if (madvise(memory, bytes, MADV_POPULATE_WRITE) != 0) {
      if (errno != EINVAL) {
        munmap(memory, bytes);
        return std::unexpected(PoolError::device_failure("allocate", bytes));
      }
      std::memset(memory, 0, bytes);  // an older kernel without MADV_POPULATE_WRITE
    }
    return memory;
  }
  void* memory = std::aligned_alloc(alignment, round_up(bytes, alignment));
  if (memory == nullptr) return std::unexpected(PoolError::device_failure("allocate", bytes));
  std::memset(memory, 0, bytes);
  return memory;
}

void HostDevice::deallocate(void* memory, std::size_t bytes) noexcept {
  if (memory == nullptr) return;
  if (bytes >= kMapFrom) {
    munmap(memory, bytes);
  } else {
    std::free(memory);
  }
}

PoolResult<void> HostDevice::upload(void* to, const void* from_host, std::size_t bytes) {
  copy_bytes(to, from_host, bytes);
  return {};
}

PoolResult<void> HostDevice::download(void* to_host, const void* from, std::size_t bytes) {
  copy_bytes(to_host, from, bytes);
  return {};
}

PoolResult<void> HostDevice::copy(void* to, const void* from, std::size_t bytes) {
  copy_bytes(to, from, bytes);
  return {};
}

PoolResult<void> HostDevice::zero(void* to, std::size_t bytes) {
  if (bytes > 0) std::memset(to, 0, bytes);
  return {};
}

PoolResult<void> HostDevice::upload_words(void* to, std::span<const Word> words) {
  auto* const entries = static_cast<std::uint32_t*>(to);
  for (const Word& word : words) entries[word.index] = word.value;
  return {};
}

PoolResult<DeviceBuffer> DeviceBuffer::create(Device& device, std::size_t bytes, std::size_t alignment) {
  DeviceBuffer buffer;
  if (bytes == 0) return buffer;
  auto memory = device.allocate(bytes, alignment);
  if (!memory) return std::unexpected(memory.error());
  buffer.device_ = &device;
  buffer.data_ = *memory;
  buffer.bytes_ = bytes;
  return buffer;
}

PoolResult<HostBuffer> HostBuffer::create(Device& device, std::size_t bytes) {
  auto memory = device.allocate_host(bytes);
  if (!memory) return std::unexpected(memory.error());
  HostBuffer buffer;
  buffer.device_ = &device;
  buffer.data_ = *memory;
  buffer.bytes_ = bytes;
  return buffer;
}

}  // namespace quire
