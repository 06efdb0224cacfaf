#include "quire/model/tensor_table.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/model/model.h"
#include "quire/model/model_testing.h"

namespace quire::model {
namespace {

using ::testing::HasSubstr;
using testing::OpenedModel;
using testing::TestModel;

std::string tensor_refusal(const TestModel& model) {
  const OpenedModel opened(model);
  const auto hyperparameters = read_hyperparameters(*opened.file);
  if (!hyperparameters) return hyperparameters.error().message;
  const auto checked = check_tensors(*opened.file, *hyperparameters);
  return checked ? "" : checked.error().message;
}

std::string load_refusal(const TestModel& model) {
  OpenedModel opened(model);
  const auto loaded = Model::create(std::move(*opened.file));
  return loaded ? "" : loaded.error().message;
}

// Two layers, with the tensors of published files of the architecture.
TestModel right(const std::string& name) {
  const Architecture& row = *find_architecture(name);
  TestModel model = TestModel::of(row);
  if (row.alternates()) return model.with_tensors({true, false});
  if (row.recurs() && row.has(BlockKind::Attention)) return model.with_both(2);
  return row.recurs() ? model.with_tensors({true, true}) : model.with_tensors({false, false});
}

TEST(Tensors, ThoseOfARightModelPass) {
  for (const Architecture& row : architectures()) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(tensor_refusal(right(std::string(row.name))), "");
    EXPECT_EQ(load_refusal(right(std::string(row.name))), "");
  }
  EXPECT_EQ(tensor_refusal(TestModel::attention("llama")), "");
  EXPECT_EQ(tensor_refusal(right("llama").tensor("output.weight", {16, 3})), "");
}

TEST(Tensors, OneThatIsMissingIsNamed) {
  const TestModel model = right("llama");
  EXPECT_THAT(tensor_refusal(TestModel(model).remove_tensor("token_embd.weight")),
              HasSubstr("has no tensor 'token_embd.weight'"));
  EXPECT_THAT(tensor_refusal(TestModel(model).remove_tensor("blk.1.attn_k.weight")),
              HasSubstr("has no tensor 'blk.1.attn_k.weight'"));
  EXPECT_THAT(tensor_refusal(TestModel(model).set("block_count", 3U)), HasSubstr("has no tensor 'blk.2."));
  EXPECT_THAT(tensor_refusal(TestModel(model).set("block_count", 1U)),
              HasSubstr("has a tensor of layer 1, but 'llama.block_count' is 1"));
}

TEST(Tensors, NoneThatAnArchitectureNeedsMayBeMissing) {
  for (const Architecture& row : architectures()) {
    const TestModel model = right(std::string(row.name));
    for (const std::string& name : model.tensor_names()) {
      SCOPED_TRACE(std::string(row.name) + " without " + name);
      const TestModel without = TestModel(model).remove_tensor(name);
      // If the fused tensor is missing, the error names the first of the three separate ones.
      const bool fused = name.ends_with("attn_qkv.weight") && !row.has(BlockKind::DeltaRule);
      const bool gates = name.ends_with("ssm_ba.weight");  // the same: alpha and beta
      const std::string missed = name.substr(0, 6) + (fused ? "attn_q.weight" : "ssm_alpha.weight");
      // Optional for Granite's hybrids.
      const bool optional = row.name == "granitehybrid" && name.ends_with("ssm_conv1d.bias");
      if (optional) {
        EXPECT_EQ(tensor_refusal(without), "");
      } else {
        EXPECT_THAT(tensor_refusal(without), HasSubstr("has no tensor '" + (fused || gates ? missed : name) + "'"));
      }
      EXPECT_EQ(load_refusal(without), tensor_refusal(without));
    }
  }
}

TEST(Tensors, MoreLayersThanTensorsAreRefusedBeforeTheyAreBuilt) {
  const TestModel model = right("llama").set("block_count", 1024U);
  EXPECT_EQ(load_refusal(model), "test: metadata 'llama.block_count': 1024 layers, but the file has 20 tensors");
  EXPECT_EQ(tensor_refusal(model), load_refusal(model));
}

TEST(Tensors, ARefusedLayoutNamesTheFile) {
  const TestModel model = right("llama").set("attention.key_length", 8U).set("attention.value_length", 16U);
  EXPECT_EQ(load_refusal(model), "test: llama: keys of 8 and values of 16 elements, which cannot share a page");
}

TEST(Tensors, LatentAttentionHasItsProjectionsInOneMatrixOrTwo) {
  const auto joint = [](TestModel model) {
    for (const std::string layer : {"blk.0.", "blk.1."}) {
      model.remove_tensor(layer + "attn_k_b.weight").remove_tensor(layer + "attn_v_b.weight");
      model.tensor(layer + "attn_kv_b.weight", {8, 26});
    }
    return model;
  };
  EXPECT_EQ(load_refusal(joint(right("deepseek2"))), "");
  EXPECT_THAT(load_refusal(joint(right("deepseek2")).tensor("blk.1.attn_kv_b.weight", {8, 25})),
              HasSubstr("has 1 times 25 rows of 8, but the metadata require 2 times 13 rows of 8"));
  // Some files have both.
  TestModel both = right("deepseek2");
  both.tensor("blk.0.attn_kv_b.weight", {8, 26}).tensor("blk.1.attn_kv_b.weight", {8, 26});
  EXPECT_EQ(load_refusal(both), "");
}

TEST(Tensors, QueriesOfLatentAttentionMayComeFromTheInputItself) {
  TestModel model = right("deepseek2");
  model.remove("attention.q_lora_rank");
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    for (const char* name : {"attn_q_a.weight", "attn_q_a_norm.weight", "attn_q_b.weight"}) {
      model.remove_tensor(layer + name);
    }
    model.tensor(layer + "attn_q.weight", {16, 24});
  }
  EXPECT_EQ(load_refusal(model), "");
}

