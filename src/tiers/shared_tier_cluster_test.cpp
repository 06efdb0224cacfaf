// The shared tier with a cluster: the map of slots, redirections, nodes that die.
#include "quire/tiers/fake_redis_testing.h"
#include "quire/tiers/redis_slots.h"
#include "quire/tiers/redis_tier.h"
#include "quire/tiers/shared_tier.h"
#include "quire/tiers/shared_tier_testing.h"

namespace quire::tiers {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Answer = FakeRedis::Answer;
using Command = FakeRedis::Command;

constexpr std::size_t kSize = 3000;

std::uint16_t slot(std::uint64_t object) { return slot_of(parts_of(RedisUrl{}, test_key(object), kSize)[0].key); }

// The first object from `from` on whose key is in the lower (upper) half of the slots.
std::uint64_t object_in_half(bool upper, std::uint64_t from = 0) {
  while ((slot(from) >= 8192) != upper) ++from;
  return from;
}

std::string range(int first, int last, std::uint16_t port, std::uint16_t replica = 0) {
  const auto node = [](std::uint16_t at) {
    return "*3\r\n$9\r\n127.0.0.1\r\n:" + std::to_string(at) + "\r\n$2\r\nid\r\n";
  };
  return std::string(replica == 0 ? "*3" : "*4") + "\r\n:" + std::to_string(first) + "\r\n:" + std::to_string(last) +
         "\r\n" + node(port) + (replica == 0 ? "" : node(replica));
}

// Two masters with half of the slots each. `map` can be changed by a test.
class SharedTierCluster : public testing::Test {
 protected:
  SharedTierCluster() {
    map_ = "*2\r\n" + range(0, 8191, low_->port()) + range(8192, 16383, high_->port());
    low_->set_hook(as_node());
    high_->set_hook(as_node());
  }
  FakeRedis::Hook as_node() {
    return [this](FakeRedis& node, const Command& command) -> std::optional<Answer> {
      const std::lock_guard lock(mutex_);
      if (command[0] == "CLUSTER") return Answer{map_};
      if (special_) return special_(node, command);
      return std::nullopt;
    };
  }
  void set_map(std::string map) {
    const std::lock_guard lock(mutex_);
    map_ = std::move(map);
  }
  void set_special(FakeRedis::Hook special) {
    const std::lock_guard lock(mutex_);
    special_ = std::move(special);
  }
  void open(const std::string& url) {
    auto opened = open_shared_tier({.url = url}, outcomes_);
    ASSERT_TRUE(opened) << opened.error().message;
    tier_ = std::move(*opened);
    jobs_.emplace(*tier_, outcomes_);
  }
  bool put_and_get(std::uint64_t object) {
    auto bytes = test_bytes(object, kSize);
    std::vector<std::byte> back(kSize);
    return jobs_->put(test_key(object), bytes) == TierOutcome::Done &&
           jobs_->get(test_key(object), back) == TierOutcome::Done && back == bytes;
  }
  bool works_within(std::uint64_t object, std::chrono::milliseconds time) {
    for (const auto begin = Clock::now(); Clock::now() - begin < time; std::this_thread::sleep_for(20ms)) {
      if (put_and_get(object)) return true;
    }
    return false;
  }

