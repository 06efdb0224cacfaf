// Writes JSON as text, for objects that are too large or too frequent for a tree of values. No state.
#pragma once

#include <iterator>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace quire::server {

template <typename... Args>
void put(std::string& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
}

// Writes a JSON array: puts commas between the elements.
class JsonList {
 public:
  explicit JsonList(std::string& out) : out_(out) { out_ += '['; }
  ~JsonList() { out_ += ']'; }
  JsonList(const JsonList&) = delete;
  JsonList& operator=(const JsonList&) = delete;
  std::string& next() {
    if (!std::exchange(first_, false)) out_ += ',';
    return out_;
  }

 private:
  std::string& out_;
  bool first_ = true;
};

}  // namespace quire::server