TEST(Tensors, NormsAndBiasesOfAnArchitectureAreRequired) {
  const std::pair<std::string, std::vector<std::string>> needed[] = {
      {"qwen2", {"attn_q.bias", "attn_k.bias", "attn_v.bias"}},
      {"qwen3", {"attn_q_norm.weight", "attn_k_norm.weight"}},
      {"gemma2", {"post_attention_norm.weight", "post_ffw_norm.weight"}},
      {"gemma3", {"attn_q_norm.weight", "attn_k_norm.weight", "post_attention_norm.weight", "post_ffw_norm.weight"}},
      {"mamba2", {"ssm_conv1d.bias"}},
      {"olmo2", {"attn_q_norm.weight", "attn_k_norm.weight", "post_attention_norm.weight", "post_ffw_norm.weight"}},
      {"glm4", {"post_attention_norm.weight", "post_ffw_norm.weight"}},
      {"gpt2",
       {"attn_qkv.bias", "attn_output.bias", "ffn_up.bias", "ffn_down.bias", "attn_norm.bias", "ffn_norm.bias"}},
      {"starcoder2", {"attn_q.bias", "attn_output.bias", "ffn_up.bias", "ffn_down.bias", "attn_norm.bias"}},
  };
  for (const auto& [architecture, names] : needed) {
    for (const std::string& name : names) {
      // Removed from all layers, since otherwise the error would be about the difference between layers.
      EXPECT_THAT(load_refusal(right(architecture).remove_tensor("blk.0." + name).remove_tensor("blk.1." + name)),
                  HasSubstr("has no tensor 'blk.0." + name + "'"));
    }
  }
}

// Unless the architecture is one whose heads are known (head_test.cpp).
TEST(Tensors, ThoseOfLayersThatPredictFurtherTokensAreSkipped) {
  TestModel model = right("qwen3").set("block_count", 3U).set("attention.head_count_kv", 1U);
  model.tensor("blk.2.nextn.eh_proj.weight", {32, 16}).tensor("blk.2.attn_norm.weight", {16});
  EXPECT_THAT(tensor_refusal(model), HasSubstr("blk.2."));
  model.set("nextn_predict_layers", 1U);
  EXPECT_EQ(tensor_refusal(model), "");
  EXPECT_EQ(load_refusal(model), "");
  EXPECT_THAT(tensor_refusal(TestModel(model).tensor("blk.3.nextn.enorm.weight", {16})),
              HasSubstr("has a tensor of layer 3, but 'qwen3.block_count' is 3"));
}

