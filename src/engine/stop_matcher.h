// Finds stop strings in text that arrives in pieces, and holds back what could be the beginning of one.
//
// Who may call: one thread at a time. Text that was handed out stays valid until the next call.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace quire::engine {

class StopMatcher {
 public:
  StopMatcher() = default;
  // The strings outlive the matcher. Empty ones are refused by who made them.
  explicit StopMatcher(std::span<const std::string> stops) : stops_(stops) {}

  // More text: what of it (and of what was held back) may go out. After a match nothing more does.
  std::string_view push(std::string_view text);
  // The end: all that is left.
  std::string_view finish();

  bool matched() const { return matched_ != nullptr; }
  std::string_view which() const { return matched_ == nullptr ? std::string_view() : std::string_view(*matched_); }

 private:
  std::span<const std::string> stops_;
  std::string held_;  // [0, given) went out with the last call
  std::size_t given_ = 0;
  const std::string* matched_ = nullptr;
};

}  // namespace quire::engine
