// How likely cached content is to be wanted again, learned from what happened to content of the same kind.
//
// Content is of a kind (a small number). Its life begins when it is used last and ends when it is wanted again: while
// it is still cached, or after it was evicted, as far back as the pool remembers. Time is counted in ticks of the
// caller, never in seconds, so the same operations always give the same answer. For each kind there is a histogram of
// the ages at which content was wanted.
//
// rate() is the best that keeping can give: over all lengths of time for which content of this age could be kept, the
// most wants per tick of keeping it (the Gittins index). It may rise with age. If most content is wanted again after an
// hour, and what is in the pool is nearly an hour old, then it is worth more than what has just come.
//
// Old experience fades: whenever a kind's rates are calculated again, its histogram loses 2 %. A kind with little
// experience leans on that of all kinds, and on a prior in which the rate falls with age, as LRU assumes.
//
// Takes no heap memory after construction. Every call is O(1), except that every 512th recalculates one kind (a few
// microseconds). Single-threaded.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace quire {

class ReuseOdds {
 public:
  static constexpr std::uint32_t kBins = 96;  // four for each doubling of the age, up to 2^25

  // `priors`, one for each kind: the share of content that is wanted again, before anything was learned. `leaning`: a
  // kind with fewer lives than this is judged more by all kinds together than by itself.
  ReuseOdds(std::span<const double> priors, double leaning);
  static ReuseOdds for_blocks();
  static ReuseOdds for_checkpoints();

  // Content that becomes of another kind begins another life. The first one was lived in vain: what is usually soon of
  // another kind is not worth much.
  void began(std::uint32_t kind);
  void wanted(std::uint32_t kind, std::uint64_t age);
  double rate(std::uint32_t kind, std::uint64_t age) const { return kinds_[kind].rates[bin_of(age)]; }

  static std::uint32_t bin_of(std::uint64_t age);
  static std::uint64_t first_age(std::uint32_t bin);

 private:
  using Histogram = std::array<double, kBins>;
  struct Kind {
    double prior = 0;
    double lives = 0;
    Histogram wanted{};
    Histogram rates{};
  };

  void count();
  void recalculate(Kind& kind) const;

  std::vector<Kind> kinds_;
  Histogram prior_shares_{};
  std::array<double, kBins + 1> ends_{};  // the first age of each bin
  double leaning_;
  std::uint32_t events_ = 0;
  std::uint32_t next_ = 0;  // the kind to recalculate next
};

}  // namespace quire
