// Opening the database, and what is done about one that is damaged.
#if QUIRE_DISK_TIER
#include <charconv>

#include <fmt/format.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>

#include "quire/tiers/disk_store.h"
#include "quire/tiers/disk_store_internal.h"

namespace quire::tiers {
namespace {

// RocksDB's own log would be a file that grows. What matters arrives as a status.
class NoLog : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char*, va_list) override {}
};

rocksdb::DBOptions database_options(bool direct_io, bool tolerant, rocksdb::Env* env) {
  rocksdb::DBOptions options;
  options.env = env;
  options.create_if_missing = true;
  options.paranoid_checks = !tolerant;
  options.info_log = std::make_shared<NoLog>();
  options.max_open_files = 256;
  options.max_background_flushes = static_cast<int>(kLanes);
  options.max_background_compactions = 1;
  options.use_direct_reads = direct_io;
  options.use_direct_io_for_flush_and_compaction = direct_io;
  options.bytes_per_sync = direct_io ? 0 : 4 << 20;
  options.allow_fallocate = false;  // it would take bytes of the disk that nobody counts
  options.max_manifest_file_size = 1 << 20;
  options.manifest_preallocation_size = 0;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  options.avoid_flush_during_shutdown = true;
  options.max_bgerror_resume_count = 0;  // the tier tries again by itself
  // A file with another size costs its own objects, not the database.
  options.skip_checking_sst_file_sizes_on_db_open = true;
  options.skip_stats_update_on_db_open = true;
  return options;
}

// Whether the database is to blame, and not the disk or the rights.
bool is_damage(const rocksdb::Status& status) {
  if (status.IsIOError()) return status.IsPathNotFound();
  return !status.IsNoSpace() && !status.IsBusy() && !status.IsTimedOut() && !status.IsMemoryLimit() &&
         !status.IsAborted() && !status.IsShutdownInProgress();
}

}  // namespace

std::string family_name(std::uint64_t first, std::uint64_t lane) { return fmt::format("g{:016x}-{}", first, lane); }

rocksdb::ColumnFamilyOptions family_options(std::uint64_t write_buffer_bytes) {
  rocksdb::ColumnFamilyOptions options;
  options.write_buffer_size = write_buffer_bytes;
  options.max_write_buffer_number = 3;  // one is filled, one is written, one waits; beyond three RocksDB slows puts
  options.compression = rocksdb::kNoCompression;
  options.disable_auto_compactions = true;
  options.level0_slowdown_writes_trigger = options.level0_stop_writes_trigger = 1 << 30;
  options.soft_pending_compaction_bytes_limit = options.hard_pending_compaction_bytes_limit = 0;
  rocksdb::BlockBasedTableOptions table;
  // Debian builds RocksDB without the CPU's CRC32C: 1.2 GB/s. XXH3 has several times that.
  table.checksum = rocksdb::kXXH3;
  table.format_version = 5;
  table.no_block_cache = true;
  // Every file has short records and objects, so by its first and last key it could have any object. Without a filter,
  // RocksDB would look into each newer file, and read an object there that may be a hundred times as large.
  constexpr double kFilterBits = 16;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(kFilterBits, false));
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

Result<std::unique_ptr<DiskStore>> DiskStore::open(const DiskTierOptions& options, rocksdb::Env* env) {
  auto directory = DiskDirectory::open(options.path);
  if (!directory) return std::unexpected(directory.error());
  std::unique_ptr<DiskStore> store(new DiskStore(options, std::move(*directory)));
  bool damaged = false;
  auto fault = store->open_database(env, damaged);
  if (fault && damaged) {
    store->log("disk cache " + fault->message);
    store->drop_damaged_generations(env);
    fault = store->open_database(env, damaged);
  }
  if (fault && damaged) {
    store->log(fmt::format("disk cache {}: cannot be repaired; it is deleted and begun anew", options.path.string()));
    if (auto removed = store->directory_->remove_database(); !removed) return std::unexpected(removed.error());
    fault = store->open_database(env, damaged);
  }
  if (!fault) fault = store->load();
  if (fault) return fail(fault->message);
  store->load_accesses();
  store->count_files();
  return store;
}

void DiskStore::drop_damaged_generations(rocksdb::Env* env) {
  bool damaged = false;
  if (!open_database(env, damaged, true)) (void)load();
  close_database();
}

