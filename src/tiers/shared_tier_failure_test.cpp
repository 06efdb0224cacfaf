// The shared tier with a server that misbehaves: every job ends in time, nothing wrong is returned, and it works again
// when the server does.
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include "quire/tiers/fake_redis_testing.h"
#include "quire/tiers/shared_tier.h"
#include "quire/tiers/shared_tier_testing.h"

namespace quire::tiers {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using Answer = FakeRedis::Answer;
using Command = FakeRedis::Command;

constexpr std::size_t kSize = 100000;

// Answers one command in a way of its own, and the others as Redis would.
FakeRedis::Hook answer(std::string name, Answer how) {
  return [name = std::move(name), how = std::move(how)](FakeRedis&, const Command& command) -> std::optional<Answer> {
    if (command[0] != name) return std::nullopt;
    return how;
  };
}

std::chrono::milliseconds since(Clock::time_point then) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - then);
}

class SharedTierFailure : public testing::Test {
 protected:
  void open(const std::string& url) {
    auto opened = open_shared_tier({.url = url}, outcomes_);
    ASSERT_TRUE(opened) << opened.error().message;
    tier_ = std::move(*opened);
    jobs_.emplace(*tier_, outcomes_);
  }
  // Tries until the object can be got, as it is again after a while.
  bool works_again(std::chrono::milliseconds within = 10s) {
    const auto begin = Clock::now();
    auto bytes = test_bytes(99, kSize);
    while (since(begin) < within) {
      std::vector<std::byte> back(kSize);
      if (jobs_->put(test_key(99), bytes) == TierOutcome::Done && jobs_->get(test_key(99), back) == TierOutcome::Done) {
        EXPECT_EQ(back, bytes);
        if (tier_->usage().working) return back == bytes;
      }
      std::this_thread::sleep_for(20ms);
    }
    return false;
  }

  Outcomes outcomes_;
  std::unique_ptr<Tier> tier_;
  std::optional<OneByOne> jobs_;
};

TEST_F(SharedTierFailure, WithoutAServerTheTierOpensAndWorksWhenThereIsOne) {
  std::uint16_t port = 0;
  { port = FakeRedis().port(); }
  open("redis://127.0.0.1:" + std::to_string(port) + "?timeout=150ms");
  EXPECT_EQ(jobs_->find(test_key(1), kSize), TierOutcome::Failed);
  EXPECT_FALSE(tier_->usage().working);
  EXPECT_THAT(tier_->usage().problem, HasSubstr("refused"));
  FakeRedis server({}, port);
  ASSERT_TRUE(server.ok());
  EXPECT_TRUE(works_again());
}

TEST_F(SharedTierFailure, ASilentServerCostsOneTimeoutAndThenNothing) {
  FakeRedis server(answer("GET", {.silent = true}));
  open(server.url());
  auto bytes = test_bytes(1, kSize);
  ASSERT_EQ(jobs_->put(test_key(1), bytes), TierOutcome::Done);
  auto begin = Clock::now();
  EXPECT_EQ(jobs_->get(test_key(1), bytes), TierOutcome::Failed);
  EXPECT_GE(since(begin), 100ms);
  EXPECT_LT(since(begin), 1000ms);
  begin = Clock::now();
  EXPECT_EQ(jobs_->get(test_key(1), bytes), TierOutcome::Failed);
  EXPECT_LT(since(begin), 60ms);
  EXPECT_THAT(tier_->usage().problem, HasSubstr("no answer for 150 ms"));
  server.set_hook({});
  EXPECT_TRUE(works_again());
}

TEST_F(SharedTierFailure, AServerThatOnlyAcceptsIsTriedLessAndLessOften) {
  FakeRedis server(answer("EXISTS", {.silent = true}));
  open(server.url("timeout=30ms"));
  const auto begin = Clock::now();
  while (since(begin) < 2s) {
    EXPECT_EQ(jobs_->find(test_key(1), kSize), TierOutcome::Failed);
    std::this_thread::sleep_for(1ms);
  }
  // Without growing pauses there would be about 15 attempts (a pause of 100 ms and a timeout of 30 ms each).
  EXPECT_LE(server.count("EXISTS"), 8u);
  EXPECT_GE(server.count("EXISTS"), 2u);
}

