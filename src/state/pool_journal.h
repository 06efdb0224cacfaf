// A record of what a pool does: a PoolJournal is told of every operation that changed the pool, with its arguments and
// its answer. src/journal writes such records to a file and replays them against the reference model.
//
// Who calls: the thread that owns the pool, at the end of an operation. A journal must outlive its pool.
// What is told: operations that succeeded, and refusals that depend on what the pool holds (no memory, a prefix that is
//   gone) or on the device. Calls that are refused because they make no sense (a stale id, too many tokens) change
//   nothing and are not told; nor are costs that are as before. An operation that calls others, as admit() calls
//   reserve(), is told once. What a span in a PoolOperation refers to is valid during the call only.
// A pool without a journal pays one comparison per operation.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "quire/state/sequence_pool.h"

namespace quire {

// Objects and known blocks after an operation.
struct PoolCounts {
  struct Class {
    std::uint32_t held = 0, cached = 0;
    friend bool operator==(const Class&, const Class&) = default;
  };
  std::uint32_t classes = 0;  // layer groups, and one for states if the model has any
  std::array<Class, kMaxClasses> objects{};
  std::uint32_t known_blocks = 0;
  friend bool operator==(const PoolCounts&, const PoolCounts&) = default;
};

struct PoolOperation {
  enum class Kind : std::uint8_t {
    Create,     // tokens: prompt; name_space, reuse. Answer: made, hit
    Admit,      // as Create; total, chunk, entries: others. Answer: made, hit
    Reserve,    // entries
    Commit,     // sequence, tokens, checkpoint
    Fork,       // sequence, position. Answer: made, reached
    Rewind,     // sequence, position. Answer: reached
    Release,    // sequence
    Save,       // sequence. Answer: bytes
    Restore,    // tokens, name_space, first_blocks. Answer: made
    Suspend,    // sequence, cell_bytes, free_cells. Answer: bytes
    Resume,     // tokens, name_space, first_blocks, not_copied. Answer: made
    SetCosts,   // costs
    SetShare,   // name_space: the tenant; floor, cap
    DropCache,  //
    Recover,    //
    AllocPage,  // group. Answer: object
    FreePage,   // group, object
    AllocSlot,  // Answer: object
    FreeSlot,   // object
    Draft,      // sequence, total: certain tokens, chunk: drafts
    EndDraft,   // sequence
  };
  static constexpr std::uint8_t kKinds = 21;

  Kind kind = Kind::DropCache;
  // --- arguments
  SequenceId sequence;
  Namespace name_space = 0;
  bool reuse = true;
  bool checkpoint = false;
  std::uint32_t total = 0, chunk = 0, position = 0, group = 0;
  std::span<const Token> tokens;
  std::span<const BatchEntry> entries;  // only `sequence` and `rows` are set
  std::span<const std::uint32_t> first_blocks;
  std::span<const HostArena::Object> not_copied;  // pages that were left in the pool when it was suspended
  std::uint64_t cell_bytes = 0, free_cells = 0;   // of the host arena
  RecomputeCosts costs;
  std::uint64_t floor = 0, cap = 0;
  // --- answer
  std::optional<PoolError::Code> error;  // then nothing below is set but the counts
  SequenceId made;
  Hit hit;
  std::uint32_t reached = 0;
  std::uint64_t bytes = 0;
  PageId object;  // a page or a slot
  PoolCounts counts;
};
const char* name(PoolOperation::Kind kind);

class PoolJournal {
 public:
  struct Status {
    std::uint64_t records = 0, bytes = 0;  // accepted so far
    bool failed = false;                   // it has stopped and takes no more records
  };
  PoolJournal() = default;
  PoolJournal(const PoolJournal&) = delete;
  PoolJournal& operator=(const PoolJournal&) = delete;
  virtual ~PoolJournal() = default;

  // Once, when the pool has been made and is still empty. An error prevents the pool.
  virtual PoolResult<void> begin(const SequencePool& pool) = 0;
  // Must not fail, throw or allocate: a journal that cannot go on remembers that and does nothing from then on.
  virtual void record(const PoolOperation& operation) noexcept = 0;
  virtual Status status() const noexcept = 0;  // from any thread
};

}  // namespace quire
