#include "quire/bench/best_moment.h"

#include <vector>

#include <gtest/gtest.h>

namespace quire::bench {
namespace {

// The measured speeds of the memory in order, and the rates of the moments between them.
struct Moment {
  double before, rate, behind;
};
struct Best {
  std::vector<bool> better;
  std::optional<double> read;
};
Best best_of(const std::vector<Moment>& moments) {
  ThreadTeam team(1);
  std::vector<double> looks;
  for (const Moment& moment : moments) looks.insert(looks.end(), {moment.before, moment.behind});
  std::size_t next = 0;
  BestMoment best([&](ThreadTeam&) { return looks.at(next++); }, team);
  Best result;
  for (const Moment& moment : moments) result.better.push_back(best.beats([&] { return moment.rate; }));
  EXPECT_EQ(next, looks.size());
  result.read = best.read();
  return result;
}

TEST(BestMoment, OfMomentsInOneStateTheFastestCountsWithTheMemoryAroundIt) {
  const Best best = best_of({{30, 5, 31}, {30, 7, 30}, {60, 9, 62}, {60, 8, 60}});
  EXPECT_EQ(best.better, (std::vector<bool>{true, true, true, false}));
  EXPECT_EQ(best.read, 62);
}

TEST(BestMoment, OneInWhichTheStateChangedComesBehindAllOthers) {
  const Best best = best_of({{30, 9, 60}, {30, 5, 30}, {60, 20, 30}, {30, 6, 32}});
  EXPECT_EQ(best.better, (std::vector<bool>{true, true, false, true}));
  EXPECT_EQ(best.read, 32);
}

TEST(BestMoment, WhereTheStateAlwaysChangedTheFastestCountsAndNothingIsSaidOfTheMemory) {
  const Best best = best_of({{30, 5, 60}, {60, 7, 30}, {60, 6, 30}});
  EXPECT_EQ(best.better, (std::vector<bool>{true, true, false}));
  EXPECT_EQ(best.read, std::nullopt);
}

TEST(BestMoment, WhereNobodyLooksTheFastestCounts) {
  ThreadTeam team(1);
  BestMoment best({}, team);
  EXPECT_TRUE(best.beats([] { return 1.0; }));
  EXPECT_FALSE(best.beats([] { return 0.5; }));
  EXPECT_TRUE(best.beats([] { return 2.0; }));
  EXPECT_EQ(best.read(), std::nullopt);
}

}  // namespace
}  // namespace quire::bench
