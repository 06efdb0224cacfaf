// Keeping a disk tier within its limit, and what else is done from time to time.
#if QUIRE_DISK_TIER
#include <fstream>
#include <iterator>
#include <thread>

#include <fmt/format.h>
#include <rocksdb/db.h>

#include "quire/base/readable.h"
#include "quire/tiers/disk_store.h"
#include "quire/tiers/disk_store_internal.h"

namespace quire::tiers {
namespace {

constexpr std::chrono::milliseconds kFlushPause{5};  // until RocksDB is asked again

constexpr std::chrono::seconds kCountInterval{1};

constexpr std::size_t kMostNote = 4096;  // bytes

}  // namespace

std::optional<DiskFault> DiskStore::maintain(const std::atomic<bool>& stop) {
  const auto now = Clock::now();
  if (now >= flush_at_) {
    if (auto fault = flush_generations()) return fault;
    flush_at_ = Clock::now() + options_.flush_interval;
  }
  if (now >= count_at_) count_files();
  if (auto fault = make_room(stop, true)) return fault;
  if (now >= accesses_at_) {
    save_accesses();
    accesses_at_ = now + options_.access_interval;
  }
  return {};
}

std::optional<DiskFault> DiskStore::make_room(const std::atomic<bool>& stop, bool keep_hit) {
  while (!stop && wants_room()) {
    bool evicted = false;
    if (auto fault = evict_oldest(stop, keep_hit, evicted)) return fault;
    if (!evicted) break;
    count_files();
  }
  return {};
}

std::optional<DiskFault> DiskStore::flush() {
  auto fault = flush_generations();
  save_accesses();
  return fault;
}

std::optional<DiskFault> DiskStore::resume(const std::atomic<bool>& stop) {
  count_files();
  if (auto fault = make_room(stop, false)) return fault;
  const auto status = db_->Resume();
  // Busy: RocksDB itself looks for space, every five seconds.
  if (status.IsBusy()) return fault_of(rocksdb::Status::NoSpace());
  if (!status.ok()) return fault_of(status);
  return flush_generations();
}

std::optional<DiskFault> DiskStore::flush_generations() {
  std::vector<std::shared_ptr<Generation>> dirty;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [first, generation] : generations_) {
      if (generation->dirty) dirty.push_back(generation);
      generation->dirty = false;
    }
  }
  rocksdb::FlushOptions flush_options;
  flush_options.allow_write_stall = true;  // or it would wait until there is no need to flush
  // All begin, then all end: lanes are written at the same time.
  for (const bool wait : {false, true}) {
    flush_options.wait = wait;
    for (const auto& generation : dirty) {
      for (rocksdb::ColumnFamilyHandle* handle : generation->handles) {
        auto status = db_->Flush(flush_options, handle);
        // All write buffers are full and are being written already: no fault, but the rest must wait for its turn.
        for (const auto deadline = Clock::now() + options_.timeout; status.IsTryAgain() && Clock::now() < deadline;) {
          std::this_thread::sleep_for(kFlushPause);
          status = db_->Flush(flush_options, handle);
        }
        if (status.ok() || status.IsColumnFamilyDropped()) continue;
        const std::lock_guard lock(mutex_);
        for (const auto& unwritten : dirty) unwritten->dirty = true;
        return fault_of(status);
      }
    }
  }
  return {};
}

std::expected<std::uint64_t, DiskFault> DiskStore::drop(const std::shared_ptr<Generation>& generation) {
  const auto status = db_->DropColumnFamilies(generation->handles);
  if (!status.ok()) return std::unexpected(fault_of(status));
  std::shared_ptr<Generation> dropped;  // the files go with the last one who reads from it
  const std::lock_guard lock(mutex_);
  // One critical section: whoever finds an object in the index also finds its generation.
  if (const auto found = generations_.find(generation->first); found != generations_.end()) {
    dropped = std::move(found->second);
    generations_.erase(found);
  }
  const auto after = generations_.upper_bound(generation->first);
  const std::uint64_t end = after == generations_.end() ? UINT64_MAX : after->first;
  std::uint64_t gone = 0;
  for (const std::uint64_t hash : generation->hashes) {
    const DiskEntry* entry = index_.find(hash);
    if (entry && entry->number >= generation->first && entry->number < end) gone += index_.erase(hash, entry->number);
  }
  return gone;
}

