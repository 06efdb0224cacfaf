// The memory that kernels read: host memory for the CPU, a GPU's for a GPU. The pool reaches it through this interface
// and nowhere else, so that what is moved can be counted and made to fail.
//
// Contract of an implementation
// - Order. Work is done in the order it was submitted, kernels included.
// - upload(), download(), copy() and zero() submit work and may return before it is done. A call that returns an error
//   was refused: nothing was submitted, its destination is as it was, and work submitted before goes on.
// - Host buffers. Memory that was handed to upload() or download() belongs to the device until the next fence():
//   until then the caller neither changes nor frees it, and what a download has put there means nothing.
// - fence() waits until everything submitted before it is done. Work that failed since the last fence shows here, as
//   one error, once: the next fence speaks of later work only. What failed stays failed, it is not tried again. After
//   such a fence every byte that was to be written since the last one, on the device or on the host, means nothing, and
//   the step it belongs to is void: nothing of it may be committed. Host buffers are the caller's again either way.
// - allocate() gives zeroed memory, or an error and nothing. deallocate() waits as a fence does, but reports nothing:
//   an error of the work it waited for still shows at the next fence.
// - Pointers are the device's own; only the device and kernels may look behind them. HostDevice's can be read by
//   anyone, after a fence.
// - A device that is lost for good refuses every call from then on.
// Not thread-safe: one engine thread owns a pool and its device. So whoever fences hears of all failed work, also of
// work that another part of the thread submitted, and passes the error on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "quire/state/pool_error.h"

namespace quire {

struct DeviceMemory {
  std::uint64_t free = 0;   // bytes that could be allocated now; others may take them first
  std::uint64_t total = 0;  // bytes there are
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const char* name() const = 0;  // for people
  // Both are UINT64_MAX where nobody knows.
  virtual DeviceMemory memory() const = 0;
  virtual PoolResult<void*> allocate(std::size_t bytes, std::size_t alignment) = 0;
  virtual void deallocate(void* memory, std::size_t bytes) noexcept = 0;
  virtual PoolResult<void> upload(void* to, const void* from_host, std::size_t bytes) = 0;
  virtual PoolResult<void> download(void* to_host, const void* from, std::size_t bytes) = 0;
  virtual PoolResult<void> copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual PoolResult<void> zero(void* to, std::size_t bytes) = 0;
  virtual PoolResult<void> fence() = 0;
  // Writes single 32-bit words: words[i].value at to + 4 * words[i].index. One transfer, however scattered they are.
  // The words may be reused as soon as the call returns.
  struct Word {
    std::uint64_t index = 0;
    std::uint32_t value = 0;
  };
  virtual PoolResult<void> upload_words(void* to, std::span<const Word> words) = 0;
};

// Host memory. Large blocks are mapped and populated at once, so that a pool that does not fit fails when it is made
// and not when it is used. All work is done when a call returns: a fence has nothing to wait for.
class HostDevice final : public Device {
 public:
  const char* name() const override { return "host"; }
  DeviceMemory memory() const override;
  PoolResult<void*> allocate(std::size_t bytes, std::size_t alignment) override;
  void deallocate(void* memory, std::size_t bytes) noexcept override;
  PoolResult<void> upload(void* to, const void* from_host, std::size_t bytes) override;
  PoolResult<void> download(void* to_host, const void* from, std::size_t bytes) override;
  PoolResult<void> copy(void* to, const void* from, std::size_t bytes) override;
  PoolResult<void> zero(void* to, std::size_t bytes) override;
  PoolResult<void> fence() override { return {}; }
  PoolResult<void> upload_words(void* to, std::span<const Word> words) override;
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
