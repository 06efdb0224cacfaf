#include "quire/cli/progress.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace quire::cli {

Progress::Progress(Output& out, const Style& style, std::string label, Clock::duration patience)
    : out_(out), style_(style), label_(std::move(label)), next_(Clock::now() + patience) {}

Progress::~Progress() { clear(); }

void Progress::update(std::uint64_t done, std::uint64_t total) {
  if (!style_.terminal || total == 0) return;
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + kInterval;
  constexpr std::size_t kWidest = 40;
  const std::size_t taken = label_.size() + 12;  // the label, brackets, spaces and percentage
  const std::size_t width = style_.width > taken + 4 ? std::min<std::size_t>(kWidest, style_.width - taken) : 0;
  const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const auto full = static_cast<std::size_t>(share * static_cast<double>(width));
  std::string bar;
  for (std::size_t i = 0; i < width; ++i) {
    bar += style_.utf8 ? (i < full ? "\u2501" : "\u2500") : (i < full ? "#" : ".");
  }
  // A broken terminal is reported when the results are written.
  (void)out_.write(fmt::format("\r{} {} {:3.0f}%", label_, bar, share * 100));
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  (void)out_.write(fmt::format("\r{:{}}\r", "", style_.width > 1 ? style_.width - 1 : 0));
  shown_ = false;
}

}  // namespace quire::cli
