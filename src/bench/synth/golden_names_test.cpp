// The tensors and the metadata of a shape are those that llama.cpp's converter writes. The lists here are taken from
// small models that were converted by it, one of each architecture.
#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/bench/synth/metadata.h"
#include "quire/bench/synth/plan.h"
#include "quire/gguf/gguf.h"

namespace quire::synth {
namespace {

using ::testing::UnorderedElementsAreArray;

// Tensors are "name[sizes]"; a trailing '*' stands for F16, all others are F32. Of layers that have the same tensors
// only the first is listed, and `same` says which layers follow which.
struct Golden {
  const char* name;
  Shape shape;
  const char* keys;     // without the architecture
  const char* tensors;  // outside of layers
  std::vector<const char*> kinds;
  std::vector<std::size_t> layers;  // index into kinds
};

Shape base(const char* architecture, std::uint32_t layers, std::uint32_t feed_forward) {
  Shape shape{.architecture = architecture, .layers = layers, .embedding = 64, .vocabulary = 320, .context = 512};
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.head_dim = 16;
  shape.feed_forward = feed_forward;
  return shape;
}

Shape with_experts(Shape shape, std::uint32_t experts, std::uint32_t used, std::uint32_t width) {
  shape.experts = experts;
  shape.experts_used = used;
  shape.expert_feed_forward = width;
  return shape;
}

Golden qwen3moe() {
  Shape shape = with_experts(base("qwen3moe", 2, 128), 8, 3, 32);
  shape.tied = true;
  shape.epsilon = 1e-6f;
  return {.name = "qwen3moe",
          .shape = shape,
          .keys =
              "block_count 2; context_length 512; embedding_length 64; feed_forward_length 128; "
              "attention.head_count 4; attention.head_count_kv 2; rope.freq_base 10000; "
              "attention.layer_norm_rms_epsilon 1e-06; expert_count 8; expert_used_count 3; "
              "attention.key_length 16; attention.value_length 16; expert_feed_forward_length 32",
          .tensors = "token_embd.weight[64,320]* output_norm.weight[64]",
          .kinds = {"attn_k.weight[64,32]* attn_k_norm.weight[16] attn_norm.weight[64] attn_output.weight[64,64]* "
                    "attn_q.weight[64,64]* attn_q_norm.weight[16] attn_v.weight[64,32]* ffn_down_exps.weight[32,64,8]* "
                    "ffn_gate_exps.weight[64,32,8]* ffn_gate_inp.weight[64,8] ffn_norm.weight[64] "
                    "ffn_up_exps.weight[64,32,8]*"},
          .layers = {0, 0}};
}

Golden olmoe() {
  Shape shape = with_experts(base("olmoe", 2, 0), 8, 3, 32);
  shape.kv_heads = 4;
  return {.name = "olmoe",
          .shape = shape,
          .keys =
              "block_count 2; context_length 512; embedding_length 64; feed_forward_length 32; "
              "attention.head_count 4; attention.head_count_kv 4; rope.freq_base 10000; "
              "attention.layer_norm_rms_epsilon 1e-05; expert_count 8; expert_used_count 3; "
              "attention.key_length 16; attention.value_length 16",
          .tensors = "output.weight[64,320]* token_embd.weight[64,320]* output_norm.weight[64]",
          .kinds = {"attn_k.weight[64,64]* attn_k_norm.weight[64] attn_norm.weight[64] attn_output.weight[64,64]* "
                    "attn_q.weight[64,64]* attn_q_norm.weight[64] attn_v.weight[64,64]* ffn_down_exps.weight[32,64,8]* "
                    "ffn_gate_exps.weight[64,32,8]* ffn_gate_inp.weight[64,8] ffn_norm.weight[64] "
                    "ffn_up_exps.weight[64,32,8]*"},
          .layers = {0, 0}};
}

Golden gpt_oss() {
  Shape shape = with_experts(base("gpt-oss", 4, 64), 4, 2, 64);
  shape.window = 16;
  return {.name = "gpt-oss",
          .shape = shape,
          .keys =
              "block_count 4; context_length 512; embedding_length 64; feed_forward_length 64; "
              "attention.head_count 4; attention.head_count_kv 2; rope.freq_base 10000; "
              "attention.layer_norm_rms_epsilon 1e-05; expert_count 4; expert_used_count 2; "
              "attention.key_length 16; attention.value_length 16; attention.sliding_window 16; "
              "expert_feed_forward_length 64",
          .tensors = "output.weight[64,320]* token_embd.weight[64,320]* output_norm.weight[64]",
          .kinds = {"attn_k.bias[32] attn_k.weight[64,32]* attn_norm.weight[64] attn_output.bias[64] "
                    "attn_output.weight[64,64]* attn_q.bias[64] attn_q.weight[64,64]* attn_sinks.weight[4] "
                    "attn_v.bias[32] attn_v.weight[64,32]* ffn_down_exps.bias[64,4] ffn_down_exps.weight[64,64,4]* "
                    "ffn_gate_exps.bias[64,4] ffn_gate_exps.weight[64,64,4]* ffn_gate_inp.bias[4] "
                    "ffn_gate_inp.weight[64,4] ffn_up_exps.bias[64,4] ffn_up_exps.weight[64,64,4]* "
                    "post_attention_norm.weight[64]"},
          .layers = {0, 0, 0, 0}};
}

Golden lfm2() {
  Shape shape = base("lfm2", 4, 160);
  shape.tied = true;
  shape.conv = 3;
  shape.rope_base = 1000000;
  shape.attention_layers = {1};
  return {.name = "lfm2",
          .shape = shape,
          .keys =
              "block_count 4; context_length 512; embedding_length 64; feed_forward_length 160; "
              "attention.head_count 4; attention.head_count_kv [0, 2, 0, 0]; rope.freq_base 1e+06; "
              "attention.layer_norm_rms_epsilon 1e-05; attention.key_length 16; attention.value_length 16; "
              "vocab_size 320; shortconv.l_cache 3",
          .tensors = "token_embd.weight[64,320]* token_embd_norm.weight[64]",
          .kinds = {"attn_norm.weight[64] ffn_down.weight[160,64]* ffn_gate.weight[64,160]* ffn_norm.weight[64] "
                    "ffn_up.weight[64,160]* shortconv.conv.weight[3,64] shortconv.in_proj.weight[64,192]* "
                    "shortconv.out_proj.weight[64,64]*",
                    "attn_k.weight[64,32]* attn_k_norm.weight[16] attn_norm.weight[64] attn_output.weight[64,64]* "
                    "attn_q.weight[64,64]* attn_q_norm.weight[16] attn_v.weight[64,32]* ffn_down.weight[160,64]* "
                    "ffn_gate.weight[64,160]* ffn_norm.weight[64] ffn_up.weight[64,160]*"},
          .layers = {0, 1, 0, 0}};
}

Golden lfm2moe() {
  Shape shape = with_experts(base("lfm2moe", 4, 192), 4, 2, 32);
  shape.tied = true;
  shape.conv = 3;
  shape.rope_base = 1000000;
  shape.dense_layers = 1;
  shape.attention_layers = {1, 3};
  return {.name = "lfm2moe",
          .shape = shape,
          .keys =
              "block_count 4; context_length 512; embedding_length 64; feed_forward_length 192; "
              "attention.head_count 4; attention.head_count_kv [0, 2, 0, 2]; rope.freq_base 1e+06; "
              "attention.layer_norm_rms_epsilon 1e-05; expert_count 4; expert_used_count 2; "
              "attention.key_length 16; attention.value_length 16; expert_feed_forward_length 32; "
              "leading_dense_block_count 1; expert_gating_func 2; vocab_size 320; shortconv.l_cache 3",
          .tensors = "token_embd.weight[64,320]* token_embd_norm.weight[64]",
          .kinds = {"attn_norm.weight[64] ffn_down.weight[192,64]* ffn_gate.weight[64,192]* ffn_norm.weight[64] "
                    "ffn_up.weight[64,192]* shortconv.conv.weight[3,64] shortconv.in_proj.weight[64,192]* "
                    "shortconv.out_proj.weight[64,64]*",
                    "attn_k.weight[64,32]* attn_k_norm.weight[16] attn_norm.weight[64] attn_output.weight[64,64]* "
                    "attn_q.weight[64,64]* attn_q_norm.weight[16] attn_v.weight[64,32]* exp_probs_b.bias[4] "
                    "ffn_down_exps.weight[32,64,4]* ffn_gate_exps.weight[64,32,4]* ffn_gate_inp.weight[64,4] "
                    "ffn_norm.weight[64] ffn_up_exps.weight[64,32,4]*",
                    "attn_norm.weight[64] exp_probs_b.bias[4] ffn_down_exps.weight[32,64,4]* "
                    "ffn_gate_exps.weight[64,32,4]* ffn_gate_inp.weight[64,4] ffn_norm.weight[64] "
                    "ffn_up_exps.weight[64,32,4]* shortconv.conv.weight[3,64] shortconv.in_proj.weight[64,192]* "
                    "shortconv.out_proj.weight[64,64]*"},
          .layers = {0, 1, 2, 1}};
}

// The small model has sections [2, 1, 1, 0] for two pairs of channels, which follow from nothing; these are left out.
Golden qwen35() {
  Shape shape = base("qwen35", 4, 128);
  shape.rope_dim = 4;
  shape.epsilon = 1e-6f;
  shape.rope_base = 10000000;
  shape.inner = 64;
  shape.state = 16;
  shape.groups = 2;
  shape.ssm_heads = 4;
  shape.conv = 4;
  shape.attention_interval = 4;
  return {.name = "qwen35",
          .shape = shape,
          .keys =
              "block_count 4; context_length 512; embedding_length 64; feed_forward_length 128; "
              "attention.head_count 4; attention.head_count_kv 2; rope.freq_base 1e+07; "
              "attention.layer_norm_rms_epsilon 1e-06; attention.key_length 16; attention.value_length 16; "
              "ssm.conv_kernel 4; ssm.state_size 16; ssm.group_count 2; ssm.time_step_rank 4; ssm.inner_size 64; "
              "full_attention_interval 4; rope.dimension_count 4; rope.dimension_sections [1, 1, 0, 0]",
          .tensors = "output.weight[64,320]* token_embd.weight[64,320]* output_norm.weight[64]",
          .kinds = {"attn_gate.weight[64,64]* attn_norm.weight[64] attn_qkv.weight[64,128]* ffn_down.weight[128,64]* "
                    "ffn_gate.weight[64,128]* ffn_up.weight[64,128]* post_attention_norm.weight[64] ssm_a[4] "
                    "ssm_alpha.weight[64,4]* ssm_beta.weight[64,4]* ssm_conv1d.weight[4,128] ssm_dt.bias[4] "
                    "ssm_norm.weight[16] ssm_out.weight[64,64]*",
                    "attn_k.weight[64,32]* attn_k_norm.weight[16] attn_norm.weight[64] attn_output.weight[64,64]* "
                    "attn_q.weight[64,128]* attn_q_norm.weight[16] attn_v.weight[64,32]* ffn_down.weight[128,64]* "
                    "ffn_gate.weight[64,128]* ffn_up.weight[64,128]* post_attention_norm.weight[64]"},
          .layers = {0, 0, 0, 1}};
}

Golden falcon_h1() {
  Shape shape = base("falcon-h1", 3, 128);
  shape.inner = 128;
  shape.state = 16;
  shape.groups = 1;
  shape.ssm_heads = 4;
  shape.conv = 4;
  return {.name = "falcon-h1",
          .shape = shape,
          .keys =
              "context_length 512; embedding_length 64; feed_forward_length 128; attention.head_count 4; "
              "block_count 3; ssm.conv_kernel 4; ssm.inner_size 128; ssm.state_size 16; ssm.time_step_rank 4; "
              "ssm.group_count 1; attention.layer_norm_rms_epsilon 1e-05; vocab_size 320; "
              "attention.head_count_kv 2; attention.key_length 16; attention.value_length 16; "
              "rope.freq_base 10000",
          .tensors = "output.weight[64,320]* token_embd.weight[64,320]* output_norm.weight[64]",
          .kinds = {"attn_k.weight[64,32]* attn_norm.weight[64] attn_output.weight[64,64]* attn_q.weight[64,64]* "
                    "attn_v.weight[64,32]* ffn_down.weight[128,64]* ffn_gate.weight[64,128]* ffn_norm[64] "
                    "ffn_up.weight[64,128]* ssm_a[1,4] ssm_conv1d.bias[160] ssm_conv1d.weight[4,160] ssm_d[1,4] "
                    "ssm_dt.bias[4] ssm_in.weight[64,292]* ssm_out.weight[128,64]*"},
          .layers = {0, 0, 0}};
}

Golden granite_moe_hybrid() {
  Shape shape = with_experts(base("granitehybrid", 3, 0), 4, 2, 64);
  shape.tied = true;
  shape.context = 1 << 20;
  shape.shared_feed_forward = 96;
  shape.epsilon = 1e-6f;
  shape.inner = 128;
  shape.state = 16;
  shape.groups = 1;
  shape.ssm_heads = 4;
  shape.conv = 4;
  shape.attention_layers = {1};
  shape.attention_scale = 0.2f;
  shape.embedding_scale = 6;
  shape.residual_scale = 0.5f;
  shape.logit_scale = 2;
  return {.name = "granite-moe-hybrid",
          .shape = shape,
          .keys =
              "block_count 3; context_length 1048576; embedding_length 64; feed_forward_length 64; "
              "attention.head_count 4; attention.head_count_kv [0, 2, 0]; rope.freq_base 10000; "
              "attention.layer_norm_rms_epsilon 1e-06; expert_count 4; expert_used_count 2; vocab_size 320; "
              "rope.dimension_count 16; attention.scale 0.2; embedding_scale 6; residual_scale 0.5; logit_scale 2; "
              "expert_shared_feed_forward_length 96; ssm.conv_kernel 4; ssm.state_size 16; ssm.group_count 1; "
              "ssm.inner_size 128; ssm.time_step_rank 4; rope.scaling.finetuned false",
          .tensors = "token_embd.weight[64,320]* output_norm.weight[64]",
          .kinds = {"attn_norm.weight[64] ffn_down_exps.weight[64,64,4]* ffn_down_shexp.weight[96,64]* "
                    "ffn_gate_exps.weight[64,64,4]* ffn_gate_inp.weight[64,4] ffn_gate_shexp.weight[64,96]* "
                    "ffn_norm.weight[64] ffn_up_exps.weight[64,64,4]* ffn_up_shexp.weight[64,96]* ssm_a[1,4] "
                    "ssm_conv1d.bias[160] ssm_conv1d.weight[4,160] ssm_d[1,4] ssm_dt.bias[4] ssm_in.weight[64,292]* "
                    "ssm_norm.weight[128,1] ssm_out.weight[128,64]*",
                    "attn_k.weight[64,32]* attn_norm.weight[64] attn_output.weight[64,64]* attn_q.weight[64,64]* "
                    "attn_v.weight[64,32]* ffn_down_exps.weight[64,64,4]* ffn_down_shexp.weight[96,64]* "
                    "ffn_gate_exps.weight[64,64,4]* ffn_gate_inp.weight[64,4] ffn_gate_shexp.weight[64,96]* "
                    "ffn_norm.weight[64] ffn_up_exps.weight[64,64,4]* ffn_up_shexp.weight[64,96]*"},
          .layers = {0, 1, 0}};
}

Golden mamba() {
  const Shape shape{.architecture = "mamba",
                    .layers = 3,
                    .embedding = 64,
                    .vocabulary = 320,
                    .context = 1 << 20,
                    .tied = true,
                    .inner = 128,
                    .state = 16,
                    .conv = 4,
                    .dt_rank = 8};
  return {.name = "mamba",
          .shape = shape,
          .keys =
              "context_length 1048576; embedding_length 64; feed_forward_length 0; attention.head_count 0; "
              "block_count 3; ssm.conv_kernel 4; ssm.inner_size 128; ssm.state_size 16; ssm.time_step_rank 8; "
              "attention.layer_norm_rms_epsilon 1e-05; ssm.dt_b_c_rms false",
          .tensors = "token_embd.weight[64,320]* output_norm.weight[64]",
          .kinds = {"attn_norm.weight[64] ssm_a[16,128] ssm_conv1d.bias[128] ssm_conv1d.weight[4,128] ssm_d[128] "
                    "ssm_dt.bias[128] ssm_dt.weight[8,128]* ssm_in.weight[64,256]* ssm_out.weight[128,64]* "
                    "ssm_x.weight[128,40]*"},
          .layers = {0, 0, 0}};
}

Golden deepseek2() {
  Shape shape = with_experts(base("deepseek2", 3, 128), 4, 2, 32);
  shape.kv_heads = 1;
  shape.head_dim = 32;
  shape.rope_dim = 16;
  shape.kv_rank = 32;
  shape.q_rank = 48;
  shape.value_dim = 16;
  shape.shared_feed_forward = 32;
  shape.dense_layers = 1;
  shape.epsilon = 1e-6f;
  constexpr const char* kAttention =
      "attn_k_b.weight[16,32,4]* attn_kv_a_mqa.weight[64,48]* attn_kv_a_norm.weight[32] attn_norm.weight[64] "
      "attn_output.weight[64,64]* attn_q_a.weight[64,48]* attn_q_a_norm.weight[48] attn_q_b.weight[48,128]* "
      "attn_v_b.weight[32,16,4]* ffn_norm.weight[64] ";
  static const std::string dense =
      std::string(kAttention) + "ffn_down.weight[128,64]* ffn_gate.weight[64,128]* ffn_up.weight[64,128]*";
  static const std::string experts =
      std::string(kAttention) +
      "ffn_down_exps.weight[32,64,4]* ffn_down_shexp.weight[32,64]* ffn_gate_exps.weight[64,32,4]* "
      "ffn_gate_inp.weight[64,4] ffn_gate_shexp.weight[64,32]* ffn_up_exps.weight[64,32,4]* "
      "ffn_up_shexp.weight[64,32]*";
  return {.name = "deepseek2",
          .shape = shape,
          .keys =
              "block_count 3; context_length 512; embedding_length 64; feed_forward_length 128; "
              "attention.head_count 4; attention.head_count_kv 1; rope.freq_base 10000; "
              "attention.layer_norm_rms_epsilon 1e-06; expert_count 4; expert_used_count 2; expert_group_count 1; "
              "expert_group_used_count 1; expert_gating_func 1; attention.key_length 48; "
              "attention.value_length 32; leading_dense_block_count 1; vocab_size 320; attention.q_lora_rank 48; "
              "attention.kv_lora_rank 32; attention.key_length_mla 32; attention.value_length_mla 16; "
              "expert_feed_forward_length 32; expert_shared_count 1; expert_weights_scale 1; "
              "rope.dimension_count 16",
          .tensors = "output.weight[64,320]* token_embd.weight[64,320]* output_norm.weight[64]",
          .kinds = {dense.c_str(), experts.c_str()},
          .layers = {0, 1, 1}};
}

std::vector<Golden> all_golden() {
  return {qwen3moe(),           olmoe(), gpt_oss(),  lfm2(), lfm2moe(), qwen35(), falcon_h1(),
          granite_moe_hybrid(), mamba(), deepseek2()};
}

class GoldenNames : public ::testing::TestWithParam<Golden> {};
INSTANTIATE_TEST_SUITE_P(Architectures, GoldenNames, ::testing::ValuesIn(all_golden()), [](const auto& golden) {
  std::string name = golden.param.name;
  std::ranges::replace(name, '-', '_');
  return name;
});

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> all;
  for (std::string word; in >> word;) all.push_back(word);
  return all;
}

TEST_P(GoldenNames, AreThoseOfTheTensors) {
  const Golden& golden = GetParam();
  ASSERT_TRUE(check_shape(golden.shape)) << check_shape(golden.shape).error().message;
  const auto plan = Plan::make(golden.shape, *find_mix("F16"));
  ASSERT_TRUE(plan) << plan.error().message;
  std::vector<std::string> expected = words(golden.tensors), found;
  for (std::size_t layer = 0; layer < golden.layers.size(); ++layer) {
    for (const std::string& tensor : words(golden.kinds[golden.layers[layer]])) {
      expected.push_back(fmt::format("blk.{}.{}", layer, tensor));
    }
  }
  for (const Tensor& tensor : plan->tensors()) {
    ASSERT_TRUE(tensor.type == gguf::Type::F16 || tensor.type == gguf::Type::F32) << tensor.name;
    found.push_back(
        fmt::format("{}[{}]{}", tensor.name, fmt::join(tensor.shape, ","), tensor.type == gguf::Type::F16 ? "*" : ""));
  }
  EXPECT_THAT(found, UnorderedElementsAreArray(expected));
}

std::string written_value(const gguf::File& file, const gguf::Entry& entry) {
  if (const auto flag = file.get<bool>(entry.key)) return fmt::format("{}", *flag);
  if (const auto number = file.get<std::uint32_t>(entry.key)) return fmt::format("{}", *number);
  if (const auto number = file.get<float>(entry.key)) return fmt::format("{:g}", *number);
  const auto array = file.get_array<std::int32_t>(entry.key);
  EXPECT_TRUE(array) << entry.key;
  std::vector<std::int32_t> values;
  for (std::size_t i = 0; i < array->size(); ++i) values.push_back((*array)[i]);
  return fmt::format("[{}]", fmt::join(values, ", "));
}

TEST_P(GoldenNames, AreThoseOfTheMetadata) {
  const Golden& golden = GetParam();
  gguf::Writer writer;
  add_hyperparameters(writer, golden.shape);
  const auto image = writer.to_memory();
  ASSERT_TRUE(image) << image.error().message;
  const auto file = gguf::File::from_memory(*image, golden.name);
  ASSERT_TRUE(file) << file.error().message;
  std::vector<std::string> expected, found;
  std::istringstream in(golden.keys);
  for (std::string key; std::getline(in >> std::ws, key, ';');) expected.push_back(key);
  // This key is in every file of synth, so that its metadata alone say how large the model is.
  const std::string vocabulary = "vocab_size 320";
  if (std::ranges::find(expected, vocabulary) == expected.end()) expected.push_back(vocabulary);
  const std::string prefix = golden.shape.architecture + ".";
  for (std::size_t i = 0; i < file->entry_count(); ++i) {
    const gguf::Entry entry = file->entry(i);
    if (entry.key == "general.architecture") continue;
    ASSERT_TRUE(entry.key.starts_with(prefix)) << entry.key;
    found.push_back(fmt::format("{} {}", entry.key.substr(prefix.size()), written_value(*file, entry)));
  }
  EXPECT_THAT(found, UnorderedElementsAreArray(expected));
}

}  // namespace
}  // namespace quire::synth
