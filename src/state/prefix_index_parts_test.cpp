// Tests of PrefixIndex: parts, which are nodes with fewer tokens than a block.
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/behaviour_testing.h"
#include "quire/state/prefix_index.h"

namespace quire {
namespace {

using testing::counting;
using testing::joined;
using testing::sound;

constexpr std::uint32_t kBlock = 8;
constexpr std::uint32_t kUnit = 2;

// Two bits of hash: nearly everything collides.
PrefixIndex recurrent(std::uint32_t hash_bits = 2, Eviction eviction = Eviction::Value) {
  PrefixIndex index(32, kBlock, 0, true, hash_bits, 7, eviction, kUnit);
  index.set_object_bytes({}, 100);
  return index;
}
std::uint32_t add(PrefixIndex& index, std::uint32_t parent, const std::vector<Token>& tokens, Namespace tenant = 0) {
  const auto found = index.find_child(tenant, parent, tokens);
  EXPECT_EQ(found.node, kNoIndex);
  return index.insert(tenant, parent, tokens, found);
}
std::uint32_t next_slot = 0;
std::uint32_t add_part(PrefixIndex& index, std::uint32_t parent, const std::vector<Token>& tokens,
                       Namespace tenant = 0) {
  const std::uint32_t part = add(index, parent, tokens, tenant);
  index.set_checkpoint(part, {next_slot++, 1});
  index.let_go(part);
  return part;
}

TEST(PrefixIndexParts, AreFoundByTheirOwnTokensOnly) {
  for (const std::uint32_t bits : {2u, 128u}) {
    PrefixIndex index = recurrent(bits);
    const std::uint32_t block = add(index, kNoIndex, counting(0, kBlock));
    const std::uint32_t part = add_part(index, kNoIndex, counting(0, 4));
    const std::uint32_t below = add_part(index, block, counting(8, 2));
    EXPECT_EQ(index.find_child(0, kNoIndex, counting(0, 4)).node, part);
    EXPECT_EQ(index.find_child(0, kNoIndex, counting(0, kBlock)).node, block);
    EXPECT_EQ(index.find_child(0, kNoIndex, counting(0, 2)).node, kNoIndex);
    EXPECT_EQ(index.find_child(0, block, counting(8, 2)).node, below);
    EXPECT_EQ(index.find_child(1, kNoIndex, counting(0, 4)).node, kNoIndex);
    EXPECT_EQ(index.tokens(part).size(), 4u);
    EXPECT_EQ(index.end(part), 4u);
    EXPECT_EQ(index.end(block), 8u);
    EXPECT_EQ(index.end(below), 10u);
    EXPECT_TRUE(index.is_part(part));
    EXPECT_FALSE(index.is_part(block));
    std::vector<std::uint32_t> path(4);
    EXPECT_EQ(index.match(0, counting(0, 30), path), 1u);  // a path has whole blocks only
    EXPECT_TRUE(sound(index));
  }
}

TEST(PrefixIndexParts, TheLongestThatBeginsTheTokensIsFound) {
  PrefixIndex index = recurrent();
  const std::uint32_t two = add_part(index, kNoIndex, counting(0, 2));
  const std::uint32_t six = add_part(index, kNoIndex, counting(0, 6));
  add_part(index, kNoIndex, joined(counting(0, 3), {77}));
  EXPECT_EQ(index.longest_part(0, kNoIndex, counting(0, 20), kBlock), six);
  EXPECT_EQ(index.longest_part(0, kNoIndex, counting(0, 6), 6), two);
  EXPECT_EQ(index.longest_part(0, kNoIndex, counting(0, 5), kBlock), two);
  EXPECT_EQ(index.longest_part(0, kNoIndex, counting(0, 1), kBlock), kNoIndex);
  EXPECT_EQ(index.longest_part(0, kNoIndex, counting(1, 6), kBlock), kNoIndex);
  EXPECT_EQ(index.longest_part(1, kNoIndex, counting(0, 6), kBlock), kNoIndex);
  EXPECT_EQ(index.find_partial(0, kNoIndex, counting(0, 7)).tokens, 6u);
  EXPECT_EQ(index.find_shorter_part(0, kNoIndex, counting(0, 6)), two);
  EXPECT_EQ(index.find_shorter_part(0, kNoIndex, counting(0, 2)), kNoIndex);
}

TEST(PrefixIndexParts, TheCheckpointBeforeMayLieInsideAnyBlockOfThePath) {
  PrefixIndex index = recurrent();
  const std::uint32_t first = add(index, kNoIndex, counting(0, kBlock));
  const std::uint32_t second = add(index, first, counting(8, kBlock));
  const std::uint32_t third = add(index, second, counting(16, kBlock));
  EXPECT_EQ(index.checkpoint_at_or_before(third, 9), kNoIndex);
  const std::uint32_t at_4 = add_part(index, kNoIndex, counting(0, 4));
  EXPECT_EQ(index.checkpoint_at_or_before(third, 9), at_4);
  EXPECT_EQ(index.checkpoint_at_or_before(third, 2), kNoIndex);  // looks at two blocks
  add_part(index, first, joined(counting(8, 2), {77, 78}));      // of another path
  EXPECT_EQ(index.checkpoint_at_or_before(third, 9), at_4);
  index.set_checkpoint(first, {next_slot++, 1});
  EXPECT_EQ(index.checkpoint_at_or_before(third, 9), first);
  const std::uint32_t at_14 = add_part(index, first, counting(8, 6));
  EXPECT_EQ(index.checkpoint_at_or_before(third, 9), at_14);
  EXPECT_EQ(index.checkpoint_before(0, first, counting(8, 6), 9), first);
  EXPECT_EQ(index.checkpoint_before(0, first, counting(8, kBlock), 9), at_14);
  EXPECT_EQ(index.checkpoint_before(0, second, counting(16, 4), 9), at_14);
  EXPECT_TRUE(sound(index));
}

TEST(PrefixIndexParts, CoverOneAnotherUntilTheLaterOneGoes) {
  PrefixIndex index = recurrent();
  const std::uint32_t first = add(index, kNoIndex, counting(0, kBlock));
  const std::uint32_t at_10 = add_part(index, first, counting(8, 2));
  EXPECT_EQ(index.cover_before(0, first, counting(8, 4)), at_10);
  EXPECT_EQ(index.cover_before(0, first, counting(8, 4)), kNoIndex);  // no news
  index.uncover(at_10);
  const std::uint32_t at_12 = add_part(index, first, counting(8, 4));  // covers it
  EXPECT_EQ(index.cover_before(0, first, counting(8, 4)), kNoIndex);
  (void)index.clear_checkpoint(at_12);
  index.remove(at_12);
  EXPECT_EQ(index.cover_before(0, first, counting(8, 4)), at_10);
  EXPECT_TRUE(sound(index));
}

TEST(PrefixIndexParts, OneThatWasSkippedOrEvictedIsNoticedOnceIfItIsMissed) {
  PrefixIndex index = recurrent();
  const std::uint32_t part = add_part(index, kNoIndex, counting(0, 4));
  EXPECT_FALSE(index.note_missed_part(0, kNoIndex, counting(0, 4)));  // is there
  (void)index.clear_checkpoint(part);
  index.remove(part);
  EXPECT_TRUE(index.note_missed_part(0, kNoIndex, counting(0, 4)));
  EXPECT_FALSE(index.note_missed_part(0, kNoIndex, counting(0, 4)));
  EXPECT_FALSE(index.note_missed_part(0, kNoIndex, counting(0, 6)));
  index.note_skipped_part(0, index.find_child(0, kNoIndex, counting(0, 6)).content, true);
  EXPECT_TRUE(index.note_missed_part(0, kNoIndex, counting(0, 6)));
}

TEST(PrefixIndexParts, ThereAreNoneWhereTheUnitIsTheBlock) {
  for (const std::uint32_t unit : {0u, kBlock, 100u}) {
    PrefixIndex index(8, kBlock, 0, true, 128, 7, Eviction::Value, unit);
    EXPECT_FALSE(index.has_parts());
    EXPECT_EQ(index.unit(), kBlock);
    EXPECT_EQ(index.longest_part(0, kNoIndex, counting(0, 6), kBlock), kNoIndex);
  }
}

}  // namespace
}  // namespace quire
