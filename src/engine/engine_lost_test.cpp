// The device is lost at each of its calls in turn. Each time every request ends, with one line that names the device's
// error, and the engine refuses all others. Nothing aborts, and the pool stays sound.
#include <cstdint>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/engine/drafter_testing.h"
#include "quire/engine/engine_testing.h"
#include "quire/engine/service.h"
#include "quire/engine/weightless_testing.h"
#include "quire/state/counting_device_testing.h"

namespace quire::engine::testing {
namespace {

using namespace std::chrono_literals;
using State = SequenceInfo::State;

constexpr const char* kLost = "the device counting is lost: somebody pulled it out";

Fixture::Options small(Kind kind, CountingDevice& device) {
  Fixture::Options options{.kind = kind, .budget = 20'000, .max_sequences = 4, .device = &device};
  options.engine.drafter = std::make_shared<KnowingDrafter>(32, 30);
  options.engine.draft_tokens = 3;
  options.engine.draft_always = true;
  options.engine.suspend_by = SuspendBy::Copy;
  options.engine.check_integrity = true;
  return options;
}

// Requests of several lengths, with a shared prefix and a fork, and more than run at once: some wait, some are
// suspended.
Request request(int i) {
  Request request{.max_tokens = 20};
  const int seed = i == 3 ? 1 : i;
  for (int t = 0; t < 30 + 9 * i; ++t) request.prompt.push_back((seed * 7 + t * t) % 32);
  request.n = i == 2 ? 2 : 1;
  request.sampling = {.temperature = i % 2 == 0 ? 0.0 : 1.0, .seed = static_cast<std::uint64_t>(i)};
  return request;
}

class EngineLost : public EngineOnEachKind {
 protected:
  struct Outcome {
    bool lost = false;
    std::uint32_t right = 0, failed = 0;
    std::uint32_t waiting = 0, suspended = 0;  // before the step in which the device was lost
  };

  static Outcome live(std::uint64_t calls) {
    Outcome outcome;
    CountingDevice device;
    Fixture fixture(small(GetParam(), device));
    fixture.model->before_kernels = [&] { device.settle(); };
    device.lose_after(calls);
    std::vector<std::shared_ptr<Collector>> heard;
    for (int i = 0; i < 6; ++i) heard.push_back(fixture.submit(request(i)));
    for (int steps = 0;; ++steps) {
      const EngineStats before = fixture.engine->stats();
      if (!fixture.engine->step()) break;
      EXPECT_LT(steps, 10'000) << "the engine tries for ever";
      if (steps == 10'000) return outcome;
      if (fixture.engine->device_lost().empty()) continue;
      outcome.lost = true;
      outcome.waiting = before.waiting;
      outcome.suspended = before.suspended;
    }
    if (device.lost() && !outcome.lost) {
      // Nothing needed the device after that: a checkpoint was refused, for instance. The next request finds out.
      const auto next = fixture.submit(request(0));
      fixture.run();
      EXPECT_TRUE(next->ended);
      EXPECT_EQ(next->choices.at(0).error, kLost);
      outcome.lost = true;
    }
    for (int i = 0; i < 6; ++i) {
      EXPECT_TRUE(heard[i]->ended) << "request " << i;
      EXPECT_EQ(heard[i]->problem, "");
      for (std::uint32_t c = 0; c < heard[i]->choices.size(); ++c) {
        const Collector::Choice& choice = heard[i]->choices[c];
        if (choice.finish == Finish::Failed) {
          ++outcome.failed;
          EXPECT_EQ(choice.error, kLost);
        } else {
          ++outcome.right;
          EXPECT_EQ(choice.answer(), fixture.right(request(i), c)) << "request " << i << ", choice " << c;
        }
      }
    }
    EXPECT_TRUE(fixture.engine->idle());
    EXPECT_EQ(fixture.pool->stats().sequences, 0u);
    const auto sound = fixture.pool->check_integrity();
    EXPECT_TRUE(sound.has_value()) << sound.error();
    if (!outcome.lost) return outcome;
    EXPECT_EQ(fixture.engine->device_lost(), kLost);
    const auto late = fixture.submit(request(0));
    EXPECT_EQ(late->refused, kLost);
    EXPECT_EQ(fixture.refusal.why, Refusal::Why::DeviceLost);
    EXPECT_FALSE(fixture.engine->step());
    EXPECT_EQ(fixture.engine->stats().device_errors, 1u) << "it is told once, and not tried again";
    return outcome;
  }
};

TEST_P(EngineLost, ALossAtAnyCallEndsEveryRequestAndRefusesNewOnes) {
  const char* percent = std::getenv("QUIRE_PROPERTY_PERCENT");
  const std::uint64_t stride = percent != nullptr && std::strtoul(percent, nullptr, 10) < 100 ? 7 : 1;
  std::uint32_t lives = 0, right = 0, failed = 0, waiting = 0, suspended = 0;
  for (std::uint64_t calls = 0; calls < 100'000; calls += stride) {
    const Outcome outcome = live(calls);
    ASSERT_FALSE(::testing::Test::HasFailure()) << "lost after " << calls << " calls";
    if (!outcome.lost) break;
    ++lives;
    right += outcome.right;
    failed += outcome.failed;
    waiting += outcome.waiting;
    suspended += outcome.suspended;
  }
  EXPECT_GT(lives, 20u / stride);
  EXPECT_GT(failed, 0u);
  EXPECT_GT(right, 0u) << "what was complete before stays right";
  EXPECT_GT(waiting, 0u) << "waiting requests end too";
  if (GetParam() != Kind::Recurrent) {
    EXPECT_GT(suspended, 0u) << "and suspended ones";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EngineLost, ::testing::ValuesIn(kAllKinds), kind_name);

// --- the service

class Waiter final : public Listener {
 public:
  void on_event(const Event& event) override {
    collector.on_event(event);
    if (event.last) done.set_value();
  }
  void wait() { ASSERT_EQ(done.get_future().wait_for(60s), std::future_status::ready); }

  Collector collector;
  std::promise<void> done;
};

TEST(ServiceLost, TheOwnerIsToldOnceAfterAllRequestsHaveEnded) {
  CountingDevice device;
  Fixture fixture(small(Kind::Attention, device));
  fixture.model->before_kernels = [&] { device.settle(); };
  device.lose_after(25);
  std::vector<std::shared_ptr<Waiter>> waiters;
  for (int i = 0; i < 6; ++i) waiters.push_back(std::make_shared<Waiter>());
  int told = 0;
  bool all_ended = true;
  std::promise<std::string> why;
  auto service = Service::start(std::move(fixture.engine), [&](const std::string& reason) {
    for (const auto& waiter : waiters) all_ended = all_ended && waiter->collector.ended;
    if (++told == 1) why.set_value(reason);
  });
  // All are submitted before the first step.
  std::promise<void> go;
  service->inspect([held = go.get_future().share()](Engine&) { held.wait(); });
  for (int i = 0; i < 6; ++i) service->submit(request(i), waiters[i]);
  go.set_value();
  auto reason = why.get_future();
  ASSERT_EQ(reason.wait_for(60s), std::future_status::ready);
  EXPECT_EQ(reason.get(), kLost);
  for (const auto& waiter : waiters) waiter->wait();

  const auto late = std::make_shared<Waiter>();
  service->submit(request(0), late);
  late->wait();
  EXPECT_EQ(late->collector.refused, kLost);
  service->stop(Clock::now() + 60s);
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(all_ended);
  const auto after = std::make_shared<Waiter>();
  service->submit(request(0), after);
  EXPECT_EQ(after->collector.refused, kLost) << "the reason is known after the thread has ended too";
}

}  // namespace
}  // namespace quire::engine::testing
