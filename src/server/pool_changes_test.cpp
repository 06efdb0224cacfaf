// What /pool/events sends: the changes, applied one after the other, give the pool as it is; and they are small.
#include "quire/server/pool_changes.h"

#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <utility>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "quire/engine/weightless_testing.h"
#include "quire/tiers/memory_tier_testing.h"
#include "quire/tiers/tiers.h"

namespace quire::server {
namespace {

namespace json = boost::json;
using engine::testing::Fixture;
using engine::testing::Kind;

// The sequences of a whole look, by their key.
using Picture = std::map<SequenceKey, json::object>;

SequenceKey key_of(const json::object& sequence) {
  return {static_cast<RequestId>(sequence.at("request").as_int64()),
          static_cast<std::uint32_t>(sequence.at("choice").as_int64())};
}

Picture picture_of(engine::Engine& engine, const PoolFacts& facts) {
  const json::value pool = json::parse(pool_json(look(engine, 0, true), facts, {}));
  Picture picture;
  for (const json::value& sequence : pool.at("sequences").as_array()) {
    picture[key_of(sequence.as_object())] = sequence.as_object();
  }
  return picture;
}

// Applies a change as docs/api.md says.
void follow(Picture& picture, const std::string& text) {
  const json::value change = json::parse("{" + text + "}");
  for (const json::value& key : change.at("ended").as_array()) {
    picture.erase({static_cast<RequestId>(key.at(0).as_int64()), static_cast<std::uint32_t>(key.at(1).as_int64())});
  }
  for (const json::value& began : change.at("began").as_array()) {
    picture[key_of(began.as_object())] = began.as_object();
  }
  for (const json::value& changed : change.at("changed").as_array()) {
    json::object& sequence = picture.at(key_of(changed.as_object()));
    for (const auto& [name, value] : changed.as_object()) {
      if (name != "tables") {
        sequence[name] = value;
        continue;
      }
      for (const json::value& table : value.as_array()) {
        json::array& pages = sequence.at("tables").at(table.at("group").as_int64()).as_array();
        pages.resize(table.at("size").as_int64());
        for (const json::value& run : table.at("runs").as_array()) {
          std::size_t at = run.at(0).as_int64();
          for (const json::value& page : run.at(1).as_array()) pages.at(at++) = page;
        }
      }
    }
  }
}

class PoolChangesOf : public ::testing::TestWithParam<Kind> {};

TEST_P(PoolChangesOf, AppliedInOrderGiveTheSequencesOfNow) {
  // The pool is small, so sequences are suspended; some prompts are shared, some requests fork or are cancelled.
  const std::uint64_t budget = GetParam() == Kind::Recurrent ? 2 << 10
                               : GetParam() == Kind::Hybrid  ? 40 << 10
                                                             : 24 << 10;
  Fixture fixture({.kind = GetParam(), .budget = budget, .engine = {}});
  const PoolFacts facts = facts_of(*fixture.pool, "demo", false);
  std::mt19937 random(static_cast<unsigned>(GetParam()) + 1);
  PoolShadow shadow;
  Picture followed;
  std::vector<RequestId> live;
  std::size_t looks = 0, changed = 0;
  for (int i = 0; i < 3000; ++i) {
    if (random() % 12 == 0) {
      engine::Request request{.max_tokens = 5 + static_cast<std::uint32_t>(random() % 100)};
      request.n = 1 + random() % 3;
      const auto prompt = 1 + random() % 100;
      const auto seed = random() % 3;
      for (std::size_t t = 0; t < prompt; ++t) request.prompt.push_back(static_cast<Token>((seed * 7 + t) % 32));
      request.sampling = {.temperature = 1, .seed = random()};
      fixture.submit(std::move(request));
      live.push_back(fixture.last);
    }
    if (random() % 60 == 0 && !live.empty()) fixture.engine->cancel(live[random() % live.size()]);
    fixture.engine->step();
    if (random() % 3 != 0) continue;
    const PoolChanges changes = shadow.look(*fixture.engine);
    follow(followed, changes_json(changes, facts));
    ASSERT_EQ(followed, picture_of(*fixture.engine, facts)) << "after step " << i;
    ++looks;
    changed += changes.changed.size();
  }
  EXPECT_GT(looks, 500u);
  EXPECT_GT(changed, 1000u);
  const engine::EngineStats stats = fixture.engine->stats();
  // Tables must become shorter, too. Recurrent states do not grow, so nobody is suspended for them.
  if (GetParam() != Kind::Recurrent) {
    EXPECT_GT(stats.suspensions_by_copy + stats.suspensions_by_recompute, 0u);
  }
  (void)shadow.look(*fixture.engine);
  EXPECT_TRUE(shadow.look(*fixture.engine).empty()) << "nothing happened since";
}

TEST_P(PoolChangesOf, TellOfSequencesThatWaitForATier) {
  tiers::testing::Store store;
  const auto run = [&](auto&& look) {
    tiers::Tiers tiers(tiers::TiersOptions{.staging_bytes = 1 << 20});
    auto memory = std::make_unique<tiers::testing::MemoryTier>(TierKind::Disk, store, tiers);
    tiers::testing::MemoryTier& tier = *memory;
    tiers.add(std::move(memory));
    Fixture fixture({.kind = GetParam(), .tiers = &tiers, .engine = {}});
    engine::Request request{.max_tokens = 4};
    for (std::uint32_t t = 0; t < 100; ++t) request.prompt.push_back(static_cast<Token>(t * 7 % 32));
    fixture.submit(std::move(request));
    for (int i = 0; i < 10'000 && (!fixture.engine->idle() || tiers.busy()); ++i) {
      fixture.engine->step();
      look(fixture);
      tier.run(1);
    }
    EXPECT_TRUE(fixture.engine->idle());
  };
  run([](Fixture&) {});
  PoolShadow shadow;
  Picture followed;
  int waited = 0;
  json::value from;
  run([&](Fixture& fixture) {
    const PoolFacts facts = facts_of(*fixture.pool, "demo", false);
    follow(followed, changes_json(shadow.look(*fixture.engine), facts));
    ASSERT_EQ(followed, picture_of(*fixture.engine, facts));
    if (followed.empty()) return;
    const json::object& sequence = followed.begin()->second;
    waited += sequence.at("waits_for_tier").as_bool() ? 1 : 0;
    if (sequence.at("hit").at("tokens").as_int64() > 0) from = sequence.at("hit").at("from");
  });
  EXPECT_GT(waited, 0);
  EXPECT_GE(from.at("disk").as_int64(), 90);
}

INSTANTIATE_TEST_SUITE_P(Kinds, PoolChangesOf, ::testing::ValuesIn(engine::testing::kAllKinds),
                         [](const auto& kind) { return engine::testing::name(kind.param); });

double microseconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

TEST(PoolChanges, Of64SequencesOf32kTokensAreSmall) {
  constexpr std::uint32_t kSequences = 64, kTokens = 32'000, kVocabulary = 32, kSteps = 40;
  HostDevice host;
  PoolConfig config{.layout = engine::testing::weightless_layout(Kind::Attention, 16),
                    .budget_bytes = 400 << 20,
                    .max_sequences = kSequences,
                    .max_tokens = kTokens + 1024};
  const auto pool = *SequencePool::create(host, config);
  engine::testing::Weightless model(*pool, kVocabulary, 8192);
  // Without a target, so that the size of a step does not depend on how busy the machine is.
  const auto engine = *engine::Engine::create(model, *pool, {.target_itl = std::chrono::microseconds(0)});
  for (std::uint32_t s = 0; s < kSequences; ++s) {
    engine::Request request{.max_tokens = 1000};
    for (std::uint32_t t = 0; t < kTokens; ++t) request.prompt.push_back(static_cast<Token>((s + t) % kVocabulary));
    ASSERT_TRUE(engine->submit(std::move(request), std::make_shared<engine::testing::Collector>()).has_value());
  }
  const auto decoding = [&] {
    const auto all = engine->sequences();
    return std::ranges::count(all, engine::SequenceInfo::State::Decode, &engine::SequenceInfo::state);
  };
  for (int i = 0; i < 10'000 && decoding() < kSequences; ++i) engine->step();
  ASSERT_EQ(decoding(), kSequences);

  const PoolFacts facts = facts_of(*pool, "demo", false);
  PoolShadow shadow;
  (void)shadow.look(*engine);
  std::uint64_t cursor = pool->events().written();
  const std::size_t whole_bytes = pool_json(look(*engine, cursor, true), facts, {}).size();
  std::size_t bytes = 0;
  double step_time = 0, look_time = 0, before_time = 0;
  for (std::uint32_t i = 0; i < kSteps; ++i) {
    step_time += microseconds_of([&] { engine->step(); });
    PoolView view;
    PoolChanges changes;
    look_time += microseconds_of([&] {
      view = look(*engine, cursor, false);
      changes = shadow.look(*engine);
    });
    before_time += microseconds_of([&] { (void)look(*engine, cursor, true); });
    cursor = view.cursor;
    bytes += changes_json(changes, facts).size() + events_json(view).size();
  }
  fmt::print(
      "64 sequences of 32,000 tokens: a change has {} bytes (the whole pool {}). A look takes {:.0f} us of the "
      "engine's "
      "thread\n  (the whole pool: {:.0f}): {:.2f} % of a step of the model without weights ({:.0f} us); at 20 looks a "
      "second {:.2f} % of the time.\n",
      bytes / kSteps, whole_bytes, look_time / kSteps, before_time / kSteps, 100 * look_time / step_time,
      step_time / kSteps, 100 * 20 * look_time / kSteps / 1e6);
  // Each sequence has one more token and, every sixteenth step, one more page.
  EXPECT_LT(bytes / kSteps, kSequences * 100);
  EXPECT_LT(bytes / kSteps, whole_bytes / 100);
}

}  // namespace
}  // namespace quire::server
