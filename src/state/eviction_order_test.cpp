#include "quire/state/eviction_order.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/behaviour_testing.h"

namespace quire {
namespace {

using testing::sound;

TEST(EvictionOrder, KnowsTheOldestAndTheNewestOfEachListWhateverIsAddedAndRemoved) {
  constexpr std::uint32_t kItems = 200, kLists = 3;
  std::mt19937 random(7);
  EvictionOrder order(kItems, kLists);
  std::vector<std::map<std::uint64_t, std::uint32_t>> naive(kLists);  // by list: item by time
  std::vector<std::uint64_t> times(kItems);
  std::vector<std::uint64_t> unused_times;
  for (std::uint64_t t = 1; t <= 100'000; ++t) unused_times.push_back(t);
  std::shuffle(unused_times.begin(), unused_times.end(), random);
  for (int round = 0; round < 20'000; ++round) {
    const std::uint32_t item = random() % kItems;
    if (order.contains(item)) {
      naive[order.list_of(item)].erase(times[item]);
      order.remove(item);
      order.remove(item);  // once more has no effect
    } else {
      const std::uint32_t list = random() % kLists;
      times[item] = unused_times.back();
      unused_times.pop_back();
      naive[list][times[item]] = item;
      order.add(item, list, times[item]);
    }
    for (std::uint32_t list = 0; list < kLists; ++list) {
      ASSERT_EQ(order.oldest(list), naive[list].empty() ? kNoIndex : naive[list].begin()->second);
      ASSERT_EQ(order.newest(list), naive[list].empty() ? kNoIndex : naive[list].rbegin()->second);
    }
    if (round % 100 == 0) {
      ASSERT_TRUE(sound(order));
    }
  }
}

TEST(EvictionOrder, IsFastWhenTimesOnlyGrow) {
  // As releases do. A tree that degenerated to a list would take minutes here.
  constexpr std::uint32_t kItems = 300'000;
  EvictionOrder order(kItems, 1);
  for (std::uint32_t i = 0; i < kItems; ++i) order.add(i, 0, i);
  for (std::uint32_t i = 0; i < kItems; ++i) {
    ASSERT_EQ(order.oldest(0), i);
    order.remove(i);
  }
  EXPECT_EQ(order.size(), 0u);
}

}  // namespace
}  // namespace quire
