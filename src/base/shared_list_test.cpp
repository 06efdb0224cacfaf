#include "quire/base/shared_list.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(SharedList, CopiesShareTheItems) {
  const SharedList<int> list(std::vector<int>(1000, 7));
  const SharedList<int> copy = list;
  EXPECT_EQ(copy.data(), list.data());
  EXPECT_EQ(copy.size(), 1000u);
}

TEST(SharedList, IsMadeFromWhatAVectorIsMadeFrom) {
  const std::vector<int> items = {3, 1, 2};
  SharedList<int> list = items;
  EXPECT_EQ(list, (SharedList<int>{3, 1, 2}));
  EXPECT_EQ(list, SharedList<int>(items.begin(), items.end()));
  EXPECT_EQ(list[1], 1);
  EXPECT_NE(list, (SharedList<int>{3, 1}));
  const SharedList<std::string> texts = {"a", "b"};
  EXPECT_EQ(texts.size(), 2u);
  EXPECT_EQ(std::span<const std::string>(texts).back(), "b");
}

TEST(SharedList, AnEmptyOneHasNoItems) {
  const SharedList<int> none, also{std::vector<int>()};
  EXPECT_TRUE(none.empty() && also.empty());
  EXPECT_EQ(none, also);
  for (const int item : none) ADD_FAILURE() << item;
}

}  // namespace
}  // namespace quire
