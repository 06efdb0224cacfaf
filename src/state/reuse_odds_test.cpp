#include "quire/state/reuse_odds.h"

#include <array>

#include <gtest/gtest.h>

#include "quire/state/eviction.h"

namespace quire {
namespace {

constexpr std::array<double, 2> kEqual = {0.25, 0.25};

// `lives` of a kind, of which one in `one_in` is wanted again at this age.
void live(ReuseOdds& odds, std::uint32_t kind, int lives, int one_in, std::uint64_t age) {
  for (int i = 0; i < lives; ++i) {
    odds.began(kind);
    if (i % one_in == 0) odds.wanted(kind, age);
  }
}

TEST(ReuseOdds, EveryAgeHasABinAndBinsFollowEachOther) {
  for (std::uint32_t bin = 0; bin < ReuseOdds::kBins; ++bin) {
    const std::uint64_t first = ReuseOdds::first_age(bin);
    EXPECT_EQ(ReuseOdds::bin_of(first), bin);
    EXPECT_EQ(ReuseOdds::bin_of(ReuseOdds::first_age(bin + 1) - 1), bin);
    EXPECT_LT(first, ReuseOdds::first_age(bin + 1));
  }
  EXPECT_EQ(ReuseOdds::bin_of(UINT64_MAX), ReuseOdds::kBins - 1);
}

TEST(ReuseOdds, BeforeAnythingIsKnownTheRateFallsWithAge) {
  const ReuseOdds odds(kEqual, 1000);
  for (std::uint64_t age = 1; age < 1'000'000; age *= 2) EXPECT_GT(odds.rate(0, age), odds.rate(0, 2 * age)) << age;
}

TEST(ReuseOdds, ContentThatIsSoonWantedIsWorthMoreThanContentThatHasJustCome) {
  ReuseOdds odds(kEqual, 0);
  for (int i = 0; i < 20; ++i) live(odds, 0, 500, 2, 1000);
  EXPECT_GT(odds.rate(0, 900), 2 * odds.rate(0, 1));
  EXPECT_GT(odds.rate(0, 1), 2 * odds.rate(0, 5000)) << "its time has passed";
}

TEST(ReuseOdds, AKindThatIsOftenWantedIsWorthMore) {
  ReuseOdds odds(kEqual, 0);
  for (int i = 0; i < 20; ++i) {
    live(odds, 0, 250, 20, 100);
    live(odds, 1, 250, 2, 100);
  }
  EXPECT_GT(odds.rate(1, 10), 4 * odds.rate(0, 10));
}

TEST(ReuseOdds, AKindWithLittleExperienceLeansOnTheOthers) {
  ReuseOdds alone(kEqual, 0), leaning(kEqual, 1000);
  for (ReuseOdds* odds : {&alone, &leaning}) {
    for (int i = 0; i < 20; ++i) live(*odds, 0, 500, 1, 1000);
  }
  EXPECT_GT(alone.rate(1, 1), alone.rate(1, 900)) << "only the prior: the rate falls";
  EXPECT_LT(leaning.rate(1, 1), leaning.rate(1, 900));
}

TEST(ReuseOdds, OldExperienceFades) {
  ReuseOdds odds(kEqual, 0);
  for (int i = 0; i < 20; ++i) live(odds, 0, 500, 1, 1000);
  for (int i = 0; i < 400; ++i) live(odds, 0, 500, 1, 10);
  EXPECT_GT(odds.rate(0, 1), odds.rate(0, 900));
}

TEST(RecomputeCosts, GrowWithTheTokensAndWithWhatStandsBeforeThem) {
  const RecomputeCosts costs{.token = 2, .token_per_context = 0.5};
  EXPECT_DOUBLE_EQ(cost_of(costs, 0, 4), 4 * 2 + 0.5 * (0 + 4) / 2 * 4);
  EXPECT_DOUBLE_EQ(cost_of(costs, 0, 8), cost_of(costs, 0, 4) + cost_of(costs, 4, 8));
  EXPECT_GT(cost_of(costs, 100, 104), cost_of(costs, 0, 4));
  EXPECT_DOUBLE_EQ(value_per_byte(0.5, 8, 16), 0.25);
}

TEST(ReuseOdds, AStateThatASequenceStartedFromIsWorthKeepingFromTheBeginning) {
  const ReuseOdds odds = ReuseOdds::for_checkpoints();
  const double end_of_path = odds.rate(checkpoint_kind(false, true, false), 10);
  EXPECT_LT(odds.rate(checkpoint_kind(true, true, false), 10), end_of_path / 4);
  EXPECT_GE(odds.rate(checkpoint_kind(true, true, true), 10), end_of_path);
}

}  // namespace
}  // namespace quire
