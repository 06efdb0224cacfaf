// For the program's tests: calls of it, within the test or as a process of its own.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "quire/cli/app.h"
#include "quire/cli/output.h"
#include "quire/cli/style.h"

namespace quire::cli::testing {

// What a run left behind.
struct Outcome {
  int exit_code = -1;  // 128 and the signal's number, if one ended it
  std::string out, err;
};

// run(), without a terminal; a file's standard input is the test's own.
inline Outcome call(const std::vector<std::string>& arguments, const Style& style = {.utf8 = true}) {
  std::vector<const char*> argv = {"quire"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  StringOutput out, err;
  Outcome outcome;
  outcome.exit_code = run(static_cast<int>(argv.size()), argv.data(), out, err, style);
  outcome.out = out.text();
  outcome.err = err.text();
  return outcome;
}

// A failure is one line, and leaves nothing on standard output.
inline void expect_refusal(const Outcome& outcome, int exit_code = kFailure) {
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(outcome.err.starts_with("quire: ")) << outcome.err;
  EXPECT_GT(outcome.err.size(), std::string_view("quire: \n").size());
  EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
  EXPECT_LT(outcome.err.size(), 2100u);
  EXPECT_EQ(outcome.err.find('\x1b'), std::string::npos) << outcome.err;
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_file(const std::string& path, std::string_view text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  EXPECT_TRUE(out.flush()) << path;
}

inline std::string demo_model(std::string_view name) {
  return std::string(QUIRE_SOURCE_DIR "/models/quire-demo-").append(name).append("-q8_0.gguf");
}

// Bytes that a process reads or writes instead of a file: no pipe, so that neither side waits for the other.
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
  std::optional<std::string> out_path;   // where standard output goes instead; "": nowhere, it is closed
  std::vector<std::string> environment;  // "NAME=value", besides the test's own
  bool close_input = false;
  bool as_nobody = false;  // without root's rights; exit code 126 if that cannot be
};

// The program itself.
inline Outcome run_process(const std::string& program, const std::vector<std::string>& arguments,
                           const ProcessOptions& options = {}) {
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const MemoryFile in(options.input), out, err;
  const pid_t child = ::fork();
  if (child == 0) {
    for (const std::string& variable : options.environment) ::putenv(const_cast<char*>(variable.c_str()));
    ::dup2(in.fd(), STDIN_FILENO);
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
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  EXPECT_GT(child, 0);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  Outcome outcome;
  outcome.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  outcome.out = out.text();
  outcome.err = err.text();
  return outcome;
}

}  // namespace quire::cli::testing
