#include "quire/tiers/disk_directory.h"

#include <algorithm>
#include <cerrno>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace quire::tiers {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = "quire-disk-cache";
constexpr std::string_view kMarkText =
    "This directory is a cache of quire. It can be deleted when no server uses it.\n";

std::string reason(int error) { return std::generic_category().message(error); }

// What is in the directory besides what a new file system has. Empty: nothing.
Result<std::string> first_entry(const fs::path& path) {
  std::error_code error;
  fs::directory_iterator entry(path, error);
  if (error) return fail(fmt::format("{}: cannot be read: {}", path.string(), error.message()));
  for (; entry != fs::directory_iterator(); entry.increment(error)) {
    if (error) return fail(fmt::format("{}: cannot be read: {}", path.string(), error.message()));
    if (entry->path().filename() != "lost+found") return entry->path().filename().string();
  }
  return std::string();
}

}  // namespace

Result<std::unique_ptr<DiskDirectory>> DiskDirectory::open(const fs::path& path) {
  const std::string name = path.string();
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail(fmt::format("{}: cannot be made: {}", name, reason(errno)));
  }
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    return fail(fmt::format("{}: {}", name, error ? error.message() : "is not a directory"));
  }
  const fs::path mark_path = path / kMark;
  int mark = ::open(mark_path.c_str(), O_RDWR | O_CLOEXEC);
  if (mark < 0 && errno == ENOENT) {
    const auto other = first_entry(path);
    if (!other) return std::unexpected(other.error());
    if (!other->empty()) {
      return fail(
          fmt::format("{}: is not empty and no cache of quire ('{}' is in it); name an empty directory", name, *other));
    }
    mark = ::open(mark_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  }
  if (mark < 0) return fail(fmt::format("{}: cannot be written: {}", name, reason(errno)));
  if (::flock(mark, LOCK_EX | LOCK_NB) != 0) {
    const int failed = errno;
    ::close(mark);
    return fail(failed == EWOULDBLOCK ? fmt::format("{}: is in use by another server", name)
                                      : fmt::format("{}: cannot be locked: {}", name, reason(failed)));
  }
  std::unique_ptr<DiskDirectory> directory(new DiskDirectory(path, mark));
  struct stat status {};
  // Written each time: a directory that cannot be written is noticed here.
  if (::fstat(mark, &status) != 0 || ::pwrite(mark, kMarkText.data(), kMarkText.size(), 0) < 0) {
    return fail(fmt::format("{}: cannot be written: {}", name, reason(errno)));
  }
  fs::remove_all(path / "db.removed", error);
  if (::mkdir(directory->database().c_str(), 0700) != 0 && errno != EEXIST) {
    return fail(fmt::format("{}: cannot be written: {}", name, reason(errno)));
  }
  // RocksDB leaves its temporary files behind when it is killed.
  for (fs::directory_iterator entry(directory->database(), error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code kept;
    if (entry->path().extension() == ".dbtmp") fs::remove(entry->path(), kept);
  }
  if (::access(directory->database().c_str(), R_OK | W_OK | X_OK) != 0) {
    return fail(fmt::format("{}: cannot be written: {}", directory->database().string(), reason(errno)));
  }
  return directory;
}

DiskDirectory::~DiskDirectory() { ::close(mark_); }

bool DiskDirectory::still_there() const {
  struct stat ours {
  }, there{};
  return ::fstat(mark_, &ours) == 0 && ::stat((path_ / kMark).c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
         ours.st_dev == there.st_dev && ::access(database().c_str(), W_OK) == 0;
}

bool DiskDirectory::direct_io_works() const {
  const int file = ::open((path_ / kMark).c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (file >= 0) ::close(file);
  return file >= 0;
}

std::uint64_t DiskDirectory::free_bytes() const {
  struct statvfs status {};
  if (::fstatvfs(mark_, &status) != 0) return 0;
  return std::uint64_t{status.f_bavail} * status.f_frsize;
}

Result<void> DiskDirectory::remove_database() {
  const fs::path removed = path_ / "db.removed";
  std::error_code error;
  fs::remove_all(removed, error);
  fs::rename(database(), removed, error);
  if (error && error != std::errc::no_such_file_or_directory) {
    return fail(fmt::format("{}: cannot be moved: {}", database().string(), error.message()));
  }
  // If this fails half way, the next start goes on with it.
  fs::remove_all(removed, error);
  if (error) return fail(fmt::format("{}: cannot be removed: {}", removed.string(), error.message()));
  return {};
}

bool replace_file(const fs::path& path, std::span<const std::byte> bytes) {
  const std::string beside = path.string() + ".new";
  const int file = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return false;
  std::size_t written = 0;
  while (written < bytes.size()) {
    const auto count = ::write(file, bytes.data() + written, bytes.size() - written);
    if (count <= 0) break;
    written += static_cast<std::size_t>(count);
  }
  ::close(file);
  if (written == bytes.size() && ::rename(beside.c_str(), path.c_str()) == 0) return true;
  ::unlink(beside.c_str());
  return false;
}

std::uint64_t bytes_below(const fs::path& path) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    files.push_back(entry->path().string());
  }
  // The newest files first: their names have the highest numbers. The other way round, files that are deleted and those
  // that were written in their place would both be counted.
  std::sort(files.begin(), files.end(), std::greater<>());
  std::uint64_t sum = 0;
  for (const std::string& file : files) {
    struct stat status {};
    if (::lstat(file.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    sum += std::max<std::uint64_t>(static_cast<std::uint64_t>(status.st_size),
                                   static_cast<std::uint64_t>(status.st_blocks) * 512);
  }
  return sum;
}

}  // namespace quire::tiers
