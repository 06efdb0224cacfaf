#include "quire/cli/output.h"

#include <cerrno>

#include <poll.h>
#include <unistd.h>

namespace quire::cli {

std::error_code DescriptorOutput::write(std::string_view text) {
  const std::scoped_lock lock(writing_);
  while (!text.empty()) {
    const ssize_t count = ::write(fd_, text.data(), text.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {
      // Some shells and programs make the descriptor of a terminal non-blocking.
      pollfd ready = {.fd = fd_, .events = POLLOUT, .revents = 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return {errno, std::generic_category()};
    }
  }
  return {};
}

bool DescriptorOutput::ready() {
  pollfd ready = {.fd = fd_, .events = POLLOUT, .revents = 0};
  return ::poll(&ready, 1, 0) == 1;
}

}  // namespace quire::cli
