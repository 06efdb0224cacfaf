// For tests: host memory that can be lost, as a GPU can. Another thread than the engine's may lose it.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>

#include "quire/state/device.h"

namespace quire {

class LosableDevice final : public Device {
 public:
  static constexpr const char* kWhyLost = "somebody pulled it out";
  void lose() { lost_ = true; }

  const char* name() const override { return "losable"; }
  DeviceMemory memory() const override { return host_.memory(); }
  PoolResult<void*> allocate(std::size_t bytes, std::size_t alignment) override {
    if (lost_) return std::unexpected(PoolError::device_failure("allocate", bytes));
    return host_.allocate(bytes, alignment);
  }
  void deallocate(void* memory, std::size_t bytes) noexcept override { host_.deallocate(memory, bytes); }
  PoolResult<void> upload(void* to, const void* from_host, std::size_t bytes) override {
    return unless_lost("upload", bytes, [&] { return host_.upload(to, from_host, bytes); });
  }
  PoolResult<void> download(void* to_host, const void* from, std::size_t bytes) override {
    return unless_lost("download", bytes, [&] { return host_.download(to_host, from, bytes); });
  }
  PoolResult<void> copy(void* to, const void* from, std::size_t bytes) override {
    return unless_lost("copy", bytes, [&] { return host_.copy(to, from, bytes); });
  }
  PoolResult<void> zero(void* to, std::size_t bytes) override {
    return unless_lost("zero", bytes, [&] { return host_.zero(to, bytes); });
  }
  PoolResult<void> fence() override {
    if (lost_) return std::unexpected(PoolError::failed_at_fence(kWhyLost));
    return host_.fence();
  }
  PoolResult<void> upload_words(void* to, std::span<const Word> words) override {
    return unless_lost("upload", words.size_bytes(), [&] { return host_.upload_words(to, words); });
  }

 private:
  template <typename Call>
  PoolResult<void> unless_lost(const char* what, std::size_t bytes, const Call& call) {
    if (lost_) return std::unexpected(PoolError::device_failure(what, bytes));
    return call();
  }

  HostDevice host_;
  std::atomic<bool> lost_ = false;
};

}  // namespace quire
