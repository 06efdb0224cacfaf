// The lines of a conversation: from a terminal with editing and history, or from a pipe.
//
// Who may call: one thread; one reader at a time.
// What holds: a line has no line break. The last line of a pipe may end without one.
// How it fails: read() returns `end` if nothing more can be read, for whatever reason. A line longer than kMaxLineBytes
//   is cut there, and the rest is the next line.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "quire/cli/interrupt.h"

namespace quire::cli {

constexpr std::size_t kMaxLineBytes = std::size_t{16} << 20;

struct Line {
  enum class Kind { text, interrupted, end } kind = Kind::end;
  std::string text;
};

class LineReader {
 public:
  LineReader() = default;
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;
  virtual ~LineReader() = default;
  virtual Line read() = 0;
  // The next line of a message that has several.
  virtual Line read_more() { return read(); }
};

// Lines of a file descriptor.
class PipeReader : public LineReader {
 public:
  explicit PipeReader(int fd) : fd_(fd) {}
  Line read() override;

 private:
  int fd_;
  std::string buffer_;
  bool ended_ = false;
};

// Lines of the terminal at standard input and output, edited with libedit. `prompt` is shown before each line. The
// history is read from a file, and written to it at the end. If the path is empty or the file cannot be used, no
// history is kept. Input is UTF-8. An interrupt discards the line.
std::unique_ptr<LineReader> make_line_editor(std::string prompt, std::string history_path, Interrupt& interrupt);

// The history file of `quire chat`: below $XDG_STATE_HOME or ~/.local/state. Empty if neither is known.
std::string history_path();

}  // namespace quire::cli
