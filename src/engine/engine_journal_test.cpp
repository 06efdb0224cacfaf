// An engine whose pool writes a journal: its steps still allocate nothing, and the journal replays without a
// difference.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "quire/base/counted_heap_testing.h"
#include "quire/engine/weightless_testing.h"
#include "quire/journal/journal_writer.h"
#include "quire/journal/replay.h"
#include "quire/tiers/memory_tier_testing.h"

namespace quire::engine::testing {
namespace {

using quire::testing::allocations;

class EngineJournal : public ::testing::TestWithParam<Kind> {};

TEST_P(EngineJournal, AStepAllocatesNothingAndTheJournalReplays) {
  std::string pattern = (std::filesystem::temp_directory_path() / "quire-journal-XXXXXX").string();
  const std::filesystem::path folder = ::mkdtemp(pattern.data());
  const std::filesystem::path path = folder / "engine.journal";
  auto writer = *journal::JournalWriter::create(path, {});
  {
    Fixture fixture({.kind = GetParam(), .journal = writer.get(), .engine = {}});
    std::vector<std::shared_ptr<Collector>> answers;
    for (std::uint32_t i = 0; i < 16; ++i) {
      Request request{.max_tokens = 100};
      for (std::uint32_t t = 0; t < 10 + i; ++t)
        request.prompt.push_back(static_cast<Token>(t < 8 ? t : scramble(t * i) % 32));
      answers.push_back(fixture.submit(request));
    }
    const auto count = [&] {
      std::size_t tokens = 0;
      for (const auto& answer : answers) {
        for (auto& choice : answer->choices) {
          choice.tokens.reserve(128);
          choice.logprobs.reserve(128);
          tokens += choice.tokens.size();
        }
      }
      return tokens;
    };
    while (count() < 3 * answers.size()) ASSERT_TRUE(fixture.engine->step());
    const std::size_t told = count();
    const std::uint64_t before = allocations, records = writer->status().records;
    for (int i = 0; i < 50; ++i) fixture.engine->step();
    EXPECT_EQ(allocations - before, 0u);
    EXPECT_EQ(count() - told, 50 * answers.size());
    EXPECT_GE(writer->status().records - records, 50 * (answers.size() + 1));  // a commit for each, and a reservation
    fixture.run();
  }
  ASSERT_TRUE(writer->close().has_value());
  std::ifstream in(path, std::ios::binary);
  const journal::ReplayReport report = journal::replay(in);
  EXPECT_TRUE(report.clean());
  EXPECT_EQ(report.records, writer->status().records);
  EXPECT_EQ(report.sequences, 16u);
  std::filesystem::remove_all(folder);
}

// Content that leaves for a tier and comes back is part of the story that the journal tells.
TEST_P(EngineJournal, ReplaysAlsoWhatCameFromATier) {
  std::string pattern = (std::filesystem::temp_directory_path() / "quire-journal-XXXXXX").string();
  const std::filesystem::path folder = ::mkdtemp(pattern.data());
  const std::filesystem::path path = folder / "engine.journal";
  auto writer = *journal::JournalWriter::create(path, {});
  tiers::testing::Store store;
  std::uint64_t fetched = 0;
  for (const bool recorded : {false, true}) {  // the first engine fills the store
    tiers::Tiers tiers(tiers::TiersOptions{.staging_bytes = 1 << 18});
    auto memory = std::make_unique<tiers::testing::MemoryTier>(TierKind::Disk, store, tiers);
    auto* const tier = memory.get();
    tiers.add(std::move(memory));
    Fixture fixture({.kind = GetParam(),
                     .budget = std::uint64_t{1} << (GetParam() == Kind::Recurrent ? 14 : 16),
                     .max_sequences = 6,
                     .journal = recorded ? writer.get() : nullptr,
                     .tiers = &tiers});
    for (std::uint32_t i = 0; i < 40; ++i) {
      Request request{.max_tokens = 5};
      for (std::uint32_t t = 0; t < 60 + i % 7; ++t)
        request.prompt.push_back(static_cast<Token>(scramble(t + 1000 * (i % 5)) % 32));
      fixture.submit(request);
      while (!fixture.engine->idle()) {
        fixture.engine->step();
        tier->run();
      }
    }
    for (int i = 0; i < 1000 && tiers.busy(); ++i) {
      fixture.engine->step();
      tier->run();
    }
    fetched = tiers.stats().promoted;
  }
  EXPECT_GT(fetched, 0u);
  ASSERT_TRUE(writer->close().has_value());
  std::ifstream in(path, std::ios::binary);
  const journal::ReplayReport report = journal::replay(in);
  EXPECT_TRUE(report.clean());
  EXPECT_EQ(report.records, writer->status().records);
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Models, EngineJournal, ::testing::ValuesIn(kAllKinds),
                         [](const auto& kind) { return std::string(name(kind.param)); });

}  // namespace
}  // namespace quire::engine::testing