TEST_F(SharedTierFailure, AServerThatDoesNotGreetFailsInTime) {
  FakeRedis server(answer("PING", {.silent = true}));
  const auto begin = Clock::now();
  open(server.url());
  EXPECT_EQ(jobs_->find(test_key(1), kSize), TierOutcome::Failed);
  EXPECT_LT(since(begin), 1500ms);
  EXPECT_THAT(tier_->usage().problem, HasSubstr("no answer"));
  server.set_hook({});
  EXPECT_TRUE(works_again());
}

TEST_F(SharedTierFailure, ADrippingServerIsTooSlow) {
  FakeRedis server;
  open(server.url("timeout=100ms"));
  auto bytes = test_bytes(1, kSize);
  ASSERT_EQ(jobs_->put(test_key(1), bytes), TierOutcome::Done);
  server.set_hook([](FakeRedis& fake, const Command& command) -> std::optional<Answer> {
    if (command[0] != "GET") return std::nullopt;
    return Answer{.bytes = fake.usual(command), .pause_per_byte = 20ms};
  });
  const auto begin = Clock::now();
  EXPECT_EQ(jobs_->get(test_key(1), bytes), TierOutcome::Failed);
  EXPECT_GE(since(begin), 400ms);
  EXPECT_LT(since(begin), 2000ms);
}

// Bytes still move, so the server is alive: only the connection of the writes is given up.
TEST_F(SharedTierFailure, AWriteThatIsTooSlowFailsAndReadsGoOn) {
  FakeRedis server;
  open(server.url("timeout=200ms"));
  auto bytes = test_bytes(1, kSize), slow = test_bytes(2, kSize);
  ASSERT_EQ(jobs_->put(test_key(1), bytes), TierOutcome::Done);
  server.set_hook(answer("SET", {.bytes = "+" + std::string(200, 'O') + "\r\n", .pause_per_byte = 20ms}));
  const TierJob put{TierJob::Kind::Put, test_key(2), slow.data(), slow.size(), 7};
  ASSERT_EQ(tier_->submit({&put, 1}), 1u);
  const auto begin = Clock::now();
  std::optional<TierOutcome> ended;
  std::size_t after = 0;
  while (since(begin) < 10s && after < 20) {
    EXPECT_EQ(jobs_->get(test_key(1), bytes), TierOutcome::Done) << since(begin).count() << " ms";
    const std::string problem = tier_->usage().problem;
    if (!ended) ended = outcomes_.wait_for(7, 1ms);
    EXPECT_TRUE(ended || problem.empty()) << problem;
    after += ended.has_value();
  }
  EXPECT_EQ(ended, TierOutcome::Failed);
  EXPECT_GE(since(begin), 900ms) << "five timeouts";
  // Objects that can be read say nothing about writing.
  EXPECT_FALSE(tier_->usage().working);
  EXPECT_EQ(tier_->usage().problem, server.address() + ": too slow to write: a job took more than 1000 ms");
  server.set_hook({});
  EXPECT_EQ(jobs_->put(test_key(2), slow), TierOutcome::Done) << "at the first attempt";
  const auto works = Clock::now();
  for (std::uint64_t i = 3; !tier_->usage().working && since(works) < 10s; ++i) {
    EXPECT_EQ(jobs_->put(test_key(i), slow), TierOutcome::Done);
  }
  EXPECT_EQ(tier_->usage().problem, "");
}

