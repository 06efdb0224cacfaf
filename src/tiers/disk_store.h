// The database of a disk tier: RocksDB without a write-ahead log, without blob files and without compaction.
//
// Objects are numbered as they are written, and written in that order. A generation is two column families (lanes, so
// that two files can be written at a time) of together about 1/32 of the limit. New objects go to the newest one. When
// room is needed, the oldest is dropped with its files, after the objects in it that were hit are written again (at
// most a third of it). So space comes back at once, and little is written twice.
//
//   key                     value
//   'i' number (8 bytes)    name and class (33 bytes), length of the bytes (8 bytes, little-endian)
//   'o' number (8 bytes)    the object: header and bytes (quire/state/tier_object.h)
//
// Room is reserved before anything is written: files, write buffers and reservations together stay within the limit.
//
// Who may call: any thread, except open(), maintain(), resume(), flush() and save_note(): one thread, the tier's
// keeper. How it fails: with a DiskFault. Reads of damaged files are no faults: they are Damaged objects.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <expected>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "quire/base/error.h"
#include "quire/state/tier.h"
#include "quire/tiers/disk_directory.h"
#include "quire/tiers/disk_index.h"
#include "quire/tiers/disk_tier.h"

namespace rocksdb {
class ColumnFamilyHandle;
class DB;
class Env;
class PinnableSlice;
class Status;
class WriteBatch;
}  // namespace rocksdb

namespace quire::tiers {

struct DiskFault {
  enum class Kind : std::uint8_t {
    NoRoom,  // nothing could be evicted in time; the next put may succeed
    Slow,    // the disk does not take the bytes as fast as they come
    Full,    // the disk is full: reads still work
    Broken,  // the database must be opened again
  };
  Kind kind = Kind::Broken;
  std::string message;
};

class DiskStore {
 public:
  using Clock = std::chrono::steady_clock;
  struct Generation;

  // Opens the database, or makes it. One that is damaged beyond use is deleted and made anew, with a line in the log.
  // `env`: how RocksDB reaches the disk; tests give their own.
  static Result<std::unique_ptr<DiskStore>> open(const DiskTierOptions& options, rocksdb::Env* env);
  ~DiskStore();
  DiskStore(const DiskStore&) = delete;
  DiskStore& operator=(const DiskStore&) = delete;

  bool has(const ObjectKey& key) const;
  // The same without waiting: nothing if somebody else has the index.
  std::optional<bool> has_at_once(const ObjectKey& key) const;

  struct Read {
    TierOutcome outcome = TierOutcome::Missing;
    ObjectFault fault{};              // if Damaged
    std::optional<DiskFault> failed;  // if Failed
  };
  // Leaves the whole object in `object`, checked. It counts as a hit.
  Read read(const ObjectKey& key, std::uint64_t bytes, rocksdb::PinnableSlice& object);

  // Objects that are written together. Objects that are there, or that another thread writes, are left out.
  class Write {
   public:
    explicit Write(DiskStore& store);
    ~Write();
    Write(const Write&) = delete;
    Write& operator=(const Write&) = delete;

    // False: no need to write it.
    bool want(const ObjectKey& key, std::uint64_t bytes);
    // It is there, and is written once more.
    void want_again(const ObjectKey& key, std::uint64_t bytes);
    // Room for everything that is wanted. Waits for an eviction until the deadline.
    std::optional<DiskFault> reserve(Clock::time_point deadline);
    // Copies the bytes. The object was wanted.
    void add(const ObjectKey& key, std::span<const std::byte> bytes);
    // An object as it was stored. It keeps its hits.
    void add_again(const ObjectKey& key, std::span<const std::byte> object, const DiskEntry& entry);
    std::optional<DiskFault> commit(Clock::time_point deadline);

   private:
    friend class DiskStore;
    struct Item {
      std::uint64_t hash = 0;
      DiskEntry entry;
    };
    void add(const ObjectKey& key, std::span<const std::byte> header, std::span<const std::byte> bytes,
             const DiskEntry& entry);

    DiskStore& store_;
    std::shared_ptr<Generation> generation_;
    std::unique_ptr<rocksdb::WriteBatch> batch_;
    std::vector<std::uint64_t> wanted_;
    std::vector<Item> items_;
    std::uint64_t charge_ = 0, bytes_ = 0, number_ = 0;
    bool reserved_ = false, again_ = false;
  };

