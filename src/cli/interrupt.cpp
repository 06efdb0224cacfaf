#include "quire/cli/interrupt.h"

#include <atomic>
#include <cerrno>
#include <cstdint>

#include <sys/eventfd.h>
#include <unistd.h>

namespace quire::cli {

namespace {

// A signal handler can use only globals.
std::atomic<bool> interrupted = false;
std::atomic<int> event = -1;
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void note(int signal) {
  const int before = errno;
  if (interrupted.exchange(true)) {
    // Nobody has looked at the first one yet: a step takes long. The second one ends the program.
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event.load(), &one, sizeof one);
  errno = before;
}

}  // namespace

Interrupt::Interrupt() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  interrupted.store(false);
  event.store(descriptor_);
  if (descriptor_ < 0) return;
  struct sigaction action = {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, &before_);
}

Interrupt::~Interrupt() {
  if (descriptor_ < 0) return;
  ::sigaction(SIGINT, &before_, nullptr);
  event.store(-1);
  ::close(descriptor_);
}

bool Interrupt::asked() const { return interrupted.load(); }

void Interrupt::forget() {
  interrupted.store(false);
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t drained = ::read(descriptor_, &count, sizeof count);
}

}  // namespace quire::cli