  std::mutex mutex_;
  std::string map_;
  FakeRedis::Hook special_;
  Outcomes outcomes_;
  std::unique_ptr<FakeRedis> low_ = std::make_unique<FakeRedis>(), high_ = std::make_unique<FakeRedis>();
  std::unique_ptr<Tier> tier_;
  std::optional<OneByOne> jobs_;
};

TEST_F(SharedTierCluster, EachKeyGoesToTheNodeOfItsSlot) {
  open(low_->url());
  for (std::uint64_t i = 0; i < 40; ++i) EXPECT_TRUE(put_and_get(i));
  for (const auto& [key, value] : low_->values()) EXPECT_LT(slot_of(key), 8192);
  for (const auto& [key, value] : high_->values()) EXPECT_GE(slot_of(key), 8192);
  EXPECT_EQ(low_->values().size() + high_->values().size(), 40u);
  EXPECT_GT(low_->values().size(), 5u);
  EXPECT_GT(high_->values().size(), 5u);
}

TEST_F(SharedTierCluster, PartsOfOneObjectAreSpread) {
  open(low_->url("timeout=150ms&part=64K"));
  auto bytes = test_bytes(1, 1 << 20);
  ASSERT_EQ(jobs_->put(test_key(1), bytes), TierOutcome::Done);
  std::vector<std::byte> back(bytes.size());
  EXPECT_EQ(jobs_->get(test_key(1), back), TierOutcome::Done);
  EXPECT_EQ(back, bytes);
  EXPECT_EQ(low_->values().size() + high_->values().size(), 17u);
  EXPECT_GT(low_->values().size(), 0u);
  EXPECT_GT(high_->values().size(), 0u);
}

TEST_F(SharedTierCluster, MovedChangesTheMap) {
  FakeRedis third;
  third.set_hook(as_node());
  open(low_->url());
  const std::uint64_t object = object_in_half(false);
  ASSERT_TRUE(put_and_get(object));
  const std::string moved = "-MOVED " + std::to_string(slot(object)) + " " + third.address() + "\r\n";
  set_special([&](FakeRedis& node, const Command& command) -> std::optional<Answer> {
    const bool keyed = command[0] == "GET" || command[0] == "SET" || command[0] == "EXPIRE";
    if (&node == low_.get() && keyed && slot_of(command.at(1)) == slot(object)) return Answer{moved};
    return std::nullopt;
  });
  set_map("*3\r\n" + range(0, 8191, low_->port()) + range(8192, 16383, high_->port()) +
          range(slot(object), slot(object), third.port()));
  EXPECT_TRUE(put_and_get(object));
  EXPECT_EQ(third.values().size(), 1u);
  std::this_thread::sleep_for(400ms);  // the new map was asked for
  const std::size_t gets = low_->count("GET");
  EXPECT_TRUE(put_and_get(object));
  EXPECT_EQ(low_->count("GET"), gets);
}

TEST_F(SharedTierCluster, AskIsFollowedOnceAndTheMapStays) {
  FakeRedis third;
  third.set_hook(as_node());
  open(low_->url());
  const std::uint64_t object = object_in_half(false);
  ASSERT_TRUE(put_and_get(object));
  const std::string ask = "-ASK " + std::to_string(slot(object)) + " " + third.address() + "\r\n";
  set_special([&](FakeRedis& node, const Command& command) -> std::optional<Answer> {
    if (&node == low_.get() && (command[0] == "GET" || command[0] == "EXISTS")) return Answer{ask};
    return std::nullopt;
  });
  std::vector<std::byte> back(kSize);
  EXPECT_EQ(jobs_->get(test_key(object), back), TierOutcome::Missing);  // the third has no such key
  EXPECT_EQ(jobs_->find(test_key(object), kSize), TierOutcome::Missing);
  const auto log = third.log();
  std::vector<std::string> said;
  for (const auto& command : log) {
    if (command[0] != "PING") said.push_back(command[0]);
  }
  EXPECT_THAT(said, testing::ElementsAre("ASKING", "GET", "EXPIRE", "ASKING", "EXISTS"));
  EXPECT_EQ(low_->count("GET"), 2u);
}

TEST_F(SharedTierCluster, RedirectionsInACircleEnd) {
  open(low_->url());
  set_special([&](FakeRedis& node, const Command& command) -> std::optional<Answer> {
    if (command[0] != "EXISTS") return std::nullopt;
    const FakeRedis& other = &node == low_.get() ? *high_ : *low_;
    return Answer{"-MOVED " + std::to_string(slot(0)) + " " + other.address() + "\r\n"};
  });
  EXPECT_EQ(jobs_->find(test_key(0), kSize), TierOutcome::Failed);
  EXPECT_LE(low_->count("EXISTS") + high_->count("EXISTS"), 6u);
}

TEST_F(SharedTierCluster, ANodeThatDiesFailsItsSlotsAndNoOthers) {
  open(low_->url());
  const std::uint64_t below = object_in_half(false), above = object_in_half(true);
  ASSERT_TRUE(put_and_get(below) && put_and_get(above));
  const std::uint16_t port = high_->port();
  high_.reset();
  std::vector<std::byte> back(kSize);
  EXPECT_EQ(jobs_->get(test_key(above), back), TierOutcome::Failed);
  const auto begin = Clock::now();
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(jobs_->get(test_key(above), back), TierOutcome::Failed);
    EXPECT_EQ(jobs_->get(test_key(below), back), TierOutcome::Done);
  }
  EXPECT_LT(Clock::now() - begin, 1s);
  EXPECT_FALSE(tier_->usage().working);
  EXPECT_THAT(tier_->usage().problem, testing::HasSubstr(std::to_string(port)));
  high_ = std::make_unique<FakeRedis>(as_node(), port);
  ASSERT_TRUE(high_->ok());
  EXPECT_TRUE(works_within(above, 10s));
}

