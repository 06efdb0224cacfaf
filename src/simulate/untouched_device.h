// A device whose memory nobody reads or writes: address space without memory behind it. So a pool of hundreds of
// gigabytes can be simulated on a small machine. Copies take simulated time and do nothing else.
//
// Who may call: one thread. How it fails: allocate(), when even the address space is too small (some 100 TiB).
#pragma once

#include <functional>

#include "quire/state/device.h"

namespace quire::simulate {

class UntouchedDevice final : public Device {
 public:
  // Called with the bytes of each copy on the device.
  using OnCopy = std::function<void(std::uint64_t bytes)>;
  explicit UntouchedDevice(OnCopy on_copy = {}) : on_copy_(std::move(on_copy)) {}

  const char* name() const override { return "simulated"; }
  DeviceMemory memory() const override { return {UINT64_MAX, UINT64_MAX}; }
  PoolResult<void*> allocate(std::size_t bytes, std::size_t alignment) override;
  void deallocate(void* memory, std::size_t bytes) noexcept override;
  PoolResult<void> upload(void*, const void*, std::size_t) override { return {}; }
  // Nothing here asks for a download: suspended sequences are recomputed. A caller would get undefined bytes.
  PoolResult<void> download(void*, const void*, std::size_t) override { return {}; }
  PoolResult<void> copy(void*, const void*, std::size_t bytes) override;
  PoolResult<void> zero(void*, std::size_t bytes) override;
  PoolResult<void> fence() override { return {}; }
  PoolResult<void> upload_words(void*, std::span<const Word>) override { return {}; }

 private:
  OnCopy on_copy_;
};

}  // namespace quire::simulate
