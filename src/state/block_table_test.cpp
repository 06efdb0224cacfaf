// Logical block -> physical page of one sequence.
#include "quire/state/block_table.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

PageId page(std::uint32_t index) { return {index, 1}; }

TEST(BlockTable, ATokenLivesInItsBlocksPageAtItsPlaceInTheBlock) {
  BlockTable table(4, 8);
  table.push(page(7));
  table.push(page(2));
  table.push(page(5));
  EXPECT_EQ(table.place(0).page, page(7));
  EXPECT_EQ(table.place(0).slot, 0u);
  EXPECT_EQ(table.place(3).page, page(7));
  EXPECT_EQ(table.place(3).slot, 3u);
  EXPECT_EQ(table.place(4).page, page(2));
  EXPECT_EQ(table.place(4).slot, 0u);
  EXPECT_EQ(table.place(10).page, page(5));
  EXPECT_EQ(table.place(10).slot, 2u);
}

TEST(BlockTable, StartsEmptyWithRoomForTheLongestSequence) {
  const BlockTable table(4, 8);
  EXPECT_EQ(table.size(), 0u);
  EXPECT_EQ(table.first(), 0u);
  EXPECT_EQ(table.max_blocks(), 8u);
  EXPECT_EQ(table.block_size(), 4u);
  EXPECT_TRUE(table.pages().empty());
}

TEST(BlockTable, EveryChangeGivesItAnotherVersion) {
  BlockTable table(16, 8);
  std::uint64_t last = table.version();
  const auto changed = [&] { return std::exchange(last, table.version()) != table.version(); };
  EXPECT_FALSE(changed());
  for (std::uint32_t i = 0; i < 3; ++i) {
    table.push(page(i));
    EXPECT_TRUE(changed());
  }
  table.set(1, page(7));
  EXPECT_TRUE(changed());
  table.give_back_first();
  EXPECT_TRUE(changed());
  table.take_back(page(5));
  EXPECT_TRUE(changed());
  table.pop();
  EXPECT_TRUE(changed());
  EXPECT_EQ(table.pages().size(), 2u);
  EXPECT_FALSE(changed());
}

TEST(BlockTable, AnEntryCanNameAnotherPage) {
  BlockTable table(4, 8);
  table.push(page(7));
  table.push(page(2));
  ASSERT_EQ(table.pages().size(), 2u);
  table.set(1, page(3));
  EXPECT_EQ(table.page(1), page(3));
  EXPECT_EQ(table.pop(), page(3));
  EXPECT_EQ(table.size(), 1u);
}

TEST(BlockTable, BlocksGivenBackAtTheFrontStillCount) {
  BlockTable table(4, 8);
  for (std::uint32_t i = 0; i < 3; ++i) table.push(page(i));
  EXPECT_EQ(table.give_back_first(), page(0));
  EXPECT_EQ(table.first(), 1u);
  EXPECT_EQ(table.size(), 3u);
  EXPECT_FALSE(table.page(0).valid());
  EXPECT_EQ(table.place(5).page, page(1));
  table.take_back(page(9));
  EXPECT_EQ(table.first(), 0u);
  EXPECT_EQ(table.place(0).page, page(9));
}

TEST(BlockTable, ATableCanStartWithBlocksThatWereGivenBack) {
  BlockTable table(4, 8);
  table.push_given_back();
  table.push_given_back();
  table.push(page(4));
  EXPECT_EQ(table.size(), 3u);
  EXPECT_EQ(table.first(), 2u);
  EXPECT_EQ(table.place(8).page, page(4));
}

TEST(BlockTable, PoppingThroughTheFrontLeavesAnEmptyTable) {
  BlockTable table(4, 8);
  table.push(page(0));
  table.push(page(1));
  (void)table.give_back_first();
  EXPECT_EQ(table.pop(), page(1));
  EXPECT_FALSE(table.pop().valid());
  EXPECT_EQ(table.size(), 0u);
  EXPECT_EQ(table.first(), 0u);
  table.push(page(2));
  EXPECT_EQ(table.first(), 0u);
  EXPECT_EQ(table.page(0), page(2));
}

TEST(BlockTableDeathTest, OutgrowingItsRoomIsABugThatStopsTheProgram) {
  BlockTable table(4, 1);
  table.push(page(0));
  EXPECT_DEATH(table.push(page(1)), "a table does not outgrow its room");
}

}  // namespace
}  // namespace quire
