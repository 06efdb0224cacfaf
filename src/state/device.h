// The memory that kernels read: host memory for the CPU, a GPU's for a GPU. The pool reaches it through this interface
// and nowhere else, so that what is moved can be counted and made to fail.
//
// Contract of an implementation
// - allocate() gives zeroed memory, or an error and nothing.
// - upload(), download(), copy() and zero() take effect in the order of the calls. Each either happens whole or is
//   refused before it touches anything: a refused copy has left its destination as it was.
// - Pointers are the device's own; only the device and kernels may look behind them. HostDevice's can be read by
// anyone. Not thread-safe: one engine thread owns a pool and its device.
#pragma once

#include <cstddef>
#include <utility>

#include "quire/state/pool_error.h"

namespace quire {

class Device {
 public:
  virtual ~Device() = default;
  virtual PoolResult<void*> allocate(std::size_t bytes, std::size_t alignment) = 0;
  virtual void deallocate(void* memory, std::size_t bytes) noexcept = 0;
  virtual PoolResult<void> upload(void* to, const void* from_host, std::size_t bytes) = 0;
  virtual PoolResult<void> download(void* to_host, const void* from, std::size_t bytes) = 0;
  virtual PoolResult<void> copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual PoolResult<void> zero(void* to, std::size_t bytes) = 0;
};

// Host memory. Large blocks are mapped and populated at once, so that a pool that does not fit fails when it is made
// and not when it is used.
class HostDevice final : public Device {
 public:
  PoolResult<void*> allocate(std::size_t bytes, std::size_t alignment) override;
  void deallocate(void* memory, std::size_t bytes) noexcept override;
  PoolResult<void> upload(void* to, const void* from_host, std::size_t bytes) override;
  PoolResult<void> download(void* to_host, const void* from, std::size_t bytes) override;
  PoolResult<void> copy(void* to, const void* from, std::size_t bytes) override;
  PoolResult<void> zero(void* to, std::size_t bytes) override;
};

// Owns one allocation of a device.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceBuffer() {
    if (device_ != nullptr) device_->deallocate(data_, bytes_);
  }

  // A buffer of no bytes owns nothing and has no address.
  static PoolResult<DeviceBuffer> create(Device& device, std::size_t bytes, std::size_t alignment = 64);

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t size() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace quire
