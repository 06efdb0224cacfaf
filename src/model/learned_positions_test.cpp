// Learned positions (GPT-2): a context ends where the table of positions does.
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/backend/cpu/cpu_backend.h"
#include "quire/model/model_testing.h"
#include "quire/model/runner.h"

namespace quire::model {
namespace {

using ::testing::HasSubstr;
using testing::OpenedModel;
using testing::TestModel;

class LearnedPositions : public ::testing::Test {
 protected:
  LearnedPositions() : backend_(1, cpu::best_kernels()) {
    OpenedModel opened(TestModel::attention("gpt2").with_tensors({false, false}).randomize(1));
    image_ = std::move(opened.image);  // the model reads from it
    model_ = std::move(*Model::create(std::move(*opened.file)));
    const PoolConfig config{.layout = *model_->layout(16, ElementType::F16),
                            .budget_bytes = 1 << 20,
                            .max_sequences = 2,
                            .max_tokens = 512};
    pool_ = *SequencePool::create(backend_.device(), config);
    EXPECT_TRUE(model_->prepare(backend_, 256, 256).has_value());
  }
  PoolResult<HostRows> run(SequenceId id, std::size_t tokens) {
    Runner runner = *Runner::create(*model_, *pool_);
    Batch batch = runner.make_batch();
    batch.add(id, std::vector<Token>(tokens, 1), Logits::Last);
    return runner.run(batch);
  }
  SequenceId sequence() { return pool_->create({.prompt = {}, .reuse = false})->id; }

  CpuBackend backend_;
  std::vector<std::byte> image_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<SequencePool> pool_;
};

TEST_F(LearnedPositions, APoolForLongerSequencesDoesNotReadPastTheTable) {
  const SequenceId id = sequence();
  ASSERT_TRUE(run(id, 60).has_value());
  ASSERT_TRUE(run(id, 40).has_value());  // the table has 100
  const auto beyond = run(id, 1);
  ASSERT_FALSE(beyond.has_value());
  EXPECT_EQ(beyond.error().code, PoolError::Code::TooLong);
  EXPECT_THAT(beyond.error().message(), HasSubstr("101"));
  EXPECT_FALSE(run(sequence(), 101).has_value());
  EXPECT_TRUE(pool_->check_integrity().has_value());
  // Nothing of it was committed.
  ASSERT_TRUE(pool_->release(id).has_value());
  EXPECT_TRUE(run(sequence(), 100).has_value());
}

TEST_F(LearnedPositions, AnAnswerDependsOnThePosition) {
  const SequenceId id = sequence();
  const auto first = run(id, 1);
  ASSERT_TRUE(first.has_value());
  const std::vector<float> before(first->row(0).begin(), first->row(0).end());
  // With one token and itself before it, only the position differs from the first step.
  const auto second = run(id, 1);
  ASSERT_TRUE(second.has_value());
  EXPECT_NE(before, std::vector<float>(second->row(0).begin(), second->row(0).end()));
}

}  // namespace
}  // namespace quire::model
