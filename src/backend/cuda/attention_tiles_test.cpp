#include "quire/backend/cuda/attention_tiles.h"

#include <vector>

#include <gtest/gtest.h>

namespace quire::cuda {
namespace {

TEST(AttentionTiles, AQuerySeesItsWindow) {
  EXPECT_EQ(first_seen(0, 0), 0u);
  EXPECT_EQ(first_seen(100000, 0), 0u);
  EXPECT_EQ(first_seen(9, 10), 0u);
  EXPECT_EQ(first_seen(10, 10), 1u);
  EXPECT_EQ(first_seen(10, 1), 10u);
  EXPECT_EQ(sections_seen(255, 0), 1u);
  EXPECT_EQ(sections_seen(256, 0), 2u);
  EXPECT_EQ(sections_seen(256, 1), 1u);
  EXPECT_EQ(sections_seen(1000, 300), 2u);  // positions 701 to 1000
}

// Every section that a row sees is in one run, and none is in two.
TEST(AttentionTiles, RunsCoverWhatARowSees) {
  for (const std::uint32_t position : {0u, 255u, 256u, 1023u, 1024u, 5000u, 131071u}) {
    for (const std::uint32_t window : {0u, 1u, 256u, 300u, 4096u}) {
      for (std::uint32_t length = 1; length <= kMostRun; ++length) {
        std::vector<std::uint32_t> times(position / kSection + 1);
        for (std::uint32_t run = 0; run <= position / kSection / length; ++run) {
          const SectionRange range = sections_of_run(position, window, run, length);
          for (std::uint32_t s = range.begin; s < range.end; ++s) ++times[s];
          if (!sees_whole_run(position, window, run, length)) continue;
          // It may share the run: then all of it is visible.
          EXPECT_EQ(range.begin, run * length);
          EXPECT_EQ(range.end, (run + 1) * length);
          EXPECT_LE(first_seen(position, window), range.begin * kSection);
          EXPECT_LT(range.end * kSection - 1, position + 1);
        }
        std::uint32_t seen = 0;
        for (std::uint32_t s = 0; s < times.size(); ++s) {
          EXPECT_EQ(times[s], s >= first_seen(position, window) / kSection ? 1u : 0u);
          seen += times[s];
        }
        EXPECT_EQ(seen, sections_seen(position, window));
      }
    }
  }
}

TEST(AttentionTiles, ItemsOfAChunkCoverItsRows) {
  for (const std::uint32_t per_head : {1u, 3u, 4u, 16u, 71u, 200u}) {
    const std::uint32_t rows = 77, position = 1000, window = 500;
    std::uint32_t next = 0;
    for (std::uint32_t first = 0; first < rows * per_head; first += kWide) {
      const std::uint32_t queries = at_most(kWide, rows * per_head - first);
      const AttentionItem item = rows_item(3, 20, position, first, queries, per_head, window);
      EXPECT_EQ(item.first_query, next);
      next += item.queries;
      for (std::uint32_t query = first; query < next; ++query) {
        const std::uint32_t at = position + query / per_head;
        EXPECT_LE(item.section_begin, first_seen(at, window) / kSection);
        EXPECT_GT(item.section_end, at / kSection);
        EXPECT_LE(item.begin, first_seen(at, window));
        EXPECT_GT(item.end, at);
      }
    }
    EXPECT_EQ(next, rows * per_head);
  }
}

TEST(AttentionTiles, RunsGrowOnlyWhenThereIsEnoughWork) {
  EXPECT_EQ(run_length(2, 8, 264), 1u);       // one sequence of 512 tokens
  EXPECT_EQ(run_length(128, 8, 264), 4u);     // of 32k: 256 items
  EXPECT_EQ(run_length(64 * 2, 8, 264), 4u);  // 64 of 512
  EXPECT_EQ(run_length(64 * 16, 8, 264), kMostRun);
  EXPECT_EQ(run_length(0, 8, 264), 1u);
}

TEST(AttentionTiles, ItemsOfManyQueriesAreShortUntilThereIsEnoughWork) {
  EXPECT_EQ(shared_length(2, 2, 8, 264, 8), 1u);
  EXPECT_EQ(shared_length(24, 2, 8, 264, 8), 2u);   // 64 sequences that share 4k
  EXPECT_EQ(shared_length(136, 2, 8, 264, 8), 8u);  // 32k
  EXPECT_EQ(shared_length(136, 2, 8, 264, 3), 3u);  // a run has no more
}

TEST(AttentionTiles, ThePlacesOfAPlanDoNotOverlap) {
  const PlanSizes sizes{.rows = 100, .parts = 1000, .heads = 71};
  std::vector<std::byte> memory(sizes.bytes() + 256);
  const AttentionPlanView plan = sizes.view(memory.data());
  const auto at = [&](const void* p) {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(p) - memory.data());
  };
  EXPECT_EQ(sizes.items(), 2200u);  // 71 heads of one KV head are two items
  EXPECT_GE(at(plan.narrow), at(plan.counts) + sizeof(AttentionCounts));
  EXPECT_GE(at(plan.wide), at(plan.narrow + sizes.items()));
  EXPECT_GE(at(plan.members), at(plan.wide + sizes.items()));
  EXPECT_GE(at(plan.first_part), at(plan.members + sizes.parts));
  EXPECT_GE(at(plan.done), at(plan.first_part + sizes.rows));
  EXPECT_GE(sizes.bytes(), at(plan.done + sizes.rows * sizes.heads));
}

}  // namespace
}  // namespace quire::cuda
