// Which rows go over which part of the context together. In any plan, each row sees all tiles of its own context, once
// and in order, through its own pages.
#include "quire/backend/cpu/attention_plan.h"

#include <algorithm>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "quire/backend/cpu/kernels.h"

namespace quire::cpu {
namespace {

constexpr std::uint32_t kBlock = 16;

// Sequences, each with its own page table, and a step over them.
struct Sequences {
  struct One {
    std::vector<std::uint32_t> table;
    std::uint32_t position, rows;
  };
  std::vector<One> all;
  std::uint32_t block = kBlock;
  Batch batch;                        // of all sequences, after plan()
  std::vector<std::uint32_t> tables;  // [sequences][longest]

  void add(std::vector<std::uint32_t> table, std::uint32_t position, std::uint32_t rows = 1) {
    all.push_back({std::move(table), position, rows});
  }
  AttentionPlan plan(std::uint32_t window = 0, std::uint32_t per_row = 2, std::uint32_t items = 1) {
    std::size_t longest = 0;
    for (const One& one : all) longest = std::max(longest, one.table.size());
    tables.assign(all.size() * longest, UINT32_MAX);  // entries beyond the end of a table are no page
    batch.clear();
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::ranges::copy(all[i].table, tables.begin() + static_cast<std::ptrdiff_t>(i * longest));
      batch.add({}, std::vector<Token>(all[i].rows));
    }
    KvGroupView kv;
    kv.tables = tables.data();
    kv.table_stride = static_cast<std::uint32_t>(longest);
    kv.block_size = block;
    std::uint32_t row = 0;
    for (BatchEntry& entry : batch.bind(std::span(&kv, 1), {})) {
      entry.position = all[row].position;
      entry.table = row++;
    }
    batch.set_positions();
    AttentionPlan plan;
    plan.prepare(batch.rows(), 512);
    plan.make(batch, 0, window, per_row, items);
    return plan;
  }
  std::uint32_t entry_of(std::uint32_t row) const {
    std::uint32_t entry = 0;
    while (batch.entries()[entry].first_row + batch.entries()[entry].rows <= row) ++entry;
    return entry;
  }
};

// Checks the promises of a plan. Returns how many pairs of a row and a tile were shared with other rows.
std::uint32_t check(const Sequences& sequences, const AttentionPlan& plan) {
  std::vector<std::uint32_t> next(sequences.batch.rows(), UINT32_MAX);  // the next tile of each row
  std::uint32_t together = 0, rows_in_items = 0;
  for (const AttentionPlan::Item& item : plan.items()) {
    rows_in_items += item.row_end - item.row_begin;
    for (std::uint32_t r = item.row_begin; r < item.row_end; ++r) {
      EXPECT_EQ(next[plan.rows()[r].row], UINT32_MAX) << "a row is in one item";
      next[plan.rows()[r].row] = plan.rows()[r].begin / kContextTile;
    }
    for (std::uint32_t n = item.run_begin; n < item.run_end; ++n) {
      const AttentionPlan::Run& run = plan.runs()[n];
      for (std::uint32_t r = run.first; r < run.last; ++r) {
        EXPECT_TRUE(r >= item.row_begin && r < item.row_end);
        const AttentionPlan::Row& row = plan.rows()[r];
        const std::uint32_t own = sequences.entry_of(row.row);
        const std::uint32_t last = row.position / kContextTile + 1;
        for (std::uint32_t tile = run.tile_begin; tile < std::min(run.tile_end, last); ++tile) {
          if (tile < next[row.row]) continue;  // before its window
          EXPECT_EQ(tile, next[row.row]++) << "in order";
          if (run.last - run.first > 1) ++together;
          for (std::uint32_t p = tile * kContextTile; p < std::min((tile + 1) * kContextTile, row.position + 1); ++p) {
            if (p < row.begin) continue;
            EXPECT_EQ(sequences.all[own].table[p / sequences.block],
                      sequences.all[run.entry].table[p / sequences.block])
                << "its own pages";
          }
        }
      }
    }
  }
  EXPECT_EQ(rows_in_items, sequences.batch.rows());
  // Sections of an item cover what its rows see. Pieces are all sections, each in a place of its own.
  std::size_t pieces = 0, parts = 0;
  for (const AttentionPlan::Item& item : plan.items()) {
    EXPECT_EQ(item.first_part, parts);
    for (std::uint32_t r = item.row_begin; r < item.row_end; ++r) {
      EXPECT_LE(item.section_begin * kSection, plan.rows()[r].begin);
      EXPECT_GT(item.section_end * kSection, plan.rows()[r].position);
    }
    for (std::uint32_t section = item.section_begin; section < item.section_end; ++section, ++pieces) {
      if (plan.pieces().empty()) continue;
      EXPECT_EQ(&plan.items()[plan.pieces()[pieces].item], &item);
      EXPECT_EQ(plan.pieces()[pieces].section, section);
    }
    parts += std::size_t{item.section_end - item.section_begin} * (item.row_end - item.row_begin);
    if (plan.pieces().empty()) break;
  }
  EXPECT_TRUE(plan.pieces().empty() ? parts > 0 : pieces == plan.pieces().size());
  for (const AttentionPlan::Row& row : plan.rows()) {
    EXPECT_EQ(next[row.row], row.position / kContextTile + 1) << "to its end";
  }
  return together;
}

std::vector<std::uint32_t> table(std::uint32_t first, std::uint32_t count) {
  std::vector<std::uint32_t> pages(count);
  for (std::uint32_t i = 0; i < count; ++i) pages[i] = first + i;
  return pages;
}
std::vector<std::uint32_t> joined(std::vector<std::uint32_t> a, const std::vector<std::uint32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(AttentionPlan, SequencesThatShareAPrefixGoOverItTogetherAndThenAlone) {
  Sequences sequences;
  for (std::uint32_t i = 0; i < 5; ++i)
    sequences.add(joined(table(0, 20), table(1000 * (i + 1), 4)), 20 * kBlock + 10 * i);
  const AttentionPlan plan = sequences.plan();
  EXPECT_EQ(check(sequences, plan), 5U * 5);  // twenty pages are five tiles
  ASSERT_EQ(plan.items().size(), 1U);
  EXPECT_EQ(plan.runs().size(), 1U + 5);
}

TEST(AttentionPlan, SubgroupsShareMore) {
  Sequences sequences;
  const auto root = table(0, 8);
  for (std::uint32_t i = 0; i < 6; ++i) {
    sequences.add(joined(joined(root, table(100 + 10 * (i % 2), 8)), table(1000 + 100 * i, 8)), 24 * kBlock - 1);
  }
  // Two tiles by all six, two more by three each.
  const AttentionPlan plan = sequences.plan();
  EXPECT_EQ(check(sequences, plan), 6U * 2 + 6U * 2);
}

TEST(AttentionPlan, NothingIsSharedWithoutACommonPrefix) {
  Sequences sequences;
  for (std::uint32_t i = 0; i < 4; ++i) sequences.add(table(100 * i, 10), 10 * kBlock - 1);
  EXPECT_EQ(check(sequences, sequences.plan()), 0U);
}

TEST(AttentionPlan, ChunksOfPromptsGoTogetherAndInPiecesForTheThreads) {
  Sequences sequences;
  sequences.add(table(0, 20), 100, 200);
  sequences.add(table(500, 20), 0, 1);
  sequences.add(table(0, 20), 5, 7);
  const AttentionPlan plan = sequences.plan();
  EXPECT_GT(check(sequences, plan), 200U);
  EXPECT_GE(plan.items().size(), 200U / 32);
}

TEST(AttentionPlan, ThereAreAsManyItemsAsWanted) {
  Sequences sequences;
  for (std::uint32_t i = 0; i < 32; ++i) sequences.add(joined(table(0, 20), table(1000 * (i + 1), 1)), 20 * kBlock);
  EXPECT_EQ(sequences.plan(0, 2, 1).items().size(), 1U);
  const AttentionPlan four = sequences.plan(0, 2, 4);
  EXPECT_EQ(four.items().size(), 4U);
  check(sequences, four);
}

TEST(AttentionPlan, RowsBeginWhereTheirWindowsBeginAndShareNothing) {
  Sequences sequences;
  for (std::uint32_t i = 0; i < 3; ++i) sequences.add(table(0, 20), 300);
  sequences.add(table(0, 20), 200, 60);
  EXPECT_GT(check(sequences, sequences.plan(100)), 0U);
}

TEST(AttentionPlan, SectionsAreListedUnlessThereAreTooMany) {
  Sequences sequences;
  sequences.add(table(0, 200), 200 * kBlock - 1);
  sequences.add(table(500, 40), 40 * kBlock - 1);
  const AttentionPlan plan = sequences.plan();
  EXPECT_EQ(plan.pieces().size(), 7U + 2);
  check(sequences, plan);
  for (std::uint32_t i = 0; i < 80; ++i) sequences.add(table(1000 * (i + 1), 200), 200 * kBlock - 1);
  EXPECT_TRUE(sequences.plan().pieces().empty());
}

TEST(AttentionPlan, AnyBatchIsCovered) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    Sequences sequences;
    sequences.block = 1U << (random() % 8);  // from a token to two tiles
    const std::uint32_t count = 1 + random() % 12;
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t length = 1 + random() % 1500,
                          rows = random() % 3 == 0 ? 1 + random() % std::min(length, 70U) : 1;
      // A page number is a hash of the choices so far: the same choices give the same page.
      std::vector<std::uint32_t> pages;
      std::uint32_t hash = 0;
      const std::uint32_t turn = random() % 1500;
      for (std::uint32_t p = 0; p * sequences.block < length; ++p) {
        if (p * sequences.block >= turn) hash = hash * 31 + random() % 3 + 1;
        pages.push_back((hash << 12) + p);
      }
      pages.back() = (1U << 30) + i;  // the page that a sequence writes to is its own
      sequences.add(std::move(pages), length - rows, rows);
    }
    check(sequences, sequences.plan(random() % 4 == 0 ? 1 + random() % 300 : 0, 1 + random() % 8, 1 + random() % 5));
    if (::testing::Test::HasFailure()) FAIL() << "round " << round;
  }
}

}  // namespace
}  // namespace quire::cpu
