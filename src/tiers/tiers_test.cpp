#include "quire/tiers/tiers.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/losable_device_testing.h"
#include "quire/state/pool_behaviour_testing.h"
#include "quire/tiers/memory_tier_testing.h"

namespace quire::tiers::testing {
namespace {

using quire::testing::counting;

using quire::testing::done;
using quire::testing::pool_of;
using quire::testing::sound;
using quire::testing::ToyEngine;
using quire::testing::ToyModel;
using Phase = FetchStatus::Phase;

struct Kind {
  const char* name;
  ToyModel model;
};
class TiersOfAPool : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Models, TiersOfAPool,
                         ::testing::Values(Kind{"Attention", ToyModel::attention()}, Kind{"Latent", ToyModel::latent()},
                                           Kind{"Windowed", ToyModel::windowed(7)},
                                           Kind{"Recurrent", ToyModel::recurrent()}, Kind{"Hybrid", ToyModel::hybrid()},
                                           Kind{"Everything", ToyModel::everything(7)}),
                         [](const auto& kind) { return std::string(kind.param.name); });

// A server: a pool, its tiers, and an engine that computes.
struct Server {
  explicit Server(const ToyModel& model, std::vector<Store*> stores, TiersOptions options = {},
                  std::uint64_t budget = 1 << 16, Fingerprint fingerprint = {{1, 2, 3, 4}})
      : tiers(with_small_staging(std::move(options))) {
    for (std::size_t i = 0; i < stores.size(); ++i) {
      auto tier = std::make_unique<MemoryTier>(i == 0 ? TierKind::Disk : TierKind::Shared, *stores[i], tiers);
      memory.push_back(tier.get());
      tiers.add(std::move(tier));
    }
    PoolConfig config = pool_of(model, budget);
    config.model = fingerprint;
    config.checkpoint_interval = model.block_size;
    config.observer = &tiers;
    engine = std::make_unique<ToyEngine>(device, config);
    EXPECT_TRUE(done(tiers.attach(engine->pool())));
  }
  static TiersOptions with_small_staging(TiersOptions options) {
    if (options.staging_bytes == TiersOptions{}.staging_bytes) options.staging_bytes = 1;  // a few cells of each class
    return options;
  }

  // Lets everything happen that can happen.
  void settle() {
    for (int i = 0; i < 200; ++i) {
      EXPECT_TRUE(done(tiers.advance()));
      for (MemoryTier* tier : memory) tier->run();
    }
  }
  // Computes a prompt token by token, so that a checkpoint can be kept at the end of every block.
  void compute(const std::vector<Token>& prompt, Namespace name_space = 0) {
    auto sequence = engine->create(prompt, name_space).value();
    for (const Token token : std::vector(sequence.pending)) ASSERT_TRUE(done(engine->append(sequence, {token})));
    EXPECT_EQ(engine->verify(sequence), "");
    ASSERT_TRUE(done(engine->pool().release(sequence.id)));
    settle();
  }
  // Brings what is there of a prompt; returns how many tokens the pool then has.
  std::uint32_t bring(const std::vector<Token>& prompt, Namespace name_space = 0) {
    const FetchId id = tiers.look(prompt, name_space);
    if (id != 0) {
      settle();
      if (tiers.status(id).phase == Phase::Found) tiers.fetch(id, 0);
      settle();
      EXPECT_EQ(tiers.status(id).phase, Phase::Done);
      tiers.end(id);
      settle();
    }
    EXPECT_TRUE(sound(engine->pool()));
    EXPECT_EQ(tiers.stats().staging_used_bytes, 0u) << "everything is given back";
    return engine->pool().lookup(prompt, name_space).tokens;
  }
  // Answers a prompt with what the pool has, and compares every byte with what computing gives.
  void verify(const std::vector<Token>& prompt, Namespace name_space = 0) {
    auto sequence = engine->create(prompt, name_space).value();
    ASSERT_TRUE(done(engine->append(sequence, std::vector(sequence.pending))));
    EXPECT_EQ(engine->verify(sequence), "");
    ASSERT_TRUE(done(engine->pool().release(sequence.id)));
    EXPECT_TRUE(sound(engine->pool()));
  }

