// Errors of the state library. They are returned, never thrown, never fatal. An operation that returns an
// error has changed nothing that its caller can see. An error is cheap to create and to copy: it holds
// numbers, and message() puts them into words.
#pragma once

#include <cstdint>
#include <expected>
#include <string>

namespace quire {

struct PoolError {
  enum class Code : std::uint8_t {
    Exhausted,        // not enough memory: wanted, available
    InvalidSlot,      // no such slot, or it is free, or the pool has no slots or no such group: index
    InvalidPage,      // no such page, or it is free: index
    StaleId,          // the object with this id has been given back: index
    InvalidSequence,  // no such live sequence: index
    TooLong,          // more tokens or blocks than a sequence may have: wanted, available
    NotReserved,      // a write or commit beyond what was reserved: wanted, available
    NotWritten,       // a read of a position this sequence never wrote: index
    SharedPage,       // a write to a page that another holder or the index can see: index
    ShapeMismatch,    // bytes of another shape: wanted, available
    DeviceFailure,    // the device refused an operation on so many bytes; nothing else changed: wanted
    WorkFailed,       // work submitted since the last fence has failed: none of its results can be trusted; `what`: why
    Incompatible,     // saved with another model, layout or version: `what`; wanted, available: versions
    PrefixGone,       // resume: pages that were shared when it was suspended have been evicted: index
    Damaged,          // saved bytes are truncated or changed: `what`; wanted, available: lengths
    OutOfMemory,      // the heap has no room for bookkeeping or copies: `what`; wanted: bytes, if known
    InvalidArgument,  // a call that makes no sense; `what` says why
  };

  Code code = Code::InvalidArgument;
  std::uint64_t index = 0;
  std::uint64_t wanted = 0;
  std::uint64_t available = 0;
  const char* what = "";  // a string literal that names the thing

  static PoolError exhausted(const char* what, std::uint64_t wanted, std::uint64_t available) {
    return {Code::Exhausted, 0, wanted, available, what};
  }
  static PoolError invalid_slot(std::uint64_t index) { return {Code::InvalidSlot, index, 0, 0, ""}; }
  static PoolError invalid_page(std::uint64_t index) { return {Code::InvalidPage, index, 0, 0, ""}; }
  static PoolError stale(std::uint64_t index) { return {Code::StaleId, index, 0, 0, ""}; }
  static PoolError invalid_sequence(std::uint64_t index) { return {Code::InvalidSequence, index, 0, 0, ""}; }
  static PoolError too_long(const char* what, std::uint64_t wanted, std::uint64_t available) {
    return {Code::TooLong, 0, wanted, available, what};
  }
  static PoolError not_reserved(std::uint64_t wanted, std::uint64_t available) {
    return {Code::NotReserved, 0, wanted, available, ""};
  }
  static PoolError not_written(std::uint64_t position) { return {Code::NotWritten, position, 0, 0, ""}; }
  static PoolError shared_page(std::uint64_t index) { return {Code::SharedPage, index, 0, 0, ""}; }
  static PoolError shape_mismatch(const char* what, std::uint64_t wanted, std::uint64_t got) {
    return {Code::ShapeMismatch, 0, wanted, got, what};
  }
  static PoolError device_failure(const char* operation, std::uint64_t bytes) {
    return {Code::DeviceFailure, 0, bytes, 0, operation};
  }
  // `why`: in the device's words, if it has any; must live as long as the program.
  static PoolError failed_at_fence(const char* why = "") { return {Code::WorkFailed, 0, 0, 0, why}; }
  static PoolError incompatible(const char* what, std::uint64_t wanted = 0, std::uint64_t got = 0) {
    return {Code::Incompatible, 0, wanted, got, what};
  }
  static PoolError prefix_gone(std::uint64_t position) { return {Code::PrefixGone, position, 0, 0, ""}; }
  static PoolError damaged(const char* what, std::uint64_t wanted = 0, std::uint64_t got = 0) {
    return {Code::Damaged, 0, wanted, got, what};
  }
  static PoolError out_of_memory(const char* what, std::uint64_t bytes = 0) {
    return {Code::OutOfMemory, 0, bytes, 0, what};
  }
  static PoolError invalid_argument(const char* why) { return {Code::InvalidArgument, 0, 0, 0, why}; }

  std::string message() const;  // one line for a person; only the name of the code if the heap is exhausted
};

const char* name(PoolError::Code code);

template <typename T>
using PoolResult = std::expected<T, PoolError>;

}  // namespace quire