std::optional<DiskFault> DiskStore::open_database(rocksdb::Env* env, bool& damaged, bool tolerant) {
  const bool direct_io = options_.direct_io && directory_->direct_io_works();
  const rocksdb::DBOptions database = database_options(direct_io, tolerant, env);
  const std::string path = directory_->database().string();
  std::vector<std::string> names;
  damaged = false;
  if (std::error_code error; std::filesystem::exists(path + "/CURRENT", error)) {
    const auto status = rocksdb::DB::ListColumnFamilies(database, path, &names);
    if (!status.ok()) {
      damaged = is_damage(status);
      return fault_of(status);
    }
  } else {
    names.push_back(rocksdb::kDefaultColumnFamilyName);
  }
  std::vector<rocksdb::ColumnFamilyDescriptor> families;
  families.reserve(names.size());
  for (const std::string& name : names) families.emplace_back(name, family_options(write_buffer_bytes_));
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  const auto status = rocksdb::DB::Open(database, path, families, &handles, &db_);
  if (!status.ok()) {
    db_ = nullptr;
    damaged = is_damage(status);
    return fault_of(status);
  }
  std::map<std::uint64_t, std::vector<rocksdb::ColumnFamilyHandle*>> lanes;  // by the first number, in order
  std::map<std::string, rocksdb::ColumnFamilyHandle*> by_name;
  for (std::size_t i = 0; i < names.size(); ++i) by_name[names[i]] = handles[i];
  for (const auto& [name, handle] : by_name) {
    if (name == rocksdb::kDefaultColumnFamilyName) {
      default_family_ = handle;
      continue;
    }
    std::uint64_t first = 0;
    std::from_chars(name.data() + 1, name.data() + name.size(), first, 16);
    lanes[first].push_back(handle);
  }
  for (auto& [first, both] : lanes) {
    generations_.emplace(first, std::make_shared<Generation>(*this, std::move(both), first));
  }
  return {};
}

std::optional<DiskFault> DiskStore::load() {
  const auto all = generations_;  // load_generation() needs no lock: nobody else knows this store yet
  for (const auto& [first, generation] : all) {
    if (generation->handles.size() != kLanes) {
      // A crash between the lanes, when the generation was made and empty, or was dropped.
      if (const auto dropped = drop(generation); !dropped) return dropped.error();
      continue;
    }
    const rocksdb::Status status = load_generation(*generation);
    if (status.ok()) continue;
    if (!is_damage(status)) return fault_of(status);
    log(fmt::format("disk cache {}: files of {} are damaged; {} objects or more are lost", options_.path.string(),
                    family_name(first, 0), generation->hashes.size()));
    if (const auto dropped = drop(generation); !dropped) return dropped.error();
  }
  return {};
}

rocksdb::Status DiskStore::load_generation(Generation& generation) {
  for (rocksdb::ColumnFamilyHandle* handle : generation.handles) {
    rocksdb::ColumnFamilyMetaData files;
    db_->GetColumnFamilyMetaData(handle, &files);
    generation.charged += files.size;
    charged_ += files.size;
  }
  next_number_ = std::max(next_number_, generation.first + kLanes);
  rocksdb::Status status;
  for (std::size_t lane = 0; status.ok() && lane < kLanes; ++lane) status = load_lane(generation, lane);
  return status;
}

rocksdb::Status DiskStore::load_lane(Generation& generation, std::uint64_t lane) {
  rocksdb::ReadOptions read_options;
  read_options.fill_cache = false;
  const rocksdb::Slice end("j");
  read_options.iterate_upper_bound = &end;
  std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator(read_options, generation.handles[lane]));
  for (at->Seek("i"); at->Valid(); at->Next()) {
    const rocksdb::Slice key = at->key(), value = at->value();
    ObjectKey object;
    if (key.size() != 9 || value.size() != object.name.size() + 9) {
      return rocksdb::Status::Corruption("a record of another kind");
    }
    std::uint64_t number = 0, bytes = 0;
    for (std::size_t i = 1; i < 9; ++i) number = number << 8 | static_cast<std::uint8_t>(key[i]);
    std::memcpy(object.name.data(), value.data(), object.name.size());
    object.cls = static_cast<std::uint8_t>(value[object.name.size()]);
    for (std::size_t i = 0; i < 8; ++i) {
      bytes |= std::uint64_t{static_cast<std::uint8_t>(value[object.name.size() + 1 + i])} << (8 * i);
    }
    if (number % kLanes != lane) return rocksdb::Status::Corruption("a record of another lane");
    const std::uint64_t hash = DiskIndex::hash(object);
    generation.hashes.push_back(hash);
    next_number_ = std::max(next_number_, number - lane + kLanes);
    // An object that was written again is there twice, if a crash came before the old one was dropped.
    const DiskEntry* known = index_.find(hash);
    if (known && known->number > number) continue;
    index_.put(hash, {.number = number, .bytes = static_cast<std::uint32_t>(bytes)});
  }
  return at->status();
}

}  // namespace quire::tiers
#endif  // QUIRE_DISK_TIER