TEST_F(SharedTierFailure, AServerThatIsTooSlowAgainAndAgainIsOneProblem) {
  FakeRedis server;
  open(server.url("timeout=150ms"));
  auto bytes = test_bytes(1, kSize);
  ASSERT_EQ(jobs_->put(test_key(1), bytes), TierOutcome::Done);
  server.set_hook([](FakeRedis& fake, const Command& command) -> std::optional<Answer> {
    if (command[0] != "GET") return std::nullopt;
    return Answer{.bytes = fake.usual(command), .pause_per_byte = 10ms};
  });
  EXPECT_EQ(jobs_->get(test_key(1), bytes), TierOutcome::Failed);
  const std::string problem = server.address() + ": too slow to read: a job took more than 750 ms";
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(jobs_->find(test_key(1), kSize), TierOutcome::Done) << "small answers come in time";
    EXPECT_EQ(jobs_->find(test_key(2), kSize), TierOutcome::Missing);
    EXPECT_EQ(tier_->usage().problem, problem);
    EXPECT_EQ(jobs_->get(test_key(1), bytes), TierOutcome::Failed);
  }
  server.set_hook({});
  EXPECT_TRUE(works_again());
}

// Nobody may write for long after that. So the problem must end without a write that gets through.
TEST_F(SharedTierFailure, AServerThatWasTooSlowAndThenGoneIsAsNewWhenItIsBack) {
  auto server = std::make_unique<FakeRedis>();
  const std::uint16_t port = server->port();
  open(server->url("timeout=200ms"));
  auto bytes = test_bytes(1, kSize);
  // Asks until the tier says so.
  const auto comes_to = [&](const std::function<bool(const std::string& problem)>& said) {
    const auto begin = Clock::now();
    while (!said(tier_->usage().problem) && since(begin) < 20s) {
      jobs_->find(test_key(1), kSize);
      std::this_thread::sleep_for(5ms);
    }
    return tier_->usage().problem;
  };
  const auto has = [](std::string_view words) {
    return [words](const std::string& problem) { return problem.find(words) != std::string::npos; };
  };
  server->set_hook(answer("SET", {.bytes = "+" + std::string(200, 'O') + "\r\n", .pause_per_byte = 20ms}));
  EXPECT_EQ(jobs_->put(test_key(1), bytes), TierOutcome::Failed);
  EXPECT_THAT(comes_to(has("too slow")), HasSubstr("too slow to write"));
  server.reset();
  EXPECT_THAT(comes_to(has("refused")), HasSubstr("refused"));
  server = std::make_unique<FakeRedis>(FakeRedis::Hook{}, port);
  ASSERT_TRUE(server->ok());
  EXPECT_EQ(comes_to([](const std::string& problem) { return problem.empty(); }), "");
  EXPECT_TRUE(tier_->usage().working);
  std::optional<TierOutcome> outcome;  // on a busy machine 200 ms may be too little once or twice
  for (int i = 0; i < 10 && outcome != TierOutcome::Done; ++i) outcome = jobs_->put(test_key(1), bytes);
  EXPECT_EQ(outcome, TierOutcome::Done);
}

TEST_F(SharedTierFailure, AConnectionThatEndsInTheMiddleOfAnObjectFailsTheJob) {
  FakeRedis server;
  open(server.url());
  auto bytes = test_bytes(1, kSize);
  ASSERT_EQ(jobs_->put(test_key(1), bytes), TierOutcome::Done);
  for (const double share : {0.0, 0.00001, 0.0005, 0.5, 0.99999}) {
    server.set_hook([share](FakeRedis& fake, const Command& command) -> std::optional<Answer> {
      if (command[0] != "GET") return std::nullopt;
      std::string all = fake.usual(command);
      all.resize(static_cast<std::size_t>(share * static_cast<double>(all.size())));
      return Answer{.bytes = all, .close = true};
    });
    std::vector<std::byte> back(kSize);
    EXPECT_EQ(jobs_->get(test_key(1), back), TierOutcome::Failed);
    server.set_hook({});
    EXPECT_TRUE(works_again());
  }
}

