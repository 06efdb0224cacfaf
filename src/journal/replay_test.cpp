// Journals of random operations on pools of all kinds replay without a difference. Every damage and every wrong
// operation is found.
#include <cstdlib>
#include <fstream>
#include <functional>

#include <gtest/gtest.h>

#include "quire/journal/journal_testing.h"
#include "quire/state/random_ops_testing.h"

namespace quire::journal::testing {
namespace {

using Kind = PoolOperation::Kind;
using quire::CountingDevice;
using quire::testing::RandomOps;

std::uint32_t next_word(std::uint64_t& x) {
  x = x * 6364136223846793005 + 1442695040888963407;
  return static_cast<std::uint32_t>(x >> 32);
}

constexpr std::uint32_t kWithReference = 1u << 23;  // of a seed: no plain objects
constexpr std::uint32_t kByValue = 1u << 26;        // of a seed: Eviction::Value
constexpr std::uint32_t kParts = 0x808;             // of a seed: blocks of 8 tokens, prefixes may end anywhere

// The journal of a pool under random operations.
void live(MemoryJournal& journal, std::uint32_t seed, int operations) {
  RandomOps ops(seed, nullptr, 0, &journal);
  std::uint64_t x = seed;
  for (int i = 0; i < operations; ++i) ASSERT_TRUE(ops.run(next_word(x))) << ops.difference();
  ASSERT_TRUE(ops.finish()) << ops.difference();
}

TEST(Replay, RandomOperationsOnPoolsOfAllKindsOfModelsShowNoDifference) {
  std::array<std::uint64_t, PoolOperation::kKinds> seen{};
  for (std::uint32_t model = 0; model < RandomOps::kModels; ++model) {
    for (std::uint32_t round = 0; round < 30; ++round) {
      std::uint64_t x = round;
      const std::uint32_t bits = next_word(x) & ~(3u << 23);
      const std::uint32_t seed = (bits | kWithReference) / RandomOps::kModels * RandomOps::kModels + model;
      MemoryJournal journal;
      ASSERT_NO_FATAL_FAILURE(live(journal, seed, 500));
      const ReplayReport report = replayed(journal.file());
      ASSERT_TRUE(report.clean()) << "seed " << seed << ": " << text(report);
      ASSERT_EQ(report.records, journal.operations.size());
      ASSERT_EQ(report.unchecked, 0u);
      for (std::size_t k = 0; k < seen.size(); ++k) seen[k] += report.operations[k];
    }
  }
  for (std::size_t k = 0; k < static_cast<std::size_t>(Kind::Recover); ++k) {
    EXPECT_GT(seen[k], 0u) << name(static_cast<Kind>(k)) << " never happened";
  }
  for (const Kind kind : {Kind::Draft, Kind::EndDraft}) {
    EXPECT_GT(seen[static_cast<std::size_t>(kind)], 0u) << name(kind) << " never happened";
  }
}

// A pool looks at 64 checkpoints at most when it has to drop one. With 66 that must stay before the one that could go,
// it keeps no new one. The reference model must know that.
TEST(Replay, APoolThatLooksAtSomeOfManyCheckpointsShowsNoDifference) {
  MemoryJournal journal;
  CountingDevice device;
  const auto layout = quire::testing::ToyModel::recurrent().layout();
  PoolConfig config{.layout = layout, .max_sequences = 80, .max_tokens = 64, .journal = &journal};
  config.eviction = Eviction::Lru;  // by value, it looks at two of each kind
  config.checkpoint_interval = 4;
  config.max_recompute = 64;
  config.budget_bytes = 200 * layout.recurrent.bytes();
  config.checkpoint_budget_bytes = 70 * layout.recurrent.bytes();
  const auto pool = *SequencePool::create(device, config);
  SequenceId id;
  const auto start = [&](Token first, int blocks) {
    id = pool->create({})->id;
    for (Token block = 0; block < blocks; ++block) {
      const Token tokens[] = {first, block, 0, 0};
      ASSERT_TRUE(pool->reserve(id, 4));
      ASSERT_TRUE(pool->commit(id, tokens, true));
    }
  };
  for (Token t = 0; t < 66; ++t) ASSERT_NO_FATAL_FAILURE(start(t, 1));
  ASSERT_NO_FATAL_FAILURE(start(100, 6));
  const PoolStats stats = pool->stats();
  ASSERT_EQ(stats.states.cached, 70u);
  ASSERT_EQ(stats.checkpoints_skipped, 2u);
  ASSERT_EQ(pool->rewind(id, 20), 16u);  // block 4 has no checkpoint
  const ReplayReport report = replayed(journal.file());
  EXPECT_TRUE(report.clean()) << text(report);
}

TEST(Replay, PlainObjectsAreNotComparedUntilThePoolIsEmpty) {
  MemoryJournal journal;
  ASSERT_NO_FATAL_FAILURE(live(journal, 6 * 1000, 500));  // attention, without the reference model
  const ReplayReport report = replayed(journal.file());
  EXPECT_TRUE(report.clean()) << text(report);
  EXPECT_GT(report.operations[static_cast<std::size_t>(Kind::AllocPage)], 0u);
  EXPECT_GT(report.operations[static_cast<std::size_t>(Kind::FreePage)], 0u);
  EXPECT_GT(report.unchecked, 0u);
  EXPECT_LT(report.unchecked, report.records);
}

TEST(Replay, AfterADeviceErrorTheComparisonGoesOnWhenThePoolHasRecovered) {
  MemoryJournal journal;
  CountingDevice device;
  const auto layout = quire::testing::ToyModel::hybrid().layout();
  const PoolConfig config{.layout = layout, .budget_bytes = 1 << 16, .max_tokens = 64, .journal = &journal};
  const auto pool = *SequencePool::create(device, config);
  const std::vector<Token> prompt(20, 3);
  const auto start = [&] { return pool->create({.prompt = prompt}); };
  const auto first = *start();
  ASSERT_TRUE(pool->reserve(first.id, 16));
  ASSERT_TRUE(pool->commit(first.id, std::span(prompt).first(16), true));
  device.fail_after(0);
  ASSERT_EQ(start().error().code, PoolError::Code::DeviceFailure);
  ASSERT_TRUE(pool->release(first.id));
  ASSERT_TRUE(pool->recover());
  const auto second = *start();
  ASSERT_EQ(second.hit.tokens, 0u);
  ReplayReport report = replayed(journal.file());
  EXPECT_TRUE(report.clean()) << text(report);
  EXPECT_EQ(report.device_errors, 1u);
  EXPECT_EQ(report.unchecked, 2u);  // the error and the release
  EXPECT_EQ(report.records, 7u);
  // After that, differences are found again.
  journal.operations.back().operation.hit = {.tokens = 16, .matched = 16};
  report = replayed(journal.file());
  ASSERT_TRUE(report.difference.has_value());
  EXPECT_EQ(report.difference->record, 7u);
}

// recover() forgets what the pool has learned about the use of content. The reference model has not seen all of it.
TEST(Replay, APoolThatHasRecoveredEvictsAsANewOne) {
  for (const auto& toy : {quire::testing::ToyModel::attention(4), quire::testing::ToyModel::hybrid(4)}) {
    MemoryJournal journal;
    CountingDevice device;
    PoolConfig config{.layout = toy.layout(), .max_tokens = 48, .journal = &journal};
    config.checkpoint_interval = 4;
    config.budget_bytes = 40 * config.layout.groups[0].page_bytes();
    const auto pool = *SequencePool::create(device, config);
    std::uint64_t x = 5;
    // Answers a prompt of one of a few beginnings. Returns false if the device fails.
    const auto answer = [&] {
      std::vector<Token> prompt(8 + 4 * (next_word(x) % 5), static_cast<Token>(next_word(x) % 6));
      prompt.push_back(static_cast<Token>(next_word(x) % 3));
      const auto made = pool->admit({.prompt = prompt}, 48, 16, {});
      if (!made) return false;
      while (*pool->length(made->id) < 44) {
        const std::uint32_t length = *pool->length(made->id);
        std::vector<Token> next(4 - length % 4, static_cast<Token>(next_word(x) % 2));
        for (std::uint32_t i = 0; i < next.size() && length + i < prompt.size(); ++i) next[i] = prompt[length + i];
        EXPECT_TRUE(pool->commit(made->id, next));
      }
      EXPECT_TRUE(pool->release(made->id));
      return true;
    };
    for (int i = 0; i < 400; ++i) ASSERT_TRUE(answer());
    const auto unlucky = pool->create({})->id;
    ASSERT_TRUE(pool->reserve(unlucky, 4));
    device.fail_after(0);
    ASSERT_FALSE(pool->save(unlucky));
    pool->set_costs({.token = 0.5, .token_per_context = 0.25});
    ASSERT_TRUE(pool->release(unlucky));
    ASSERT_TRUE(pool->recover());
    for (int i = 0; i < 400; ++i) ASSERT_TRUE(answer());
    const ReplayReport report = replayed(journal.file());
    EXPECT_TRUE(report.clean()) << text(report);
    EXPECT_EQ(report.unchecked, 3u);  // the error, the costs and the release
  }
}

TEST(Replay, EveryFlippedBitIsFoundInItsRecord) {
  MemoryJournal journal;
  ASSERT_NO_FATAL_FAILURE(live(journal, kWithReference / 6 * 6 + 4, 60));
  std::vector<std::size_t> ends;
  const std::string file = journal.file(&ends);
  ASSERT_TRUE(replayed(file).clean());
  std::size_t record = 0;
  for (std::size_t at = 0; at < file.size(); ++at) {
    while (at >= ends[record]) ++record;
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = file;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      const ReplayReport report = replayed(changed);
      ASSERT_TRUE(report.damage.has_value()) << "byte " << at << ", bit " << bit << " of record " << record;
      ASSERT_EQ(report.damage->record, record) << "byte " << at << ", bit " << bit;
      ASSERT_EQ(report.damage->offset, record == 0 ? (at < kPreambleBytes ? 0 : kPreambleBytes) : ends[record - 1]);
      ASSERT_FALSE(report.difference.has_value());
      ASSERT_EQ(report.records, record == 0 ? 0 : record - 1);
    }
  }
}

TEST(Replay, EverythingBeforeATruncatedRecordIsReplayed) {
  MemoryJournal journal;
  ASSERT_NO_FATAL_FAILURE(live(journal, kWithReference / 6 * 6 + 3, 60));
  std::vector<std::size_t> ends;
  const std::string file = journal.file(&ends);
  for (std::size_t size = 1; size < file.size(); ++size) {
    const ReplayReport report = replayed(file.substr(0, size));
    const auto whole = std::ranges::upper_bound(ends, size) - ends.begin();
    const bool between = std::ranges::binary_search(ends, size);
    ASSERT_FALSE(report.difference.has_value());
    ASSERT_EQ(report.records, whole == 0 ? 0 : static_cast<std::uint64_t>(whole) - 1) << size;
    ASSERT_EQ(report.damage.has_value(), !between) << size;
    if (between) continue;
    ASSERT_TRUE(report.damage->at_end) << size << ": " << report.damage->what;
    ASSERT_EQ(report.damage->record, static_cast<std::uint64_t>(whole));
  }
  EXPECT_EQ(replayed("").damage->what, "this is not a journal");
  EXPECT_EQ(replayed("something else").damage->what, "this is not a journal");
}

TEST(Replay, ALostOrDoubledRecordIsFoundByItsChecksum) {
  MemoryJournal journal;
  ASSERT_NO_FATAL_FAILURE(live(journal, kWithReference / 6 * 6, 40));
  std::vector<std::size_t> ends;
  const std::string file = journal.file(&ends);
  const auto record = [&](std::size_t i) { return file.substr(ends[i - 1], ends[i] - ends[i - 1]); };
  EXPECT_EQ(replayed(file.substr(0, ends[4]) + file.substr(ends[5])).damage->record, 5u);
  EXPECT_EQ(replayed(file.substr(0, ends[5]) + record(5) + file.substr(ends[5])).damage->record, 6u);
  EXPECT_EQ(replayed(file.substr(0, ends[4]) + record(6) + record(5) + file.substr(ends[6])).damage->record, 5u);
}

// Found by the fuzzer: a length that never ends was shifted out of its number.
TEST(Replay, ALengthThatNeverEndsIsDamaged) {
  MemoryJournal journal;
  ASSERT_NO_FATAL_FAILURE(live(journal, kWithReference, 1));
  journal.operations.clear();
  for (const char byte : {'\x80', '\xff'}) {
    const ReplayReport report = replayed(journal.file() + std::string(40, byte));
    ASSERT_TRUE(report.damage.has_value());
    EXPECT_EQ(report.damage->record, 1u);
    EXPECT_EQ(report.damage->what, "its length is not one that is written");
  }
}

// The fuzzer starts from these files. With those of an older version it would get no further than the version.
// UPDATE=1 writes them anew.
TEST(Replay, TheSeedsOfTheFuzzerAreJournalsOfThisVersion) {
  std::array<std::uint64_t, PoolOperation::kKinds> seen{};
  for (std::uint32_t model = 0; model < RandomOps::kModels; ++model) {
    const std::string path = QUIRE_SOURCE_DIR "/testdata/fuzz/replay_fuzz/model" + std::to_string(model);
    if (std::getenv("UPDATE") != nullptr) {
      MemoryJournal journal;
      ASSERT_NO_FATAL_FAILURE(
          live(journal, (kWithReference | kByValue | kParts) / 6 * 6 + (6 << 13) * model + model, 80));
      std::ofstream(path, std::ios::binary) << journal.file();
    }
    std::ifstream in(path, std::ios::binary);
    const ReplayReport report = replay(in);
    EXPECT_TRUE(report.clean()) << path << ": " << text(report);
    for (std::size_t k = 0; k < seen.size(); ++k) seen[k] += report.operations[k];
  }
  for (std::size_t k = 0; k < static_cast<std::size_t>(Kind::Recover); ++k) {
    EXPECT_GT(seen[k], 0u) << name(static_cast<Kind>(k)) << " is in no seed";
  }
}

TEST(Replay, TheHeaderSaysOfWhichTypeTheStatesAre) {
  for (const ElementType type : {ElementType::F32, ElementType::F16, ElementType::BF16}) {
    MemoryJournal journal;
    CountingDevice device;
    const LayerDesc layers[] = {LayerDesc::recurrent(96, 4096, type)};
    PoolConfig config{.layout = *StateLayout::from_layers(layers, 16), .budget_bytes = 1 << 16, .max_tokens = 64};
    config.max_sequences = 2;
    config.journal = &journal;
    ASSERT_TRUE(SequencePool::create(device, config));
    std::istringstream in(journal.file());
    const auto reader = JournalReader::open(in);
    ASSERT_TRUE(reader) << reader.error().what;
    EXPECT_TRUE(reader->header().config.layout.recurrent.same_bytes(config.layout.recurrent)) << quire::name(type);
  }
}

TEST(Replay, TheHeaderSaysWhetherPagesHaveOnePlaneOrTwo) {
  MemoryJournal journal;
  CountingDevice device;
  const LayerDesc layers[] = {LayerDesc::latent(48), LayerDesc::attention(1, 48)};
  PoolConfig config{.layout = *StateLayout::from_layers(layers, 16), .budget_bytes = 1 << 16, .max_tokens = 64};
  config.max_sequences = 2;
  config.journal = &journal;
  ASSERT_TRUE(SequencePool::create(device, config));
  std::istringstream in(journal.file());
  const auto reader = JournalReader::open(in);
  ASSERT_TRUE(reader) << reader.error().what;
  EXPECT_EQ(reader->header().config.layout.groups, config.layout.groups);
}

TEST(Replay, AnotherVersionIsRefusedByItsNumber) {
  MemoryJournal journal;
  ASSERT_NO_FATAL_FAILURE(live(journal, kWithReference, 1));
  std::string file = journal.file();
  file[sizeof kMagic] = 77;
  EXPECT_NE(replayed(file).damage->what.find("version 77"), std::string::npos);
}

// One sequence computes a prompt of 40 tokens, and ends. A second one reuses it, is forked, and rewound.
class WrongOperations : public ::testing::Test {
 protected:
  void SetUp() override {
    config_ = {.layout = quire::testing::ToyModel::attention().layout(), .max_sequences = 4, .max_tokens = 64};
    config_.budget_bytes = 16 * config_.layout.groups[0].page_bytes();
    config_.journal = &journal_;
    pool_ = *SequencePool::create(device_, config_);
    for (Token t = 0; t < 40; ++t) prompt_.push_back(t * 31);
    const auto first = *pool_->admit({.prompt = prompt_}, 44, 16, {});  // record 1
    ASSERT_TRUE(pool_->commit(first.id, prompt_));                      // 2
    ASSERT_TRUE(pool_->release(first.id));                              // 3
    const auto second = *pool_->create({.prompt = prompt_});            // 4
    ASSERT_EQ(second.hit.tokens, 39u);
    ASSERT_TRUE(pool_->reserve(second.id, 1));                          // 5
    ASSERT_TRUE(pool_->commit(second.id, std::span(prompt_).last(1)));  // 6
    const auto fork = *pool_->fork(second.id, 38);                      // 7
    ASSERT_EQ(*pool_->rewind(second.id, 21), 21u);                      // 8
    const BatchEntry both[] = {{second.id, 3}, {fork.id, 2}};
    ASSERT_TRUE(pool_->reserve(both));                                              // 9
    ASSERT_FALSE(pool_->admit({.prompt = prompt_, .reuse = false}, 60, 16, both));  // 10
    ASSERT_TRUE(pool_->commit(fork.id, std::span(prompt_).first(2)));               // 11
    const auto saved = *pool_->save(fork.id);                                       // 12
    ASSERT_TRUE(pool_->release(fork.id));                                           // 13
    ASSERT_TRUE(pool_->restore(saved).has_value());                                 // 14
    pool_->drop_cache();                                                            // 15
    const auto arena = *pool_->create_host_arena(1 << 20);
    const auto third = *pool_->fork(second.id, 18);                     // 16
    ASSERT_TRUE(pool_->reserve(third.id, 8));                           // 17
    ASSERT_TRUE(pool_->commit(third.id, std::span(prompt_).first(8)));  // 18
    const auto committed = *pool_->tokens(third.id);
    const std::vector<Token> tokens(committed.begin(), committed.end());
    {
      const auto suspended = *pool_->suspend(third.id, *arena);                          // 19
      pool_->set_costs({.token = 0.5, .token_per_context = 0.25});                       // 20
      pool_->set_costs({.token = 0.5, .token_per_context = 0.25});                       // unchanged, not recorded
      ASSERT_TRUE(pool_->set_share(0, 64, 14 * config_.layout.groups[0].page_bytes()));  // 21
      ASSERT_TRUE(pool_->resume(suspended, tokens));                                     // 22
    }
    ASSERT_EQ(journal_.operations.size(), 22u);
    ASSERT_TRUE(replayed(journal_.file()).clean()) << text(replayed(journal_.file()));
  }

