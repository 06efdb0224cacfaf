// A constraint for tests, without a grammar.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "quire/engine/weightless_testing.h"

namespace quire::engine::testing {

// Everything follows from the accepted tokens: a third of the tokens is allowed; after some of them one to six tokens
// are without an alternative; and some answers are complete early.
class Rules final : public Constraint {
 public:
  struct Counts {
    std::atomic<std::uint64_t> masks = 0, refused = 0, forced = 0;
  };
  explicit Rules(Counts* counts = nullptr, std::uint64_t ends = 97) : counts_(counts), ends_(ends) {}

  void mask(std::span<std::uint32_t> bits) override {
    std::ranges::fill(bits, 0);
    for (std::uint32_t token = 0; token < 32; ++token) {
      if (allows(token)) bits[token / 32] |= 1U << (token % 32);
    }
    if (counts_ != nullptr) ++counts_->masks;
  }
  bool accept(Token token) override {
    const bool ok = queue_.empty() ? allows(static_cast<std::uint32_t>(token)) : token == queue_.front();
    if (!ok) {
      if (counts_ != nullptr) ++counts_->refused;
      return false;
    }
    if (!queue_.empty()) queue_.erase(queue_.begin());
    state_ = remember(state_, token);
    return true;
  }
  void forced(std::vector<Token>& out) override {
    if (queue_.empty() && !complete() && state_ % 5 == 0) {
      std::uint64_t next = state_;
      for (std::uint64_t i = 0; i <= state_ / 5 % 6; ++i) {
        next = scramble(next + i);
        queue_.push_back(static_cast<Token>(next % 32));
      }
    }
    if (counts_ != nullptr) counts_->forced += queue_.size();
    out.insert(out.end(), queue_.begin(), queue_.end());
  }
  bool complete() const override { return queue_.empty() && state_ % ends_ == 0; }
  std::string error() const override { return "the rules allow no token"; }

 private:
  bool allows(std::uint32_t token) const { return (state_ >> (token % 16)) % 3 == 0 || token == state_ % 32; }

  std::uint64_t state_ = kBeginning;
  std::vector<Token> queue_;
  Counts* counts_;
  std::uint64_t ends_;
};

inline Request with_rules(Request request, Rules::Counts* counts = nullptr, std::uint64_t ends = 97) {
  request.constraint = [counts, ends] { return std::make_unique<Rules>(counts, ends); };
  return request;
}

}  // namespace quire::engine::testing
