// Bringing a model to a device that fails: one line that names the file, and another try works.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/backend/cpu/cpu_backend.h"
#include "quire/model/runner.h"
#include "quire/state/counting_device_testing.h"

namespace quire::model {
namespace {

std::vector<float> logits_of(Model& model, Device& device) {
  PoolConfig config{.layout = *model.layout(16, ElementType::F16), .max_sequences = 1, .max_tokens = 32};
  config.budget_bytes = 1 << 20;
  auto pool = *SequencePool::create(device, config);
  auto runner = *Runner::create(model, *pool);
  Batch batch = runner.make_batch();
  const std::vector<Token> tokens = {1, 2, 3};
  batch.add(pool->create({})->id, tokens);
  const auto rows = runner.run(batch);
  EXPECT_TRUE(rows) << rows.error().message();
  return rows ? std::vector<float>(rows->row(0).begin(), rows->row(0).end()) : std::vector<float>();
}

TEST(Prepare, AFaultAtAnyCallOfTheDeviceNamesTheFileAndCanBeTriedAgain) {
  const std::string path = std::string(QUIRE_SOURCE_DIR) + "/testdata/golden/granite-hybrid/model.gguf";
  HostDevice host;
  CpuBackend plain(1), last(1);  // backends outlive their models
  std::vector<std::unique_ptr<CountingDevice>> devices;
  std::vector<std::unique_ptr<CpuBackend>> backends;
  auto right = *Model::load(path);
  ASSERT_TRUE(right->prepare(plain, 8, 8));
  const std::vector<float> expected = logits_of(*right, host);

  auto model = *Model::load(path);
  int faults = 0;
  for (std::uint64_t call = 0; call < 10'000; ++call) {
    CountingDevice& device = *devices.emplace_back(std::make_unique<CountingDevice>());
    backends.push_back(std::make_unique<CpuBackend>(1, cpu::best_kernels(), &device));
    device.fail_after(call);
    const auto ok = model->prepare(*backends.back(), 8, 8);
    const bool fired = !device.armed();
    EXPECT_EQ(ok.has_value(), !fired) << call;
    if (!fired) break;
    ++faults;
    EXPECT_THAT(ok.error().message, ::testing::StartsWith(path + ": "));
    EXPECT_EQ(model->max_rows(), 0u) << "it cannot be run";
    device.never_fail();
    (void)device.fence();
  }
  EXPECT_GT(faults, 10);
  ASSERT_TRUE(model->prepare(last, 8, 8));
  const std::vector<float> logits = logits_of(*model, host);
  ASSERT_EQ(logits.size(), expected.size());
  EXPECT_EQ(std::memcmp(logits.data(), expected.data(), logits.size() * sizeof(float)), 0);
}

}  // namespace
}  // namespace quire::model