  // Changes a copy of the journal, in which record n is all[n - 1]. Expects the first difference at this record.
  void expect_found(const char* what, std::uint64_t at, const std::function<void(std::vector<Recorded>&)>& change) {
    MemoryJournal wrong;
    wrong.header = journal_.header;
    wrong.operations = journal_.operations;
    change(wrong.operations);
    const ReplayReport report = replayed(wrong.file());
    ASSERT_FALSE(report.damage.has_value()) << what << ": " << text(report);
    ASSERT_TRUE(report.difference.has_value()) << what;
    EXPECT_EQ(report.difference->record, at) << what << ": " << text(report);
    EXPECT_FALSE(report.difference->pool.empty());
    EXPECT_FALSE(report.difference->reference.empty());
  }

  CountingDevice device_;
  MemoryJournal journal_;
  PoolConfig config_;
  std::unique_ptr<SequencePool> pool_;
  std::vector<Token> prompt_;
};

TEST_F(WrongOperations, AreFoundAlthoughTheyAreWellFormed) {
  using All = std::vector<Recorded>;
  expect_found("a token that was computed", 4, [](All& all) { all[1].tokens[9] += 1; });
  expect_found("a token of a prompt", 4, [](All& all) { all[3].tokens[9] += 1; });
  expect_found("reused tokens", 4, [](All& all) { all[3].operation.hit.tokens -= 1; });
  expect_found("known tokens", 4, [](All& all) { all[3].operation.hit.matched -= 1; });
  expect_found("the end of a hit", 4, [](All& all) { all[3].operation.hit.end = HitEnd::NoRoom; });
  expect_found("a namespace", 4, [](All& all) { all[3].operation.name_space = 7; });
  expect_found("reuse", 4, [](All& all) { all[3].operation.reuse = false; });
  expect_found("the room of an admission", 1, [](All& all) { all[0].operation.total = 48; });
  expect_found("an admission that fits", 1, [](All& all) { all[0].operation.error = PoolError::Code::Exhausted; });
  expect_found("an admission that does not fit", 10, [](All& all) {
    all[9].operation.error.reset();
    all[9].operation.made = {3, 0};
  });
  expect_found("the length of a fork", 7, [](All& all) { all[6].operation.reached = 36; });
  expect_found("the position of a fork", 7, [](All& all) { all[6].operation.position = 41; });
  expect_found("the length after a rewind", 8, [](All& all) { all[7].operation.reached = 20; });
  expect_found("the sequence of a rewind", 8, [](All& all) { all[7].operation.sequence.generation += 1; });
  expect_found("the id of a new sequence", 7, [](All& all) { all[6].operation.made = all[3].operation.made; });
  expect_found("a reservation", 9, [](All& all) { all[8].entries[0].rows = 30; });
  expect_found("a sequence that is listed twice", 9, [](All& all) { all[8].entries[1] = all[8].entries[0]; });
  expect_found("more tokens than were reserved", 11, [](All& all) { all[10].tokens.resize(9); });
  expect_found("held pages", 5, [](All& all) { all[4].operation.counts.objects[0].held += 1; });
  expect_found("cached pages", 3, [](All& all) { all[2].operation.counts.objects[0].cached -= 1; });
  expect_found("known blocks", 2, [](All& all) { all[1].operation.counts.known_blocks = 11; });
  expect_found("what was saved", 14, [](All& all) { all[13].tokens[0] += 1; });
  expect_found("the pages that were saved", 14, [](All& all) { all[13].first_blocks[0] = 1; });
  expect_found("the bytes that were suspended", 19, [](All& all) { all[18].operation.bytes += 64; });
  expect_found("a host arena without room", 19, [](All& all) { all[18].operation.free_cells = 1; });
  expect_found("a host arena with room", 19, [](All& all) { all[18].operation.error = PoolError::Code::Exhausted; });
  expect_found("the sequence that was suspended", 19, [](All& all) { all[18].operation.sequence.generation += 7; });
  expect_found("a floor above its cap", 21, [](All& all) { all[20].operation.cap = 63; });
  expect_found("a cap", 21, [](All& all) { all[20].operation.cap = 64; });
  expect_found("a refused share", 21, [](All& all) { all[20].operation.error = PoolError::Code::Exhausted; });
  expect_found("a page that was not copied", 22, [](All& all) { all[21].not_copied.push_back({0, 6}); });
  expect_found("a page that does not exist", 22, [](All& all) { all[21].not_copied.push_back({0, 7}); });
  expect_found("a prefix that is gone", 22, [](All& all) { all[21].operation.error = PoolError::Code::PrefixGone; });
  expect_found("a resumption that fits", 22, [](All& all) { all[21].operation.error = PoolError::Code::Exhausted; });
  expect_found("a token of a resumed sequence", 22, [](All& all) { all[21].tokens[3] += 1; });
  for (const std::size_t gone : {0, 1, 2, 3, 6, 7, 8, 12, 13, 15, 18}) {
    MemoryJournal wrong;
    wrong.header = journal_.header;
    wrong.operations = journal_.operations;
    wrong.operations.erase(wrong.operations.begin() + static_cast<long>(gone));
    const ReplayReport report = replayed(wrong.file());
    EXPECT_TRUE(report.difference.has_value()) << "record " << gone + 1 << " is left out: " << text(report);
  }
  expect_found("an operation that never happened", 4, [](All& all) {
    Recorded drop(PoolOperation{.kind = Kind::DropCache, .counts = all[2].operation.counts});
    all.insert(all.begin() + 3, drop);
  });
}

}  // namespace
}  // namespace quire::journal::testing
