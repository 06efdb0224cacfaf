// The shared tier against real Redis servers. tests/redis/run starts them, says in the environment where they are, and
// runs this program. It is not one of ctest's: they need nothing outside the repository.
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

#include "quire/tiers/shared_tier.h"
#include "quire/tiers/shared_tier_testing.h"

namespace quire::tiers {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string output_of(const std::string& command) {
  std::string text;
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return text;
  std::array<char, 4096> chunk{};
  while (const std::size_t got = std::fread(chunk.data(), 1, chunk.size(), pipe)) text.append(chunk.data(), got);
  ::pclose(pipe);
  return text;
}

std::string cli(const std::string& port, const std::string& arguments) {
  return output_of("redis-cli -p " + port + " " + arguments);
}

// A server of tests/redis/run, by the name of its folder.
struct Server {
  std::string name;

  pid_t pid() const {
    pid_t number = 0;
    std::ifstream(variable("QUIRE_REDIS_DIR") + "/" + name + "/pid") >> number;
    return number;
  }
  void send(int signal) const {
    ASSERT_GT(pid(), 1);
    ASSERT_EQ(::kill(pid(), signal), 0);
  }
  void start() const { output_of("redis-server " + variable("QUIRE_REDIS_DIR") + "/" + name + "/redis.conf"); }
};

class RedisReal : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(variable("QUIRE_REDIS_DIR"), "") << "run tests/redis/run: it starts the servers and then this program";
  }
  void open(const std::string& url) {
    auto opened = open_shared_tier({.url = url}, outcomes_);
    ASSERT_TRUE(opened) << opened.error().message;
    tier_ = std::move(*opened);
    jobs_.emplace(*tier_, outcomes_);
  }
  void open_single(const std::string& options = "timeout=500ms") {
    cli(single_, "flushall");
    open("redis://127.0.0.1:" + single_ + "?" + options);
  }
  bool put_and_get(std::uint64_t object, std::size_t size = 300000) {
    auto bytes = test_bytes(object, size);
    std::vector<std::byte> back(size);
    return jobs_->put(test_key(object), bytes) == TierOutcome::Done &&
           jobs_->get(test_key(object), back) == TierOutcome::Done && back == bytes;
  }
  bool works_within(std::uint64_t object, std::chrono::milliseconds time) {
    for (const auto begin = Clock::now(); Clock::now() - begin < time; std::this_thread::sleep_for(20ms)) {
      if (put_and_get(object)) return true;
    }
    return false;
  }

  // Puts and gets in a row, while something happens to the server. Checks every byte that comes back, and how long the
  // longest round took.
  struct Traffic {
    std::size_t done = 0, missing = 0, failed = 0, damaged = 0, wrong = 0, lost = 0;
    std::chrono::milliseconds longest{0};
  };
  Traffic traffic(std::chrono::milliseconds time, const std::function<void()>& meanwhile) {
    Traffic result;
    std::atomic<bool> happened = false;
    std::thread other([&] {
      meanwhile();
      happened = true;
    });
    constexpr std::size_t kAtOnce = 32;
    const auto begin = Clock::now();
    static std::uint64_t ticket = 1;
    for (std::uint64_t round = 0; Clock::now() - begin < time || !happened; ++round) {
      std::vector<std::vector<std::byte>> memory;
      std::vector<TierJob> jobs;
      for (std::uint64_t i = 0; i < kAtOnce; ++i) {
        const bool put = i % 2 == 0;
        const std::uint64_t object = (round * (put ? 7 : 5) + i / 2) % 100;
        const std::size_t size = 100000 + 5000 * object;
        memory.push_back(put ? test_bytes(object, size) : std::vector<std::byte>(size));
        const auto kind = put ? TierJob::Kind::Put : TierJob::Kind::Get;
        jobs.push_back({kind, test_key(100000 + object), memory[i].data(), size, ticket + i});
      }
      const auto round_begin = Clock::now();
      const std::size_t taken = tier_->submit(jobs);
      for (std::size_t i = 0; i < taken; ++i) {
        const auto outcome = outcomes_.wait_for(ticket + i, 20s);
        result.lost += outcome ? 0 : 1;
        result.done += outcome == TierOutcome::Done ? 1 : 0;
        result.missing += outcome == TierOutcome::Missing ? 1 : 0;
        result.failed += outcome == TierOutcome::Failed ? 1 : 0;
        result.damaged += outcome == TierOutcome::Damaged ? 1 : 0;
        if (jobs[i].kind != TierJob::Kind::Get || outcome != TierOutcome::Done) continue;
        const std::uint64_t object = (round * 5 + i / 2) % 100;
        result.wrong += memory[i] == test_bytes(object, memory[i].size()) ? 0 : 1;
      }
      ticket += kAtOnce;
      const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - round_begin);
      result.longest = std::max(result.longest, took);
      std::this_thread::sleep_for(2ms);
    }
    other.join();
    std::printf("  %zu done, %zu missing, %zu failed, %zu damaged; the longest round took %lld ms\n", result.done,
                result.missing, result.failed, result.damaged, static_cast<long long>(result.longest.count()));
    EXPECT_EQ(result.wrong, 0u);
    EXPECT_EQ(result.lost, 0u);
    EXPECT_EQ(result.damaged, 0u);
    EXPECT_GT(result.done, 20u);
    return result;
  }

  const std::string single_ = variable("QUIRE_REDIS_SINGLE");
  Outcomes outcomes_;
  std::unique_ptr<Tier> tier_;
  std::optional<OneByOne> jobs_;
};

