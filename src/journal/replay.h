// Replays a journal against the reference model and finds the first operation at which the pool did something else.
// Compared are every answer (hits, refusals, lengths after a fork or rewind) and, after every operation, the number of
// held and cached objects of each class and of known blocks.
//
// Not everything can be compared. The model has no device and does not know where objects are. So after a device error,
// and while there are plain pages or slots, records are only read. The comparison goes on as soon as the pool is known
// to be as new: after recover(), or with Eviction::Lru after drop_cache() without sequences. `unchecked` counts what
// was skipped.
#pragma once

#include <array>
#include <cstdint>
#include <istream>
#include <optional>
#include <string>

#include "quire/journal/journal_reader.h"

namespace quire::journal {

struct Difference {
  std::uint64_t record = 0;
  std::uint64_t offset = 0;  // of the record, in bytes
  std::string operation;     // with its arguments
  std::string pool;          // what the pool answered or counted
  std::string reference;     // what the reference model says
};

struct ReplayReport {
  std::optional<JournalHeader> header;                            // empty: the file has no readable one
  std::uint64_t records = 0, bytes = 0;                           // read, without the header; with it
  std::uint64_t unchecked = 0;                                    // of the records: not compared
  std::array<std::uint64_t, PoolOperation::kKinds> operations{};  // by kind
  std::uint64_t refusals = 0;                                     // of them, for lack of memory
  std::uint64_t sequences = 0;                                    // created, admitted, forked, restored or resumed
  std::uint64_t prompt_tokens = 0, hit_tokens = 0, committed_tokens = 0;
  std::uint64_t device_errors = 0;
  std::optional<Difference> difference;
  std::optional<JournalDamage> damage;  // reading ended here
  bool clean() const { return !difference && !damage; }
};

// Reads until the end, the first difference or the first damage.
ReplayReport replay(std::istream& in);

}  // namespace quire::journal
