// Where pages and checkpoints lie besides the pool: on a disk, in a shared store. A tier is a cache. Losing it, or any
// object of it, loses time and nothing else.
//
//   tier->submit(jobs)        returns at once; the work is done on the tier's own threads
//   listener.done(job, ...)   once for each job that was taken, in any order
//
// Contract of an implementation (src/tiers)
// - submit() never waits for a disk, a socket or another thread's work. It takes the jobs in order as long as its queue
//   has room, and returns how many it took. Queue and memory are bounded.
// - The memory of a job (`data`) belongs to the tier from submit() to done().
// - Put: stores header and bytes (tier_object.h). An object that is already there need not be written again. After a
//   crash the object is there as a whole or not at all.
// - Get: fills `data` with the bytes, after all checks of tier_object.h. An object that fails a check is Damaged: it is
//   removed, and the job ends as a miss. Nothing is ever returned that was stored under another key.
// - Find: whether the object is there, without reading it. It is a hint: a later Get may miss.
// - A tier that fails (a full disk, a lost connection) answers Failed quickly: after an error it tries again by itself
//   with growing pauses, and does not make each job wait for a timeout. No job takes longer than the tier's timeout.
// - The destructor ends what was begun, tells Failed for the rest, and then waits for its threads.
//
// Who may call: submit(), usage(), has_lost() and the notes from any thread; none of them waits for a disk. done() is
// called on a thread of the tier, or by submit() for what is known at once. It must not block.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "quire/state/object_name.h"
#include "quire/state/tier_object.h"

namespace quire {

enum class TierKind : std::uint8_t { Host, Disk, Shared };
inline constexpr std::size_t kTierKinds = 3;
const char* name(TierKind kind);  // "host", "disk", "shared"

struct TierJob {
  enum class Kind : std::uint8_t { Put, Get, Find };
  Kind kind = Kind::Find;
  ObjectKey key;
  std::byte* data = nullptr;  // Put: the bytes; Get: where they go; Find: unused
  std::uint64_t bytes = 0;    // their length, the same for every object of a class
  std::uint64_t ticket = 0;   // the caller's
};

enum class TierOutcome : std::uint8_t {
  Done,     // Put: stored (or was there); Get: the bytes are in `data`; Find: it is there
  Missing,  // Get, Find: it is not there
  Damaged,  // Get: it was there and failed a check; it counts as missing
  Failed,   // the tier could not do it: full, slow, gone
};

class TierListener {
 public:
  virtual ~TierListener() = default;
  virtual void done(const TierJob& job, TierOutcome outcome) noexcept = 0;
};

struct TierUsage {
  std::uint64_t bytes = 0, capacity_bytes = 0;  // really used on the disk, and the limit now; 0 if it is not known
  std::uint64_t objects = 0;                    // 0 if it is not known
  std::uint64_t puts = 0, gets = 0, finds = 0;  // jobs that were done
  std::uint64_t hits = 0, misses = 0;           // of gets
  std::uint64_t bytes_written = 0, bytes_read = 0;
  std::uint64_t evicted = 0;                   // objects that were removed to stay within the limit
  std::uint64_t failed = 0, refused = 0;       // jobs that failed; jobs that found the queue full
  std::array<std::uint64_t, 6> damaged{};      // by ObjectFault
  double write_seconds = 0, read_seconds = 0;  // of the work itself, without the time in the queue
  bool working = true;                         // false: the last attempt failed
  std::string problem;                         // one line, if it is not working
};

class Tier {
 public:
  virtual ~Tier() = default;
  virtual TierKind kind() const = 0;
  virtual std::string describe() const = 0;  // for logs: what and where, without passwords
  virtual std::size_t submit(std::span<const TierJob> jobs) = 0;
  virtual TierUsage usage() const = 0;
  // Whether an object that was stored is gone, as far as this is known without asking anybody. It is a hint: false says
  // nothing. A tier that evicts by itself should know it, so that what the pool still has is stored anew.
  virtual bool has_lost(const ObjectKey& key) const { return (void)key, false; }
  // A line that the next server on this tier can read: what computing costs on this machine. Only a tier of this
  // machine keeps it (a disk), and the last one counts. It is a hint like everything here: it may be lost.
  virtual void keep_note(const std::string& note) { (void)note; }
  virtual std::string kept_note() const { return {}; }  // empty: there is none
};

}  // namespace quire
