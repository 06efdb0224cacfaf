// The memory that kernels read: host memory for the CPU, GPU memory for a GPU. The pool reaches it only through this
// interface, so tests can count transfers and make them fail.
//
// Contract of an implementation
// - Order. Work is done in the order in which it was submitted, kernels included.
// - upload(), download(), copy() and zero() submit work and may return before it is done. If a call returns an error,
//   it was refused: nothing was submitted, the destination is unchanged, and earlier work continues.
// - Host buffers. Memory that was passed to upload() or download() belongs to the device until the next fence(). Until
//   then the caller must neither change nor free it, and the content of a download is undefined.
// - fence() waits until all work submitted before it is done. It reports work that failed since the last fence as one
//   error, once. The next fence reports only later work. Failed work is not retried. After a fence that failed, every
//   byte that was to be written since the last fence is undefined, on the device and on the host. The step is void and
//   nothing of it may be committed. Host buffers belong to the caller again in any case.
// - allocate() returns zeroed memory, or an error and nothing. deallocate() waits like a fence but reports nothing:
//   errors of the work it waited for are reported by the next fence.
// - Pointers are the device's own. Only the device and its kernels may dereference them. Pointers of HostDevice can be
//   read by anyone after a fence.
// - A device that is lost refuses every call from then on.
// Not thread-safe: one engine thread owns a pool and its device. The caller of fence() therefore also gets errors of
// work that other code on this thread submitted, and passes them on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "quire/state/pool_error.h"

namespace quire {

struct DeviceMemory {
  std::uint64_t free = 0;   // bytes that could be allocated now; another process may take them first
  std::uint64_t total = 0;  // bytes in all
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const char* name() const = 0;  // for logs and messages
  // Both are UINT64_MAX if they are unknown.
  virtual DeviceMemory memory() const = 0;
  // Whether this memory is the device's alone (a GPU's). If not, it is the machine's memory, and other programs and the
  // file cache need a share of it.
  virtual bool has_own_memory() const { return false; }
  virtual PoolResult<void*> allocate(std::size_t bytes, std::size_t alignment) = 0;
  virtual void deallocate(void* memory, std::size_t bytes) noexcept = 0;
  // Host memory for transfers: large, and kept for long. Its content is undefined. A device whose transfers need pinned
  // memory pins it. By default it is ordinary memory that takes room only where it was touched. It is given back after
  // a fence, like any host buffer.
  virtual PoolResult<void*> allocate_host(std::size_t bytes);
  virtual void deallocate_host(void* memory, std::size_t bytes) noexcept;
  // Does now what the first transfers to and from this memory would otherwise do, e.g. pin it. That takes a second for
  // a few gigabytes. Optional: transfers work without it.
  virtual void prepare_host(void* memory, std::size_t bytes) noexcept;
  virtual PoolResult<void> upload(void* to, const void* from_host, std::size_t bytes) = 0;
  virtual PoolResult<void> download(void* to_host, const void* from, std::size_t bytes) = 0;
  virtual PoolResult<void> copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual PoolResult<void> zero(void* to, std::size_t bytes) = 0;
  virtual PoolResult<void> fence() = 0;
  // Writes single 32-bit words: words[i].value at to + 4 * words[i].index. One transfer, however scattered they are.
  // No index may occur twice in one call. The words may be reused as soon as the call returns.
  struct Word {
    std::uint64_t index = 0;
    std::uint32_t value = 0;
  };
  virtual PoolResult<void> upload_words(void* to, std::span<const Word> words) = 0;
};

// Host memory. Large allocations are mapped and populated at once: a pool that does not fit fails at construction, not
// in use. All work is done when a call returns, so a fence has nothing to wait for.
class HostDevice : public Device {
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

  // A buffer of 0 bytes owns nothing and has no address.
  static PoolResult<DeviceBuffer> create(Device& device, std::size_t bytes, std::size_t alignment = 64);

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t size() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Owns one allocation of host memory of a device.
class HostBuffer {
 public:
  HostBuffer() = default;
  HostBuffer(HostBuffer&& other) noexcept { swap(other); }
  HostBuffer& operator=(HostBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~HostBuffer() {
    if (device_ != nullptr) device_->deallocate_host(data_, bytes_);
  }

  static PoolResult<HostBuffer> create(Device& device, std::size_t bytes);

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t size() const { return bytes_; }

 private:
  void swap(HostBuffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  Device* device_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace quire
