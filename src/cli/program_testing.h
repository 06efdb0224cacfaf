// For tests of the program as a process: with pipes whose other end takes its time, and behind a terminal.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "quire/cli/cli_testing.h"
#include "quire/gguf/gguf_testing.h"

namespace quire::cli::testing {

using gguf::testing::TemporaryFolder;

struct Ended : Outcome {
  long peak_kib = 0;  // resident memory at its largest
};

[[noreturn]] inline void become_program(const std::vector<std::string>& arguments) {
  const std::string program = QUIRE_BUILD_DIR "/src/cli/quire";
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  ::_exit(127);
}

inline int exit_code(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

// The program with standard input, output and error in files; input is a pipe that gets `pieces` one after the other.
inline Ended start(const std::vector<std::string>& arguments, const std::vector<std::string>& pieces = {}) {
  const TemporaryFolder folder;
  int input[2];
  EXPECT_EQ(::pipe2(input, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(input[0], STDIN_FILENO);
    ::dup2(::open((folder / "out").c_str(), O_WRONLY | O_CREAT, 0600), STDOUT_FILENO);
    ::dup2(::open((folder / "err").c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
    become_program(arguments);
  }
  ::close(input[0]);
  std::signal(SIGPIPE, SIG_IGN);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (::write(input[1], pieces[i].data(), pieces[i].size()) < 0) break;
  }
  ::close(input[1]);
  int status = 0;
  rusage usage = {};
  ::wait4(child, &status, 0, &usage);
  Ended ended;
  ended.exit_code = exit_code(status);
  ended.out = read_file(folder / "out");
  ended.err = read_file(folder / "err");
  ended.peak_kib = usage.ru_maxrss;
  return ended;
}

// The program behind a terminal of its own. All that waits, waits for seconds and not for ever.
class Terminal {
 public:
  explicit Terminal(const std::vector<std::string>& arguments, const std::string& state_folder) {
    winsize size = {.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
    child_ = ::forkpty(&fd_, nullptr, nullptr, &size);
    if (child_ == 0) {
      ::setenv("TERM", "xterm", 1);
      ::setenv("LC_ALL", "C.UTF-8", 1);
      ::setenv("XDG_STATE_HOME", state_folder.c_str(), 1);
      become_program(arguments);
    }
  }
  ~Terminal() {
    if (child_ > 0 && !ended_) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
    ::close(fd_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(std::string_view text) { EXPECT_EQ(::write(fd_, text.data(), text.size()), std::ssize(text)); }
  void interrupt() { type("\x03"); }

  // Whether this was shown, after what was waited for before.
  bool shows(std::string_view text) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (;;) {
      if (const std::size_t at = screen_.find(text, seen_); at != std::string::npos) {
        seen_ = at + text.size();
        return true;
      }
      if (std::chrono::steady_clock::now() > deadline || !more()) return false;
    }
  }
  // The exit code, once the program has ended.
  int ends() {
    while (more()) {
    }
    int status = 0;
    ::waitpid(child_, &status, 0);
    ended_ = true;
    return exit_code(status);
  }
  const std::string& screen() const { return screen_; }

 private:
  bool more() {
    pollfd ready = {.fd = fd_, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, 60'000) <= 0) return false;
    char block[4096];
    const ssize_t count = ::read(fd_, block, sizeof block);
    if (count <= 0) return false;  // a terminal whose other side is closed says EIO
    screen_.append(block, static_cast<std::size_t>(count));
    return true;
  }

  int fd_ = -1;
  pid_t child_ = -1;
  bool ended_ = false;
  std::string screen_;
  std::size_t seen_ = 0;
};

}  // namespace quire::cli::testing