// Falcon-H1 without a norm of Mamba-2's output, and Qwen3-Next's alphas and betas in one matrix.
TEST(Tensors, SomeRecurrentLayersHaveAChoice) {
  TestModel falcon = right("falcon-h1");
  EXPECT_EQ(load_refusal(falcon.remove_tensor("blk.0.ssm_norm.weight").remove_tensor("blk.1.ssm_norm.weight")), "");
  TestModel qwen = right("qwen35");
  qwen.remove_tensor("blk.0.ssm_alpha.weight").remove_tensor("blk.0.ssm_beta.weight");
  EXPECT_EQ(load_refusal(qwen.tensor("blk.0.ssm_ba.weight", {16, 8})), "");
}

TEST(Tensors, AnUnknownOneIsRefusedByName) {
  const auto refused = [](const std::string& architecture, const std::string& name, std::vector<std::uint64_t> shape) {
    const TestModel model = right(architecture).tensor(name, std::move(shape));
    EXPECT_THAT(tensor_refusal(model), HasSubstr("tensor '" + name + "'")) << architecture;
    EXPECT_EQ(load_refusal(model), tensor_refusal(model));
  };
  for (const char* name : {"blk.1.attn_norm.bias", "blk.1.ffn_norm.bias", "output_norm.bias"}) {
    refused("llama", name, {16});
    refused("cohere2", name, {16});
  }
  refused("gpt2", "blk.0.ffn_gate.bias", {32});
  refused("gpt2", "blk.0.ffn_gate.weight", {16, 32});
  refused("starcoder2", "position_embd.weight", {16, 100});
  refused("cohere2", "blk.0.ffn_norm.weight", {16});
  refused("olmo2", "blk.0.attn_norm.weight", {16});
  refused("llama", "blk.1.attn_sinks.weight", {2});
  refused("llama", "blk.0.attn_q.scale", {1});
  refused("llama", "blk.0.ffn_gate_inp.weight", {16, 4});
  refused("llama", "position_embd.weight", {16, 100});
  refused("llama", "blk.0.something_new", {1});
  refused("llama", "something_new", {1});
  // A reranker has this in place of an output matrix.
  refused("qwen3", "cls.output.weight", {16, 2});
  // Known names in the wrong place.
  refused("llama", "blk.0.attn_q_norm.weight", {8});
  refused("qwen3", "blk.0.post_attention_norm.weight", {16});
  refused("llama", "blk.0.ssm_in.weight", {16, 76});
  refused("mamba2", "blk.0.ffn_up.weight", {16, 32});
  refused("mamba2", "rope_freqs.weight", {4});
  refused("phi3", "blk.0.attn_q.weight", {16, 16});
  refused("phi3", "blk.0.ffn_gate.weight", {16, 32});
  // Names that only look like known ones.
  refused("llama", "blk.00.attn_q.weight", {16, 16});
  refused("llama", "blk.0.token_embd.weight", {16, 3});
  refused("llama", "attn_q.weight", {16, 16});
}

TEST(Tensors, TheNameOfAnUnknownOneIsEscaped) {
  const std::string why = tensor_refusal(right("llama").tensor("evil\x1b[31m", {1}));
  EXPECT_THAT(why, HasSubstr("tensor 'evil\\x1b[31m'"));
}

