#include "quire/session/session_file.h"

#include <array>
#include <cerrno>
#include <cstdlib>
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

// A file with a name of its own beside `path`. It is removed unless it takes that path.
class FileBeside {
 public:
  explicit FileBeside(const std::string& path)
      : path_(path), name_(path + ".tmp-XXXXXX"), file_(::mkostemp(name_.data(), O_CLOEXEC)) {}
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
  void* const address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) return fail(fmt::format("cannot be mapped into memory: {}", reason(errno)));
  SessionFile mapped({static_cast<const std::byte*>(address), size});
  (void)::madvise(address, size, MADV_SEQUENTIAL);
  auto contents = parse(mapped.mapped_);
  if (!contents) return std::unexpected(contents.error());
  mapped.contents_ = std::move(*contents);
  return mapped;
}

SessionFile::SessionFile(SessionFile&& other) noexcept
    : mapped_(std::exchange(other.mapped_, {})), contents_(std::move(other.contents_)) {}

SessionFile& SessionFile::operator=(SessionFile&& other) noexcept {
  std::swap(mapped_, other.mapped_);
  std::swap(contents_, other.contents_);
  return *this;
}

SessionFile::~SessionFile() {
  if (!mapped_.empty()) ::munmap(const_cast<std::byte*>(mapped_.data()), mapped_.size());
}

}  // namespace quire::session
