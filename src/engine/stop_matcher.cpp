#include "quire/engine/stop_matcher.h"

#include <algorithm>

namespace quire::engine {

std::string_view StopMatcher::push(std::string_view text) {
  held_.erase(0, given_);
  given_ = 0;
  if (matched()) return {};
  held_ += text;
  if (stops_.empty()) {
    given_ = held_.size();
    return held_;
  }
  // The match that begins first; of several that begin at the same place, the longest.
  std::size_t at = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t found = held_.find(stop);
    if (found == std::string::npos) continue;
    if (found < at || (found == at && stop.size() > matched_->size())) {
      at = found;
      matched_ = &stop;
    }
  }
  if (matched()) {
    held_.resize(at);
    given_ = at;
    return held_;
  }
  // Hold back the longest end of the text that is a prefix of a stop string.
  std::size_t waiting = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t length = std::min(stop.size() - 1, held_.size()); length > waiting; --length) {
      if (held_.ends_with(std::string_view(stop).substr(0, length))) {
        waiting = length;
        break;
      }
    }
  }
  given_ = held_.size() - waiting;
  return std::string_view(held_).substr(0, given_);
}

std::string_view StopMatcher::finish() {
  held_.erase(0, given_);
  given_ = held_.size();
  return held_;
}

}  // namespace quire::engine
