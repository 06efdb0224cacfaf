// A device for tests, as awkward as the contract of Device allows. It wraps host memory.
// - It counts calls and bytes and can refuse the n-th call.
// - It is lazy: work is carried out at the fence, or at settle(), where a test plays a kernel. Host buffers are not
//   read or written before that.
// - It stops the program (QUIRE_CHECK) if a host buffer was changed between the call and the fence. A freed buffer is
//   found by an address sanitizer.
// - It can let the n-th piece of work fail: the destination is overwritten with garbage, and the next fence reports it.
// - It can be lost at the n-th call.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "quire/base/check.h"
#include "quire/state/device.h"

namespace quire {

class CountingDevice final : public Device {
 public:
  struct Counts {
    std::uint64_t allocations = 0, uploads = 0, downloads = 0, copies = 0, zeroes = 0, fences = 0;
    std::uint64_t uploaded_bytes = 0, copied_bytes = 0, zeroed_bytes = 0, live_bytes = 0;
    std::uint64_t host_allocations = 0, live_host_bytes = 0;
  };

  const Counts& counts() const { return counts_; }
  void reset_counts() {
    counts_ = Counts{.live_bytes = counts_.live_bytes, .live_host_bytes = counts_.live_host_bytes};
  }

  // The call after `calls` more calls of any kind is refused, once. A fence that is
  // "refused" has waited, and reports a failure.
  void fail_after(std::uint64_t calls) { fail_in_ = calls; }
  void never_fail() { fail_in_.reset(); }
  bool armed() const { return fail_in_.has_value(); }
  // The piece of work after `pieces` more pieces fails.
  void fail_work_after(std::uint64_t pieces) { fail_work_in_ = pieces; }

  // The device is lost at the call after `calls` more calls of any kind. Work that was submitted before it is not done.
  void lose_after(std::uint64_t calls) { lose_in_ = calls; }
  bool lost() const { return lost_; }
  static constexpr const char* kWhyLost = "somebody pulled it out";

  // Carries out the submitted work on the device, as a kernel submitted now would see it. For tests that play a kernel.
  // Host buffers still belong to the device.
  void settle() {
    for (; settled_ < queue_.size(); ++settled_) carry_out(queue_[settled_]);
  }

  const char* name() const override { return "counting"; }
  DeviceMemory memory() const override { return host_.memory(); }
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
    finish();
    counts_.live_bytes -= bytes;
    host_.deallocate(memory, bytes);
  }
  PoolResult<void*> allocate_host(std::size_t bytes) override {
    if (refuse()) return std::unexpected(PoolError::device_failure("allocate", bytes));
    auto memory = host_.allocate_host(bytes);
    if (memory) {
      ++counts_.host_allocations;
      counts_.live_host_bytes += bytes;
    }
    return memory;
  }
  void deallocate_host(void* memory, std::size_t bytes) noexcept override {
    finish();
    counts_.live_host_bytes -= bytes;
    host_.deallocate_host(memory, bytes);
  }
  PoolResult<void> upload(void* to, const void* from_host, std::size_t bytes) override {
    if (refuse()) return std::unexpected(PoolError::device_failure("upload", bytes));
    ++counts_.uploads;
    counts_.uploaded_bytes += bytes;
    const auto* from = static_cast<const std::byte*>(from_host);
    queue_.push_back({Work::Kind::Upload, to, from_host, bytes, {from, from + bytes}});
    return {};
  }
  PoolResult<void> download(void* to_host, const void* from, std::size_t bytes) override {
    if (refuse()) return std::unexpected(PoolError::device_failure("download", bytes));
    ++counts_.downloads;
    scribble(to_host, bytes);
    queue_.push_back({Work::Kind::Download, to_host, from, bytes, std::vector<std::byte>(bytes)});
    return {};
  }
  PoolResult<void> copy(void* to, const void* from, std::size_t bytes) override {
    if (refuse()) return std::unexpected(PoolError::device_failure("copy", bytes));
    ++counts_.copies;
    counts_.copied_bytes += bytes;
    queue_.push_back({Work::Kind::Copy, to, from, bytes, {}});
    return {};
  }
  PoolResult<void> zero(void* to, std::size_t bytes) override {
    if (refuse()) return std::unexpected(PoolError::device_failure("zero", bytes));
    ++counts_.zeroes;
    counts_.zeroed_bytes += bytes;
    queue_.push_back({Work::Kind::Zero, to, nullptr, bytes, {}});
    return {};
  }
  PoolResult<void> fence() override {
    ++counts_.fences;
    const bool refused = refuse();
    finish();
    const bool failed = refused || failed_;
    failed_ = false;
    if (failed) return std::unexpected(PoolError::failed_at_fence(lost_ ? kWhyLost : ""));
    return {};
  }
  PoolResult<void> upload_words(void* to, std::span<const Word> words) override {
    const std::size_t bytes = words.size() * sizeof(std::uint32_t);
    if (refuse()) return std::unexpected(PoolError::device_failure("upload", bytes));
    ++counts_.uploads;
    counts_.uploaded_bytes += bytes;
    const auto* from = reinterpret_cast<const std::byte*>(words.data());
    queue_.push_back({Work::Kind::Words, to, nullptr, words.size(), {from, from + words.size_bytes()}});
    return {};
  }

 private:
  struct Work {
    enum class Kind : std::uint8_t { Upload, Words, Download, Copy, Zero };
    Kind kind;
    void* to;
    const void* from;
    std::size_t bytes;            // or words
    std::vector<std::byte> host;  // upload: copy of the caller's bytes; download: what the caller will get
  };

  static void scribble(void* to, std::size_t bytes) { std::memset(to, 0xDB, bytes); }

  void carry_out(Work& work) {
    const bool fails = lost_ || (fail_work_in_ && (*fail_work_in_)-- == 0);
    void* const to = work.kind == Work::Kind::Download ? work.host.data() : work.to;
    if (fails) {
      fail_work_in_.reset();
      failed_ = true;
      if (work.kind != Work::Kind::Words) scribble(to, work.bytes);
      return;
    }
    switch (work.kind) {
      case Work::Kind::Upload:
        check_untouched(work);
        (void)host_.upload(to, work.from, work.bytes);
        break;
      case Work::Kind::Words:
        (void)host_.upload_words(to, {reinterpret_cast<const Word*>(work.host.data()), work.bytes});
        break;
      case Work::Kind::Download: (void)host_.download(to, work.from, work.bytes); break;
      case Work::Kind::Copy: (void)host_.copy(to, work.from, work.bytes); break;
      case Work::Kind::Zero: (void)host_.zero(to, work.bytes); break;
    }
  }
  void finish() {
    settle();
    for (const Work& work : queue_) {
      if (work.kind == Work::Kind::Upload) check_untouched(work);
      if (work.kind == Work::Kind::Download) std::memcpy(work.to, work.host.data(), work.bytes);
    }
    queue_.clear();
    settled_ = 0;
  }
  static void check_untouched(const Work& work) {
    QUIRE_CHECK(std::memcmp(work.from, work.host.data(), work.bytes) == 0,
                "a host buffer belongs to the device until the next fence");
  }
  bool refuse() {
    if (lose_in_ && !lost_) lost_ = (*lose_in_)-- == 0;
    if (lost_) return true;
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
  std::optional<std::uint64_t> fail_in_, fail_work_in_, lose_in_;
  bool lost_ = false;
  std::vector<Work> queue_;  // since the last fence
  std::size_t settled_ = 0;  // how many of them were carried out
  bool failed_ = false;      // the next fence reports it
};

}  // namespace quire