TEST_F(SharedTierFailure, GarbageClosesTheConnection) {
  const std::vector<std::string> garbage = {"garbage\r\n",
                                            "$5\r\nab",
                                            "$100081\r\n",
                                            "*1\r\n*1\r\n",
                                            ":5\r\n",
                                            "+OK\r\n",
                                            "$-7\r\n",
                                            "\r\n\r\n",
                                            "HTTP/1.1 400 Bad Request\r\n\r\n",
                                            "*99999999\r\n",
                                            std::string(3, '\0')};
  for (const std::string& what : garbage) {
    FakeRedis server;
    open(server.url("timeout=100ms"));
    auto bytes = test_bytes(1, kSize);
    ASSERT_EQ(jobs_->put(test_key(1), bytes), TierOutcome::Done);
    server.set_hook(answer("GET", {.bytes = what}));
    std::vector<std::byte> back(kSize);
    const auto begin = Clock::now();
    EXPECT_EQ(jobs_->get(test_key(1), back), TierOutcome::Failed) << what;
    EXPECT_LT(since(begin), 1500ms);
    server.set_hook({});
    EXPECT_TRUE(works_again()) << what;
  }
}

TEST_F(SharedTierFailure, AnAnswerThatNobodyAskedForClosesTheConnection) {
  FakeRedis server(answer("EXISTS", {.bytes = ":1\r\n:1\r\n:1\r\n"}));
  open(server.url());
  EXPECT_EQ(jobs_->find(test_key(1), kSize), TierOutcome::Done);  // its own answer was right
  const auto begin = Clock::now();
  while (tier_->usage().working && since(begin) < 2s) std::this_thread::sleep_for(5ms);
  EXPECT_THAT(tier_->usage().problem, HasSubstr("nobody asked for"));
}

TEST_F(SharedTierFailure, FullMemoryFailsPutsAndNothingElse) {
  FakeRedis server;
  open(server.url());
  auto bytes = test_bytes(1, kSize);
  ASSERT_EQ(jobs_->put(test_key(1), bytes), TierOutcome::Done);
  server.set_hook(answer("SET", {"-OOM command not allowed when used memory > 'maxmemory'.\r\n"}));
  const std::size_t sets = server.count("SET");
  for (std::uint64_t i = 10; i < 60; ++i) EXPECT_EQ(jobs_->put(test_key(i), bytes), TierOutcome::Failed);
  EXPECT_THAT(tier_->usage().problem, HasSubstr("OOM"));
  EXPECT_LE(server.count("SET") - sets, 5u);  // payloads are not sent to be refused
  EXPECT_EQ(jobs_->get(test_key(1), bytes), TierOutcome::Done);
  EXPECT_EQ(jobs_->put(test_key(1), bytes), TierOutcome::Done);  // it is there
  server.set_hook({});
  EXPECT_TRUE(works_again());
}

TEST_F(SharedTierFailure, ALoadingServerIsDownUntilItHasLoaded) {
  FakeRedis server(answer("PING", {"-LOADING Redis is loading the dataset in memory\r\n"}));
  open(server.url());
  EXPECT_EQ(jobs_->find(test_key(1), kSize), TierOutcome::Failed);
  EXPECT_THAT(tier_->usage().problem, HasSubstr("LOADING"));
  server.set_hook({});
  EXPECT_TRUE(works_again());
  server.set_hook(answer("GET", {"-LOADING Redis is loading the dataset in memory\r\n"}));
  auto bytes = test_bytes(1, kSize);
  EXPECT_EQ(jobs_->get(test_key(99), bytes), TierOutcome::Failed);
  server.set_hook({});
  EXPECT_TRUE(works_again());
}

