// Hidden states that the host asks for: those that the output matrix is multiplied with.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "quire/backend/cpu/cpu_backend.h"
#include "quire/gguf/types.h"
#include "quire/model/runner.h"

namespace quire::model {
namespace {

TEST(HiddenStates, TimesTheOutputMatrixAreTheLogits) {
  for (const char* file : {"llama", "hybrid", "mamba2"}) {
    CpuBackend backend(1);
    auto model = *Model::load(std::string(QUIRE_SOURCE_DIR) + "/models/quire-demo-" + file + "-q8_0.gguf");
    ASSERT_TRUE(model->prepare(backend, 16, 8).has_value());
    HostDevice host;
    PoolConfig config{.layout = *model->layout(16, ElementType::F16), .max_sequences = 1, .max_tokens = 32};
    config.budget_bytes = 8 << 20;
    auto pool = *SequencePool::create(host, config);
    auto runner = *Runner::create(*model, *pool);
    Batch batch = runner.make_batch();
    const std::vector<Token> tokens = {5, 300, 7, 12};
    batch.add(pool->create({})->id, tokens, Logits::All);
    ASSERT_TRUE(pool->reserve(batch.entries()).has_value());
    const std::uint32_t rows[] = {1, 3};
    const auto output = runner.forward(batch, {.jobs = {}, .logits = rows, .hidden = rows});
    ASSERT_TRUE(output.has_value());

    const std::uint32_t width = model->hyperparameters().embedding, vocabulary = model->hyperparameters().vocabulary;
    auto matrix = model->file().find_tensor("output.weight");
    if (!matrix) matrix = model->file().find_tensor("token_embd.weight");
    std::vector<float> weights(std::size_t{width} * vocabulary);
    ASSERT_TRUE(gguf::dequantize(matrix->type, matrix->data, weights).has_value());
    ASSERT_EQ(output->hidden.cols, width);
    for (const std::uint32_t row : rows) {
      const auto hidden = output->hidden.row(row), logits = output->logits.row(row);
      double scale = 0, wrong = 0;
      for (std::uint32_t token = 0; token < vocabulary; ++token) {
        double sum = 0;
        for (std::uint32_t i = 0; i < width; ++i) sum += double{weights[std::size_t{token} * width + i]} * hidden[i];
        sum *= model->constants().logit_scale;
        scale = std::max(scale, std::abs(sum));
        wrong = std::max(wrong, std::abs(sum - logits[token]));
      }
      EXPECT_LT(wrong, 0.02 * scale) << file << ": the product rounds its input to 8 bits";
    }
  }
}

}  // namespace
}  // namespace quire::model