  CountingDevice device;
  Tiers tiers;
  std::vector<MemoryTier*> memory;
  std::unique_ptr<ToyEngine> engine;
};

TEST_P(TiersOfAPool, BringBackWhatAnotherServerHasComputed) {
  Store store;
  const auto prompt = counting(0, 41);
  Server first(GetParam().model, {&store});
  first.compute(prompt);
  ASSERT_GE(store.size(), 10u);
  for (const std::size_t length : {5u, 17u, 40u, 41u, 60u}) {
    Server second(GetParam().model, {&store});
    auto longer = counting(0, static_cast<std::uint32_t>(length));
    const auto there = static_cast<std::uint32_t>(std::min<std::size_t>(length - 1, 40) / 4 * 4);
    EXPECT_EQ(second.bring(longer), there);
    second.verify(longer);
  }
}

TEST_P(TiersOfAPool, BringBackWhatThePoolHasEvicted) {
  for (const bool write_back : {false, true}) {
    Store store;
    Server server(GetParam().model, {&store}, {.staging_bytes = 1 << 20, .write_back = write_back}, 1 << 14);
    const auto prompt = counting(0, 41);
    server.compute(prompt);
    EXPECT_EQ(store.empty(), write_back) << "with write-back nothing leaves before it is evicted";
    for (int i = 1; server.engine->pool().lookup(prompt).tokens > 8 && i < 60; ++i)
      server.compute(counting(1000 * i, 41));
    ASSERT_LE(server.engine->pool().lookup(prompt).tokens, 8u);
    server.settle();
    EXPECT_GE(server.bring(prompt), write_back ? 12u : 40u);
    server.verify(prompt);
  }
}

TEST_P(TiersOfAPool, NeverMixTenantsModelsAndLayouts) {
  Store store;
  const auto prompt = counting(0, 41);
  Server first(GetParam().model, {&store});
  first.compute(prompt, 7);
  Server second(GetParam().model, {&store});
  EXPECT_EQ(second.bring(prompt, 8), 0u);
  EXPECT_EQ(second.bring(prompt, 0), 0u);
  EXPECT_EQ(second.bring(prompt, 7), 40u);
  // The same number is another tenant on another server, if the servers say so.
  TiersOptions other_names{.tenant = [](Namespace number) {
    TenantName name{};
    name[0] = static_cast<std::uint8_t>(number + 1);
    return name;
  }};
  Server third(GetParam().model, {&store}, other_names);
  EXPECT_EQ(third.bring(prompt, 7), 0u);
  Server fourth(GetParam().model, {&store}, {}, 1 << 16, Fingerprint{{1, 2, 3, 5}});
  EXPECT_EQ(fourth.bring(prompt, 7), 0u);
  ToyModel wider = GetParam().model;
  wider.block_size = 8;
  Server fifth(wider, {&store});
  EXPECT_EQ(fifth.bring(prompt, 7), 0u);
}

TEST_P(TiersOfAPool, ATenantThatWasNamedIsFoundByItsNameOnly) {
  const ToyModel model = GetParam().model;
  const TenantName ann{1}, bob{2};
  const TiersOptions options{.tenant = [&](Namespace number) { return number == 9 ? ann : TenantName{}; }};
  Store store;
  const auto prompt = counting(0, 41);
  Server first(model, {&store});
  first.tiers.name_tenant(1, ann);
  first.compute(prompt, 1);
  Server second(model, {&store}, options);
  second.tiers.name_tenant(1, bob);
  second.tiers.name_tenant(5, ann);
  EXPECT_EQ(second.bring(prompt, 1), 0u) << "the same number, another name";
  EXPECT_GE(second.bring(prompt, 5), 32u) << "another number, the same name";
  EXPECT_GE(second.bring(prompt, 9), 32u) << "who was not named has the name of the options";
  Server third(model, {&store}, options);
  third.tiers.name_tenant(9, bob);
  third.tiers.name_tenant(1, ann);
  EXPECT_EQ(third.bring(prompt, 9), 0u) << "a name that was told comes first";
  EXPECT_GE(third.bring(prompt, 1), 32u);
  third.verify(prompt, 1);  // the toy's bytes depend on the number
}

TEST_P(TiersOfAPool, WhatAnAdapterComputedIsFoundByItsContentsOnly) {
  const Fingerprint a{{1, 2, 3, 4}}, b{{1, 2, 3, 5}};
  Store store;
  const auto prompt = counting(0, 41);
  Server first(GetParam().model, {&store});
  first.tiers.add_adapter(a);
  first.compute(prompt, in_adapter(7, 1));
  Server second(GetParam().model, {&store});
  second.tiers.add_adapter(b);
  second.tiers.add_adapter(a);
  EXPECT_EQ(second.bring(prompt, 7), 0u) << "without an adapter";
  EXPECT_EQ(second.bring(prompt, in_adapter(7, 1)), 0u) << "the same number, other contents";
  EXPECT_EQ(second.bring(prompt, in_adapter(8, 2)), 0u) << "another tenant";
  EXPECT_GE(second.bring(prompt, in_adapter(7, 2)), 32u) << "another number, the same contents";
}

TEST_P(TiersOfAPool, AnObjectThatIsDamagedOrGoneShortensThePrefixAndNothingElse) {
  const auto prompt = counting(0, 41);
  Store whole;
  Server(GetParam().model, {&whole}).compute(prompt);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const bool gone : {false, true}) {
      Store store = whole;
      auto object = std::next(store.begin(), static_cast<long>(at));
      if (gone) {
        store.erase(object);
      } else {
        object->second[kObjectHeaderBytes + at % 64] ^= std::byte{4};
      }
      Server server(GetParam().model, {&store});
      (void)server.bring(prompt);
      server.verify(prompt);
    }
  }
}

