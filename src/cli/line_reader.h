// Where a conversation's lines come from: a terminal with editing and history, or a pipe.
//
// Who may call: one thread; one reader at a time.
// What holds: a line comes without its line break. The last one of a pipe may lack it.
// How it fails: read() gives `end` where nothing more can be read, whatever the reason. A line that is longer than
//   kMaxLineBytes is cut there, and what is beyond is the next.
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

// Lines of the terminal behind standard input and output, with libedit. The history is read from a file and written
// there in the end; where that cannot be done, or the path is empty, there is none. `prompt` stands before each line.
// What is typed is UTF-8. An interrupt gives the line up.
std::unique_ptr<LineReader> make_line_editor(std::string prompt, std::string history_path, Interrupt& interrupt);

// Where the history of `quire chat` is kept: below $XDG_STATE_HOME, or ~/.local/state. Empty if there is no such place.
std::string history_path();

}  // namespace quire::cli
