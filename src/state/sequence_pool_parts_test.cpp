// SequencePool: checkpoints inside blocks. Where a recurrent model can resume depends on the checkpoint unit, not on
// the size of a page. A part has its own pages and state: nobody else writes or holds them, and evicting it frees them.
#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/pool_behaviour_testing.h"

namespace quire::testing {
namespace {

constexpr std::uint32_t kUnit = 2;
constexpr std::uint32_t kBlock = 8;

// Room for everything, in slabs of one state or many pages.
PoolConfig roomy(const ToyModel& model, std::uint32_t unit, std::uint32_t interval) {
  PoolConfig config = pool_of(model, 1 << 20);
  config.max_tokens = 512;
  config.checkpoint_unit = unit;
  config.checkpoint_interval = interval;
  return config;
}
PoolConfig roomy(std::uint32_t interval = 64) { return roomy(ToyModel::hybrid(kBlock), kUnit, interval); }

std::vector<std::uint64_t> stored(const SequencePool& pool) {
  std::vector<std::uint64_t> positions;
  for (const PoolEvent& event : only(events_since(pool, 0), PoolEvent::Kind::CheckpointStored)) {
    positions.push_back(event.detail);
  }
  return positions;
}

// Computes the prompt and asks for checkpoints at these positions.
ToyEngine::Sequence written_with(ToyEngine& engine, const std::vector<Token>& prompt,
                                 const std::vector<std::uint32_t>& checkpoints) {
  ToyEngine::Sequence sequence = engine.create(prompt).value();
  std::vector<std::uint32_t> ends = checkpoints;
  ends.push_back(static_cast<std::uint32_t>(prompt.size()));
  for (const std::uint32_t end : ends) {
    if (end <= sequence.tokens.size()) continue;
    const std::vector<Token> tokens(prompt.begin() + static_cast<long>(sequence.tokens.size()), prompt.begin() + end);
    const bool asked = std::ranges::find(checkpoints, end) != checkpoints.end();
    EXPECT_TRUE(done(engine.append(sequence, tokens, asked)));
  }
  sequence.pending.clear();
  EXPECT_EQ(engine.verify(sequence), "");
  EXPECT_TRUE(sound(engine.pool()));
  return sequence;
}
void cached_with(ToyEngine& engine, const std::vector<Token>& prompt, const std::vector<std::uint32_t>& checkpoints) {
  EXPECT_TRUE(done(engine.pool().release(written_with(engine, prompt, checkpoints).id)));
  EXPECT_TRUE(sound(engine.pool()));
}
std::vector<Token> sharing(const std::vector<Token>& prompt, std::size_t tokens) {
  return joined({prompt.begin(), prompt.begin() + static_cast<long>(tokens)}, counting(5000, 40));
}

// The case: with pages of 64 a hybrid found nothing of a prompt that shares 25 tokens. It finds 16, as with
// pages of 16; a model without recurrent layers finds all 25.
TEST(Parts, APromptThatSharesTwentyFiveTokensFindsThemWithBlocksOfAnySize) {
  for (const std::uint32_t block : {16u, 32u, 64u, 128u}) {
    for (const std::size_t length : {40, 70, 200}) {
      CountingDevice device;
      ToyEngine hybrid(device, roomy(ToyModel::hybrid(block), 16, 16));
      const std::vector<Token> first = counting(0, length);
      cached(hybrid, first, 0, 16);
      EXPECT_EQ(hybrid.pool().lookup(sharing(first, 25)).tokens, 16u) << block << " " << length;
      const auto again = written(hybrid, sharing(first, 25));
      EXPECT_EQ(hybrid.last_hit().tokens, 16u) << block << " " << length;
      EXPECT_EQ(hybrid.verify(again), "");

      ToyEngine attention(device, roomy(ToyModel::attention(block), 16, 16));
      cached(attention, first, 0, 16);
      EXPECT_EQ(attention.pool().lookup(sharing(first, 25)).tokens, 25u) << block << " " << length;
    }
  }
}

// What is found, over prompts that share random parts with earlier ones. Checkpoints are kept at the same positions.
std::vector<Hit> hits_of(std::uint32_t block, std::uint32_t seed, const ToyModel& model) {
  std::mt19937 random(seed);
  CountingDevice device;
  PoolConfig config = roomy(model, 4, 12);
  config.layout = *StateLayout::from_layers(model.layers, block);
  ToyEngine engine(device, config);
  std::vector<std::vector<Token>> prompts{counting(0, 150)};
  std::vector<Hit> hits;
  for (int i = 0; i < 60; ++i) {
    const std::vector<Token>& earlier = prompts[random() % prompts.size()];
    const std::size_t shared = random() % (earlier.size() + 1);
    prompts.push_back(joined({earlier.begin(), earlier.begin() + static_cast<long>(shared)},
                             counting(static_cast<Token>(1000 * i), 1 + random() % 120)));
    cached(engine, prompts.back(), 0, 4);
    hits.push_back(engine.last_hit());
  }
  return hits;
}
TEST(Parts, WithLargerBlocksNoLessIsFound) {
  for (const ToyModel& model : {ToyModel::hybrid(), ToyModel::recurrent(), ToyModel::everything(30)}) {
    for (std::uint32_t seed = 0; seed < 4; ++seed) {
      const std::vector<Hit> small = hits_of(4, seed, model);
      EXPECT_GT(std::ranges::count_if(small, [](const Hit& hit) { return hit.tokens % 16 != 0; }), 5);
      for (const std::uint32_t block : {8u, 16u, 32u}) {
        const std::vector<Hit> large = hits_of(block, seed, model);
        for (std::size_t i = 0; i < small.size(); ++i) {
          EXPECT_GE(large[i].tokens, small[i].tokens) << "blocks of " << block << ", prompt " << i;
        }
      }
    }
  }
}

TEST(Parts, AreKeptWhereACheckpointIsDueOrAskedForInUnits) {
  CountingDevice device;
  ToyEngine engine(device, roomy(5));  // rounded up to three units
  (void)written(engine, counting(0, 30), 0, 1);
  EXPECT_EQ(stored(engine.pool()), (std::vector<std::uint64_t>{6, 12, 18, 24, 30}));
  EXPECT_EQ(engine.pool().stats().parts_stored, 4u);  // 24 ends a block
  ToyEngine asked(device, roomy());
  auto sequence = asked.create({}).value();
  ASSERT_TRUE(done(asked.append(sequence, counting(0, 3), true)));  // no multiple of a unit
  ASSERT_TRUE(done(asked.append(sequence, counting(3, 1), true)));
  ASSERT_TRUE(done(asked.append(sequence, {}, true)));  // is there already
  EXPECT_EQ(stored(asked.pool()), (std::vector<std::uint64_t>{4}));
}

TEST(Parts, ThePoolSaysWhereTheNextOneFallsDue) {
  CountingDevice device;
  ToyEngine engine(device, roomy(6));
  auto sequence = engine.create({}).value();
  EXPECT_EQ(engine.pool().next_checkpoint(sequence.id), 6u);
  ASSERT_TRUE(done(engine.append(sequence, counting(0, 4), true)));
  EXPECT_EQ(engine.pool().next_checkpoint(sequence.id), 10u);
  ASSERT_TRUE(done(engine.append(sequence, counting(4, 5))));
  EXPECT_EQ(engine.pool().next_checkpoint(sequence.id), 10u);
  ASSERT_TRUE(done(engine.append(sequence, counting(9, 4))));  // passes it
  EXPECT_EQ(engine.pool().next_checkpoint(sequence.id), 14u);
  ASSERT_TRUE(done(engine.append(sequence, counting(13, 1))));
  EXPECT_EQ(stored(engine.pool()), (std::vector<std::uint64_t>{4, 14}));
  EXPECT_EQ(engine.pool().next_checkpoint(sequence.id), 20u);
}

TEST(Parts, TheLastPlaceThatHasEverythingIsUsed) {
  CountingDevice device;
  ToyEngine engine(device, roomy());
  const std::vector<Token> first = counting(0, 30);
  cached_with(engine, first, {4, 8, 12, 20, 30});
  const auto found = [&](std::size_t shared) { return engine.pool().lookup(sharing(first, shared)); };
  const std::array<std::pair<std::uint32_t, std::uint32_t>, 8> expected = {
      {{3, 0}, {4, 4}, {7, 4}, {11, 8}, {15, 12}, {19, 12}, {23, 20}, {30, 30}}};
  for (const auto& [shared, tokens] : expected) EXPECT_EQ(found(shared).tokens, tokens) << shared;
  EXPECT_EQ(found(19).matched, 18u);  // its pages are known, but no state
  EXPECT_EQ(found(19).end, HitEnd::NoCheckpoint);
  EXPECT_EQ(found(21).end, HitEnd::NeverSeen);
  EXPECT_EQ(engine.pool().lookup(first).tokens, 20u);  // one token is left to compute
  EXPECT_EQ(engine.pool().lookup(counting(0, 21)).end, HitEnd::Complete);
}

TEST(Parts, AreNotWrittenByTheSequenceThatLeftThem) {
  CountingDevice device;
  ToyEngine engine(device, roomy());
  auto first = written_with(engine, counting(0, 12), {12});
  auto second = engine.create(counting(0, 14)).value();  // shares the part's page
  EXPECT_EQ(engine.last_hit().tokens, 12u);
  ASSERT_TRUE(done(engine.append(first, counting(100, 9))));
  EXPECT_EQ(engine.verify(second), "");
  ASSERT_TRUE(done(engine.append(second, counting(12, 9))));
  EXPECT_EQ(engine.verify(first), "");
  EXPECT_EQ(engine.verify(second), "");
  EXPECT_EQ(engine.pool().lookup(counting(0, 14)).tokens, 12u);
  const auto third = written(engine, joined(counting(0, 12), {77, 78}));
  EXPECT_EQ(engine.verify(third), "");
  EXPECT_EQ(engine.pool().stats().parts_reused, 2u);
}

TEST(Parts, AForkOrARewindEndsAtThem) {
  CountingDevice device;
  for (const ToyModel& model : {ToyModel::hybrid(kBlock), ToyModel::everything(5, kBlock)}) {
    ToyEngine engine(device, roomy(model, kUnit, 64));
    auto sequence = written_with(engine, counting(0, 37), {4, 12, 16, 28});
    auto fork = engine.fork(sequence, 31).value();
    EXPECT_EQ(fork.tokens.size(), 28u);
    EXPECT_EQ(engine.verify(fork), "");
    ASSERT_TRUE(done(engine.append(fork, counting(700, 9))));
    EXPECT_EQ(engine.verify(fork), "");
    EXPECT_EQ(engine.verify(sequence), "");
    for (const auto& [position, reached] : {std::pair{30u, 28u}, {27u, 16u}, {15u, 12u}, {11u, 4u}, {3u, 0u}}) {
      ASSERT_TRUE(done(engine.rewind(sequence, position)));
      EXPECT_EQ(sequence.tokens.size(), reached);
      EXPECT_EQ(engine.verify(sequence), "");
      EXPECT_TRUE(sound(engine.pool()));
    }
    ASSERT_TRUE(done(engine.append(sequence, counting(0, 20))));
    EXPECT_EQ(engine.verify(sequence), "");
    EXPECT_TRUE(sound(engine.pool()));
  }
}

TEST(Parts, EvictingOneFreesItsPagesAndItsState) {
  for (const Eviction eviction : {Eviction::Value, Eviction::Lru}) {
    CountingDevice device;
    PoolConfig config = roomy();
    config.eviction = eviction;
    ToyEngine engine(device, config);
    const auto held = written_with(engine, counting(0, 14), {12});
    PoolStats stats = engine.pool().stats();
    EXPECT_EQ(stats.pages[0].cached, 1u);  // the part's copy; block 0 is held by the sequence
    EXPECT_EQ(stats.pages[0].held, 2u);
    EXPECT_EQ(stats.states.cached, 1u);
    EXPECT_EQ(stats.prefix_blocks, 2u);
    engine.pool().drop_cache();
    stats = engine.pool().stats();
    EXPECT_EQ(stats.pages[0].cached, 0u);
    EXPECT_EQ(stats.states.cached, 0u);
    EXPECT_EQ(stats.prefix_blocks, 1u);
    EXPECT_EQ(engine.verify(held), "");
    EXPECT_TRUE(sound(engine.pool()));
    EXPECT_EQ(engine.pool().lookup(counting(0, 14)).tokens, 0u);
  }
}

// A path of blocks without a checkpoint is there only for the part at its end.
TEST(Parts, TheBlocksBeforeTheLastPartGoWithIt) {
  CountingDevice device;
  ToyEngine engine(device, roomy());
  cached_with(engine, counting(0, 30), {26});
  EXPECT_EQ(engine.pool().stats().prefix_blocks, 4u);  // the block after the checkpoint went at once
  EXPECT_EQ(engine.pool().stats().pages[0].cached, 4u);
  engine.pool().drop_cache();
  EXPECT_EQ(engine.pool().stats().prefix_blocks, 0u);
  EXPECT_EQ(engine.pool().stats().free_slabs, engine.pool().stats().slabs);
}

TEST(Parts, CountForTheirTenant) {
  CountingDevice device;
  const PoolConfig config = roomy();
  ToyEngine engine(device, config);
  ASSERT_TRUE(done(engine.pool().set_share(0, 0, 1 << 19)));
  const auto sequence = written_with(engine, counting(0, 12), {4, 12});
  const std::uint64_t page = config.layout.groups[0].page_bytes(), state = config.layout.recurrent.bytes();
  EXPECT_EQ(engine.pool().tenant_bytes(0)->resident, 3 * page + 2 * state);
  ASSERT_TRUE(done(engine.pool().set_share(0, 0, page)));  // only the block that is held stays
  EXPECT_EQ(engine.pool().tenant_bytes(0)->resident, page);
  EXPECT_EQ(engine.verify(sequence), "");
  EXPECT_TRUE(sound(engine.pool()));
}

// With no room for a copy of its page, the sequence writes the part's own page. The part is gone then.
TEST(Parts, TheLastPageOfAPoolIsTakenFromThePart) {
  CountingDevice device;
  PoolConfig config = pool_of(ToyModel::hybrid(kBlock), 0);
  config.checkpoint_unit = kUnit;
  const std::uint64_t state = config.layout.recurrent.bytes(), page = config.layout.groups[0].page_bytes();
  ASSERT_EQ(state / page, 2u);  // a slab has one state, or two pages
  config.budget_bytes = 3 * state;
  ToyEngine engine(device, config);
  cached_with(engine, counting(0, 4), {4});
  auto sequence = engine.create(counting(0, 30)).value();
  EXPECT_EQ(engine.last_hit().tokens, 4u);
  ASSERT_TRUE(done(engine.append(sequence, counting(4, 20))));  // all four pages of two slabs beside its state
  EXPECT_EQ(engine.verify(sequence), "");
  EXPECT_TRUE(sound(engine.pool()));
  EXPECT_EQ(engine.pool().stats().states.cached, 0u);
}

TEST(Parts, AreSkippedWithoutRoomAndTheSequenceGoesOn) {
  CountingDevice device;
  PoolConfig config = pool_of(ToyModel::hybrid(kBlock), 0);
  config.checkpoint_unit = kUnit;
  config.budget_bytes = 2 * config.layout.recurrent.bytes();  // a state and two pages
  ToyEngine engine(device, config);
  const auto sequence = written_with(engine, counting(0, 12), {4, 12});
  EXPECT_EQ(engine.pool().stats().checkpoints_stored, 0u);
  EXPECT_EQ(engine.pool().stats().checkpoints_skipped, 2u);
  EXPECT_EQ(engine.verify(sequence), "");
}

TEST(Parts, AreSkippedIfTheDeviceRefusesACopyAndNothingIsLost) {
  for (std::uint64_t call = 0;; ++call) {
    CountingDevice device;
    ToyEngine engine(device, roomy(ToyModel::everything(6, kBlock), kUnit, 64));
    auto sequence = written_with(engine, counting(0, 12), {});
    const PoolStats before = engine.pool().stats();
    device.fail_after(call);
    ASSERT_TRUE(done(engine.append(sequence, {}, true)));
    const bool refused = !device.armed();
    device.never_fail();
    const PoolStats after = engine.pool().stats();
    EXPECT_TRUE(sound(engine.pool()));
    EXPECT_EQ(engine.verify(sequence), "");
    if (!refused) {
      EXPECT_EQ(after.parts_stored, 1u);
      EXPECT_EQ(call, 3u);  // a page of each group, and the state
      return;
    }
    EXPECT_EQ(after.checkpoints_skipped, 1u);
    for (std::size_t g = 0; g < before.pages.size(); ++g) {
      EXPECT_EQ(after.pages[g].free + after.pages[g].cached, before.pages[g].free + before.pages[g].cached);
      EXPECT_EQ(after.pages[g].cached, before.pages[g].cached);
    }
    EXPECT_EQ(after.states.cached, 0u);
  }
}

TEST(Parts, SurviveSuspensionOfTheSequenceThatLeftThem) {
  CountingDevice device;
  ToyEngine engine(device, roomy());
  auto arena = engine.pool().create_host_arena(1 << 16).value();
  auto sequence = written_with(engine, counting(0, 29), {12, 20});
  const auto copy = engine.pool().suspend(sequence.id, *arena);
  ASSERT_TRUE(copy.has_value());
  EXPECT_EQ(engine.pool().lookup(counting(0, 29)).tokens, 20u);
  sequence.id = engine.pool().resume(*copy, sequence.tokens).value();
  EXPECT_EQ(engine.verify(sequence), "");
  ASSERT_TRUE(done(engine.rewind(sequence, 14)));
  EXPECT_EQ(sequence.tokens.size(), 12u);
  EXPECT_EQ(engine.verify(sequence), "");
}

TEST(Parts, TheUnitMustDivideTheBlockSize) {
  CountingDevice device;
  const auto unit_of = [&](std::uint32_t unit) {
    return SequencePool::create(device, roomy(ToyModel::hybrid(8), unit, 64));
  };
  EXPECT_EQ(unit_of(3).error().code, PoolError::Code::InvalidArgument);
  EXPECT_EQ((*unit_of(2))->config().checkpoint_unit, 2u);
  for (const std::uint32_t unit : {0u, 8u, 9u, 64u}) EXPECT_EQ((*unit_of(unit))->config().checkpoint_unit, 8u) << unit;
}

// --- models without recurrent layers: what a released sequence had in its last page

PoolConfig attention() { return roomy(ToyModel::attention(kBlock), kUnit, 64); }

TEST(Tails, AreFoundAgainToTheToken) {
  for (const ToyModel& model : {ToyModel::attention(kBlock), ToyModel::windowed(5, kBlock)}) {
    CountingDevice device;
    ToyEngine engine(device, roomy(model, kUnit, 64));
    const std::vector<Token> first = counting(0, 21);
    cached(engine, first);
    for (const std::size_t shared : {3, 8, 11, 16, 19, 20, 21}) {
      const auto again = written(engine, sharing(first, shared));
      EXPECT_EQ(engine.last_hit().tokens, shared);
      EXPECT_EQ(engine.verify(again), "");
      ASSERT_TRUE(done(engine.pool().release(again.id)));
      EXPECT_TRUE(sound(engine.pool()));
    }
    EXPECT_EQ(engine.pool().lookup(first).tokens, 20u);
    EXPECT_EQ(engine.pool().lookup(first).end, HitEnd::Complete);
  }
}

TEST(Tails, AreHandedOverWithoutACopyAndReplacedByWhatContinuesThem) {
  CountingDevice device;
  ToyEngine engine(device, attention());
  cached(engine, counting(0, 11));
  EXPECT_EQ(engine.pool().stats().pages_copied, 0u);
  EXPECT_EQ(engine.pool().stats().prefix_blocks, 2u);
  EXPECT_EQ(engine.pool().stats().pages[0].cached, 2u);
  cached(engine, counting(0, 14));  // begins with the tail, in a copy of its page
  EXPECT_EQ(engine.last_hit().tokens, 11u);
  EXPECT_EQ(engine.pool().stats().pages_copied, 1u);
  EXPECT_EQ(engine.pool().stats().prefix_blocks, 2u);  // the longer tail has replaced it
  cached(engine, counting(0, 13));                     // is known
  EXPECT_EQ(engine.pool().stats().parts_stored, 2u);
  cached(engine, counting(0, 16));  // a whole block
  EXPECT_EQ(engine.pool().stats().prefix_blocks, 2u);
  EXPECT_EQ(engine.pool().stats().pages[0].cached, 2u);
  EXPECT_EQ(engine.pool().lookup(counting(0, 16)).tokens, 15u);
}

TEST(Tails, AreNotKeptIfTheyAreShortOrNobodyMayReuseThem) {
  CountingDevice device;
  ToyEngine engine(device, attention());
  cached(engine, counting(0, 9));  // one token in the last page: less than a unit
  EXPECT_EQ(engine.pool().stats().prefix_blocks, 1u);
  PoolConfig config = attention();
  config.prefix_cache = false;
  ToyEngine off(device, config);
  cached(off, counting(0, 14));
  EXPECT_EQ(off.pool().stats().free_slabs, off.pool().stats().slabs);
  PoolConfig blocks = attention();
  blocks.checkpoint_unit = 0;
  ToyEngine whole(device, blocks);
  cached(whole, counting(0, 14));
  EXPECT_EQ(whole.pool().stats().prefix_blocks, 1u);
}

// Two sequences that were one have the half-full page in both tables. The first that is released hands it over; the
// other then writes into a copy.
TEST(Tails, OfAForkAreNotWrittenByTheOther) {
  CountingDevice device;
  ToyEngine engine(device, attention());
  const auto first = written(engine, counting(0, 12));
  auto second = engine.fork(first, 12).value();
  ASSERT_TRUE(done(engine.pool().release(first.id)));
  EXPECT_EQ(engine.pool().stats().parts_stored, 1u);
  ASSERT_TRUE(done(engine.append(second, counting(100, 3))));
  EXPECT_EQ(engine.verify(second), "");
  EXPECT_TRUE(sound(engine.pool()));
  const auto third = written(engine, counting(0, 13));
  EXPECT_EQ(engine.last_hit().tokens, 12u);
  EXPECT_EQ(engine.verify(third), "");
}

TEST(Tails, MakeRoomLikeEverythingCached) {
  CountingDevice device;
  PoolConfig config = pool_of(ToyModel::attention(kBlock), 0);
  config.checkpoint_unit = kUnit;
  config.budget_bytes = 4 * config.layout.groups[0].page_bytes();
  ToyEngine engine(device, config);
  cached(engine, counting(0, 12));
  EXPECT_EQ(engine.pool().stats().pages[0].cached, 2u);
  const auto other = written(engine, counting(500, 30));  // all four pages
  EXPECT_EQ(engine.pool().stats().pages[0].cached, 0u);
  EXPECT_EQ(engine.verify(other), "");
}

}  // namespace
}  // namespace quire::testing
