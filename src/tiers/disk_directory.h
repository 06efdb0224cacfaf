// The directory of a disk tier, locked for this process:
//
//   quire-disk-cache   says that the directory is ours; the lock is on this file
//   access             which objects were hit, and when (disk_index.h)
//   note               a line for the next server (Tier::keep_note)
//   db/                the database
//   db.removed/        a database on its way out
//
// Who may call: one thread at a time; bytes_below() any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>

#include "quire/base/error.h"

namespace quire::tiers {

class DiskDirectory {
 public:
  // Makes the directory if it is missing. Fails if another process has it, if it cannot be written, if it is a file,
  // or if it has files and no mark.
  static Result<std::unique_ptr<DiskDirectory>> open(const std::filesystem::path& path);
  ~DiskDirectory();
  DiskDirectory(const DiskDirectory&) = delete;
  DiskDirectory& operator=(const DiskDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path database() const { return path_ / "db"; }
  std::filesystem::path access_file() const { return path_ / "access"; }
  std::filesystem::path note_file() const { return path_ / "note"; }

  // Whether the path still leads to the directory that was opened.
  bool still_there() const;
  // Whether files here can be read and written past the page cache.
  bool direct_io_works() const;
  // What the disk has left for this user. 0 if it does not say.
  std::uint64_t free_bytes() const;
  // Deletes the database.
  Result<void> remove_database();

 private:
  DiskDirectory(std::filesystem::path path, int mark) : path_(std::move(path)), mark_(mark) {}

  std::filesystem::path path_;
  int mark_;  // file descriptor; holds the lock
};

// Writes a small file beside the one with this name and renames it. False: the old one is still there.
bool replace_file(const std::filesystem::path& path, std::span<const std::byte> bytes);

// What the files take on the disk. While they change, it is at most what they took at the end of the call.
std::uint64_t bytes_below(const std::filesystem::path& path);

}  // namespace quire::tiers