TEST_F(SharedTierCluster, AReplicaThatTookOverIsFound) {
  FakeRedis replica;
  replica.set_hook(as_node());
  set_map("*2\r\n" + range(0, 8191, low_->port()) + range(8192, 16383, high_->port(), replica.port()));
  open(low_->url());
  const std::uint64_t above = object_in_half(true);
  ASSERT_TRUE(put_and_get(above));
  set_map("*2\r\n" + range(0, 8191, low_->port()) + range(8192, 16383, replica.port()));
  high_.reset();
  EXPECT_TRUE(works_within(above, 5s));
  EXPECT_EQ(replica.values().size(), 1u);
}

TEST_F(SharedTierCluster, AnyNodeOfTheUrlIsEnough) {
  std::uint16_t nobody = 0;
  { nobody = FakeRedis().port(); }
  open("redis://127.0.0.1:" + std::to_string(nobody) + "," + high_->address() + "?timeout=150ms&cluster=yes");
  EXPECT_TRUE(put_and_get(object_in_half(false)));
  EXPECT_TRUE(put_and_get(object_in_half(true)));
}

TEST_F(SharedTierCluster, SlotsThatNobodyServesFailAtOnce) {
  set_map("*1\r\n" + range(0, 8191, low_->port()));
  open(low_->url());
  ASSERT_TRUE(put_and_get(object_in_half(false)));
  EXPECT_EQ(jobs_->find(test_key(object_in_half(true)), kSize), TierOutcome::Failed);
}

TEST_F(SharedTierCluster, AServerThatIsNoClusterIsRefusedIfOneIsWanted) {
  FakeRedis single;
  open(single.url("timeout=150ms&cluster=yes"));
  EXPECT_EQ(jobs_->find(test_key(1), kSize), TierOutcome::Failed);
  EXPECT_THAT(tier_->usage().problem, testing::HasSubstr("not a cluster"));
}

TEST(CircuitBreaker, PausesGrowUntilSomethingIsAnswered) {
  CircuitBreaker breaker;
  auto now = RedisClock::time_point{} + 1h;
  EXPECT_FALSE(breaker.open());
  std::vector<std::int64_t> pauses;
  const auto next_pause = [&] {
    breaker.failed(now);
    EXPECT_TRUE(breaker.open());
    const auto begin = now;
    while (!breaker.may_try(now)) now += 1ms;
    breaker.connected();
    EXPECT_FALSE(breaker.open());
    return std::chrono::duration_cast<std::chrono::milliseconds>(now - begin).count();
  };
  for (int i = 0; i < 9; ++i) pauses.push_back(next_pause());
  EXPECT_THAT(pauses, testing::ElementsAre(100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000));
  breaker.answered();
  EXPECT_EQ(next_pause(), 100);
}

}  // namespace
}  // namespace quire::tiers
