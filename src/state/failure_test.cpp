// The device refuses: at every call in turn, and at random. The operation has then not happened, every live sequence
// still has its bytes, the counts add up, and nothing is lost when everything is released.
#include <cstdlib>

#include <gtest/gtest.h>

#include "quire/state/random_ops_testing.h"

namespace quire::testing {
namespace {

// A fixed series of operations for each kind of model, long enough to evict, copy,
// move, fork, rewind and keep checkpoints.
std::vector<std::uint32_t> words_of(std::uint32_t seed, std::size_t count) {
  std::vector<std::uint32_t> words;
  std::uint64_t x = seed * 0x9E3779B97F4A7C15 + 7;
  for (std::size_t i = 0; i < count; ++i) {
    x = x * 6364136223846793005 + 1442695040888963407;
    words.push_back(static_cast<std::uint32_t>(x >> 32));
  }
  return words;
}

std::uint32_t percent() {
  const char* value = std::getenv("QUIRE_PROPERTY_PERCENT");
  return value == nullptr ? 100 : static_cast<std::uint32_t>(std::strtoul(value, nullptr, 10));
}

class EveryCall : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(EveryCall, RefusedInTurnLeavesNothingHalfDone) {
  std::uint64_t refusals = 0;
  const std::uint32_t step = percent() >= 100 ? 1 : 100 / std::max(1u, percent());
  for (std::uint32_t variant = 0; variant < 3; ++variant) {
    const std::uint32_t seed = GetParam() + RandomOps::kModels * (variant * 7919 + 1013);
    const auto words = words_of(seed, 150);
    for (std::uint64_t call = 0;; call += step) {
      CountingDevice device;
      bool refused = false;
      {
        RandomOps ops(seed, &device);
        ops.expect_device_failures();
        device.fail_after(call);
        for (const std::uint32_t word : words) {
          ASSERT_TRUE(ops.run(word)) << "call " << call << ", variant " << variant << ": " << ops.difference();
        }
        refused = !device.armed();
        device.never_fail();
        ASSERT_TRUE(ops.finish()) << "call " << call << ", variant " << variant << ": " << ops.difference();
      }
      ASSERT_EQ(device.counts().live_bytes, 0u) << "memory of the device was not given back";
      if (!refused) break;
      ++refusals;
    }
  }
  EXPECT_GT(refusals, 100u / step) << "the lives are too short to mean anything";
}

std::string model_name(const ::testing::TestParamInfo<std::uint32_t>& model) {
  static constexpr const char* kNames[] = {"Attention", "Windowed", "Recurrent", "Hybrid", "Everything", "WindowsOnly"};
  return kNames[model.param];
}

// Seeds for each of RandomOps::Model.
INSTANTIATE_TEST_SUITE_P(Device, EveryCall, ::testing::Range(0u, RandomOps::kModels), model_name);

TEST(DeviceFailures, AtRandomDuringLongLivesChangeNoByte) {
  const std::uint32_t lives = std::max(5u, 100 * percent() / 100);
  for (std::uint32_t seed = 0; seed < lives; ++seed) {
    CountingDevice device;
    RandomOps ops(seed * 31337, &device);
    ops.expect_device_failures();
    const auto words = words_of(seed + 1, 1000);
    for (const std::uint32_t word : words) {
      if (!device.armed()) device.fail_after(mix(word, seed) % 40);
      ASSERT_TRUE(ops.run(word)) << "seed " << seed << ": " << ops.difference();
    }
    device.never_fail();
    ASSERT_TRUE(ops.finish()) << "seed " << seed << ": " << ops.difference();
  }
}

TEST(DeviceFailures, WhileAPoolIsMadeGiveBackWhatWasTaken) {
  for (const auto& model : {ToyModel::attention(), ToyModel::recurrent(), ToyModel::everything(8)}) {
    const PoolConfig config{.layout = model.layout(), .budget_bytes = 1 << 16, .max_sequences = 3, .max_tokens = 64};
    std::uint64_t call = 0;
    for (;; ++call) {
      CountingDevice device;
      device.fail_after(call);
      {
        const auto pool = SequencePool::create(device, config);
        if (pool) break;
        EXPECT_EQ(pool.error().code, PoolError::Code::DeviceFailure);
      }
      EXPECT_EQ(device.counts().live_bytes, 0u);
    }
    EXPECT_GE(call, 1u);
  }
}

}  // namespace
}  // namespace quire::testing
