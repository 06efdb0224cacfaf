#include "quire/cli/thinking.h"

#include <algorithm>

namespace quire::cli {

namespace {

constexpr std::string_view kOpen = "<think>", kClose = "</think>";

// How many bytes at the end of the text could be the beginning of the mark.
std::size_t half_mark(std::string_view text, std::string_view mark) {
  std::size_t length = std::min(text.size(), mark.size() - 1);
  while (length > 0 && !text.ends_with(mark.substr(0, length))) --length;
  return length;
}

}  // namespace

void ThinkingText::push(std::string_view piece, const Sink& sink) {
  held_ += piece;
  for (;;) {
    const std::string_view mark = thinking_ ? kClose : kOpen;
    const std::size_t at = held_.find(mark);
    if (at == std::string::npos) break;
    // The opening mark belongs to what follows it, the closing one to what is before.
    const std::size_t end = thinking_ ? at + mark.size() : at;
    if (end > 0) sink(std::string_view(held_).substr(0, end), thinking_);
    if (!thinking_) sink(kOpen, true);
    held_.erase(0, at + mark.size());
    thinking_ = !thinking_;
  }
  const std::size_t sure = held_.size() - half_mark(held_, thinking_ ? kClose : kOpen);
  if (sure > 0) sink(std::string_view(held_).substr(0, sure), thinking_);
  held_.erase(0, sure);
}

void ThinkingText::flush(const Sink& sink) {
  if (!held_.empty()) sink(held_, thinking_);
  held_.clear();
}

}  // namespace quire::cli
