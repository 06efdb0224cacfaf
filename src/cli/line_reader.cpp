#include "quire/cli/line_reader.h"

#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <utility>

#include <unistd.h>

namespace quire::cli {

Line PipeReader::read() {
  for (std::size_t searched = 0;;) {
    const std::size_t at = buffer_.find('\n', searched);
    if (at != std::string::npos || buffer_.size() >= kMaxLineBytes) {
      const bool whole = at <= kMaxLineBytes;  // npos is larger
      const std::size_t length = whole ? at : kMaxLineBytes;
      Line line{Line::Kind::text, buffer_.substr(0, length)};
      buffer_.erase(0, whole ? length + 1 : length);
      return line;
    }
    searched = buffer_.size();
    if (ended_) {
      if (buffer_.empty()) return {};
      return {Line::Kind::text, std::exchange(buffer_, {})};
    }
    char block[4096];
    const ssize_t count = ::read(fd_, block, sizeof block);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      ended_ = true;
    } else {
      buffer_.append(block, static_cast<std::size_t>(count));
    }
  }
}

std::string history_path() {
  const auto variable = [](const char* name) -> std::string_view {
    const char* value = std::getenv(name);
    return value == nullptr ? std::string_view() : value;
  };
  // The XDG Base Directory Specification says that relative paths are ignored.
  std::string folder;
  if (const std::string_view state = variable("XDG_STATE_HOME"); state.starts_with('/')) {
    folder = state;
  } else if (const std::string_view home = variable("HOME"); home.starts_with('/')) {
    folder = std::string(home) + "/.local/state";
  } else {
    return {};
  }
  return folder + "/quire/history";
}

}  // namespace quire::cli
