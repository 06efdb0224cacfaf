#include "quire/session/session_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace quire::session {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { (void)close(); }
  int get() const { return fd_; }
  bool close() { return fd_ < 0 || ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

// Fills `to` with what the file has from `offset` on. Returns how many bytes that were: fewer if the file ends before.
Result<std::size_t> read_at(int file, std::span<std::byte> to, std::size_t offset) {
  std::size_t done = 0;
  while (done < to.size()) {
    const ssize_t count = ::pread(file, to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail(fmt::format("cannot be read: {}", reason(errno)));
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

constexpr std::string_view kBeside = ".tmp-XXXXXX";
// Writing a session takes seconds, and each write() makes the file new again.
constexpr std::chrono::hours kLeftOver{1};

// Whether the file was begun for a session: nothing is in it yet, or the beginning of one.
bool is_begun_session(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::array<std::byte, kHeaderBytes> start;
  in.read(reinterpret_cast<char*>(start.data()), static_cast<std::streamsize>(start.size()));
  const auto count = static_cast<std::size_t>(in.gcount());
  return count == 0 ? in.eof() : check_magic(std::span(start).first(count)).has_value();
}

// Removes what writers left that were killed: files beside `path`, for it or for others with the same suffix. What
// cannot be removed stays.
void remove_left_over(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  const std::string own = path.filename().string(), suffix = path.extension().string();
  const std::string_view mark = kBeside.substr(0, kBeside.find('X'));
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.size() <= kBeside.size()) continue;
    const std::string_view before = std::string_view(name).substr(0, name.size() - kBeside.size());
    if (std::string_view(name).substr(before.size(), mark.size()) != mark) continue;
    if (before != own && (suffix.empty() || !before.ends_with(suffix))) continue;
    std::error_code gone;
    if (!fs::is_regular_file(at->symlink_status(gone)) || gone) continue;
    const auto written = fs::last_write_time(at->path(), gone);
    if (gone || fs::file_time_type::clock::now() - written < kLeftOver) continue;
    if (is_begun_session(at->path())) fs::remove(at->path(), gone);
  }
}

// A file with a name of its own beside `path`. It is removed unless it takes that path.
class FileBeside {
 public:
  explicit FileBeside(const std::string& path)
      : path_(path), name_(path + std::string(kBeside)), file_(::mkostemp(name_.data(), O_CLOEXEC)) {}
  FileBeside(const FileBeside&) = delete;
  FileBeside& operator=(const FileBeside&) = delete;
  ~FileBeside() {
    if (file_.get() >= 0 || unfinished_) ::unlink(name_.c_str());
  }

  bool open() const { return file_.get() >= 0; }
  bool write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return true;
  }
  bool take_its_place() {
    unfinished_ = true;
    if (::fsync(file_.get()) != 0 || !file_.close() || ::rename(name_.c_str(), path_.c_str()) != 0) return false;
    unfinished_ = false;
    // The name is on the disk when its folder is. If that fails, the file is there all the same.
    const std::size_t slash = path_.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
    const Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (directory.get() >= 0) (void)::fsync(directory.get());
    return true;
  }

 private:
  std::string path_, name_;
  Descriptor file_;
  bool unfinished_ = false;
};

}  // namespace

Result<std::uint64_t> write(const std::string& path, std::span<const Token> tokens, const Snapshot& snapshot,
                            std::string_view metadata) {
  static constexpr std::array<std::byte, kAlignment> kZeros{};
  const Pieces file = encode(tokens, snapshot, metadata);
  remove_left_over(path);
  FileBeside beside(path);
  bool written = beside.open() && beside.write(file.head);
  for (const Pieces::Piece& piece : file.pieces) {
    written = written && beside.write(piece.bytes) && beside.write(std::span(kZeros).first(piece.padding));
  }
  if (!written || !beside.take_its_place()) return fail(fmt::format("cannot be written: {}", reason(errno)));
  return file.bytes;
}

Result<SessionFile> SessionFile::open(const std::string& path) {
  // Without O_NONBLOCK, opening a pipe waits for a writer.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0) return fail(fmt::format("cannot be opened: {}", reason(errno)));
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return fail(fmt::format("cannot be examined: {}", reason(errno)));
  if (!S_ISREG(status.st_mode)) return fail("is not a regular file");
  if (status.st_size <= 0) return fail("is empty");
  const auto size = static_cast<std::size_t>(status.st_size);
  // A large file of another kind is not read as a whole.
  std::array<std::byte, kHeaderBytes> start;
  const auto first = read_at(file.get(), std::span(start).first(std::min(size, start.size())), 0);
  if (!first) return std::unexpected(first.error());
  if (auto ok = check_magic(std::span(start).first(*first)); !ok) return std::unexpected(ok.error());
  // Pages of the system: the contents begin at a multiple of 64, and a lack of memory is an answer.
  void* const address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return fail(fmt::format("needs {} bytes of memory: {}", size, reason(errno)));
  SessionFile opened({static_cast<std::byte*>(address), size});
  (void)::posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  const auto read = read_at(file.get(), opened.memory_, 0);
  if (!read) return std::unexpected(read.error());
  if (*read < size) return fail(fmt::format("was cut while it was read: {} of {} bytes are there", *read, size));
  auto contents = parse(opened.memory_);
  if (!contents) return std::unexpected(contents.error());
  opened.contents_ = std::move(*contents);
  return opened;
}

SessionFile::SessionFile(SessionFile&& other) noexcept
    : memory_(std::exchange(other.memory_, {})), contents_(std::move(other.contents_)) {}

SessionFile& SessionFile::operator=(SessionFile&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(contents_, other.contents_);
  return *this;
}

SessionFile::~SessionFile() {
  if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
}

}  // namespace quire::session
