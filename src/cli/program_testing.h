// For tests: runs the program as a process, with files, with slow pipes, or on a terminal.
#pragma once

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "quire/cli/cli_testing.h"
#include "quire/gguf/gguf_testing.h"

namespace quire::cli::testing {

using gguf::testing::TemporaryFolder;

inline constexpr const char* kProgram = QUIRE_BUILD_DIR "/src/cli/quire";

struct Ended : Outcome {
  long peak_kib = 0;  // peak resident memory
};

// A file in memory as input or output of a process. Unlike with a pipe, neither side waits for the other.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view text = "") : fd_(::memfd_create("quire-test", MFD_CLOEXEC)) {
    EXPECT_EQ(::write(fd_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::lseek(fd_, 0, SEEK_SET);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(fd_); }

  int fd() const { return fd_; }
  std::string text() const {
    std::string text(static_cast<std::size_t>(::lseek(fd_, 0, SEEK_END)), '\0');
    EXPECT_EQ(::pread(fd_, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    return text;
  }

 private:
  int fd_;
};

struct ProcessOptions {
  std::string input;                     // on standard input
  std::vector<std::string> pieces;       // instead: sent through a pipe, one after the other; then the pipe is closed
  std::optional<std::string> out_path;   // standard output goes to this file; "": it is closed
  std::vector<std::string> environment;  // "NAME=value", besides the test's own
  bool close_input = false;
  bool as_nobody = false;  // without root's rights; exit code 126 if that is not possible
};

[[noreturn]] inline void become(const std::string& program, const std::vector<std::string>& arguments) {
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  ::_exit(127);
}

inline int exit_code(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

inline Ended run_process(const std::string& program, const std::vector<std::string>& arguments,
                         const ProcessOptions& options = {}) {
  const MemoryFile in(options.input), out, err;
  int pipe[2] = {-1, -1};
  if (!options.pieces.empty()) {
    EXPECT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  }
  const pid_t child = ::fork();
  if (child == 0) {
    for (const std::string& variable : options.environment) ::putenv(const_cast<char*>(variable.c_str()));
    ::dup2(options.pieces.empty() ? in.fd() : pipe[0], STDIN_FILENO);
    if (options.close_input) ::close(STDIN_FILENO);
    ::dup2(err.fd(), STDERR_FILENO);
    if (!options.out_path) {
      ::dup2(out.fd(), STDOUT_FILENO);
    } else if (options.out_path->empty()) {
      ::close(STDOUT_FILENO);
    } else {
      ::dup2(::open(options.out_path->c_str(), O_WRONLY), STDOUT_FILENO);
    }
    if (options.as_nobody && ::geteuid() == 0) {
      constexpr uid_t kNobody = 65534;
      if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0 || ::access(program.c_str(), X_OK) != 0) ::_exit(126);
    }
    become(program, arguments);
  }
  EXPECT_GT(child, 0);
  if (!options.pieces.empty()) {
    ::close(pipe[0]);
    std::signal(SIGPIPE, SIG_IGN);
    for (std::size_t i = 0; i < options.pieces.size(); ++i) {
      if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (::write(pipe[1], options.pieces[i].data(), options.pieces[i].size()) < 0) break;
    }
    ::close(pipe[1]);
  }
  int status = 0;
  rusage usage = {};
  while (::wait4(child, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  Ended ended;
  ended.exit_code = exit_code(status);
  ended.out = out.text();
  ended.err = err.text();
  ended.peak_kib = usage.ru_maxrss;
  return ended;
}

// Runs the program. Standard input is a pipe that gets these pieces, or empty.
inline Ended start(const std::vector<std::string>& arguments, std::vector<std::string> pieces = {}) {
  return run_process(kProgram, arguments, {.pieces = std::move(pieces)});
}

// The program on a pseudo-terminal. Every wait has a time limit of some seconds.
class Terminal {
 public:
  explicit Terminal(const std::vector<std::string>& arguments, const std::string& state_folder) {
    winsize size = {.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
    child_ = ::forkpty(&fd_, nullptr, nullptr, &size);
    if (child_ == 0) {
      ::setenv("TERM", "xterm", 1);
      ::setenv("LC_ALL", "C.UTF-8", 1);
      ::setenv("XDG_STATE_HOME", state_folder.c_str(), 1);
      become(kProgram, arguments);
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

  // Waits for this text, after the text of the previous call.
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
  // Waits for the program to end and returns its exit code.
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
    if (count <= 0) return false;  // EIO if the other side of the terminal is closed
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
