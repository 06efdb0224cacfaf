// Models with latent attention, against DeepSeek in double precision (deepseek_testing.h).
#include <cmath>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "quire/backend/cpu/cpu_backend.h"
#include "quire/model/deepseek_testing.h"
#include "quire/model/model_testing.h"
#include "quire/model/runner.h"

namespace quire::model {
namespace {

using testing::DeepSeekReference;
using testing::OpenedModel;
using testing::TestModel;

const std::vector<Token> kTokens = {2, 0, 1, 1, 2, 0, 2, 2, 1, 0, 0, 1, 2, 1, 0, 1, 2, 2, 0, 1, 0, 2, 1};

// The logits of all positions: a chunk, then token by token.
std::vector<float> run(const TestModel& test) {
  CpuBackend backend(2);  // its memory is the model's: it goes last
  OpenedModel opened(test);
  auto made = Model::create(std::move(*opened.file));
  EXPECT_TRUE(made) << made.error().message;
  if (!made) return {};
  Model& model = **made;
  EXPECT_TRUE(model.prepare(backend, 64, 64));
  PoolConfig config{.layout = *model.layout(4, ElementType::F32), .max_sequences = 4, .max_tokens = 64};
  config.budget_bytes = 1 << 20;
  const auto pool = *SequencePool::create(backend.device(), config);
  auto runner = *Runner::create(model, *pool);
  const SequenceId id = pool->create({})->id;
  std::vector<float> all;
  for (std::size_t at = 0; at < kTokens.size();) {
    const std::size_t count = at == 0 ? 9 : 1;
    Batch batch = runner.make_batch();
    batch.add(id, std::span(kTokens).subspan(at, count), Logits::All);
    const auto rows = runner.run(batch);
    EXPECT_TRUE(rows) << rows.error().message();
    if (!rows) return {};
    for (std::uint32_t i = 0; i < rows->rows; ++i) all.insert(all.end(), rows->row(i).begin(), rows->row(i).end());
    at += count;
  }
  return all;
}

void expect_reference(const TestModel& model) {
  const OpenedModel opened(model);
  const auto expected = DeepSeekReference(*opened.file).logits(kTokens);
  const std::vector<float> got = run(model);
  ASSERT_EQ(got.size(), kTokens.size() * 3);
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i / 3][i % 3], 1e-4 * (1 + std::fabs(expected[i / 3][i % 3]))) << "position " << i / 3;
  }
}

// Without experts.
TestModel latent_model() {
  TestModel model = TestModel::attention("deepseek2");
  model.remove("expert_count").remove("expert_used_count").remove("expert_shared_feed_forward_length");
  return model.with_tensors({false, false}).randomize(11);
}

// The same model as an older file has it: the projections of keys and values in one matrix.
TestModel as_older_file(TestModel model) {
  model.remove("attention.key_length_mla").remove("attention.value_length_mla");
  model.set("attention.head_count_kv", 2U).set("attention.key_length", 12U).set("attention.value_length", 5U);
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    const auto k_b = model.weights(layer + "attn_k_b.weight"), v_b = model.weights(layer + "attn_v_b.weight");
    std::vector<float> joint;  // [2][8 + 5][8]
    for (std::size_t head = 0; head < 2; ++head) {
      for (std::size_t n = 0; n < 8; ++n) {
        for (std::size_t r = 0; r < 8; ++r) joint.push_back(k_b[head * 64 + r * 8 + n]);
      }
      joint.insert(joint.end(), v_b.begin() + static_cast<std::ptrdiff_t>(head * 40),
                   v_b.begin() + static_cast<std::ptrdiff_t>(head * 40 + 40));
    }
    model.remove_tensor(layer + "attn_k_b.weight").remove_tensor(layer + "attn_v_b.weight");
    model.tensor(layer + "attn_kv_b.weight", {8, 26}, joint);
  }
  return model;
}

TEST(LatentModel, HasTheLogitsOfTheReferenceThatAbsorbsNothing) { expect_reference(latent_model()); }

TEST(LatentModel, QueriesMayComeFromTheInputItself) {
  TestModel model = latent_model();
  model.remove("attention.q_lora_rank");
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    for (const char* name : {"attn_q_a.weight", "attn_q_a_norm.weight", "attn_q_b.weight"}) {
      model.remove_tensor(layer + name);
    }
    model.tensor(layer + "attn_q.weight", {16, 24});
  }
  expect_reference(model);
}