TEST_P(TiersOfAPool, ASecondTierHelpsWhereTheFirstHasLostSomething) {
  const auto prompt = counting(0, 41);
  Store disk, shared;
  Server(GetParam().model, {&disk, &shared}).compute(prompt);
  EXPECT_EQ(disk.size(), shared.size());
  for (auto at = disk.begin(); at != disk.end(); at = std::next(at) == disk.end() ? disk.end() : std::next(at, 2)) {
    at->second.back() ^= std::byte{1};
  }
  Server server(GetParam().model, {&disk, &shared});
  EXPECT_EQ(server.bring(prompt), 40u);
  server.verify(prompt);
}

TEST_P(TiersOfAPool, WhatComesFromOneTierIsWrittenToTheOthers) {
  const auto prompt = counting(0, 41);
  Store disk, shared;
  Server(GetParam().model, {&shared}).compute(prompt);
  Server server(GetParam().model, {&disk, &shared});
  EXPECT_EQ(server.bring(prompt), 40u);
  server.settle();
  EXPECT_FALSE(disk.empty());
  EXPECT_EQ(server.memory[1]->usage().puts, 0u) << "it has them already";
}

// A promotion that has objects of several tiers: none of these tiers has all of them.
TEST_P(TiersOfAPool, WhatComesFromSeveralTiersAtOnceIsWrittenToThoseThatDoNotHaveIt) {
  const auto prompt = counting(0, 41);
  Store all, disk, shared;
  Server(GetParam().model, {&all}).compute(prompt);
  for (const auto& object : all) (disk.size() <= shared.size() ? disk : shared).insert(object);
  Server server(GetParam().model, {&disk, &shared}, {.staging_bytes = 1 << 20});
  EXPECT_EQ(server.bring(prompt), 40u);
  server.settle();
  const auto in_both = std::ranges::count_if(disk, [&](const auto& object) { return shared.contains(object.first); });
  EXPECT_EQ(static_cast<std::uint64_t>(in_both), server.tiers.stats().promoted);
}

