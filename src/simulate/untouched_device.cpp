#include "quire/simulate/untouched_device.h"

#include <sys/mman.h>

namespace quire::simulate {

PoolResult<void*> UntouchedDevice::allocate(std::size_t bytes, std::size_t /*alignment*/) {
  if (bytes == 0) return std::unexpected(PoolError::invalid_argument("an allocation of no bytes"));
  // Without access rights: whoever touches it by mistake finds out.
  void* const memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return std::unexpected(PoolError::device_failure("allocate", bytes));
  return memory;
}

void UntouchedDevice::deallocate(void* memory, std::size_t bytes) noexcept {
  if (memory != nullptr) munmap(memory, bytes);
}

PoolResult<void> UntouchedDevice::copy(void*, const void*, std::size_t bytes) {
  if (on_copy_) on_copy_(bytes);
  return {};
}

PoolResult<void> UntouchedDevice::zero(void*, std::size_t bytes) {
  if (on_copy_) on_copy_(bytes);
  return {};
}

}  // namespace quire::simulate