// As DeepSeek V2 Lite has it: mscale and mscale_all_dim are 0.707, and the file has a tenth of that.
TEST(LatentModel, YarnTurnsThePairsAndScalesTheScores) {
  TestModel model = latent_model();
  model.set("rope.scaling.type", std::string("yarn")).set("rope.scaling.factor", 40.0F);
  model.set("rope.scaling.original_context_length", 16U).set("rope.scaling.yarn_log_multiplier", 0.0707F);
  expect_reference(model);
  model.set("rope.scaling.yarn_beta_fast", 4.0F).set("rope.freq_base", 50.0F);
  expect_reference(model);
}

// A dense layer and one with experts: eight in four groups, of which two may be chosen from.
TestModel with_experts() {
  TestModel model = latent_model();
  model.set("expert_count", 8U).set("expert_used_count", 3U).set("leading_dense_block_count", 1U);
  model.set("expert_group_count", 4U).set("expert_group_used_count", 2U).set("expert_weights_scale", 2.5F);
  model.set("expert_feed_forward_length", 12U).set("expert_shared_count", 2U);
  const std::string layer = "blk.1.";
  for (const char* name : {"ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"}) model.remove_tensor(layer + name);
  model.tensor(layer + "ffn_gate_inp.weight", {16, 8}).tensor(layer + "ffn_gate_exps.weight", {16, 12, 8});
  model.tensor(layer + "ffn_up_exps.weight", {16, 12, 8}).tensor(layer + "ffn_down_exps.weight", {12, 16, 8});
  model.tensor(layer + "ffn_gate_shexp.weight", {16, 24}).tensor(layer + "ffn_up_shexp.weight", {16, 24});
  model.tensor(layer + "ffn_down_shexp.weight", {24, 16});
  return model;
}

TEST(LatentModel, ExpertsOfV2AreChosenBySoftmaxFromTheGroupsWithTheBestOnes) {
  expect_reference(with_experts());
  expect_reference(with_experts().set("expert_gating_func", 1U).set("expert_weights_norm", true));
  expect_reference(with_experts().set("expert_group_count", 1U).set("expert_group_used_count", 1U));
}

TEST(LatentModel, ExpertsOfV3AreChosenBySigmoidsWithABiasFromTheGroupsWithTheBestTwo) {
  TestModel model = with_experts();
  model.set("expert_gating_func", 2U).set("expert_weights_norm", true);
  expect_reference(model);
  // The bias decides who is chosen, but is not part of the weights.
  const std::vector<float> bias = {0.4F, -0.3F, 0.2F, 0.6F, -0.5F, 0.1F, 0.3F, -0.2F};
  TestModel biased = TestModel(model).tensor("blk.1.exp_probs_b.bias", {8}, bias);
  expect_reference(biased);
  EXPECT_NE(run(biased), run(model));
}

// The reference itself, against Hugging Face.
TEST(DeepSeekReference, HasHuggingFacesLogits) {
  const std::string folder = QUIRE_SOURCE_DIR "/testdata/golden/deepseek2";
  const auto file = gguf::File::open(folder + "/model.gguf");
  ASSERT_TRUE(file) << file.error().message;
  const DeepSeekReference reference(*file);
  std::ifstream in(folder + "/golden.json", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const boost::json::value golden = boost::json::parse(text);
  for (const boost::json::value& item : golden.at("cases").as_array()) {
    std::vector<Token> tokens;
    for (const boost::json::value& token : item.at("tokens").as_array()) {
      tokens.push_back(static_cast<Token>(token.to_number<std::int64_t>()));
    }
    const auto last = reference.logits(tokens).back();
    const double spread = item.at("logit_std").to_number<double>();
    std::vector<float> expected(last.size());
    std::ifstream logits(folder + "/" + std::string(item.at("last_logits").as_string()), std::ios::binary);
    logits.read(reinterpret_cast<char*>(expected.data()),
                static_cast<std::streamsize>(expected.size() * sizeof(float)));
    ASSERT_TRUE(logits);
    for (std::size_t i = 0; i < last.size(); ++i) EXPECT_NEAR(last[i], expected[i], 1e-4 * spread) << i;
  }
}

TEST(LatentModel, AJointMatrixIsSplitAndGivesTheSameBits) {
  const TestModel model = latent_model(), older = as_older_file(model);
  expect_reference(older);
  EXPECT_EQ(run(older), run(model));
}

}  // namespace
}  // namespace quire::model