TEST_P(TiersOfAPool, WhatATierCouldNotStoreIsOfferedAgainWhenItIsEvictedAndNotBefore) {
  const auto prompt = counting(0, 41);
  for (const bool refuses : {false, true}) {  // a tier fails, or takes nothing for longer than it is waited for
    Store disk, shared;
    Server server(GetParam().model, {&disk, &shared}, {.staging_bytes = 1 << 20}, 1 << 14);
    server.memory[1]->down = !refuses;
    server.memory[1]->capacity = refuses ? 0 : SIZE_MAX;
    server.compute(prompt);
    if (refuses) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1100));
      server.settle();
    }
    ASSERT_FALSE(disk.empty());
    EXPECT_FALSE(server.tiers.busy()) << "nothing is tried again and again";
    EXPECT_EQ(server.memory[1]->usage().failed, refuses ? 0 : disk.size());
    EXPECT_TRUE(shared.empty());
    const std::size_t objects = disk.size();
    const auto first = disk;

    server.memory[1]->down = false;
    server.memory[1]->capacity = SIZE_MAX;
    server.settle();
    EXPECT_TRUE(shared.empty());
    const auto late = [&] {
      return static_cast<std::size_t>(
          std::ranges::count_if(first, [&](const auto& object) { return shared.contains(object.first); }));
    };
    for (int i = 1; late() < objects && i < 60; ++i) server.compute(counting(1000 * i, 41));
    EXPECT_EQ(late(), objects);
  }
}

TEST_P(TiersOfAPool, WhatATierHasLostSinceIsStoredAnewWhenThePoolEvictsIt) {
  const auto prompt = counting(0, 41);
  Store disk, shared;
  Server server(GetParam().model, {&disk, &shared}, {.staging_bytes = 1 << 20}, 1 << 14);
  server.memory[0]->knows_losses = true;
  server.compute(prompt);
  const Store first = disk;
  ASSERT_FALSE(first.empty());
  disk.clear();
  const std::uint64_t written_elsewhere = server.memory[1]->usage().puts;
  server.settle();
  EXPECT_TRUE(disk.empty()) << "nobody has asked for it";
  server.engine->pool().drop_cache();
  server.settle();
  EXPECT_EQ(disk, first);
  EXPECT_EQ(server.memory[1]->usage().puts, written_elsewhere) << "the other one still has it";
}

TEST_P(TiersOfAPool, WhatATierHasLostSinceIsStoredAnewWhenAPromptUsesIt) {
  const auto prompt = counting(0, 41), longer = counting(0, 61);
  Store disk;
  Server server(GetParam().model, {&disk}, {.staging_bytes = 1 << 20});
  server.memory[0]->knows_losses = true;
  server.compute(prompt);
  const Store first = disk;
  ASSERT_FALSE(first.empty());
  disk.clear();
  EXPECT_EQ(server.bring(longer), server.engine->pool().lookup(prompt).tokens) << "it is all in the pool";
  EXPECT_FALSE(disk.empty());
  for (const auto& [key, object] : disk) {
    ASSERT_TRUE(first.contains(key));
    EXPECT_EQ(object, first.at(key));
  }
  Server second(GetParam().model, {&disk});
  EXPECT_EQ(second.bring(prompt), server.engine->pool().lookup(prompt).tokens);
  second.verify(prompt);
}

TEST_P(TiersOfAPool, WithWriteBackWhatIsCachedIsWrittenAtANormalEnd) {
  const auto prompt = counting(0, 41);
  Store full, store;
  Server(GetParam().model, {&full}).compute(prompt);
  Server server(GetParam().model, {&store}, {.write_back = true});
  server.compute(prompt);
  EXPECT_LT(store.size(), full.size());
  for (int i = 0; i < 1000 && store.size() < full.size(); ++i) {
    (void)server.tiers.flush(Clock::now());
    server.memory[0]->run();
  }
  EXPECT_EQ(store, full);
}

TEST_P(TiersOfAPool, ThatFailMakeNothingWorse) {
  const auto prompt = counting(0, 41);
  Store store;
  Server(GetParam().model, {&store}).compute(prompt);
  Server server(GetParam().model, {&store});
  server.memory[0]->loses_reads = true;
  (void)server.bring(prompt);
  EXPECT_EQ(server.engine->pool().lookup(prompt).tokens, 0u);
  server.memory[0]->down = true;
  EXPECT_EQ(server.bring(prompt), 0u);
  server.compute(prompt);
  server.verify(prompt);
  EXPECT_FALSE(server.tiers.busy());
}

