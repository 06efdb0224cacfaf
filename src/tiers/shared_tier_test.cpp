// The shared tier with a server that works: what is stored under which keys, and what is asked.
#include "quire/tiers/shared_tier.h"

#include "quire/tiers/fake_redis_testing.h"
#include "quire/tiers/shared_tier_testing.h"

namespace quire::tiers {
namespace {

using testing::HasSubstr;

std::size_t keys_with(const FakeRedis& server, const std::string& text) {
  std::size_t count = 0;
  for (const auto& [key, value] : server.values()) count += key.find(text) != std::string::npos ? 1 : 0;
  return count;
}

TEST(SharedTier, WhatWasPutIsGot) {
  FakeRedis server;
  Outcomes outcomes;
  auto tier = open_shared_tier({.url = server.url()}, outcomes);
  ASSERT_TRUE(tier) << tier.error().message;
  OneByOne jobs(**tier, outcomes);
  for (const std::size_t size : {0, 1, 79, 80, 81, 5000, 300000}) {
    auto bytes = test_bytes(size, size);
    EXPECT_EQ(jobs.find(test_key(size), size), TierOutcome::Missing);
    EXPECT_EQ(jobs.put(test_key(size), bytes), TierOutcome::Done);
    EXPECT_EQ(jobs.find(test_key(size), size), TierOutcome::Done);
    std::vector<std::byte> back(size);
    EXPECT_EQ(jobs.get(test_key(size), back), TierOutcome::Done);
    EXPECT_EQ(back, bytes);
    EXPECT_EQ(jobs.get(test_key(size, 1), back), TierOutcome::Missing);  // another class is another object
  }
  const TierUsage usage = (*tier)->usage();
  EXPECT_EQ(usage.puts, 7u);
  EXPECT_EQ(usage.hits, 7u);
  EXPECT_EQ(usage.misses, 7u);
  EXPECT_EQ(usage.finds, 14u);
  EXPECT_EQ(usage.bytes_read, usage.bytes_written);
  EXPECT_TRUE(usage.working) << usage.problem;
  EXPECT_EQ((*tier)->kind(), TierKind::Shared);
}

TEST(SharedTier, AKeyIsThePrefixTheVersionAndTheObjectInHex) {
  FakeRedis server;
  Outcomes outcomes;
  auto tier = open_shared_tier({.url = server.url("timeout=150ms&prefix=mine")}, outcomes);
  OneByOne jobs(**tier, outcomes);
  auto bytes = test_bytes(1, 100);
  const ObjectKey key = test_key(1, ObjectKey::kCheckpoint);
  ASSERT_EQ(jobs.put(key, bytes), TierOutcome::Done);
  std::string hex;
  for (const std::uint8_t byte : key.name) {
    for (const int digit : {byte >> 4, byte & 15}) hex += "0123456789abcdef"[digit];
  }
  const auto values = server.values();
  ASSERT_EQ(values.size(), 1u);
  EXPECT_EQ(values.begin()->first, "mine:1:" + hex + "ff");
  const ObjectHeader header = header_of(key, bytes);
  EXPECT_EQ(values.begin()->second, std::string(reinterpret_cast<const char*>(header.data()), header.size()) +
                                        std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

TEST(SharedTier, ALargeObjectLiesInPartsAndAMissingPartIsAMiss) {
  FakeRedis server;
  Outcomes outcomes;
  auto tier = open_shared_tier({.url = server.url("timeout=150ms&part=64K")}, outcomes);
  OneByOne jobs(**tier, outcomes);
  auto bytes = test_bytes(1, 3 * 65536 - 80 + 1);  // one byte over three parts
  ASSERT_EQ(jobs.put(test_key(1), bytes), TierOutcome::Done);
  const auto values = server.values();
  ASSERT_EQ(values.size(), 4u);
  EXPECT_EQ(keys_with(server, ":65536:3"), 1u);
  std::vector<std::byte> back(bytes.size());
  EXPECT_EQ(jobs.get(test_key(1), back), TierOutcome::Done);
  EXPECT_EQ(back, bytes);
  for (const auto& [key, value] : values) {
    server.erase(key);
    EXPECT_EQ(jobs.get(test_key(1), back), TierOutcome::Missing);
    EXPECT_EQ(jobs.find(test_key(1), bytes.size()), TierOutcome::Missing);
    // Only the part that is missing is written again.
    const std::size_t sets = server.count("SET");
    EXPECT_EQ(jobs.put(test_key(1), bytes), TierOutcome::Done);
    EXPECT_EQ(server.count("SET"), sets + 1);
    EXPECT_EQ(jobs.get(test_key(1), back), TierOutcome::Done);
  }
  // Exactly one part: one key, and no part number in it.
  auto exact = test_bytes(2, 65536 - 80);
  ASSERT_EQ(jobs.put(test_key(2), exact), TierOutcome::Done);
  EXPECT_EQ(server.values().size(), 5u);
}

TEST(SharedTier, PartsOfDifferentObjectsThatWereMixedAreDamaged) {
  FakeRedis server;
  Outcomes outcomes;
  auto tier = open_shared_tier({.url = server.url("timeout=150ms&part=64K")}, outcomes);
  OneByOne jobs(**tier, outcomes);
  auto one = test_bytes(1, 100000), two = test_bytes(2, 100000);
  ASSERT_EQ(jobs.put(test_key(1), one), TierOutcome::Done);
  const auto first = server.values();
  ASSERT_EQ(jobs.put(test_key(2), two), TierOutcome::Done);
  std::string part_of_one, key_of_two;
  for (const auto& [key, value] : server.values()) {
    if (!key.ends_with(":1")) continue;
    (first.contains(key) ? part_of_one : key_of_two) = first.contains(key) ? value : key;
  }
  server.set(key_of_two, part_of_one);
  std::vector<std::byte> back(100000);
  EXPECT_EQ(jobs.get(test_key(2), back), TierOutcome::Damaged);
  EXPECT_EQ((*tier)->usage().damaged[static_cast<std::size_t>(ObjectFault::WrongChecksum)], 1u);
  EXPECT_EQ(server.values().size(), 2u);  // all parts of it are removed
  EXPECT_EQ(jobs.get(test_key(1), back), TierOutcome::Done);
}

TEST(SharedTier, AnObjectThatIsThereIsNotSentAgain) {
  FakeRedis server;
  Outcomes outcomes;
  auto tier = open_shared_tier({.url = server.url()}, outcomes);
  OneByOne jobs(**tier, outcomes);
  auto bytes = test_bytes(1, 5000);
  ASSERT_EQ(jobs.put(test_key(1), bytes), TierOutcome::Done);
  ASSERT_EQ(jobs.put(test_key(1), bytes), TierOutcome::Done);
  EXPECT_EQ(server.count("SET"), 1u);
  EXPECT_EQ((*tier)->usage().bytes_written, 5000u);
  EXPECT_EQ((*tier)->usage().puts, 2u);
}

TEST(SharedTier, KeysExpireAndLiveLongerWhenTheyAreUsed) {
  FakeRedis server;
  Outcomes outcomes;
  auto tier = open_shared_tier({.url = server.url("timeout=150ms&expire=90s")}, outcomes);
  OneByOne jobs(**tier, outcomes);
  auto bytes = test_bytes(1, 50);
  ASSERT_EQ(jobs.put(test_key(1), bytes), TierOutcome::Done);
  ASSERT_EQ(jobs.get(test_key(1), bytes), TierOutcome::Done);
  std::vector<std::string> said;
  for (const auto& command : server.log()) {
    if (command[0] == "SET") said.push_back("SET " + command.at(3) + " " + command.at(4));
    if (command[0] == "EXPIRE") said.push_back("EXPIRE " + command.at(2));
    if (command[0] == "GET") said.push_back("GET");
  }
  EXPECT_THAT(said, testing::ElementsAre("EXPIRE 90", "SET EX 90", "GET", "EXPIRE 90"));
}

TEST(SharedTier, WithoutExpiryNoKeyExpires) {
  FakeRedis server;
  Outcomes outcomes;
  auto tier = open_shared_tier({.url = server.url("timeout=150ms&expire=0")}, outcomes);
  OneByOne jobs(**tier, outcomes);
  auto bytes = test_bytes(1, 50);
  ASSERT_EQ(jobs.put(test_key(1), bytes), TierOutcome::Done);
  ASSERT_EQ(jobs.get(test_key(1), bytes), TierOutcome::Done);
  EXPECT_EQ(server.count("EXPIRE"), 0u);
  for (const auto& command : server.log()) {
    EXPECT_TRUE(command[0] != "SET" || command.size() == 3u);
  }
}

TEST(SharedTier, WhatFailsACheckIsDamagedAndRemoved) {
  FakeRedis server;
  Outcomes outcomes;
  auto tier = open_shared_tier({.url = server.url()}, outcomes);
  OneByOne jobs(**tier, outcomes);
  const std::size_t size = 20000;
  auto bytes = test_bytes(1, size);
  const auto damage = [&](ObjectFault fault, const std::function<void(std::string&)>& change) {
    ASSERT_EQ(jobs.put(test_key(1), bytes), TierOutcome::Done);
    auto [key, value] = *server.values().begin();
    change(value);
    server.set(key, value);
    std::vector<std::byte> back(size);
    const auto before = (*tier)->usage().damaged[static_cast<std::size_t>(fault)];
    EXPECT_EQ(jobs.get(test_key(1), back), TierOutcome::Damaged) << name(fault);
    EXPECT_EQ((*tier)->usage().damaged[static_cast<std::size_t>(fault)], before + 1) << name(fault);
    EXPECT_TRUE(server.values().empty()) << name(fault);
  };
  damage(ObjectFault::WrongChecksum, [](std::string& value) { value[15000] ^= 1; });
  damage(ObjectFault::WrongChecksum, [](std::string& value) { value[70] ^= 1; });
  damage(ObjectFault::NotAnObject, [](std::string& value) { value[0] ^= 1; });
  damage(ObjectFault::NotAnObject, [](std::string& value) { value = "x" + value; });
  damage(ObjectFault::OtherVersion, [](std::string& value) { value[8] ^= 3; });
  damage(ObjectFault::OtherName, [](std::string& value) { value[20] ^= 1; });
  damage(ObjectFault::Truncated, [](std::string& value) { value.pop_back(); });
  damage(ObjectFault::Truncated, [](std::string& value) { value.resize(50); });
  damage(ObjectFault::Truncated, [](std::string& value) { value.clear(); });
  damage(ObjectFault::OtherLength, [](std::string& value) {
    const auto other = test_bytes(1, 30000);
    const ObjectHeader header = header_of(test_key(1), other);
    value.assign(reinterpret_cast<const char*>(header.data()), header.size());
    value.append(reinterpret_cast<const char*>(other.data()), other.size());
  });
  EXPECT_TRUE((*tier)->usage().working);
}

TEST(SharedTier, ManyJobsAreUnderWayAtOnce) {
  FakeRedis server;
  Outcomes outcomes;
  auto tier = open_shared_tier({.url = server.url("timeout=2s")}, outcomes);
  constexpr std::size_t kJobs = 1000;
  std::vector<std::vector<std::byte>> memory;
  std::vector<TierJob> jobs;
  for (std::size_t i = 0; i < kJobs; ++i) {
    memory.push_back(test_bytes(i, 2000 + i));
    jobs.push_back({TierJob::Kind::Put, test_key(i), memory[i].data(), memory[i].size(), i});
  }
  ASSERT_EQ((*tier)->submit(jobs), kJobs);
  ASSERT_TRUE(outcomes.wait(kJobs));
  for (TierJob& job : jobs) {
    job.kind = TierJob::Kind::Get;
    std::memset(job.data, 0, job.bytes);
  }
  ASSERT_EQ((*tier)->submit(jobs), kJobs);
  ASSERT_TRUE(outcomes.wait(2 * kJobs));
  EXPECT_EQ(outcomes.count(TierOutcome::Done), 2 * kJobs);
  for (std::size_t i = 0; i < kJobs; ++i) EXPECT_EQ(memory[i], test_bytes(i, 2000 + i));
  EXPECT_LE(server.connections(), 2u);
}

TEST(SharedTier, AFullQueueTakesTheFirstJobsAndNoMore) {
  FakeRedis server([](FakeRedis&, const FakeRedis::Command& command) -> std::optional<FakeRedis::Answer> {
    if (command[0] != "EXISTS") return std::nullopt;
    return FakeRedis::Answer{.silent = true};
  });
  Outcomes outcomes;
  auto tier = open_shared_tier({.url = server.url("timeout=300ms"), .queue_jobs = 4, .active_jobs = 2}, outcomes);
  std::vector<TierJob> jobs(100, TierJob{.kind = TierJob::Kind::Find});
  for (std::size_t i = 0; i < jobs.size(); ++i) jobs[i].ticket = i;
  const std::size_t taken = (*tier)->submit(jobs);
  EXPECT_GE(taken, 4u);
  EXPECT_LE(taken, 6u);
  EXPECT_EQ((*tier)->usage().refused, jobs.size() - taken);
  ASSERT_TRUE(outcomes.wait(taken));
  for (std::size_t i = 0; i < taken; ++i) EXPECT_EQ(outcomes.wait_for(i), TierOutcome::Failed);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(outcomes.ended(), taken);
}

TEST(SharedTier, APasswordIsSaidFirstAndNeverShown) {
  FakeRedis server([](FakeRedis&, const FakeRedis::Command& command) -> std::optional<FakeRedis::Answer> {
    if (command[0] != "AUTH" || command == FakeRedis::Command{"AUTH", "me", "secret"}) return std::nullopt;
    return FakeRedis::Answer{"-WRONGPASS invalid username-password pair or user is disabled.\r\n"};
  });
  const std::string host = server.address();
  Outcomes outcomes;
  auto tier = open_shared_tier({.url = "redis://me:secret@" + host + "/3?timeout=150ms"}, outcomes);
  OneByOne jobs(**tier, outcomes);
  EXPECT_EQ(jobs.find(test_key(1), 10), TierOutcome::Missing);
  const auto log = server.log();
  ASSERT_GE(log.size(), 3u);
  EXPECT_EQ(log[0][0], "AUTH");
  EXPECT_EQ(log[1], (FakeRedis::Command{"SELECT", "3"}));
  EXPECT_THAT((*tier)->describe(), testing::Not(HasSubstr("secret")));

  Outcomes others;
  auto refused = open_shared_tier({.url = "redis://:guess@" + host + "?timeout=150ms"}, others);
  OneByOne refused_jobs(**refused, others);
  EXPECT_EQ(refused_jobs.find(test_key(1), 10), TierOutcome::Failed);
  EXPECT_FALSE((*refused)->usage().working);
  EXPECT_THAT((*refused)->usage().problem, HasSubstr("AUTH: WRONGPASS"));
  EXPECT_THAT((*refused)->usage().problem, testing::Not(HasSubstr("guess")));
}

TEST(SharedTier, AUrlThatIsWrongIsRefused) {
  Outcomes outcomes;
  EXPECT_FALSE(open_shared_tier({.url = "redis://"}, outcomes));
  auto tier = open_shared_tier({.url = "rediss://a?ca=/nowhere.pem"}, outcomes);
  ASSERT_FALSE(tier);
  EXPECT_THAT(tier.error().message, testing::AnyOf(HasSubstr("/nowhere.pem"), HasSubstr("no TLS")));
}

}  // namespace
}  // namespace quire::tiers
