// The disk tier: pages and checkpoints in a directory of a local disk, within a limit of bytes.
//
//   auto options = parse_disk_tier("/var/cache/quire:100G", cli::parse_bytes);
//   auto tier = open_disk_tier(*options, listener);
//
// What always holds (docs/tiers.md says how)
// - The files below `path` never take more than `limit_bytes`, also while the tier works and after a crash.
// - An object is found as a whole or not at all. After `kill -9` the last `flush_interval` of puts may be lost.
// - Nothing that fails a check is returned. A damaged file costs the objects in it; a database that cannot be opened
//   any more is deleted and begun anew, because it is a cache. Both give a line in the log.
// - After an error the tier answers Failed at once, and tries again by itself after `first_pause`, then twice that,
//   and so on until `longest_pause`. On a full disk it still reads.
//
// Memory: three write buffers, an object for each reader, four for each writer, and about 64 bytes for each object on
// the disk.
//
// Who may call: any thread. One process at a time can use a directory.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "quire/base/error.h"
#include "quire/state/tier.h"

namespace quire::tiers {

struct DiskTierOptions {
  std::filesystem::path path;     // made if it is missing; its parent must be there
  std::uint64_t limit_bytes = 0;  // at least kSmallestDiskLimit
  std::size_t queue = 1024;       // jobs that wait: so many reads, and so many writes
  std::size_t threads = 4;        // how many read at the same time; half as many write
  bool low_priority = true;       // threads that write give way to all others: nobody waits for them

  std::uint64_t write_buffer_bytes = std::uint64_t{64} << 20;  // less if the limit is small
  std::uint64_t max_objects = 2'000'000;                       // bounds the memory for the index
  std::uint64_t keep_free_bytes = std::uint64_t{256} << 20;    // left to others; the cache shrinks before it takes it
  bool direct_io = true;  // past the page cache, which has the model's weights to keep; off where it is not supported

  std::chrono::milliseconds flush_interval{2'000};    // what a crash may lose
  std::chrono::milliseconds access_interval{30'000};  // how often hits are saved for the next start
  std::chrono::milliseconds timeout{10'000};          // a job that the disk does not answer by then has failed
  std::chrono::milliseconds first_pause{500}, longest_pause{30'000};

  std::function<void(const std::string&)> log;  // one line; called on a thread of the tier
};

inline constexpr std::uint64_t kSmallestDiskLimit = std::uint64_t{64} << 20;

// "DIR:100G" as path and limit. `parse_bytes` reads the size (quire/cli/sizes.h).
Result<DiskTierOptions> parse_disk_tier(std::string_view text,
                                        std::optional<std::uint64_t> (*parse_bytes)(std::string_view));

// Opens the directory and reads the list of its objects. Errors name the directory: it is in use, cannot be written,
// is a file, or has something else in it.
Result<std::unique_ptr<Tier>> open_disk_tier(DiskTierOptions options, TierListener& listener);

}  // namespace quire::tiers
