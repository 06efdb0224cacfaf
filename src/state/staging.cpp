#include "quire/state/staging.h"

#include <cstring>
#include <new>

namespace quire {

PoolResult<Staging> Staging::create(Device& device, std::size_t bytes) {
  Staging staging;
  staging.device_ = &device;
  staging.ring_.reset(new (std::nothrow) std::byte[bytes]);
  if (staging.ring_ == nullptr) return std::unexpected(PoolError::out_of_memory("staging uploads", bytes));
  staging.bytes_ = bytes;
  return staging;
}

PoolResult<void> Staging::upload(void* to, const void* from, std::size_t bytes) {
  if (bytes > bytes_) {
    if (auto ok = device_->upload(to, from, bytes); !ok) return ok;
    used_ = 0;
    return device_->fence();
  }
  if (bytes > bytes_ - used_) {
    used_ = 0;
    if (auto ok = device_->fence(); !ok) return ok;
  }
  std::memcpy(ring_.get() + used_, from, bytes);
  if (auto ok = device_->upload(to, ring_.get() + used_, bytes); !ok) return ok;
  used_ += bytes;
  return {};
}

}  // namespace quire
