// Finds a model's reasoning in its answer: the text between <think> and </think>, which arrives in pieces.
//
// What holds: no text is lost. Text that could be the beginning of a mark is held back until it is clear; flush() gives
//   the rest. The marks belong to the reasoning.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace quire::cli {

class ThinkingText {
 public:
  // Gets the text in order. `thinking`: it is reasoning.
  using Sink = std::function<void(std::string_view text, bool thinking)>;

  // `thinking`: the prompt has opened the reasoning.
  explicit ThinkingText(bool thinking = false) : thinking_(thinking) {}

  void push(std::string_view piece, const Sink& sink);
  void flush(const Sink& sink);

 private:
  bool thinking_;
  std::string held_;
};

}  // namespace quire::cli
