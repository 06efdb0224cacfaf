// Random operations on pools, compared with a reference model. Every test run has a thousand seeds of a thousand
// operations each. QUIRE_PROPERTY_PERCENT makes it less (sanitizers) or more.
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "quire/state/random_ops_testing.h"

namespace quire::testing {
namespace {

constexpr std::uint64_t kSeeds = 1000;
constexpr std::size_t kOperations = 1000;

std::uint64_t seeds() {
  const char* percent = std::getenv("QUIRE_PROPERTY_PERCENT");
  return percent == nullptr ? kSeeds : std::max<std::uint64_t>(1, kSeeds * std::strtoull(percent, nullptr, 10) / 100);
}

TEST(RandomOperations, AMillionOverAThousandSeedsAgreeWithTheNaiveModel) {
  std::uint64_t operations = 0;
  std::uint64_t pools = 0;
  std::map<std::string, std::uint64_t> seen;
  const auto life = [&](std::uint32_t seed, const std::vector<std::uint32_t>& words) {
    RandomOps ops(seed);
    for (const std::uint32_t word : words) {
      ++operations;
      if (!ops.run(word)) RC_FAIL(ops.difference());
    }
    ++pools;
    const PoolStats s = ops.pool().stats();
    const auto add = [&](const char* what, std::uint64_t count) { seen[what] += count; };
    static constexpr const char* kModels[] = {"attention", "windowed",   "recurrent",
                                              "hybrid",    "everything", "windows only"};
    const std::string model = kModels[static_cast<std::size_t>(ops.model())];
    seen[ops.pool().config().eviction == Eviction::Value ? "lives by value" : "lives by LRU"] += 1;
    if (ops.has_reference_model()) seen["lives beside the reference model: " + model] += 1;
    if (!ops.has_reference_model()) seen["lives with plain objects: " + model] += 1;
    add("hit tokens", s.hit_tokens);
    add("blocks evicted", s.blocks_evicted);
    add("window pages evicted", s.window_pages_evicted);
    add("blocks deduplicated", s.blocks_deduplicated);
    add("checkpoints stored", s.checkpoints_stored);
    add("checkpoints dropped", s.checkpoints_dropped);
    add("checkpoints restored", s.checkpoints_restored);
    add("checkpoints skipped", s.checkpoints_skipped);
    add("prefixes kept inside a block", s.parts_stored);
    add("sequences that began inside a block", s.parts_reused);
    add("pages copied", s.pages_copied);
    add("objects moved", s.objects_moved);
    add("forks", s.forks);
    add("rewinds", s.rewinds);
    add("refusals", s.refusals);
    add("suspensions", ops.suspensions);
    add("suspended sequences whose prefix was gone", ops.prefixes_gone);
    add("evictions below a floor", s.floors_yielded);
    for (std::size_t i = 0; i < kHitEnds - 1; ++i) add(name(static_cast<HitEnd>(i)), s.hit_ends[i]);
    if (!ops.finish()) RC_FAIL(ops.difference());
  };
  // RapidCheck generates the operations. If a run fails, it shrinks it to the few that matter.
  rc::detail::TestParams params;
  params.maxSuccess = static_cast<int>(seeds());
  params.seed = 20261115;
  const auto result = rc::detail::checkTestable(
      [&] {
        const auto seed = *rc::gen::noShrink(rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<std::uint32_t>()));
        const auto words =
            *rc::gen::shrink(rc::gen::noShrink(rc::gen::container<std::vector<std::uint32_t>>(
                                 kOperations, rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<std::uint32_t>()))),
                             [](std::vector<std::uint32_t>&& all) { return rc::shrink::removeChunks(std::move(all)); });
        life(seed, words);
      },
      rc::detail::TestMetadata(), params);
  EXPECT_TRUE(result.is<rc::detail::SuccessResult>()) << result;
  EXPECT_GE(operations, seeds() * kOperations);
  RecordProperty("operations", std::to_string(operations));
  std::cout << operations << " operations over " << pools << " seeds\n";
  for (const auto& [what, count] : seen) {
    std::cout << "  " << count << " " << what << "\n";
    // A shorter run may miss rare cases.
    if (seeds() < kSeeds) continue;
    EXPECT_GT(count, 0u) << what << " never happened: the operations do not reach it";
  }
}

// All answers and counts of a pool, for the same operations under different seeds of the prefix index.
TEST(RandomOperations, AnswerTheSameWhateverTheSeedOfTheHashes) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    std::vector<std::string> seen;
    for (const std::uint64_t hash_seed : {0ull, 1ull, 0x123456789ABCDEFull}) {
      RandomOps ops(seed * 7919, nullptr, hash_seed);
      std::string answers;
      std::uint64_t x = seed;
      for (int i = 0; i < 300; ++i) {
        x = x * 6364136223846793005 + 1442695040888963407;
        ASSERT_TRUE(ops.run(static_cast<std::uint32_t>(x >> 32))) << ops.difference();
        const PoolStats s = ops.pool().stats();
        for (const std::uint64_t end : s.hit_ends) answers += std::to_string(end) + " ";
        for (const ObjectCounts& pages : s.pages)
          answers += std::to_string(pages.held) + "/" + std::to_string(pages.cached);
        answers += " " + std::to_string(s.hit_tokens) + " " + std::to_string(s.blocks_evicted) + " " +
                   std::to_string(s.prefix_blocks) + " " + std::to_string(s.checkpoints_dropped) + "\n";
      }
      seen.push_back(std::move(answers));
    }
    ASSERT_TRUE(seen[0] == seen[1] && seen[0] == seen[2]) << "seed " << seed;
  }
}

}  // namespace
}  // namespace quire::testing