TEST(Tensors, ExtraTensorsOfPublishedFilesPass) {
  // LLaMAfied Qwen and InternLM.
  TestModel biased = right("llama");
  for (const char* layer : {"blk.0.", "blk.1."}) {
    const std::string prefix = layer;
    biased.tensor(prefix + "attn_q.bias", {16}).tensor(prefix + "attn_k.bias", {8}).tensor(prefix + "attn_v.bias", {8});
    biased.tensor(prefix + "attn_output.bias", {16});
  }
  EXPECT_EQ(load_refusal(biased), "");
  // Granite's small code models.
  TestModel granite = right("llama").tensor("output.bias", {3});
  for (const char* layer : {"blk.0.", "blk.1."}) {
    const std::string prefix = layer;
    granite.tensor(prefix + "ffn_gate.bias", {32}).tensor(prefix + "ffn_up.bias", {32});
    granite.tensor(prefix + "ffn_down.bias", {16});
  }
  EXPECT_EQ(load_refusal(granite), "");
  EXPECT_EQ(load_refusal(right("glm4").tensor("blk.0.ffn_up.bias", {64}).tensor("blk.1.ffn_up.bias", {64})), "");
  // Llama 3.1, and a Granite hybrid made by the same converter.
  EXPECT_EQ(tensor_refusal(right("llama").tensor("rope_freqs.weight", {4})), "");
  EXPECT_EQ(tensor_refusal(right("granitehybrid").tensor("rope_freqs.weight", {4})), "");
  EXPECT_EQ(load_refusal(right("granitehybrid").remove_tensor("blk.0.ssm_conv1d.bias")), "");
}

TEST(Tensors, AFileThatCannotBeRunYetMayStillBeDescribed) {
  // Whether a model can be run depends on its hyperparameters (constants.h), not on the names of its tensors.
  EXPECT_EQ(
      tensor_refusal(right("phi3").tensor("rope_factors_long.weight", {4}).tensor("rope_factors_short.weight", {4})),
      "");
}

TestModel with_experts(const std::string& architecture) {
  TestModel model = TestModel::attention(architecture).set("expert_count", 4U).set("expert_used_count", 2U);
  return model.with_tensors({false, false});
}

TEST(Tensors, ExpertsOfALayerAreOneTensorOfThreeDimensions) {
  EXPECT_EQ(load_refusal(with_experts("llama")), "");
  EXPECT_THAT(load_refusal(with_experts("llama").tensor("blk.1.ffn_up_exps.weight", {16, 4, 32})),
              HasSubstr("tensor 'blk.1.ffn_up_exps.weight' has 32 times 4 rows of 16, but the metadata require 4 times "
                        "32 rows of 16"));
  EXPECT_THAT(load_refusal(with_experts("llama").tensor("blk.0.ffn_down_exps.weight", {32, 64})),
              HasSubstr("tensor 'blk.0.ffn_down_exps.weight' has 1 times 64 rows of 32"));
  EXPECT_THAT(load_refusal(with_experts("llama").tensor("blk.0.ffn_gate_inp.weight", {16, 5})),
              HasSubstr("'blk.0.ffn_gate_inp.weight' has 5 rows of 16, but the metadata require 4 rows of 16"));
  // Gate and up may be one tensor, expert by expert.
  TestModel fused = with_experts("llama");
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    fused.remove_tensor(layer + "ffn_gate_exps.weight").remove_tensor(layer + "ffn_up_exps.weight");
    fused.tensor(layer + "ffn_gate_up_exps.weight", {16, 64, 4});
  }
  EXPECT_EQ(load_refusal(fused), "");
}

TEST(Tensors, ALayerOfAModelWithExpertsMayHaveNone) {
  TestModel model = with_experts("llama");
  for (const char* name : {"ffn_gate_inp.weight", "ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight"})
    model.remove_tensor(std::string("blk.0.") + name);
  EXPECT_THAT(load_refusal(model), HasSubstr("has no tensor 'blk.0.ffn_gate_inp.weight'"));
  model.tensor("blk.0.ffn_gate.weight", {16, 32}).tensor("blk.0.ffn_up.weight", {16, 32});
  model.tensor("blk.0.ffn_down.weight", {32, 16});
  EXPECT_EQ(load_refusal(model), "");
  EXPECT_EQ(load_refusal(model.set("leading_dense_block_count", 1U)), "");
  EXPECT_THAT(load_refusal(model.set("leading_dense_block_count", 2U)), HasSubstr("'blk.1.ffn_gate.weight'"));
}