std::optional<DiskFault> DiskStore::evict_oldest(const std::atomic<bool>& stop, bool keep_hit, bool& evicted) {
  std::shared_ptr<Generation> oldest;
  std::vector<std::uint64_t> kept;
  {
    const std::lock_guard lock(mutex_);
    nothing_to_evict_ = generations_.size() < 2;
    // Writers end soon, and only the newest generation gets new ones. Until then wanted_ stays, and the keeper comes
    // back.
    if (!nothing_to_evict_ && generations_.begin()->second->writers > 0) return {};
    wanted_ = false;
    if (nothing_to_evict_) return {};
    oldest = generations_.begin()->second;
    const std::uint64_t last = std::next(generations_.begin())->first - 1;
    if (keep_hit) kept = index_.worth_keeping(oldest->hashes, oldest->first, last, generation_bytes_ / 3);
  }
  if (!kept.empty()) {
    if (auto fault = carry_on(*oldest, kept, stop)) return fault;
  }
  const auto gone = drop(oldest);
  if (!gone) return gone.error();
  oldest.reset();
  evicted = true;
  const std::lock_guard lock(mutex_);
  evicted_ += *gone;
  return {};
}

std::optional<DiskFault> DiskStore::carry_on(Generation& from, std::span<const std::uint64_t> hashes,
                                             const std::atomic<bool>& stop) {
  for (const std::uint64_t hash : hashes) {
    if (stop) return {};
    DiskEntry entry;
    {
      const std::lock_guard lock(mutex_);
      const DiskEntry* found = index_.find(hash);
      if (!found || found->number < from.first) continue;
      entry = *found;
    }
    rocksdb::ReadOptions read_options;
    read_options.fill_cache = false;
    rocksdb::PinnableSlice name, object;
    auto status = db_->Get(read_options, from.lane(entry.number), number_key('i', entry.number), &name);
    if (status.ok()) status = db_->Get(read_options, from.lane(entry.number), number_key('o', entry.number), &object);
    if (status.IsIOError()) return fault_of(status);
    ObjectKey key;
    if (!status.ok() || name.size() < key.name.size() + 1) continue;  // damaged: it goes with the rest
    std::memcpy(key.name.data(), name.data(), key.name.size());
    key.cls = static_cast<std::uint8_t>(name[key.name.size()]);
    const auto stored = as_bytes(object);
    const auto header = stored.first(std::min(stored.size(), kObjectHeaderBytes));
    if (!check_header(key, header, stored.size(), entry.bytes)) continue;
    if (!check_bytes(header, stored.subspan(kObjectHeaderBytes))) continue;
    Write write(*this);
    write.want_again(key, entry.bytes);
    if (write.reserve(Clock::now() + options_.timeout)) return {};
    entry.hits /= 2;
    write.add_again(key, stored, entry);
    if (auto fault = write.commit(Clock::now() + options_.timeout)) {
      if (fault->kind == DiskFault::Kind::Slow) return {};
      return fault;
    }
  }
  // Before the old ones go, the new ones are on the disk.
  return flush_generations();
}

void DiskStore::count_files() {
  const std::uint64_t counted = bytes_below(options_.path);
  const std::uint64_t free = directory_->free_bytes();
  const std::lock_guard lock(mutex_);
  disk_bytes_ = counted;
  // What is explained includes buffers that are not in a file yet, so this number only grows. A generation may have
  // gone since its files were counted, so only what is there twice in a row counts (the first time nobody else is
  // here).
  const std::uint64_t explained = taken() - unexplained_;
  const std::uint64_t excess = counted > explained ? counted - explained : 0;
  unexplained_ = std::max(unexplained_, std::min(excess, last_excess_));
  last_excess_ = excess;
  // The files and what is free are what this cache could have at most.
  const std::uint64_t possible = counted + free;
  const std::uint64_t allowed = possible > options_.keep_free_bytes ? possible - options_.keep_free_bytes : 0;
  disk_limit_ = std::min(options_.limit_bytes, allowed);
  count_at_ = Clock::now() + kCountInterval;
  changed_.notify_all();
}

void DiskStore::save_accesses() {
  std::vector<std::byte> saved;
  {
    const std::lock_guard lock(mutex_);
    if (!accesses_changed_) return;
    accesses_changed_ = false;
    saved = index_.save_accesses();
  }
  // Hits are a hint: what cannot be saved is forgotten at the next start.
  (void)replace_file(directory_->access_file(), saved);
}

void DiskStore::save_note(const std::string& note) {
  (void)replace_file(directory_->note_file(), std::as_bytes(std::span(note)));
}

std::string DiskStore::load_note() const {
  std::ifstream in(directory_->note_file(), std::ios::binary);
  std::string note(kMostNote, '\0');
  in.read(note.data(), static_cast<std::streamsize>(note.size()));
  note.resize(static_cast<std::size_t>(in.gcount()));
  return note;
}

void DiskStore::load_accesses() {
  std::ifstream in(directory_->access_file(), std::ios::binary);
  if (!in) return;
  const std::string saved((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (!index_.load_accesses(std::as_bytes(std::span(saved)))) {
    log(fmt::format("disk cache {}: the list of hits is damaged and ignored", options_.path.string()));
  }
}

}  // namespace quire::tiers
#endif  // QUIRE_DISK_TIER
