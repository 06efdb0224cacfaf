#include "quire/server/inbox.h"

#include <new>
#include <vector>

#include <gtest/gtest.h>

namespace quire::server {
namespace {

// Keeps what is posted until the test runs it.
class ManualLoop : public Loop {
 public:
  void post(std::function<void()> task) override { tasks_.push_back(std::move(task)); }
  void after(std::chrono::milliseconds, std::function<void()>) override {}
  void work(std::function<void()>) override {}
  void run() {
    for (auto& task : std::exchange(tasks_, {})) task();
  }

 private:
  std::vector<std::function<void()>> tasks_;
};

class Counting : public Receiver {
 public:
  void receive(const Arrival&) override {
    ++received;
    if (throws) throw std::bad_alloc();
  }
  void broken() override {
    ++ended;
    if (throws) throw std::bad_alloc();
  }
  int received = 0, ended = 0;
  bool throws = false;
};

TEST(Inbox, AReceiverThatThrowsEndsAndTheOthersGoOn) {
  ManualLoop loop;
  const auto inbox = std::make_shared<Inbox>(loop);
  const auto bad = std::make_shared<Counting>(), good = std::make_shared<Counting>();
  bad->throws = true;
  const Arrival token(engine::Event{}, 0);
  for (int i = 1; i <= 3; ++i) {
    inbox->push(bad, token);
    inbox->push(good, token);
    loop.run();
    EXPECT_EQ(bad->received, i);
    EXPECT_EQ(bad->ended, i);
    EXPECT_EQ(good->received, i) << "later arrivals are delivered too";
    EXPECT_EQ(good->ended, 0);
  }
}

}  // namespace
}  // namespace quire::server
