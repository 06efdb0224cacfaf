// Who watches the pool gets it whole first, then its changes; who reads too slowly gets it whole again.
#include "quire/server/pool_feed.h"

#include <condition_variable>
#include <deque>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/engine/weightless_testing.h"

namespace quire::server {
namespace {

using engine::testing::Fixture;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A loop that the test turns by hand. Delays are over at once.
class HandLoop final : public Loop {
 public:
  void post(std::function<void()> task) override {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    arrived_.notify_one();
  }
  void after(std::chrono::milliseconds, std::function<void()> task) override { later_ = std::move(task); }
  void work(std::function<void()> task) override { task(); }

  // Runs the next look at the pool, until the feed has told its watchers.
  void turn() {
    if (auto task = std::exchange(later_, nullptr)) task();
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(arrived_.wait_for(lock, std::chrono::seconds(60), [&] { return !tasks_.empty(); }));
    const auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::function<void()>> tasks_;
  std::function<void()> later_;
};

class Reader final : public Responder {
 public:
  void send(HttpResponse) override {}
  void begin(HttpResponse) override {}
  void write(std::string_view piece) override { pieces.emplace_back(piece); }
  void end() override {}
  std::size_t pending() const override { return waiting; }

  std::vector<std::string> pieces;
  std::size_t waiting = 0;  // bytes that it has not read
};

class PoolFeedTest : public ::testing::Test {
 protected:
  PoolFeedTest()
      : fixture_({.max_tokens = 256, .engine = {}}),
        service_(engine::Service::start(std::move(fixture_.engine))),
        feed_(std::make_shared<PoolFeed>(loop_, *service_, facts_of(*fixture_.pool, "demo", false))) {}
  ~PoolFeedTest() override { service_.reset(); }

  // Lets the pool change.
  void work() {
    auto done = std::make_shared<Done>();
    service_->submit({.prompt = {1, 2, 3}, .max_tokens = 4, .sampling = {.temperature = 1, .seed = ++seed_}}, done);
    std::unique_lock lock(done->mutex);
    ASSERT_TRUE(done->ended.wait_for(lock, std::chrono::seconds(60), [&] { return done->last; }));
  }

  struct Done final : engine::Listener {
    void on_event(const engine::Event& event) override {
      const std::lock_guard lock(mutex);
      last = event.last;
      ended.notify_one();
    }
    std::mutex mutex;
    std::condition_variable ended;
    bool last = false;
  };

  HandLoop loop_;
  Fixture fixture_;
  std::unique_ptr<engine::Service> service_;
  std::shared_ptr<PoolFeed> feed_;
  std::uint64_t seed_ = 0;
};

TEST_F(PoolFeedTest, ALateWatcherGetsTheWholePoolAndThenTheSameChangesAsTheOthers) {
  const auto first = std::make_shared<Reader>(), late = std::make_shared<Reader>();
  feed_->watch(first, {});
  loop_.turn();
  ASSERT_EQ(first->pieces.size(), 1u);
  EXPECT_THAT(first->pieces[0], StartsWith("event: pool\n"));
  work();
  feed_->watch(late, {});
  loop_.turn();
  ASSERT_EQ(late->pieces.size(), 1u);
  EXPECT_THAT(late->pieces[0], StartsWith("event: pool\n"));
  EXPECT_THAT(first->pieces.back(), StartsWith("event: change\n"));
  work();
  loop_.turn();
  EXPECT_THAT(late->pieces.back(), StartsWith("event: change\n"));
  EXPECT_EQ(late->pieces.back(), first->pieces.back());
  EXPECT_THAT(late->pieces.back(), HasSubstr("sequence_released"));
}

TEST_F(PoolFeedTest, AWatcherThatReadsTooSlowlyGetsNothingUntilItHasReadAndThenTheWholePool) {
  const auto slow = std::make_shared<Reader>(), quick = std::make_shared<Reader>();
  feed_->watch(slow, {});
  feed_->watch(quick, {});
  loop_.turn();
  ASSERT_EQ(slow->pieces.size(), 1u);
  slow->waiting = 1 << 20;
  for (int i = 0; i < 5; ++i) {
    work();
    loop_.turn();
  }
  EXPECT_EQ(slow->pieces.size(), 1u) << "no queue grows for it";
  EXPECT_EQ(quick->pieces.size(), 6u);
  slow->waiting = 0;
  work();
  loop_.turn();
  ASSERT_EQ(slow->pieces.size(), 2u);
  EXPECT_THAT(slow->pieces[1], StartsWith("event: pool\n"));
  work();
  loop_.turn();
  EXPECT_THAT(slow->pieces.back(), StartsWith("event: change\n"));
  EXPECT_EQ(slow->pieces.back(), quick->pieces.back());
}

// The log of the pool holds 64 events here.
TEST_F(PoolFeedTest, WhereTheLogOfThePoolWasTooShortTheWholePoolComesAgain) {
  const auto watcher = std::make_shared<Reader>();
  feed_->watch(watcher, {});
  loop_.turn();
  for (int i = 0; i < 40; ++i) work();
  loop_.turn();
  loop_.turn();
  ASSERT_EQ(watcher->pieces.size(), 2u);
  EXPECT_THAT(watcher->pieces[1], StartsWith("event: pool\n"));
}

}  // namespace
}  // namespace quire::server