TEST_F(RedisReal, ObjectsOfEverySizeComeBack) {
  open_single("timeout=2s&part=1M");
  for (const std::size_t size : {0, 1, 100, 16384, 300000, 1 << 20, (1 << 20) - 80, 5000000}) {
    EXPECT_TRUE(put_and_get(size, size)) << size;
    EXPECT_EQ(jobs_->find(test_key(size), size), TierOutcome::Done);
  }
  EXPECT_EQ(jobs_->find(test_key(1234567), 10), TierOutcome::Missing);
  EXPECT_TRUE(tier_->usage().working) << tier_->usage().problem;
}

TEST_F(RedisReal, KeysExpireAndAHitMakesThemLiveLonger) {
  open_single("timeout=500ms&expire=2s");
  auto bytes = test_bytes(1, 1000);
  ASSERT_EQ(jobs_->put(test_key(1), bytes), TierOutcome::Done);
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(1200ms);
    EXPECT_EQ(jobs_->get(test_key(1), bytes), TierOutcome::Done) << i;
  }
  std::this_thread::sleep_for(2500ms);
  EXPECT_EQ(jobs_->get(test_key(1), bytes), TierOutcome::Missing);
}

TEST_F(RedisReal, AKilledServerFailsQuicklyAndIsUsedAgainWhenItIsBack) {
  open_single();
  const Server server{"single"};
  const Traffic result = traffic(3s, [&] {
    std::this_thread::sleep_for(500ms);
    server.send(SIGKILL);
    std::this_thread::sleep_for(1s);
    server.start();
  });
  EXPECT_GT(result.failed, 0u);
  EXPECT_LT(result.longest, 2s);
  EXPECT_TRUE(works_within(1, 10s)) << tier_->usage().problem;
}

TEST_F(RedisReal, APausedServerCostsOneTimeout) {
  open_single();
  const Server server{"single"};
  const Traffic result = traffic(6s, [&] {
    std::this_thread::sleep_for(500ms);
    server.send(SIGSTOP);
    std::this_thread::sleep_for(4s);
    server.send(SIGCONT);
  });
  EXPECT_GT(result.failed, 0u);
  EXPECT_LT(result.longest, 2s);
  EXPECT_TRUE(works_within(1, 10s)) << tier_->usage().problem;
}

TEST_F(RedisReal, CommandsThatTheServerHoldsBackCostOneTimeout) {
  open_single();
  const Traffic result = traffic(4s, [&] {
    std::this_thread::sleep_for(300ms);
    cli(single_, "client pause 2000 all");
  });
  EXPECT_GT(result.failed, 0u);
  EXPECT_LT(result.longest, 2s);
  EXPECT_TRUE(works_within(1, 10s)) << tier_->usage().problem;
}

