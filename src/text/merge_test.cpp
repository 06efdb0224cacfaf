#include "quire/text/merge.h"

#include <map>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace quire::text {
namespace {

using Table = std::map<std::pair<TokenId, TokenId>, Merge>;

Merge look_up(const Table& table, const Symbol& left, const Symbol& right) {
  const auto found = table.find({left.id, right.id});
  return found == table.end() ? Merge() : found->second;
}

// The definition of the algorithm, without any optimisation.
std::vector<TokenId> merged_slowly(const Table& table, std::vector<TokenId> ids) {
  for (;;) {
    Merge best;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = table.find({ids[i], ids[i + 1]});
      if (found != table.end() && found->second.rank < best.rank) {
        best = found->second;
        at = i;
      }
    }
    if (best.rank == kNoMerge) return ids;
    ids[at] = best.id;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

std::vector<TokenId> merged(const Table& table, const std::vector<TokenId>& ids) {
  Merger merger;
  for (std::uint32_t i = 0; i < ids.size(); ++i) merger.symbols.push_back({i, i + 1, ids[i]});
  merger.merge([&](const Symbol& left, const Symbol& right) { return look_up(table, left, right); });
  std::vector<TokenId> out;
  std::uint32_t end = 0;
  for (const Symbol& symbol : merger.symbols) {
    EXPECT_EQ(symbol.begin, end);
    end = symbol.end;
    out.push_back(symbol.id);
  }
  EXPECT_EQ(end, ids.size());
  return out;
}

TEST(Merger, TheLowestRankIsFirstAndOfEqualsTheLeftmost) {
  const Table table = {{{0, 0}, {5, 1}}, {{0, 2}, {3, 3}}, {{1, 0}, {9, 4}}};
  EXPECT_EQ(merged(table, {0, 0, 0}), (std::vector<TokenId>{4}));     // the left pair first, then the rest
  EXPECT_EQ(merged(table, {0, 0, 2}), (std::vector<TokenId>{0, 3}));  // the right pair, whose rank is lower
}

TEST(Merger, MergesAsTheDefinitionSaysForAnyLengthAndTable) {
  std::mt19937 random(3);
  for (int round = 0; round < 400; ++round) {
    // Ranks may repeat, like scores in SentencePiece vocabularies.
    Table table;
    const int symbols = 2 + static_cast<int>(random() % 4);
    TokenId next = symbols;
    const std::uint32_t ranks = 1 + random() % 30;
    for (int i = 0; i < 25; ++i) {
      const auto pick = [&] { return static_cast<TokenId>(random() % static_cast<unsigned>(next)); };
      const std::pair<TokenId, TokenId> pair(pick(), pick());
      if (table.emplace(pair, Merge{static_cast<std::uint32_t>(random() % ranks), next}).second) ++next;
    }
    std::vector<TokenId> ids(random() % (round % 10 == 0 ? 600 : 70));
    for (TokenId& id : ids) id = static_cast<TokenId>(random() % static_cast<unsigned>(symbols));
    ASSERT_EQ(merged(table, ids), merged_slowly(table, ids)) << "round " << round;
  }
}

}  // namespace
}  // namespace quire::text
