#include "quire/state/device.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>

#include "quire/base/numbers.h"

namespace quire {
namespace {

// From here on memory comes from the kernel directly: it is zero already and can use huge pages.
constexpr std::size_t kMapFrom = std::size_t{1} << 20;
constexpr std::size_t kPage = 4096;

}  // namespace

PoolResult<void*> HostDevice::allocate(std::size_t bytes, std::size_t alignment) {
  if (bytes == 0) return std::unexpected(PoolError::invalid_argument("an allocation of no bytes"));
  if (bytes >= kMapFrom) {
    if (alignment > kPage) return std::unexpected(PoolError::invalid_argument("alignment to more than a page"));
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return std::unexpected(PoolError::device_failure("allocate", bytes));
    madvise(memory, bytes, MADV_HUGEPAGE);  // before the first touch, or it comes too late
    if (madvise(memory, bytes, MADV_POPULATE_WRITE) != 0) {
      if (errno != EINVAL) {
        munmap(memory, bytes);
        return std::unexpected(PoolError::device_failure("allocate", bytes));
      }
      std::memset(memory, 0, bytes);  // a kernel that does not know the call yet
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
  std::memcpy(to, from_host, bytes);
  return {};
}

PoolResult<void> HostDevice::download(void* to_host, const void* from, std::size_t bytes) {
  std::memcpy(to_host, from, bytes);
  return {};
}

PoolResult<void> HostDevice::copy(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
  return {};
}

PoolResult<void> HostDevice::zero(void* to, std::size_t bytes) {
  std::memset(to, 0, bytes);
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

}  // namespace quire