TEST_F(RedisReal, AFlushedServerMissesAndNothingFails) {
  open_single();
  const Traffic result = traffic(2s, [&] {
    for (int i = 0; i < 10; ++i) {
      std::this_thread::sleep_for(150ms);
      cli(single_, "flushall");
    }
  });
  EXPECT_EQ(result.failed, 0u);
  EXPECT_GT(result.missing, 0u);
}

TEST_F(RedisReal, ConnectionsThatAreKilledAreMadeAgain) {
  open_single();
  traffic(2s, [&] {
    for (int i = 0; i < 5; ++i) {
      std::this_thread::sleep_for(300ms);
      cli(single_, "client kill type normal");
    }
  });
  EXPECT_TRUE(works_within(1, 10s)) << tier_->usage().problem;
}

TEST_F(RedisReal, AFullServerRefusesPutsAndServesGets) {
  open_single();
  ASSERT_TRUE(put_and_get(1));
  cli(single_, "config set maxmemory-policy noeviction");
  cli(single_, "config set maxmemory 1mb");
  auto bytes = test_bytes(2, 300000);
  EXPECT_EQ(jobs_->put(test_key(2), bytes), TierOutcome::Failed);
  EXPECT_THAT(tier_->usage().problem, HasSubstr("OOM"));
  EXPECT_EQ(jobs_->get(test_key(1), bytes), TierOutcome::Done);
  cli(single_, "config set maxmemory 200mb");
  EXPECT_TRUE(works_within(2, 10s));
  EXPECT_TRUE(tier_->usage().working) << tier_->usage().problem;
}

TEST_F(RedisReal, AnEvictingServerMissesAndNothingFails) {
  open_single();
  cli(single_, "config set maxmemory-policy allkeys-lru");
  cli(single_, "config set maxmemory 12mb");
  const Traffic result = traffic(2s, [] {});
  cli(single_, "config set maxmemory 200mb");
  EXPECT_GT(result.missing, 0u);
  EXPECT_EQ(result.failed, 0u);
}

TEST_F(RedisReal, AReplicaLeadsToItsMasterAndAPromotedOneIsFound) {
  const std::string replica = variable("QUIRE_REDIS_REPLICA");
  cli(single_, "flushall");
  open("redis://127.0.0.1:" + replica + "," + "127.0.0.1:" + single_ + "?timeout=500ms");
  ASSERT_TRUE(works_within(1, 5s));
  EXPECT_THAT(cli(replica, "role"), HasSubstr("slave"));
  cli(replica, "replicaof no one");
  cli(single_, "replicaof 127.0.0.1 " + replica);
  EXPECT_TRUE(works_within(2, 10s)) << tier_->usage().problem;
  cli(single_, "replicaof no one");
  cli(replica, "replicaof 127.0.0.1 " + single_);
  EXPECT_TRUE(works_within(3, 10s)) << tier_->usage().problem;
}

TEST_F(RedisReal, APasswordOpensTheServer) {
  const std::string host = "127.0.0.1:" + variable("QUIRE_REDIS_PASSWORD") + "?timeout=500ms";
  for (const char* who : {":open@", "me:sesame@"}) {
    open("redis://" + std::string(who) + host);
    EXPECT_TRUE(put_and_get(1)) << who << tier_->usage().problem;
  }
  for (const char* who : {"", ":wrong@", "me:wrong@", "nobody:open@"}) {
    open("redis://" + std::string(who) + host);
    EXPECT_EQ(jobs_->find(test_key(1), 10), TierOutcome::Failed) << who;
    EXPECT_THAT(tier_->usage().problem, testing::AnyOf(HasSubstr("NOAUTH"), HasSubstr("WRONGPASS"))) << who;
  }
}