TEST_P(TiersOfAPool, AQueueThatIsFullIsTriedAgain) {
  const auto prompt = counting(0, 41);
  Store store, full;
  Server(GetParam().model, {&full}).compute(prompt);
  Server first(GetParam().model, {&store});
  first.memory[0]->capacity = 2;
  first.compute(prompt);
  EXPECT_EQ(store.size(), full.size());
  Server second(GetParam().model, {&store});
  second.memory[0]->capacity = 2;
  EXPECT_EQ(second.bring(prompt), 40u);
  second.verify(prompt);
}

// Blocks in front are computed while those behind them are fetched.
TEST_P(TiersOfAPool, MeetWhatIsComputedHalfWay) {
  const auto prompt = counting(0, 41);
  Store store;
  Server(GetParam().model, {&store}).compute(prompt);
  Server server(GetParam().model, {&store});
  const FetchId id = server.tiers.look(prompt, 0);
  server.settle();
  ASSERT_EQ(server.tiers.status(id).phase, Phase::Found);
  EXPECT_EQ(server.tiers.status(id).tokens, 40u);
  server.tiers.fetch(id, 5);
  server.settle();
  EXPECT_EQ(server.tiers.status(id).phase, Phase::Fetching) << "it waits for the blocks before it";
  EXPECT_EQ(server.engine->pool().lookup(prompt).tokens, 0u);
  server.compute(counting(0, 21));
  EXPECT_EQ(server.tiers.status(id).phase, Phase::Done);
  EXPECT_EQ(server.tiers.status(id).from[static_cast<std::size_t>(TierKind::Disk)], 20u);
  server.tiers.end(id);
  EXPECT_EQ(server.engine->pool().lookup(prompt).tokens, 40u);
  server.verify(prompt);
}

TEST_P(TiersOfAPool, TheSamePrefixIsFetchedOnce) {
  const auto prompt = counting(0, 41);
  Store store;
  Server(GetParam().model, {&store}).compute(prompt);
  Server server(GetParam().model, {&store});
  const FetchId one = server.tiers.look(prompt, 0), two = server.tiers.look(prompt, 0);
  server.settle();
  EXPECT_EQ(server.tiers.status(two).phase, Phase::Looking) << "the first one brings it";
  server.tiers.fetch(one, 0);
  server.settle();
  EXPECT_EQ(server.tiers.status(one).phase, Phase::Done);
  EXPECT_EQ(server.tiers.status(two).phase, Phase::Done);
  const auto gets = server.memory[0]->usage().gets;
  server.tiers.end(one);
  server.tiers.end(two);
  EXPECT_EQ(server.bring(prompt), 40u);
  EXPECT_EQ(server.memory[0]->usage().gets, gets);
}

TEST_P(TiersOfAPool, AFetchThatNobodyWaitsForLeavesNothingBehind) {
  const auto prompt = counting(0, 41);
  Store store;
  Server(GetParam().model, {&store}).compute(prompt);
  for (int when = 0; when < 12; ++when) {
    Server server(GetParam().model, {&store});
    const FetchId id = server.tiers.look(prompt, 0);
    for (int i = 0; i < when; ++i) {
      ASSERT_TRUE(done(server.tiers.advance()));
      if (server.tiers.status(id).phase == Phase::Found) server.tiers.fetch(id, 0);
      server.memory[0]->run(7);
    }
    server.tiers.end(id);
    server.settle();
    EXPECT_EQ(server.tiers.stats().staging_used_bytes, 0u);
    EXPECT_FALSE(server.tiers.busy());
    server.verify(prompt);
  }
}

TEST_P(TiersOfAPool, WithoutRoomInThePoolNothingIsBrought) {
  const auto prompt = counting(0, 41);
  Store store;
  Server(GetParam().model, {&store}).compute(prompt);
  Server server(GetParam().model, {&store}, {}, 2048);
  std::vector<ToyEngine::Sequence> held;
  for (int i = 1;; ++i) {
    auto next = server.engine->create(counting(1000 * i, 4));
    if (!next || !server.engine->append(*next, std::vector(next->pending))) break;
    held.push_back(std::move(*next));
  }
  const FetchId id = server.tiers.look(prompt, 0);
  server.settle();
  server.tiers.fetch(id, 0);
  server.settle();
  server.tiers.end(id);
  server.settle();
  for (const auto& sequence : held) EXPECT_EQ(server.engine->verify(sequence), "");
  EXPECT_TRUE(sound(server.engine->pool()));
  EXPECT_EQ(server.tiers.stats().staging_used_bytes, 0u);
}