TEST_F(SharedTierFailure, APasswordThatIsWantedSuddenlyIsSaid) {
  FakeRedis server;
  open(server.url());
  ASSERT_TRUE(works_again());
  server.set_hook([](FakeRedis&, const Command&) { return Answer{"-NOAUTH Authentication required.\r\n"}; });
  EXPECT_EQ(jobs_->find(test_key(1), kSize), TierOutcome::Failed);
  EXPECT_FALSE(tier_->usage().working);
  EXPECT_THAT(tier_->usage().problem, HasSubstr("NOAUTH"));
}

TEST_F(SharedTierFailure, AKeyOfAnotherTypeIsDamagedAndRemoved) {
  FakeRedis server(answer("GET", {"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"}));
  open(server.url());
  auto bytes = test_bytes(1, kSize);
  EXPECT_EQ(jobs_->get(test_key(1), bytes), TierOutcome::Damaged);
  EXPECT_EQ(server.count("DEL"), 1u);
}

TEST_F(SharedTierFailure, AnEmptiedServerMisses) {
  FakeRedis server;
  open(server.url());
  ASSERT_TRUE(works_again());
  for (const auto& [key, value] : server.values()) server.erase(key);
  std::vector<std::byte> back(kSize);
  EXPECT_EQ(jobs_->get(test_key(99), back), TierOutcome::Missing);
  EXPECT_TRUE(tier_->usage().working);
}

TEST_F(SharedTierFailure, AnIdleConnectionThatTheServerClosesIsMadeAgain) {
  auto server = std::make_unique<FakeRedis>();
  const std::uint16_t port = server->port();
  open(server->url());
  ASSERT_TRUE(works_again());
  server.reset();
  std::this_thread::sleep_for(20ms);
  server = std::make_unique<FakeRedis>(FakeRedis::Hook{}, port);
  ASSERT_TRUE(server->ok());
  EXPECT_EQ(jobs_->find(test_key(99), kSize), TierOutcome::Missing);  // at the first attempt
}

TEST_F(SharedTierFailure, AReplicaLeadsToItsMaster) {
  FakeRedis master;
  FakeRedis replica([&](FakeRedis&, const Command& command) -> std::optional<Answer> {
    if (command[0] == "SET") return Answer{"-READONLY You can't write against a read only replica.\r\n"};
    if (command[0] != "ROLE") return std::nullopt;
    const std::string port = std::to_string(master.port());
    return Answer{"*5\r\n$5\r\nslave\r\n$9\r\n127.0.0.1\r\n:" + port + "\r\n$9\r\nconnected\r\n:1\r\n"};
  });
  open(replica.url());
  EXPECT_TRUE(works_again());
  EXPECT_EQ(master.count("SET"), 1u);
  EXPECT_EQ(replica.count("SET"), 0u);
}

TEST_F(SharedTierFailure, AMasterThatBecameAReplicaIsLeftForTheNewOne) {
  FakeRedis first, second;
  open("redis://" + first.address() + "," + second.address() + "?timeout=150ms");
  ASSERT_TRUE(works_again());
  EXPECT_EQ(first.count("SET"), 1u);
  first.set_hook([&](FakeRedis&, const Command& command) -> std::optional<Answer> {
    if (command[0] == "EXPIRE" || command[0] == "SET") return Answer{"-READONLY You can't write.\r\n"};
    if (command[0] != "ROLE") return std::nullopt;
    return Answer{"*5\r\n$5\r\nslave\r\n$9\r\n127.0.0.1\r\n:" + std::to_string(second.port()) +
                  "\r\n$4\r\nsync\r\n:1\r\n"};
  });
  EXPECT_TRUE(works_again());
  EXPECT_EQ(second.count("SET"), 1u);
}

