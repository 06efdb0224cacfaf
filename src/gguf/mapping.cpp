#include "quire/gguf/mapping.h"

#include <cerrno>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "quire/gguf/message.h"

namespace quire::gguf {

namespace {

std::unexpected<Error> refuse(const std::string& path, std::string_view why) {
  return fail(fmt::format("{}: {}", shown_path(path), why));
}

std::string reason(int error) { return std::generic_category().message(error); }

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "is a directory, not a file";
  if (S_ISFIFO(mode)) return "is a pipe; a model is memory-mapped and has to be a regular file";
  if (S_ISSOCK(mode)) return "is a socket, not a file";
  return "is a device, not a file";
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

Result<Mapping> Mapping::open(const std::string& path) {
  if (path.find('\0') != std::string::npos) return refuse(path, "is not a path: it contains a NUL");
  // Without O_NONBLOCK, opening a pipe waits for a writer.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0) return refuse(path, fmt::format("cannot be opened: {}", reason(errno)));
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return refuse(path, fmt::format("cannot be examined: {}", reason(errno)));
  if (!S_ISREG(status.st_mode)) return refuse(path, kind_of(status.st_mode));
  if (status.st_size <= 0) return refuse(path, "is empty");
  const auto size = static_cast<std::size_t>(status.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) return refuse(path, fmt::format("cannot be mapped into memory: {}", reason(errno)));
  Mapping mapping;
  mapping.bytes_ = {static_cast<const std::byte*>(address), size};
  return mapping;
}

Mapping::Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

void Mapping::forget(std::span<const std::byte> part) const {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(bytes_.data());
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data()), end = begin + part.size();
  if (begin < first || end > first + bytes_.size()) return;
  // Only whole pages: the first and the last may hold bytes of others.
  const std::uintptr_t from = (begin + page - 1) / page * page, to = end / page * page;
  if (from < to) ::madvise(const_cast<std::byte*>(bytes_.data()) + (from - first), to - from, MADV_DONTNEED);
}

Mapping::~Mapping() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace quire::gguf