TEST_F(RedisReal, TlsIsUsedAndTheCertificateIsChecked) {
  const std::string port = variable("QUIRE_REDIS_TLS");
  if (port.empty()) GTEST_SKIP() << "this redis-server has no TLS";
  const std::string ca = "&ca=" + variable("QUIRE_REDIS_DIR") + "/ca.pem";
  open("rediss://127.0.0.1:" + port + "?timeout=2s&part=1M" + ca);
  EXPECT_TRUE(put_and_get(1, 10000000)) << tier_->usage().problem;
  for (std::uint64_t i = 2; i < 30; ++i) EXPECT_TRUE(put_and_get(i, 1000 * i));
  traffic(1s, [] {});
  open("rediss://localhost:" + port + "?timeout=2s" + ca);  // the certificate has this name too
  EXPECT_TRUE(put_and_get(500)) << tier_->usage().problem;
  open("rediss://127.0.0.2:" + port + "?timeout=500ms" + ca);  // nobody listens there
  EXPECT_EQ(jobs_->find(test_key(1), 10), TierOutcome::Failed);
  open("rediss://127.0.0.1:" + port + "?timeout=500ms");
  EXPECT_EQ(jobs_->find(test_key(1), 10), TierOutcome::Failed);
  EXPECT_THAT(tier_->usage().problem, HasSubstr("certificate"));
  open("rediss://127.0.0.1:" + port + "?timeout=2s&insecure=yes");
  EXPECT_TRUE(put_and_get(501)) << tier_->usage().problem;
  open("rediss://127.0.0.1:" + single_ + "?timeout=500ms&insecure=yes");  // this one does not speak TLS
  EXPECT_EQ(jobs_->find(test_key(1), 10), TierOutcome::Failed);
  open("redis://127.0.0.1:" + port + "?timeout=500ms");  // and this one nothing else
  EXPECT_EQ(jobs_->find(test_key(1), 10), TierOutcome::Failed);
}

class RedisRealCluster : public RedisReal {
 protected:
  void SetUp() override {
    RedisReal::SetUp();
    std::istringstream names(variable("QUIRE_REDIS_CLUSTER"));
    for (std::string name; names >> name;) nodes_.push_back(name.substr(name.find(':') + 1));
    ASSERT_EQ(nodes_.size(), 6u);
    open("redis://127.0.0.1:" + nodes_[0] + ",127.0.0.1:" + nodes_[3] + "?timeout=500ms&part=1M");
    ASSERT_TRUE(works_within(1, 20s)) << tier_->usage().problem;
  }
  std::vector<std::string> nodes_;
};

TEST_F(RedisRealCluster, ObjectsAndTheirPartsAreSpread) {
  for (std::uint64_t i = 0; i < 60; ++i) EXPECT_TRUE(put_and_get(1000 + i, 20000));
  EXPECT_TRUE(put_and_get(2000, 10000000));
  int with_keys = 0;
  for (const std::string& port : nodes_) with_keys += std::stoi(cli(port, "dbsize")) > 10 ? 1 : 0;
  EXPECT_GE(with_keys, 3);  // the replicas have them too, after a while
}

TEST_F(RedisRealCluster, SlotsMoveWhileJobsRun) {
  const std::string to = cli(nodes_[0], "cluster myid").substr(0, 40);
  const std::string from = cli(nodes_[1], "cluster myid").substr(0, 40);
  const Traffic result = traffic(2s, [&] {
    const std::string log = output_of("redis-cli --cluster reshard 127.0.0.1:" + nodes_[0] + " --cluster-from " + from +
                                      " --cluster-to " + to + " --cluster-slots 1500 --cluster-yes");
    EXPECT_THAT(log, HasSubstr("Moving slot"));
  });
  EXPECT_EQ(result.failed, 0u) << tier_->usage().problem;
  EXPECT_TRUE(tier_->usage().working) << tier_->usage().problem;
}

TEST_F(RedisRealCluster, AMasterThatIsKilledIsReplacedByItsReplica) {
  // node3 is a master from the start.
  const Server server{"node3"};
  const Traffic result = traffic(10s, [&] {
    std::this_thread::sleep_for(500ms);
    server.send(SIGKILL);
  });
  EXPECT_GT(result.failed, 0u);
  EXPECT_LT(result.longest, 2s);
  // By now the replica has taken over: nothing fails any more.
  const Traffic after = traffic(2s, [] {});
  EXPECT_EQ(after.failed, 0u) << tier_->usage().problem;
  EXPECT_TRUE(tier_->usage().working) << tier_->usage().problem;
  server.start();
}

}  // namespace
}  // namespace quire::tiers