TEST(Tensors, ASharedExpertIsThereIfTheMetadataSaySo) {
  TestModel model = with_experts("llama").set("expert_shared_feed_forward_length", 8U);
  EXPECT_THAT(load_refusal(model), HasSubstr("has no tensor 'blk.0.ffn_gate_shexp.weight'"));
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    model.tensor(layer + "ffn_gate_shexp.weight", {16, 8}).tensor(layer + "ffn_up_shexp.weight", {16, 8});
    model.tensor(layer + "ffn_down_shexp.weight", {8, 16});
  }
  EXPECT_EQ(load_refusal(model), "");
  EXPECT_THAT(load_refusal(TestModel(model).remove("expert_shared_feed_forward_length")),
              HasSubstr("'blk.0.ffn_down_shexp.weight' is not one that Quire uses"));
  model.remove("expert_shared_feed_forward_length").set("expert_feed_forward_length", 32U);
  EXPECT_THAT(load_refusal(model.set("expert_shared_count", 2U)), HasSubstr("require 64 rows of 16"));
}

TEST(Tensors, AnOptionalOneIsInAllLayersOrInNone) {
  const TestModel model = right("llama").tensor("blk.0.attn_q.bias", {16});
  EXPECT_THAT(load_refusal(model), HasSubstr("has no tensor 'blk.1.attn_q.bias'"));
  EXPECT_EQ(load_refusal(TestModel(model).tensor("blk.1.attn_q.bias", {16})), "");
  // Layers of another kind do not count.
  EXPECT_EQ(tensor_refusal(TestModel::hybrid("granitehybrid", {0, 1, 0})
                               .with_tensors({true, false, true})
                               .tensor("blk.1.attn_q.bias", {16})),
            "");
}

TEST(Tensors, QueriesKeysAndValuesMayBeOneTensor) {
  TestModel model = right("llama").set("block_count", 1U);
  for (const std::string& name : model.tensor_names()) {
    if (name.starts_with("blk.1.")) model.remove_tensor(name);
  }
  for (const char* name : {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"}) {
    model.remove_tensor(name);
  }
  EXPECT_THAT(load_refusal(model), HasSubstr("has no tensor 'blk.0.attn_q.weight'"));
  model.tensor("blk.0.attn_qkv.weight", {16, 32});
  EXPECT_EQ(load_refusal(model), "");
  EXPECT_EQ(load_refusal(TestModel(model).tensor("blk.0.attn_qkv.bias", {32})), "");
  EXPECT_THAT(load_refusal(TestModel(model).tensor("blk.0.attn_q.bias", {16})), HasSubstr("'blk.0.attn_q.bias'"));
  EXPECT_THAT(tensor_refusal(TestModel(model).tensor("blk.0.attn_qkv.weight", {16, 33})), HasSubstr("33 rows of 16"));
}

TEST(Tensors, OneOfAnotherShapeIsNamed) {
  EXPECT_THAT(tensor_refusal(right("llama").tensor("token_embd.weight", {16, 4})),
              HasSubstr("tensor 'token_embd.weight' has 4 rows of 16, but the metadata require 3 rows of 16"));
  EXPECT_THAT(tensor_refusal(right("llama").set("attention.head_count_kv", 2U)),
              HasSubstr("tensor 'blk.0.attn_k.weight'"));
  EXPECT_THAT(tensor_refusal(TestModel::hybrid("granitehybrid", {1, 0}).with_tensors({true, false})),
              HasSubstr("has no tensor 'blk.0.attn_q.weight'"));
}

TEST(Tensors, AVectorOfAnotherLengthIsNamed) {
  for (const Architecture& row : architectures()) {
    const TestModel model = right(std::string(row.name));
    for (const std::string& name : model.tensor_names()) {
      SCOPED_TRACE(std::string(row.name) + " with another " + name);
      const TestModel other = TestModel(model).tensor(name, {7});
      EXPECT_THAT(tensor_refusal(other), HasSubstr("tensor '" + name + "' has "));
      EXPECT_EQ(load_refusal(other), tensor_refusal(other));
    }
  }
}

TEST(Tensors, AModelWithoutTensorsCannotBeRun) {
  EXPECT_THAT(load_refusal(TestModel::attention("llama")), HasSubstr("2 layers, but the file has 0 tensors"));
}

}  // namespace
}  // namespace quire::model