TEST_F(SharedTierFailure, TheDestructorEndsEveryJobOnce) {
  for (const bool silent : {false, true}) {
    FakeRedis server;
    Outcomes outcomes;
    std::vector<std::vector<std::byte>> memory;
    std::vector<TierJob> jobs;
    for (std::size_t i = 0; i < 500; ++i) {
      memory.push_back(test_bytes(i, kSize));
      const auto kind = i % 3 == 0 ? TierJob::Kind::Get : i % 3 == 1 ? TierJob::Kind::Put : TierJob::Kind::Find;
      jobs.push_back({kind, test_key(i), memory[i].data(), kSize, i});
    }
    auto tier = open_shared_tier({.url = server.url()}, outcomes);
    if (silent) server.set_hook([](FakeRedis&, const Command&) { return Answer{.silent = true}; });
    const std::size_t taken = (*tier)->submit(jobs);
    EXPECT_EQ(taken, jobs.size());
    const auto begin = Clock::now();
    tier->reset();
    EXPECT_LT(since(begin), 2s);
    EXPECT_EQ(outcomes.ended(), taken);
    for (std::size_t i = 0; i < taken; ++i) EXPECT_TRUE(outcomes.wait_for(i, 0ms)) << i;
  }
}

// Each answer may be as it should be, or have a flipped bit, be cut, come late, or not at all.
TEST_F(SharedTierFailure, WhateverTheServerDoesNoObjectIsWrong) {
  std::mt19937 random(11);
  FakeRedis server;
  open(server.url("timeout=120ms&part=64K"));
  constexpr std::uint64_t kObjects = 20;
  std::vector<std::vector<std::byte>> objects;
  for (std::uint64_t i = 0; i < kObjects; ++i) {
    objects.push_back(test_bytes(i, 60000 + 3000 * i));
    ASSERT_EQ(jobs_->put(test_key(i), objects[i]), TierOutcome::Done);
  }
  server.set_hook([&](FakeRedis& fake, const Command& command) -> std::optional<Answer> {
    Answer how{fake.usual(command)};
    if (how.bytes.size() < 2) return how;
    switch (random() % 60) {
      case 0: how.bytes[random() % how.bytes.size()] ^= static_cast<char>(1 << random() % 8); break;
      case 1: how.bytes.resize(random() % how.bytes.size()), how.close = true; break;
      case 2: how.bytes.insert(random() % how.bytes.size(), "\r\n$3\r\n"); break;
      case 3: how.silent = random() % 8 == 0; break;
      default: break;
    }
    return how;
  });
  std::size_t got = 0, ended = 0;
  const auto begin = Clock::now();
  for (std::size_t round = 0; since(begin) < 4s; ++round) {
    std::vector<std::vector<std::byte>> memory;
    std::vector<TierJob> jobs;
    for (std::uint64_t i = 0; i < kObjects; ++i) {
      memory.push_back(i % 2 == 0 ? std::vector<std::byte>(objects[i].size()) : objects[i]);
      const auto kind = i % 2 == 0 ? TierJob::Kind::Get : TierJob::Kind::Put;
      const std::uint64_t object = i % 2 == 0 ? i + round % 2 * (i + 1 < kObjects ? 1 : 0) : i;
      memory.back().resize(objects[object].size());
      jobs.push_back({kind, test_key(object), memory.back().data(), memory.back().size(), round << 8 | i});
    }
    const auto round_begin = Clock::now();
    ASSERT_EQ(tier_->submit(jobs), kObjects);
    for (std::uint64_t i = 0; i < kObjects; ++i) {
      const auto outcome = outcomes_.wait_for(round << 8 | i, 10s);
      ASSERT_TRUE(outcome) << "a job did not end";
      ++ended;
      if (jobs[i].kind != TierJob::Kind::Get || outcome != TierOutcome::Done) continue;
      ++got;
      const std::uint64_t object = i + round % 2 * (i + 1 < kObjects ? 1 : 0);
      ASSERT_EQ(memory[i], objects[object]) << "a wrong object was returned";
    }
    EXPECT_LT(since(round_begin), 2s);
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_GT(got, 5u);
  EXPECT_GT(tier_->usage().failed, 5u);
  server.set_hook({});
  EXPECT_TRUE(works_again());
}

}  // namespace
}  // namespace quire::tiers
