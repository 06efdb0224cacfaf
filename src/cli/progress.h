// A progress bar on the terminal. If the output is not a terminal, nothing is written.
//
//   Progress progress(err, err_style, "prefill");
//   progress.update(done, total);      // may be called often
//
// What holds: the bar appears after kPatience, so that short operations do not flicker. When it is done or destroyed,
//   the line is empty again.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "quire/cli/output.h"
#include "quire/cli/style.h"

namespace quire::cli {

class Progress {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::duration kPatience = std::chrono::milliseconds(300);
  static constexpr Clock::duration kInterval = std::chrono::milliseconds(60);  // between two drawings

  Progress(Output& out, const Style& style, std::string label, Clock::duration patience = kPatience);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  void update(std::uint64_t done, std::uint64_t total);
  void clear();

 private:
  Output& out_;
  const Style style_;
  const std::string label_;
  Clock::time_point next_;  // time of the next drawing
  bool shown_ = false;
};

}  // namespace quire::cli