  // What has to be done from time to time: writes buffers, makes room, saves hits, counts files. `stop` ends it early.
  std::optional<DiskFault> maintain(const std::atomic<bool>& stop);
  // Whether maintain() has something to do right now.
  bool wants_room() const;
  // Everything that was put is on the disk afterwards, and the hits.
  std::optional<DiskFault> flush();
  // After Full: gives back what the disk needs, and says whether writing works again.
  std::optional<DiskFault> resume(const std::atomic<bool>& stop);
  bool still_there() const { return directory_->still_there(); }
  // A line beside the database. What cannot be saved is forgotten at the next start, like the hits.
  void save_note(const std::string& note);
  std::string load_note() const;

  struct Figures {
    std::uint64_t bytes = 0, objects = 0, evicted = 0;
    std::uint64_t limit = 0;  // now: less than the option's if the disk has less
  };
  Figures figures() const;
  // Called without a lock when a put waits for room.
  void when_room_is_wanted(std::function<void()> call) { wanted_call_ = std::move(call); }

 private:
  DiskStore(const DiskTierOptions& options, std::unique_ptr<DiskDirectory> directory);

  // `damaged`: it failed, and the database is to blame. `tolerant`: open it even if files are missing or cut.
  std::optional<DiskFault> open_database(rocksdb::Env* env, bool& damaged, bool tolerant = false);
  void close_database();
  void drop_damaged_generations(rocksdb::Env* env);
  std::optional<DiskFault> load();
  rocksdb::Status load_generation(Generation& generation);
  rocksdb::Status load_lane(Generation& generation, std::uint64_t lane);
  std::optional<DiskFault> new_generation(std::uint64_t first);
  // Nobody writes to it any more. Returns how many objects are gone with it: the index forgets them at the same moment.
  std::expected<std::uint64_t, DiskFault> drop(const std::shared_ptr<Generation>& generation);
  std::optional<DiskFault> make_room(const std::atomic<bool>& stop, bool keep_hit);
  std::optional<DiskFault> evict_oldest(const std::atomic<bool>& stop, bool keep_hit, bool& evicted);
  std::optional<DiskFault> carry_on(Generation& from, std::span<const std::uint64_t> hashes,
                                    const std::atomic<bool>& stop);
  std::optional<DiskFault> flush_generations();
  void save_accesses();
  void load_accesses();
  void count_files();
  DiskFault fault_of(const rocksdb::Status& status) const;
  void log(const std::string& line) const;

  std::uint64_t taken() const;  // files, buffers and reservations; with mutex_
  // With mutex_. Puts leave a third of a generation, so that what is worth keeping can be written again.
  bool has_room(std::uint64_t charge, std::uint64_t objects) const;
  bool needs_room() const;
  std::shared_ptr<Generation> generation_of(std::uint64_t number) const;  // null: it was dropped

  const DiskTierOptions options_;
  const std::uint64_t generation_bytes_, write_buffer_bytes_;
  std::unique_ptr<DiskDirectory> directory_;
  rocksdb::DB* db_ = nullptr;
  rocksdb::ColumnFamilyHandle* default_family_ = nullptr;
  std::function<void()> wanted_call_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // room, or a new generation
  DiskIndex index_;
  std::unordered_set<std::uint64_t> writing_;                         // hashes
  std::map<std::uint64_t, std::shared_ptr<Generation>> generations_;  // by their first number
  std::uint64_t next_number_ = 0, next_lane_ = 0;
  std::uint64_t charged_ = 0;      // of all generations that still have files
  std::uint64_t unexplained_ = 0;  // bytes of files beyond that, as counted
  std::uint64_t disk_limit_ = 0;   // limit_bytes, or less if the disk is nearly full
  std::uint64_t last_excess_ = UINT64_MAX;
  std::uint64_t disk_bytes_ = 0;  // as counted
  std::uint64_t evicted_ = 0;
  bool rolling_ = false, accesses_changed_ = false;
  bool wanted_ = false;  // a put waits for room
  bool nothing_to_evict_ = false;
  Clock::time_point flush_at_{}, accesses_at_{}, count_at_{};
};

}  // namespace quire::tiers
