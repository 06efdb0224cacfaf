// The budget of a rendering: steps, and bytes held.
//
// Who may call: one thread; there is one Meter per rendering.
// What holds: `held` is the sum of all live Charges.
// How it fails: with a Fault of Kind::limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "quire/jinja/fault.h"
#include "quire/jinja/template.h"

namespace quire::jinja {

class Meter {
 public:
  explicit Meter(const RenderOptions& options)
      : steps_left_(options.max_steps), memory_left_(options.max_memory_bytes), max_text_(options.max_output_bytes) {}
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  void step(std::uint64_t count = 1) {
    if (count > steps_left_) [[unlikely]]
      out_of_steps();
    steps_left_ -= count;
  }
  // Work that grows with the length of a text: copying or searching it, or visiting each character. The rates are such
  // that a step never takes much more than a tenth of a microsecond.
  void copied(std::size_t bytes) { step(bytes / 256); }
  void scanned(std::size_t bytes) { step(bytes / 16); }

  void hold(std::size_t bytes) {
    if (bytes > memory_left_) [[unlikely]]
      out_of_memory();
    memory_left_ -= bytes;
  }
  void release(std::size_t bytes) { memory_left_ += bytes; }

  void check_text_size(std::size_t bytes) const {
    if (bytes > max_text_) [[unlikely]]
      text_too_long();
  }

 private:
  [[noreturn]] static void out_of_steps();
  [[noreturn]] static void out_of_memory();
  [[noreturn]] static void text_too_long();

  std::uint64_t steps_left_;
  std::size_t memory_left_;
  std::size_t max_text_;
};

// Bytes that are held while this object lives. An empty Charge holds nothing; constants of the template have one.
class Charge {
 public:
  Charge() = default;
  Charge(Meter& meter, std::size_t bytes) : meter_(&meter), bytes_(bytes) { meter.hold(bytes); }
  Charge(Charge&& other) noexcept
      : meter_(std::exchange(other.meter_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Charge& operator=(Charge&& other) noexcept {
    std::swap(meter_, other.meter_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Charge() {
    if (meter_ != nullptr) meter_->release(bytes_);
  }

  void add(std::size_t bytes) {
    if (meter_ == nullptr) return;
    meter_->hold(bytes);
    bytes_ += bytes;
  }

 private:
  Meter* meter_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace quire::jinja
