#if QUIRE_DISK_TIER
#include "quire/tiers/disk_store.h"

#include <algorithm>
#include <ctime>
#include <thread>

#include <fmt/format.h>
#include <rocksdb/db.h>

#include "quire/tiers/disk_store_internal.h"

namespace quire::tiers {
namespace {

// What an object takes in the files besides its bytes: both keys, the index, its share of the file's properties.
constexpr std::uint64_t kObjectOverhead = 512 + kObjectHeaderBytes;
// The database's own files (lists of files, options, an empty log) and the marks.
constexpr std::uint64_t kFixedBytes = std::uint64_t{6} << 20;
// The list of accesses, twice while it is replaced.
constexpr std::uint64_t kAccessBytes = 2 * 16;

std::uint32_t now_in_seconds() { return static_cast<std::uint32_t>(std::time(nullptr)); }

}  // namespace

DiskStore::Generation::~Generation() {
  // Deletes the files if the generation was dropped.
  for (rocksdb::ColumnFamilyHandle* handle : handles) store.db_->DestroyColumnFamilyHandle(handle);
  const std::lock_guard lock(store.mutex_);
  store.charged_ -= charged;
  store.changed_.notify_all();
}

DiskStore::DiskStore(const DiskTierOptions& options, std::unique_ptr<DiskDirectory> directory)
    : options_(options),
      generation_bytes_(options.limit_bytes / 32),
      write_buffer_bytes_(std::min(options.write_buffer_bytes, options.limit_bytes / 32) / kLanes),
      directory_(std::move(directory)),
      disk_limit_(options.limit_bytes) {
  flush_at_ = Clock::now() + options_.flush_interval;
  accesses_at_ = Clock::now() + options_.access_interval;
}

DiskStore::~DiskStore() { close_database(); }

void DiskStore::close_database() {
  generations_.clear();
  index_.clear();
  next_number_ = 0;
  if (!db_) return;
  if (default_family_) db_->DestroyColumnFamilyHandle(default_family_);
  default_family_ = nullptr;
  // What is not flushed is lost, as after a crash. Closing cleanly calls flush() first.
  (void)db_->Close();
  delete db_;
  db_ = nullptr;
}

void DiskStore::log(const std::string& line) const {
  if (options_.log) options_.log(line);
}

DiskFault DiskStore::fault_of(const rocksdb::Status& status) const {
  const std::string where = options_.path.string();
  if (status.IsNoSpace()) return {DiskFault::Kind::Full, where + ": the disk is full"};
  std::string text = status.ToString();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return {DiskFault::Kind::Broken, fmt::format("{}: {}", where, text)};
}

std::shared_ptr<DiskStore::Generation> DiskStore::generation_of(std::uint64_t number) const {
  auto after = generations_.upper_bound(number);
  return after == generations_.begin() ? nullptr : std::prev(after)->second;
}

std::uint64_t DiskStore::taken() const { return kFixedBytes + kAccessBytes * index_.size() + charged_ + unexplained_; }

bool DiskStore::has_room(std::uint64_t charge, std::uint64_t objects) const {
  return taken() + charge + kAccessBytes * objects <= disk_limit_ && index_.size() + objects <= options_.max_objects;
}

bool DiskStore::wants_room() const {
  const std::lock_guard lock(mutex_);
  return needs_room();
}

bool DiskStore::needs_room() const {
  // Two generations of room are made ahead, so that puts do not wait for an eviction.
  return wanted_ || !has_room(2 * generation_bytes_, options_.max_objects / 32);
}

bool DiskStore::has(const ObjectKey& key) const {
  const std::lock_guard lock(mutex_);
  return index_.find(DiskIndex::hash(key)) != nullptr;
}

std::optional<bool> DiskStore::has_at_once(const ObjectKey& key) const {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return {};
  return index_.find(DiskIndex::hash(key)) != nullptr;
}

DiskStore::Figures DiskStore::figures() const {
  const std::lock_guard lock(mutex_);
  return {disk_bytes_, index_.size(), evicted_, disk_limit_};
}

DiskStore::Read DiskStore::read(const ObjectKey& key, std::uint64_t bytes, rocksdb::PinnableSlice& object) {
  const std::uint64_t hash = DiskIndex::hash(key);
  std::shared_ptr<Generation> generation;  // lives longer than the lock
  DiskEntry entry;
  {
    const std::lock_guard lock(mutex_);
    const DiskEntry* found = index_.find(hash);
    if (!found) return {};
    entry = *found;
    generation = generation_of(entry.number);
    if (!generation) {
      index_.erase(hash, entry.number);
      return {};
    }
  }
  rocksdb::ReadOptions read_options;
  read_options.fill_cache = false;
  const auto status = db_->Get(read_options, generation->lane(entry.number), number_key('o', entry.number), &object);
  Read read;
  if (status.ok()) {
    const auto stored = as_bytes(object);
    const auto header = stored.first(std::min(stored.size(), kObjectHeaderBytes));
    auto checked = check_header(key, header, stored.size(), bytes);
    if (checked) checked = check_bytes(header, stored.subspan(kObjectHeaderBytes));
    if (checked) {
      const std::lock_guard lock(mutex_);
      index_.hit(hash, now_in_seconds());
      accesses_changed_ = true;
      read.outcome = TierOutcome::Done;
      return read;
    }
    read.outcome = TierOutcome::Damaged;
    read.fault = checked.error();
  } else if (status.IsCorruption()) {
    read.outcome = TierOutcome::Damaged;
    read.fault = ObjectFault::WrongChecksum;
  } else if (!status.IsNotFound()) {
    read.outcome = TierOutcome::Failed;
    read.failed = fault_of(status);
  }
  const std::lock_guard lock(mutex_);
  index_.erase(hash, entry.number);
  return read;
}

DiskStore::Write::Write(DiskStore& store) : store_(store), batch_(std::make_unique<rocksdb::WriteBatch>()) {}

DiskStore::Write::~Write() {
  const std::lock_guard lock(store_.mutex_);
  for (const std::uint64_t hash : wanted_) store_.writing_.erase(hash);
  if (!reserved_) return;
  --generation_->writers;
  if (charge_ > 0) {
    // What was reserved and not written.
    generation_->charged -= charge_;
    store_.charged_ -= charge_;
    store_.changed_.notify_all();
  }
}

bool DiskStore::Write::want(const ObjectKey& key, std::uint64_t bytes) {
  const std::uint64_t hash = DiskIndex::hash(key);
  const std::lock_guard lock(store_.mutex_);
  if (store_.index_.find(hash) || !store_.writing_.insert(hash).second) return false;
  wanted_.push_back(hash);
  charge_ += bytes + kObjectOverhead;
  bytes_ += bytes;
  return true;
}

void DiskStore::Write::want_again(const ObjectKey& key, std::uint64_t bytes) {
  const std::lock_guard lock(store_.mutex_);
  again_ = true;
  wanted_.push_back(DiskIndex::hash(key));
  charge_ += bytes + kObjectOverhead;
  bytes_ += bytes;
}

std::optional<DiskFault> DiskStore::Write::reserve(Clock::time_point deadline) {
  DiskStore& store = store_;
  std::unique_lock lock(store.mutex_);
  for (;;) {
    const bool room =
        again_ ? store.has_room(charge_, 0) : store.has_room(charge_ + store.generation_bytes_ / 3, wanted_.size());
    std::shared_ptr<Generation> newest;
    if (!store.generations_.empty()) newest = store.generations_.rbegin()->second;
    if (room && !store.rolling_) {
      if (newest && (newest->charged == 0 || newest->charged + charge_ <= store.generation_bytes_)) {
        generation_ = newest;
        break;
      }
      const std::uint64_t first = store.next_number_;
      store.rolling_ = true;
      lock.unlock();
      newest.reset();
      auto fault = store.new_generation(first);
      lock.lock();
      store.rolling_ = false;
      store.changed_.notify_all();
      if (fault) return fault;
      continue;
    }
    // Whoever writes again is the one that makes room.
    const bool hopeless = !room && (again_ || store.nothing_to_evict_);
    if (!room) store.wanted_ = true;
    lock.unlock();
    newest.reset();  // it may be the last one that holds it, and then it takes the lock
    if (!room && store.wanted_call_) store.wanted_call_();
    lock.lock();
    if (hopeless || Clock::now() >= deadline) {
      return DiskFault{DiskFault::Kind::NoRoom,
                       fmt::format("{}: no room for {} bytes", store.options_.path.string(), bytes_)};
    }
    store.changed_.wait_until(lock, std::min(deadline, Clock::now() + std::chrono::milliseconds(20)));
  }
  // Writes take turns between the lanes. The lane is the rest of the number.
  store.next_lane_ = (store.next_lane_ + 1) % kLanes;
  number_ = store.next_number_ + store.next_lane_;
  store.next_number_ += kLanes * wanted_.size();
  generation_->charged += charge_;
  store.charged_ += charge_;
  ++generation_->writers;
  reserved_ = true;
  *batch_ = rocksdb::WriteBatch(bytes_ + wanted_.size() * 256);
  const bool soon = !again_ && store.needs_room();
  lock.unlock();
  if (soon && store.wanted_call_) store.wanted_call_();
  return {};
}

void DiskStore::Write::add(const ObjectKey& key, std::span<const std::byte> bytes) {
  const ObjectHeader header = header_of(key, bytes);
  add(key, header, bytes, {.accessed = now_in_seconds()});
}

void DiskStore::Write::add_again(const ObjectKey& key, std::span<const std::byte> object, const DiskEntry& entry) {
  add(key, object.first(kObjectHeaderBytes), object.subspan(kObjectHeaderBytes), entry);
}

void DiskStore::Write::add(const ObjectKey& key, std::span<const std::byte> header, std::span<const std::byte> bytes,
                           const DiskEntry& entry) {
  Item item{DiskIndex::hash(key), entry};
  item.entry.number = number_;
  number_ += kLanes;
  item.entry.bytes = static_cast<std::uint32_t>(bytes.size());
  const std::string number = number_key('o', item.entry.number);
  const rocksdb::Slice name(number);
  const rocksdb::Slice parts[] = {as_slice(header), as_slice(bytes)};
  rocksdb::ColumnFamilyHandle* lane = generation_->lane(item.entry.number);
  (void)batch_->Put(lane, number_key('i', item.entry.number), listed(key, bytes.size()));
  (void)batch_->Put(lane, rocksdb::SliceParts(&name, 1), rocksdb::SliceParts(parts, 2));
  items_.push_back(item);
}

std::optional<DiskFault> DiskStore::Write::commit(Clock::time_point deadline) {
  if (items_.empty()) return {};
  rocksdb::WriteOptions write_options;
  write_options.disableWAL = true;
  write_options.no_slowdown = true;  // waiting has a deadline here, and none in RocksDB
  for (;;) {
    const auto status = store_.db_->Write(write_options, batch_.get());
    if (status.ok()) break;
    if (!status.IsIncomplete()) return store_.fault_of(status);
    if (Clock::now() >= deadline) {
      return DiskFault{DiskFault::Kind::Slow,
                       store_.options_.path.string() + ": the disk is too slow for what is written"};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::lock_guard lock(store_.mutex_);
  for (const Item& item : items_) {
    store_.index_.put(item.hash, item.entry);
    generation_->hashes.push_back(item.hash);
    charge_ -= item.entry.bytes + kObjectOverhead;
  }
  generation_->dirty = true;
  return {};
}

std::optional<DiskFault> DiskStore::new_generation(std::uint64_t first) {
  std::vector<std::string> names;
  for (std::uint64_t lane = 0; lane < kLanes; ++lane) names.push_back(family_name(first, lane));
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  const auto status = db_->CreateColumnFamilies(family_options(write_buffer_bytes_), names, &handles);
  if (!status.ok()) {
    // A lane without the other is dropped when the database is opened again.
    for (rocksdb::ColumnFamilyHandle* handle : handles) db_->DestroyColumnFamilyHandle(handle);
    return fault_of(status);
  }
  auto generation = std::make_shared<Generation>(*this, std::move(handles), first);
  const std::lock_guard lock(mutex_);
  generations_.emplace(first, std::move(generation));
  return {};
}

}  // namespace quire::tiers
#endif  // QUIRE_DISK_TIER