// A GPU's pool: what it evicts goes to host memory, and comes back from there without any other tier.
TEST_P(TiersOfAPool, EvictedContentComesBackFromHostMemory) {
  Server server(GetParam().model, {}, {}, 1 << 14);
  auto arena = server.engine->pool().create_host_arena(1 << 18).value();
  server.tiers.use_host(*arena, 1 << 17);
  const auto prompt = counting(0, 41);
  server.compute(prompt);
  for (int i = 1; server.engine->pool().lookup(prompt).tokens > 8 && i < 60; ++i) {
    server.compute(counting(1000 * i, 41));
  }
  ASSERT_LE(server.engine->pool().lookup(prompt).tokens, 8u);
  EXPECT_LE(arena->used_bytes(), std::uint64_t{1} << 17);
  const FetchId id = server.tiers.look(prompt, 0);
  server.settle();
  ASSERT_EQ(server.tiers.status(id).phase, Phase::Found);
  server.tiers.fetch(id, 0);
  server.settle();
  EXPECT_EQ(server.tiers.status(id).phase, Phase::Done);
  EXPECT_GE(server.tiers.status(id).from[static_cast<std::size_t>(TierKind::Host)], 8u);
  server.tiers.end(id);
  EXPECT_GT(server.engine->pool().lookup(prompt).tokens, 8u);
  server.verify(prompt);
  EXPECT_EQ(server.tiers.host()->cells_to_give() * arena->cell_bytes(), arena->used_bytes()) << "nothing is pinned";
  server.settle();
  EXPECT_TRUE(server.tiers.host()->make_room(arena->total_bytes() / arena->cell_bytes()));
  server.verify(prompt);
  server.tiers.leave_host();
}

TEST_P(TiersOfAPool, HostMemoryHasNothingForAnotherAdapter) {
  Server server(GetParam().model, {}, {}, 1 << 14);
  server.tiers.add_adapter({{1}});
  server.tiers.add_adapter({{2}});
  auto arena = server.engine->pool().create_host_arena(1 << 18).value();
  server.tiers.use_host(*arena, 1 << 17);
  const auto prompt = counting(0, 41);
  const Namespace own = in_adapter(0, 1);
  server.compute(prompt, own);
  for (int i = 1; server.engine->pool().lookup(prompt, own).tokens > 8 && i < 60; ++i) {
    server.compute(counting(1000 * i, 41));
  }
  ASSERT_LE(server.engine->pool().lookup(prompt, own).tokens, 8u);
  for (const std::uint32_t adapter : {0u, 2u, 1u}) {
    const FetchId id = server.tiers.look(prompt, in_adapter(0, adapter));
    server.settle();
    EXPECT_EQ(server.tiers.status(id).phase == Phase::Found, adapter == 1) << adapter;
    server.tiers.end(id);
  }
  server.settle();
  server.tiers.leave_host();
}

TEST_P(TiersOfAPool, NothingIsWrittenThatADeviceErrorMayHaveSpoiled) {
  Store store;
  Server server(GetParam().model, {&store});
  auto sequence = server.engine->create(counting(0, 41)).value();
  ASSERT_TRUE(done(server.engine->append(sequence, std::vector(sequence.pending))));
  ASSERT_TRUE(done(server.tiers.advance()));  // downloads are submitted, and no fence has ended yet
  ASSERT_TRUE(done(server.engine->pool().release(sequence.id)));
  ASSERT_TRUE(done(server.engine->pool().recover()));
  server.settle();
  EXPECT_TRUE(store.empty());
  EXPECT_EQ(server.tiers.stats().staging_used_bytes, 0u);
  EXPECT_FALSE(server.tiers.busy());
  server.compute(counting(0, 41));
  EXPECT_FALSE(store.empty());
}

