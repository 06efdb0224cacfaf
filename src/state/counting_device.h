// A device for tests: counts what passes through it and can refuse the n-th call. It stands in front of host memory.
#pragma once

#include <cstdint>
#include <optional>

#include "quire/state/device.h"

namespace quire {

class CountingDevice final : public Device {
 public:
  struct Counts {
    std::uint64_t allocations = 0, uploads = 0, downloads = 0, copies = 0, zeroes = 0;
    std::uint64_t uploaded_bytes = 0, copied_bytes = 0, zeroed_bytes = 0, live_bytes = 0;
  };

  const Counts& counts() const { return counts_; }
  void reset_counts() { counts_ = Counts{.live_bytes = counts_.live_bytes}; }

  // The call after `calls` more calls of any kind is refused, once; then all is well again.
  void fail_after(std::uint64_t calls) { fail_in_ = calls; }
  void never_fail() { fail_in_.reset(); }
  bool armed() const { return fail_in_.has_value(); }

  PoolResult<void*> allocate(std::size_t bytes, std::size_t alignment) override {
    if (refuse()) return std::unexpected(PoolError::device_failure("allocate", bytes));
    auto memory = host_.allocate(bytes, alignment);
    if (memory) {
      ++counts_.allocations;
      counts_.live_bytes += bytes;
    }
    return memory;
  }
  void deallocate(void* memory, std::size_t bytes) noexcept override {
    counts_.live_bytes -= bytes;
    host_.deallocate(memory, bytes);
  }
  PoolResult<void> upload(void* to, const void* from_host, std::size_t bytes) override {
    if (refuse()) return std::unexpected(PoolError::device_failure("upload", bytes));
    ++counts_.uploads;
    counts_.uploaded_bytes += bytes;
    return host_.upload(to, from_host, bytes);
  }
  PoolResult<void> download(void* to_host, const void* from, std::size_t bytes) override {
    if (refuse()) return std::unexpected(PoolError::device_failure("download", bytes));
    ++counts_.downloads;
    return host_.download(to_host, from, bytes);
  }
  PoolResult<void> copy(void* to, const void* from, std::size_t bytes) override {
    if (refuse()) return std::unexpected(PoolError::device_failure("copy", bytes));
    ++counts_.copies;
    counts_.copied_bytes += bytes;
    return host_.copy(to, from, bytes);
  }
  PoolResult<void> zero(void* to, std::size_t bytes) override {
    if (refuse()) return std::unexpected(PoolError::device_failure("zero", bytes));
    ++counts_.zeroes;
    counts_.zeroed_bytes += bytes;
    return host_.zero(to, bytes);
  }

 private:
  bool refuse() {
    if (!fail_in_) return false;
    if (*fail_in_ > 0) {
      --*fail_in_;
      return false;
    }
    fail_in_.reset();
    return true;
  }

  HostDevice host_;
  Counts counts_;
  std::optional<std::uint64_t> fail_in_;
};

}  // namespace quire
