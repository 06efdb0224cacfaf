// Tests of PrefixIndex.
#include "quire/state/prefix_index.h"

#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/behaviour_testing.h"

namespace quire {
namespace {

using testing::counting;
using testing::joined;
using testing::sound;

using Absence = PrefixIndex::Absence;

constexpr std::uint32_t kBlock = 4;

// Inserts every whole block of `tokens` that is not there yet; each new node is held once, as insert() does.
std::vector<std::uint32_t> insert_path(PrefixIndex& index, Namespace name_space, const std::vector<Token>& tokens) {
  std::vector<std::uint32_t> path;
  std::uint32_t parent = kNoIndex;
  for (std::size_t at = 0; at + kBlock <= tokens.size(); at += kBlock) {
    const std::span<const Token> block(tokens.data() + at, kBlock);
    const PrefixIndex::Found found = index.find_child(name_space, parent, block);
    std::uint32_t node = found.node;
    if (node == kNoIndex) {
      node = index.insert(name_space, parent, block, found);
    } else {
      index.hold(node);
    }
    path.push_back(node);
    parent = node;
  }
  return path;
}
void let_go(PrefixIndex& index, const std::vector<std::uint32_t>& path) {
  for (std::size_t i = path.size(); i-- > 0;) index.let_go(path[i]);
}
std::vector<std::uint32_t> matched(const PrefixIndex& index, Namespace name_space, const std::vector<Token>& tokens) {
  std::vector<std::uint32_t> path(64);
  path.resize(index.match(name_space, tokens, path));
  return path;
}

TEST(PrefixIndex, FollowsTokensBlockByBlockAsFarAsTheyAreKnown) {
  PrefixIndex index(16, kBlock, 1, false);
  const auto path = insert_path(index, 0, counting(0, 12));
  ASSERT_EQ(path.size(), 3u);
  EXPECT_EQ(matched(index, 0, counting(0, 12)), path);
  EXPECT_EQ(matched(index, 0, counting(0, 20)), path);
  EXPECT_EQ(matched(index, 0, counting(0, 11)), (std::vector{path[0], path[1]}));  // whole blocks only
  EXPECT_EQ(matched(index, 0, joined(counting(0, 7), {99})), (std::vector{path[0]}));
  EXPECT_TRUE(matched(index, 0, counting(0, 3)).empty());
  EXPECT_TRUE(matched(index, 0, counting(1, 12)).empty());
  EXPECT_TRUE(sound(index));
}

TEST(PrefixIndex, APathOfManyBlocksIsFoundWhole) {
  PrefixIndex index(64, kBlock, 1, false);
  const auto path = insert_path(index, 0, counting(0, 50 * kBlock));
  EXPECT_EQ(matched(index, 0, counting(0, 50 * kBlock)), path);
  EXPECT_EQ(matched(index, 0, joined(counting(0, 33 * kBlock), counting(900, 8))).size(), 33u);
}

TEST(PrefixIndex, WritesNoMoreOfAPathThanThereIsRoomFor) {
  PrefixIndex index(16, kBlock, 1, false);
  insert_path(index, 0, counting(0, 16));
  std::array<std::uint32_t, 2> path;
  EXPECT_EQ(index.match(0, counting(0, 16), path), 2u);
}

TEST(PrefixIndex, TheSameBlockAfterAnotherPrefixIsAnotherNode) {
  PrefixIndex index(16, kBlock, 1, false);
  const auto a = insert_path(index, 0, joined(counting(0, 4), counting(50, 4)));
  const auto b = insert_path(index, 0, joined(counting(4, 4), counting(50, 4)));
  EXPECT_NE(a[1], b[1]);
  EXPECT_NE(index.node(a[1]).key, index.node(b[1]).key);
  EXPECT_EQ(matched(index, 0, joined(counting(0, 4), counting(50, 4))), a);
  EXPECT_EQ(matched(index, 0, joined(counting(4, 4), counting(50, 4))), b);
  EXPECT_TRUE(matched(index, 0, counting(50, 4)).empty());  // and it is not a root block
}

TEST(PrefixIndex, NamespacesNeverSeeEachOther) {
  PrefixIndex index(16, kBlock, 1, false);
  const auto a = insert_path(index, 1, counting(0, 8));
  EXPECT_TRUE(matched(index, 2, counting(0, 8)).empty());
  EXPECT_EQ(index.find_child(2, kNoIndex, counting(0, 4)).node, kNoIndex);
  EXPECT_EQ(index.find_partial(2, kNoIndex, counting(0, 3)).tokens, 0u);
  EXPECT_EQ(index.find_partial(1, kNoIndex, counting(0, 3)).tokens, 3u);
  const auto b = insert_path(index, 2, counting(0, 8));
  EXPECT_NE(a[0], b[0]);
  EXPECT_NE(index.node(a[0]).key, index.node(b[0]).key);
  EXPECT_EQ(matched(index, 1, counting(0, 8)), a);
  EXPECT_EQ(matched(index, 2, counting(0, 8)), b);
  EXPECT_TRUE(sound(index));
}

// With so few bits almost all keys collide; with none all of them do.
TEST(PrefixIndex, ACollisionOfHashesCostsAComparisonAndNeverAnAnswer) {
  for (const std::uint32_t bits : {0u, 1u, 3u, 64u, 70u, 128u}) {
    PrefixIndex index(128, kBlock, 1, false, bits);
    std::vector<std::vector<std::uint32_t>> paths;
    for (Token t = 0; t < 20; ++t) {
      const Namespace name_space = static_cast<Namespace>(t % 2);
      paths.push_back(insert_path(index, name_space, counting(100 * t, 12)));
    }
    ASSERT_TRUE(sound(index)) << bits;
    for (Token t = 0; t < 20; ++t) {
      const Namespace name_space = static_cast<Namespace>(t % 2);
      EXPECT_EQ(matched(index, name_space, counting(100 * t, 12)), paths[t]) << bits;
      EXPECT_TRUE(matched(index, 1 - name_space, counting(100 * t, 12)).empty()) << bits;
      EXPECT_TRUE(matched(index, name_space, counting(100 * t + 1, 12)).empty()) << bits;
    }
    // The others are still found after some were removed.
    for (Token t = 0; t < 20; t += 3) {
      let_go(index, paths[t]);
      for (std::size_t i = 3; i-- > 0;) index.remove(paths[t][i]);
    }
    ASSERT_TRUE(sound(index)) << bits;
    for (Token t = 0; t < 20; ++t) {
      EXPECT_EQ(matched(index, static_cast<Namespace>(t % 2), counting(100 * t, 12)).size(), t % 3 == 0 ? 0u : 3u);
    }
  }
}

TEST(PrefixIndex, KnowsTokensBlockNumberAndParentOfEveryNode) {
  PrefixIndex index(16, kBlock, 1, false);
  const auto path = insert_path(index, 7, counting(0, 8));
  EXPECT_EQ(index.node(path[0]).parent, kNoIndex);
  EXPECT_EQ(index.node(path[0]).block, 0u);
  EXPECT_EQ(index.node(path[1]).parent, path[0]);
  EXPECT_EQ(index.node(path[1]).block, 1u);
  EXPECT_EQ(index.node(path[1]).name_space, 7u);
  EXPECT_EQ(index.tokens(path[1])[0], 4);
  EXPECT_EQ(index.tokens(path[1])[3], 7);
  EXPECT_FALSE(index.is_leaf(path[0]));
  EXPECT_TRUE(index.is_leaf(path[1]));
  EXPECT_EQ(index.only_child(path[0]), path[1]);
  EXPECT_EQ(index.only_child(path[1]), kNoIndex);
  insert_path(index, 7, joined(counting(0, 4), counting(90, 4)));
  EXPECT_EQ(index.only_child(path[0]), kNoIndex);  // two of them
}

TEST(PrefixIndex, KeepsAPageForEveryGroupOfANode) {
  PrefixIndex index(16, kBlock, 3, false);
  const auto path = insert_path(index, 0, counting(0, 8));
  EXPECT_FALSE(index.page(path[0], 0).valid());
  index.set_page(path[0], 1, PageId{5, 2});
  index.set_page(path[1], 1, PageId{6, 3});
  EXPECT_EQ(index.page(path[0], 1), (PageId{5, 2}));
  EXPECT_EQ(index.page(path[1], 1), (PageId{6, 3}));
  EXPECT_FALSE(index.page(path[0], 2).valid());
  let_go(index, path);
  index.remove(path[1]);
  const auto again = insert_path(index, 0, counting(0, 8));
  EXPECT_FALSE(index.page(again[1], 1).valid());  // a new node has nothing of the old one
}

TEST(PrefixIndex, UnheldNodesStandTheLeastRecentlyUsedFirstAndChildrenBeforeParents) {
  PrefixIndex index(16, kBlock, 1, false);
  const auto a = insert_path(index, 0, counting(0, 8)), b = insert_path(index, 0, counting(100, 8));
  EXPECT_EQ(index.least_recently_used(), kNoIndex);  // all are held
  let_go(index, a);
  let_go(index, b);
  EXPECT_EQ(index.unheld_count(), 4u);
  EXPECT_EQ(index.least_recently_used(), a[1]);
  for (const std::uint32_t node : a) index.hold(node);  // used again
  EXPECT_EQ(index.least_recently_used(), b[1]);
  let_go(index, a);
  std::vector<std::uint32_t> order;
  while (index.least_recently_used() != kNoIndex) {
    EXPECT_TRUE(index.is_leaf(index.least_recently_used()));
    order.push_back(index.least_recently_used());
    index.remove(order.back());
    EXPECT_TRUE(sound(index));
  }
  EXPECT_EQ(order, (std::vector{b[1], b[0], a[1], a[0]}));
  EXPECT_EQ(index.size(), 0u);
}

TEST(PrefixIndex, ASharedParentStaysUntilItsLastChildIsGone) {
  PrefixIndex index(16, kBlock, 1, false);
  const auto x = insert_path(index, 0, joined(counting(0, 4), counting(50, 4)));
  const auto y = insert_path(index, 0, joined(counting(0, 4), counting(60, 4)));
  ASSERT_EQ(x[0], y[0]);
  EXPECT_EQ(index.node(x[0]).holders, 2u);
  let_go(index, x);
  EXPECT_EQ(index.least_recently_used(), x[1]);
  index.remove(x[1]);
  EXPECT_EQ(index.least_recently_used(), kNoIndex);  // the other child's path holds the parent
  let_go(index, y);
  EXPECT_EQ(index.least_recently_used(), y[1]);
  EXPECT_TRUE(sound(index));
}

TEST(PrefixIndex, SaysWhyABlockIsAbsent) {
  PrefixIndex index(16, kBlock, 1, false);
  const auto path = insert_path(index, 1, counting(0, 8));
  EXPECT_EQ(index.why_absent(1, kNoIndex, counting(70, 4)), Absence::NeverSeen);
  EXPECT_EQ(index.why_absent(2, kNoIndex, counting(0, 4)), Absence::OtherNamespace);
  let_go(index, path);
  index.remove(path[1]);
  EXPECT_EQ(index.why_absent(1, path[0], counting(4, 4)), Absence::Evicted);
  EXPECT_EQ(index.why_absent(1, path[0], counting(70, 4)), Absence::NeverSeen);
  insert_path(index, 1, counting(0, 8));
  index.let_go(path[0]);
  EXPECT_EQ(index.why_absent(2, kNoIndex, counting(0, 4)), Absence::OtherNamespace);
}

TEST(PrefixIndex, APartialMatchIsTheChildWithTheMostTokensInCommon) {
  PrefixIndex index(16, kBlock, 1, false);
  const auto a = insert_path(index, 0, joined(counting(0, 4), {10, 11, 12, 13}));
  const auto b = insert_path(index, 0, joined(counting(0, 4), {10, 11, 20, 21}));
  const auto find = [&](std::vector<Token> tokens) { return index.find_partial(0, a[0], tokens); };
  EXPECT_EQ(find({10, 11, 12}).node, a[1]);
  EXPECT_EQ(find({10, 11, 12}).tokens, 3u);
  EXPECT_EQ(find({10, 11, 20}).node, b[1]);
  EXPECT_EQ(find({10, 11, 20}).tokens, 3u);
  EXPECT_EQ(find({10, 11}).tokens, 2u);
  EXPECT_EQ(find({10, 11}).node, b[1]);  // the latest of several equal matches
  EXPECT_EQ(find({11, 12}).tokens, 0u);
  EXPECT_EQ(find({11, 12}).node, kNoIndex);
  EXPECT_EQ(find({}).tokens, 0u);
}

TEST(PrefixIndex, APartialMatchAtTheRootIsFoundHoweverManyPrefixesOtherNamespacesHave) {
  for (const std::uint32_t hash_bits : {128u, 2u}) {
    PrefixIndex index(512, kBlock, 1, false, hash_bits);
    std::vector<std::vector<std::uint32_t>> mine, theirs;
    for (Namespace n = 0; n < 8; ++n) mine.push_back(insert_path(index, n, joined({7, 8}, counting(100, 2))));
    for (Token t = 0; t < 200; ++t) {
      theirs.push_back(insert_path(index, 1000 + static_cast<Namespace>(t % 20), counting(1000 * (t + 1), 4)));
    }
    EXPECT_TRUE(sound(index));
    const std::vector<Token> tokens = {7, 8, 9};
    for (Namespace n = 0; n < 8; ++n) {
      const auto found = index.find_partial(n, kNoIndex, tokens);
      EXPECT_EQ(found.node, mine[n][0]);
      EXPECT_EQ(found.tokens, 2u);
    }
    EXPECT_EQ(index.find_partial(8, kNoIndex, tokens).node, kNoIndex);  // a namespace that nobody used
    // Namespaces are added and removed; the remaining ones are still found.
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      let_go(index, theirs[i]);
      index.remove(theirs[i][0]);
      ASSERT_TRUE(sound(index));
    }
    let_go(index, mine[3]);
    index.remove(mine[3][0]);
    EXPECT_TRUE(sound(index));
    EXPECT_EQ(index.find_partial(3, kNoIndex, tokens).node, kNoIndex);
    EXPECT_EQ(index.find_partial(4, kNoIndex, tokens).node, mine[4][0]);
  }
}

TEST(PrefixIndex, HasRoomForSoManyNodesAndNoMore) {
  PrefixIndex index(3, kBlock, 1, false);
  EXPECT_EQ(index.max_nodes(), 3u);
  const auto path = insert_path(index, 0, counting(0, 12));
  EXPECT_TRUE(index.full());
  EXPECT_EQ(index.size(), 3u);
  let_go(index, path);
  index.remove(path[2]);
  EXPECT_FALSE(index.full());
  insert_path(index, 0, joined(counting(0, 8), counting(90, 4)));
  EXPECT_TRUE(index.full());
  EXPECT_TRUE(sound(index));
}

TEST(PrefixIndex, AnIndexOfNoNodesIsFullAndFindsNothing) {
  const PrefixIndex index(0, kBlock, 1, false);
  EXPECT_TRUE(index.full());
  EXPECT_TRUE(matched(index, 0, counting(0, 8)).empty());
  EXPECT_EQ(index.why_absent(0, kNoIndex, counting(0, 4)), Absence::NeverSeen);
}

TEST(PrefixIndex, CheckpointsStandTheLeastRecentlyUsedFirst) {
  PrefixIndex index(16, kBlock, 1, true);
  const auto path = insert_path(index, 0, counting(0, 12));
  EXPECT_EQ(index.oldest_checkpoint(), kNoIndex);
  for (std::uint32_t i = 0; i < 3; ++i) index.set_checkpoint(path[i], SlotId{i, 0});
  EXPECT_EQ(index.checkpoint_count(), 3u);
  EXPECT_EQ(index.oldest_checkpoint(), path[0]);
  index.touch_checkpoint(path[0]);
  EXPECT_EQ(index.oldest_checkpoint(), path[1]);
  EXPECT_EQ(index.clear_checkpoint(path[1]), (SlotId{1, 0}));
  EXPECT_EQ(index.oldest_checkpoint(), path[2]);
  index.move_checkpoint(path[2], SlotId{9, 1});  // moved, but not more recently used
  EXPECT_EQ(index.checkpoint(path[2]), (SlotId{9, 1}));
  EXPECT_EQ(index.oldest_checkpoint(), path[2]);
  EXPECT_FALSE(index.clear_checkpoint(path[1]).valid());
  EXPECT_EQ(index.checkpoint_count(), 2u);
  EXPECT_TRUE(sound(index));
}

TEST(PrefixIndex, TheKeyOfTokensIsTheKeyOfTheirLastWholeBlock) {
  PrefixIndex index(16, kBlock, 1, false);
  const auto path = insert_path(index, 7, counting(0, 8));
  EXPECT_EQ(index.key_of(7, counting(0, 8)), index.node(path[1]).key);
  EXPECT_EQ(index.key_of(7, counting(0, 7)), index.node(path[0]).key);
  EXPECT_NE(index.key_of(8, counting(0, 8)), index.node(path[1]).key);
}

TEST(PrefixIndexDeathTest, ForgettingAParentOrAHeldNodeIsABugThatStopsTheProgram) {
  PrefixIndex index(16, kBlock, 1, false);
  const auto path = insert_path(index, 0, counting(0, 8));
  EXPECT_DEATH(index.remove(path[1]), "only an unheld leaf is removed");
  let_go(index, path);
  EXPECT_DEATH(index.remove(path[0]), "only an unheld leaf is removed");
}

// Prompts whose blocks all fall into one bucket of the table. An attacker who knows the seed could construct them.
TEST(PrefixIndex, PromptsThatCollideUnderOneSeedDoNotUnderAnother) {
  constexpr std::uint32_t kNodes = 1 << 10;
  const PrefixIndex known(kNodes, kBlock, 1, false, 128, 1), unknown(kNodes, kBlock, 1, false, 128, 2);
  std::vector<std::vector<Token>> prompts;
  for (Token first = 0; prompts.size() < 32; first += 4) {
    const auto prompt = counting(first, 4);
    if (known.key_of(0, prompt).low % 256 == 7) prompts.push_back(prompt);
  }
  std::size_t still = 0;
  for (const auto& prompt : prompts) still += unknown.key_of(0, prompt).low % 256 == 7;
  EXPECT_LT(still, 4u);
  EXPECT_NE(known.key_of(0, prompts[0]), unknown.key_of(0, prompts[0]));
}

}  // namespace
}  // namespace quire