// A promotion waits for the device, and so hears of everything that failed before: also of copies for the tiers, which
// would otherwise be stored with a right checksum.
TEST_P(TiersOfAPool, AFailureOfTheDeviceThatAPromotionMeetsIsPassedOn) {
  const auto prompt = counting(0, 41), other = counting(5000, 41);
  Store computed;
  Server(GetParam().model, {&computed}).compute(prompt);
  int told_of = 0;
  for (std::uint64_t pieces = 0; pieces < 30; ++pieces) {
    Store store = computed;
    Server server(GetParam().model, {&store}, {.staging_bytes = 1 << 16});
    const FetchId id = server.tiers.look(prompt, 0);
    server.settle();
    server.tiers.fetch(id, 0);
    server.memory[0]->run();
    auto sequence = server.engine->create(other).value();
    ASSERT_TRUE(done(server.engine->append(sequence, std::vector(sequence.pending))));
    ASSERT_TRUE(done(server.engine->pool().release(sequence.id)));
    ASSERT_TRUE(done(server.device.fence()));
    server.device.fail_work_after(pieces);
    bool told = false;
    for (int i = 0; i < 20 && !told; ++i) {
      told = !server.tiers.advance();
      server.memory[0]->run();
    }
    told_of += told;
    if (!told) {  // there were not so many pieces, so a later one fails
      const auto buffer = DeviceBuffer::create(server.device, 64);
      ASSERT_TRUE(buffer.has_value());
      for (std::uint64_t i = 0; i <= pieces; ++i) (void)server.device.zero(buffer->data(), 64);
      EXPECT_FALSE(server.device.fence()) << "work failed, and nobody was told (" << pieces << ")";
    }
    server.tiers.end(id);
    ASSERT_TRUE(done(server.engine->pool().recover()));
    server.settle();
    EXPECT_FALSE(server.tiers.busy());
    for (const auto& each : {prompt, other}) {
      Server reader(GetParam().model, {&store});
      (void)reader.bring(each);
      reader.verify(each);
    }
  }
  EXPECT_GT(told_of, 0);
}

// What was copied to the host since the last fence is not trusted after an error, also if a fetch has it already.
TEST_P(TiersOfAPool, AFetchFromTheHostEndsWhenTheDeviceCannotBeTrusted) {
  Server server(GetParam().model, {}, {}, 1 << 14);
  auto arena = server.engine->pool().create_host_arena(1 << 18).value();
  server.tiers.use_host(*arena, 1 << 17);
  const auto prompt = counting(0, 41);
  const auto compute = [&](const std::vector<Token>& tokens) {  // without advance(), so that nothing is fenced
    auto sequence = server.engine->create(tokens).value();
    for (const Token token : std::vector(sequence.pending)) {
      ASSERT_TRUE(done(server.engine->append(sequence, {token})));
    }
    ASSERT_TRUE(done(server.engine->pool().release(sequence.id)));
  };
  compute(prompt);
  for (int i = 1; server.engine->pool().lookup(prompt).tokens > 8 && i < 60; ++i) compute(counting(1000 * i, 41));
  ASSERT_TRUE(server.tiers.host()->has_copies());
  const FetchId id = server.tiers.look(prompt, 0);
  ASSERT_EQ(server.tiers.status(id).phase, Phase::Found);
  EXPECT_LT(server.tiers.host()->cells_to_give() * arena->cell_bytes(), arena->used_bytes()) << "it is pinned";
  ASSERT_TRUE(done(server.engine->pool().recover()));
  EXPECT_EQ(server.tiers.status(id).phase, Phase::Done);
  server.tiers.end(id);
  server.settle();
  EXPECT_EQ(arena->used_bytes(), 0u);
  EXPECT_EQ(server.tiers.host()->cells_to_give(), 0u);
  server.compute(prompt);
  server.verify(prompt);
  server.tiers.leave_host();
}

TEST_P(TiersOfAPool, ANoteIsKeptByTheTierOfThisMachine) {
  Store disk, shared;
  Server server(GetParam().model, {&disk, &shared});
  EXPECT_EQ(server.tiers.kept_note(), "");
  server.tiers.keep_note("a line");
  EXPECT_EQ(server.tiers.kept_note(), "a line");
}

}  // namespace
}  // namespace quire::tiers::testing
