#include "quire/cli/input.h"

#include <cerrno>
#include <string_view>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "quire/base/utf8.h"
#include "quire/cli/printable.h"

namespace quire::cli {

namespace {

class Descriptor {
 public:
  Descriptor(int fd, bool owned) : fd_(fd), owned_(owned) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (owned_ && fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
  bool owned_;
};

std::unexpected<Error> refuse(const std::string& path, std::string_view why) {
  return fail(fmt::format("{}: {}", input_name(path), why));
}

std::string reason(int error) { return std::generic_category().message(error); }

}  // namespace

std::string input_name(const std::string& path) { return path == "-" ? "standard input" : printable(path); }

Result<std::string> read_input(const std::string& path, std::size_t limit) {
  const bool standard = path == "-";
  // Without O_NONBLOCK, opening a pipe waits for a writer.
  const int fd = standard ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  const Descriptor file(fd, !standard);
  if (file.get() < 0) return refuse(path, fmt::format("cannot be opened: {}", reason(errno)));
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return refuse(path, fmt::format("cannot be read: {}", reason(errno)));
  if (S_ISDIR(status.st_mode)) return refuse(path, "is a directory, not a file");

  std::string text;
  std::vector<char> block(std::size_t{64} << 10);
  for (bool first = true;; first = false) {
    ssize_t count = ::read(file.get(), block.data(), block.size());
    if (count < 0 && errno == EAGAIN && !standard) {
      // The pipe has a writer that has not written yet. From here on waiting is safe.
      ::fcntl(file.get(), F_SETFL, ::fcntl(file.get(), F_GETFL) & ~O_NONBLOCK);
      count = ::read(file.get(), block.data(), block.size());
    }
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return refuse(path, fmt::format("cannot be read: {}", reason(errno)));
    if (count == 0) {
      if (first && !standard && S_ISFIFO(status.st_mode)) return refuse(path, "is a pipe that nobody writes to");
      return text;
    }
    if (text.size() + static_cast<std::size_t>(count) > limit) {
      return refuse(path, fmt::format("is larger than {} bytes", limit));
    }
    text.append(block.data(), static_cast<std::size_t>(count));
  }
}

Result<std::string> read_text(const std::string& path, std::size_t limit) {
  auto text = read_input(path, limit);
  if (!text) return text;
  const std::size_t valid = utf8_valid_prefix(*text);
  if (valid != text->size()) return refuse(path, fmt::format("the text is not UTF-8 at byte {}", valid));
  return text;
}

}  // namespace quire::cli
