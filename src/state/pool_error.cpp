#include "quire/state/pool_error.h"

#include <new>

namespace quire {

const char* name(PoolError::Code code) {
  switch (code) {
    case PoolError::Code::Exhausted: return "Exhausted";
    case PoolError::Code::InvalidSlot: return "InvalidSlot";
    case PoolError::Code::InvalidPage: return "InvalidPage";
    case PoolError::Code::StaleId: return "StaleId";
    case PoolError::Code::InvalidSequence: return "InvalidSequence";
    case PoolError::Code::TooLong: return "TooLong";
    case PoolError::Code::NotReserved: return "NotReserved";
    case PoolError::Code::NotWritten: return "NotWritten";
    case PoolError::Code::SharedPage: return "SharedPage";
    case PoolError::Code::ShapeMismatch: return "ShapeMismatch";
    case PoolError::Code::DeviceFailure: return "DeviceFailure";
    case PoolError::Code::WorkFailed: return "WorkFailed";
    case PoolError::Code::Incompatible: return "Incompatible";
    case PoolError::Code::PrefixGone: return "PrefixGone";
    case PoolError::Code::Damaged: return "Damaged";
    case PoolError::Code::OutOfMemory: return "OutOfMemory";
    case PoolError::Code::InvalidArgument: return "InvalidArgument";
  }
  return "?";
}

namespace {

std::string sentence(const PoolError& error) {
  using Code = PoolError::Code;
  const auto [code, index, wanted, available, what] = error;
  const std::string thing = what;
  const auto number = [](std::uint64_t value) { return std::to_string(value); };
  switch (code) {
    case Code::Exhausted:
      return "the pool is exhausted: " + number(wanted) + " " + thing + " wanted, " + number(available) + " available";
    case Code::InvalidSlot: return "slot " + number(index) + " is not in use here";
    case Code::InvalidPage: return "page " + number(index) + " is not in use here";
    case Code::StaleId: return "the id of " + number(index) + " is stale: what it named was given back";
    case Code::InvalidSequence: return "sequence " + number(index) + " is not alive";
    case Code::TooLong:
      return "a sequence may have " + number(available) + " " + thing + ", " + number(wanted) + " were wanted";
    case Code::NotReserved:
      return "position " + number(wanted) + " was not reserved: room ends at " + number(available);
    case Code::NotWritten: return "position " + number(index) + " was not written by this sequence";
    case Code::SharedPage: return "page " + number(index) + " is shared and must be copied before it is written";
    case Code::ShapeMismatch:
      return thing + " of another shape: " + number(wanted) + " expected, " + number(available) + " given";
    case Code::DeviceFailure: return "the device refused to " + thing + " " + number(wanted) + " bytes";
    case Code::WorkFailed:
      return "the device failed at work that was submitted before the fence" + (thing.empty() ? "" : ": " + thing);
    case Code::Incompatible:
      return "what was saved has another " + thing + " than this pool" +
             (wanted == available ? "" : ": " + number(wanted) + " expected, " + number(available) + " given");
    case Code::PrefixGone:
      return "the page of position " + number(index) + " was shared when the sequence was suspended, and was evicted";
    case Code::Damaged:
      return "what was saved is damaged: " + thing +
             (wanted == available ? "" : ", " + number(wanted) + " expected, " + number(available) + " given");
    case Code::OutOfMemory:
      return "out of memory for " + thing + (wanted == 0 ? "" : " (" + number(wanted) + " bytes)");
    case Code::InvalidArgument: return what;
  }
  return "?";
}

}  // namespace

std::string PoolError::message() const {
  try {
    return sentence(*this);
  } catch (const std::bad_alloc&) {
    return name(code);  // none is so long that it needs the heap
  }
}

}  // namespace quire
