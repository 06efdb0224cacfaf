// For tests: a drafter for the weightless model that guesses right as often as wanted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "quire/engine/drafter.h"
#include "quire/engine/weightless_testing.h"

namespace quire::engine::testing {

class KnowingDrafter final : public Drafter {
 public:
  // `wrong`: of a hundred guesses. Without known texts it guesses the most likely token: right where answers are
  // greedy.
  explicit KnowingDrafter(std::uint32_t vocabulary, std::uint32_t wrong = 0)
      : vocabulary_(vocabulary), wrong_(wrong), logits_(vocabulary) {}

  void learn(const std::vector<Token>& prompt, const std::vector<Token>& answer) {
    texts_.push_back(prompt);
    texts_.back().insert(texts_.back().end(), answer.begin(), answer.end());
  }

  void propose(std::span<Drafts* const> wanted) override {
    for (Drafts* drafts : wanted) propose(*drafts);
  }
  double expected(std::uint32_t) const override { return 0.5; }

 private:
  void propose(Drafts& drafts) {
    const std::vector<Token>* known = nullptr;
    for (const std::vector<Token>& text : texts_) {
      if (text.size() > drafts.text.size() && std::equal(drafts.text.begin(), drafts.text.end(), text.begin())) {
        known = &text;
      }
    }
    std::uint64_t memory = kBeginning;
    for (const Token token : drafts.text) memory = remember(memory, token);
    drafts.kind = static_cast<std::uint32_t>(memory % kDraftKinds);
    drafts.count = drafts.most;
    for (std::uint32_t i = 0; i < drafts.count; ++i) {
      Token& token = drafts.tokens[i];
      const std::size_t at = drafts.text.size() + i;
      logits_after(memory, logits_);
      token = known != nullptr && at < known->size()
                  ? (*known)[at]
                  : static_cast<Token>(std::ranges::max_element(logits_) - logits_.begin());
      const std::uint64_t luck = scramble(memory + 17);
      if (luck % 100 < wrong_) token = static_cast<Token>(luck / 100 % vocabulary_);
      memory = remember(memory, token);
    }
  }

  std::uint32_t vocabulary_, wrong_;
  std::vector<float> logits_;
  std::vector<std::vector<Token>> texts_;
};

}  // namespace quire::engine::testing
