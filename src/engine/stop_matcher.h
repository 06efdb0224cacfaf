// Finds stop strings in text that arrives in pieces. Holds back text that could be the beginning of a stop string.
//
// Who may call: one thread at a time. Returned text stays valid until the next call.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace quire::engine {

class StopMatcher {
 public:
  StopMatcher() = default;
  // The strings outlive the matcher. The caller has refused empty ones.
  explicit StopMatcher(std::span<const std::string> stops) : stops_(stops) {}

  // Adds text. Returns the text that can be sent now, including text that was held back before. After a match it
  // returns nothing more.
  std::string_view push(std::string_view text);
  // The text has ended: returns all that was held back.
  std::string_view finish();

  // How many bytes are held back.
  std::size_t held() const { return held_.size() - given_; }
  bool matched() const { return matched_ != nullptr; }
  std::string_view which() const { return matched_ == nullptr ? std::string_view() : std::string_view(*matched_); }

 private:
  std::span<const std::string> stops_;
  std::string held_;  // [0, given_) was returned by the last call
  std::size_t given_ = 0;
  const std::string* matched_ = nullptr;
};

}  // namespace quire::engine
