// For tests of models: small models of any architecture, as images in memory. They are valid until a test changes them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "quire/gguf/gguf.h"
#include "quire/gguf/writer.h"
#include "quire/model/architecture.h"

namespace quire::model::testing {

class TestModel {
 public:
  using Value = std::variant<std::uint32_t, std::int32_t, float, bool, std::string, std::vector<std::int32_t>,
                             std::vector<std::string>>;

  // Two query heads of size 8 and one KV head, an embedding of 16, `layers` layers, no tensors.
  static TestModel attention(std::string architecture, std::uint32_t layers = 2) {
    TestModel model(std::move(architecture), layers);
    model.set("attention.head_count", 2U).set("attention.head_count_kv", 1U).set("feed_forward_length", 32U);
    if (model.is({"deepseek2"})) model.set_latent();
    return model;
  }

  // Four heads of 8 channels, a state of 4 per channel, one group.
  static TestModel recurrent(std::string architecture, std::uint32_t layers = 2) {
    TestModel model(std::move(architecture), layers);
    model.set("ssm.conv_kernel", 4U).set("ssm.inner_size", 32U).set("ssm.state_size", 4U);
    model.set("ssm.group_count", 1U).set("ssm.time_step_rank", 4U).set("shortconv.l_cache", 3U);
    return model;
  }

  static TestModel hybrid(std::string architecture, std::vector<std::int32_t> kv_heads) {
    TestModel model = recurrent(std::move(architecture), static_cast<std::uint32_t>(kv_heads.size()));
    model.set("attention.head_count", 2U).set("attention.head_count_kv", std::move(kv_heads));
    model.set("feed_forward_length", 32U).set("full_attention_interval", 2U);
    return model;
  }

  // Two layers of what the row can have. Where layers alternate, the first is recurrent and the second has attention.
  static TestModel of(const Architecture& row) {
    const std::string name(row.name);
    if (!row.recurs()) return attention(name);
    if (!row.has(BlockKind::Attention)) return recurrent(name);
    return hybrid(name, row.alternates() ? std::vector<std::int32_t>{0, 1} : std::vector<std::int32_t>{1, 1});
  }

  // Sets a key of the architecture.
  TestModel& set(std::string_view name, Value value) { return set_key(architecture_ + "." + std::string(name), value); }
  TestModel& remove(std::string_view name) { return remove_key(architecture_ + "." + std::string(name)); }
  // Sets any key.
  TestModel& set_key(const std::string& key, Value value) {
    entries_[key] = std::move(value);
    return *this;
  }
  TestModel& remove_key(const std::string& key) {
    entries_.erase(key);
    return *this;
  }

  TestModel& tensor(std::string name, std::vector<std::uint64_t> shape) {
    tensors_[std::move(name)] = std::move(shape);
    return *this;
  }
  TestModel& remove_tensor(const std::string& name) {
    tensors_.erase(name);
    return *this;
  }
  // Adds the tensors that published files of the architecture have, for each layer those of its kind. The lists are
  // written out here. They are not taken from the table of architectures, because they test it.
  TestModel& with_tensors(const std::vector<bool>& recurrent_layers) {
    tensor("token_embd.weight", {16, 3});
    tensor(is({"lfm2", "lfm2moe"}) ? "token_embd_norm.weight" : "output_norm.weight", {16});
    if (is({"gpt2"})) tensor("position_embd.weight", {16, 100});
    if (has_norm_biases()) tensor("output_norm.bias", {16});
    for (std::size_t i = 0; i < recurrent_layers.size(); ++i) {
      const std::string prefix = "blk." + std::to_string(i) + ".";
      if (!is({"olmo2"})) tensor(prefix + "attn_norm.weight", {16});
      if (has_norm_biases()) tensor(prefix + "attn_norm.bias", {16});
      if (recurrent_layers[i]) {
        add_recurrent(prefix);
      } else {
        add_attention(prefix);
      }
      if (entries_.contains(architecture_ + ".feed_forward_length")) add_feed_forward(prefix);
    }
    return *this;
  }
  // Attention and Mamba-2 in every layer, for rows that join them side by side.
  TestModel& with_both(std::uint32_t layers) {
    tensor("token_embd.weight", {16, 3}).tensor("output_norm.weight", {16});
    for (std::uint32_t i = 0; i < layers; ++i) {
      const std::string prefix = "blk." + std::to_string(i) + ".";
      tensor(prefix + "attn_norm.weight", {16});
      add_attention(prefix);
      add_recurrent(prefix);
      if (is({"falcon-h1"})) add_feed_forward(prefix);
    }
    return *this;
  }
  // A tensor with these values.
  TestModel& tensor(const std::string& name, std::vector<std::uint64_t> shape, std::vector<float> values) {
    values_[name] = std::move(values);
    return tensor(name, std::move(shape));
  }
  // Random weights instead of zeros. The same seed gives the same ones.
  TestModel& randomize(std::uint32_t seed) {
    seed_ = seed;
    return *this;
  }
  // The weights of a tensor, row by row.
  std::vector<float> weights(const std::string& name) const {
    if (const auto own = values_.find(name); own != values_.end()) return own->second;
    std::uint64_t count = 1;
    for (const std::uint64_t length : tensors_.at(name)) count *= length;
    std::vector<float> values(count);
    if (seed_ == 0) return values;
    std::seed_seq seeds(name.begin(), name.end());
    std::mt19937 random(seeds);
    random.discard(seed_);
    // Decays of a recurrent layer are negative; everything else is around nought.
    for (float& value : values) value = static_cast<float>(random() % 2001) / 1000.0F - 1.0F;
    if (name.ends_with("ssm_a")) {
      for (float& value : values) value = -0.5F - value * value;
    }
    return values;
  }

  std::vector<std::string> tensor_names() const {
    std::vector<std::string> names;
    for (const auto& [name, shape] : tensors_) names.push_back(name);
    return names;
  }

  gguf::Writer writer() const {
    gguf::Writer writer;
    for (const auto& [key, value] : entries_) {
      std::visit([&writer, &name = key](const auto& v) { add(writer, name, v); }, value);
    }
    for (const auto& [name, shape] : tensors_) {
      writer.add_tensor(name, gguf::Type::F32, shape, [values = weights(name)](gguf::Sink& sink) {
        return sink.write(std::as_bytes(std::span(values)));
      });
    }
    return writer;
  }

  std::vector<std::byte> image() const {
    auto bytes = writer().to_memory();
    EXPECT_TRUE(bytes) << bytes.error().message;
    return bytes ? std::move(*bytes) : std::vector<std::byte>();
  }

 private:
  TestModel(std::string architecture, std::uint32_t layers) : architecture_(std::move(architecture)) {
    set_key("general.architecture", architecture_);
    set("block_count", layers).set("context_length", 100U).set("embedding_length", 16U);
    set("attention.layer_norm_rms_epsilon", 1e-5F).set("attention.layer_norm_epsilon", 1e-5F);
    if (is({"cohere2"})) set("logit_scale", 0.25F);
    set_key("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "c"});
    if (is({"deepseek2", "gpt-oss", "lfm2moe", "olmoe", "qwen35moe", "qwen3moe", "qwen3next"})) {
      set("expert_count", 4U).set("expert_used_count", 2U);
    }
    if (has_shared_expert()) set("expert_shared_feed_forward_length", 8U);
  }

  bool is(std::initializer_list<std::string_view> names) const {
    return std::ranges::find(names, architecture_) != names.end();
  }

  bool has_shared_expert() const { return is({"deepseek2", "qwen35moe", "qwen3next"}); }
  bool has_norm_biases() const { return is({"gpt2", "starcoder2"}); }

  // Queries from 6 elements, keys and values from 8. Keys have 8 elements of their own and 4 that are rotated,
  // values 5.
  void set_latent() {
    set("attention.q_lora_rank", 6U).set("attention.kv_lora_rank", 8U);
    set("attention.key_length", 12U).set("attention.value_length", 8U);
    set("attention.key_length_mla", 12U).set("attention.value_length_mla", 5U).set("rope.dimension_count", 4U);
  }

  void add_latent(const std::string& prefix) {
    tensor(prefix + "attn_q_a.weight", {16, 6}).tensor(prefix + "attn_q_a_norm.weight", {6});
    tensor(prefix + "attn_q_b.weight", {6, 24}).tensor(prefix + "attn_kv_a_mqa.weight", {16, 12});
    tensor(prefix + "attn_kv_a_norm.weight", {8}).tensor(prefix + "attn_k_b.weight", {8, 8, 2});
    tensor(prefix + "attn_v_b.weight", {8, 5, 2}).tensor(prefix + "attn_output.weight", {10, 16});
  }

  void add_attention(const std::string& prefix) {
    if (is({"deepseek2"})) return add_latent(prefix);
    tensor(prefix + "attn_output.weight", {16, 16});
    if (is({"gpt2", "phi3"})) {
      tensor(prefix + "attn_qkv.weight", {16, 32});
    } else {
      tensor(prefix + "attn_q.weight", {16, is({"qwen35", "qwen35moe", "qwen3next"}) ? 32U : 16U})
          .tensor(prefix + "attn_k.weight", {16, 8});
      tensor(prefix + "attn_v.weight", {16, 8});
    }
    if (is({"gpt2"})) tensor(prefix + "attn_qkv.bias", {32});
    if (is({"gpt2", "starcoder2"})) tensor(prefix + "attn_output.bias", {16});
    if (is({"gpt-oss", "qwen2", "starcoder2"})) {
      tensor(prefix + "attn_q.bias", {16}).tensor(prefix + "attn_k.bias", {8}).tensor(prefix + "attn_v.bias", {8});
    }
    if (is({"gemma3", "lfm2", "lfm2moe", "qwen3", "qwen35", "qwen35moe", "qwen3moe", "qwen3next"})) {
      tensor(prefix + "attn_q_norm.weight", {8}).tensor(prefix + "attn_k_norm.weight", {8});
    }
    if (is({"olmo2", "olmoe"})) tensor(prefix + "attn_q_norm.weight", {16}).tensor(prefix + "attn_k_norm.weight", {8});
    if (is({"gpt-oss"})) tensor(prefix + "attn_sinks.weight", {2}).tensor(prefix + "attn_output.bias", {16});
    if (is({"gemma2", "gemma3", "glm4", "olmo2"})) tensor(prefix + "post_attention_norm.weight", {16});
  }

  void add_recurrent(const std::string& prefix) {
    if (is({"jamba", "mamba"})) return add_mamba1(prefix);
    if (is({"lfm2", "lfm2moe"})) return add_short_conv(prefix);
    if (is({"qwen35", "qwen35moe", "qwen3next"})) return add_delta_rule(prefix);
    tensor(prefix + "ssm_in.weight", {16, 76}).tensor(prefix + "ssm_out.weight", {32, 16});
    tensor(prefix + "ssm_conv1d.weight", {4, 40}).tensor(prefix + "ssm_conv1d.bias", {40});
    tensor(prefix + "ssm_dt.bias", {4}).tensor(prefix + "ssm_a", {1, 4}).tensor(prefix + "ssm_d", {1, 4});
    tensor(prefix + "ssm_norm.weight", {32, 1});
  }

  // Step sizes of rank 4.
  void add_mamba1(const std::string& prefix) {
    tensor(prefix + "ssm_in.weight", {16, 64}).tensor(prefix + "ssm_out.weight", {32, 16});
    tensor(prefix + "ssm_conv1d.weight", {4, 32}).tensor(prefix + "ssm_conv1d.bias", {32});
    tensor(prefix + "ssm_x.weight", {32, 12}).tensor(prefix + "ssm_dt.weight", {4, 32});
    tensor(prefix + "ssm_dt.bias", {32}).tensor(prefix + "ssm_a", {4, 32}).tensor(prefix + "ssm_d", {32});
    if (!is({"jamba"})) return;
    tensor(prefix + "ssm_dt_norm.weight", {4});
    tensor(prefix + "ssm_b_norm.weight", {4}).tensor(prefix + "ssm_c_norm.weight", {4});
  }
  void add_short_conv(const std::string& prefix) {
    tensor(prefix + "shortconv.in_proj.weight", {16, 48}).tensor(prefix + "shortconv.conv.weight", {3, 16});
    tensor(prefix + "shortconv.out_proj.weight", {16, 16});
  }
  // Four heads of 8 values, one of 4 keys.
  void add_delta_rule(const std::string& prefix) {
    tensor(prefix + "attn_qkv.weight", {16, 40}).tensor(prefix + "attn_gate.weight", {16, 32});
    if (is({"qwen3next"})) {
      tensor(prefix + "ssm_ba.weight", {16, 8});
    } else {
      tensor(prefix + "ssm_alpha.weight", {16, 4}).tensor(prefix + "ssm_beta.weight", {16, 4});
    }
    tensor(prefix + "ssm_conv1d.weight", {4, 40}).tensor(prefix + "ssm_dt.bias", {4}).tensor(prefix + "ssm_a", {4});
    tensor(prefix + "ssm_norm.weight", {8}).tensor(prefix + "ssm_out.weight", {32, 16});
  }

  // The norm before it has other names in some architectures.
  std::string feed_forward_norm() const {
    if (is({"falcon-h1"})) return "ffn_norm";
    return is({"gpt-oss", "qwen35", "qwen35moe", "qwen3next"}) ? "post_attention_norm.weight" : "ffn_norm.weight";
  }
  void add_feed_forward(const std::string& prefix) {
    if (!is({"cohere2", "olmo2"})) tensor(prefix + feed_forward_norm(), {16});
    if (has_norm_biases()) tensor(prefix + "ffn_norm.bias", {16});
    if (entries_.contains(architecture_ + ".expert_count")) return add_experts(prefix);
    tensor(prefix + "ffn_down.weight", {32, 16});
    if (is({"gpt2", "starcoder2"})) {
      tensor(prefix + "ffn_up.weight", {16, 32}).tensor(prefix + "ffn_up.bias", {32});
      tensor(prefix + "ffn_down.bias", {16});
    } else if (is({"glm4", "phi3"})) {
      tensor(prefix + "ffn_up.weight", {16, 64});
    } else {
      tensor(prefix + "ffn_gate.weight", {16, 32}).tensor(prefix + "ffn_up.weight", {16, 32});
    }
    if (is({"gemma2", "gemma3", "glm4", "olmo2"})) tensor(prefix + "post_ffw_norm.weight", {16});
  }

  // Four experts, and in some architectures one for all tokens.
  void add_experts(const std::string& prefix) {
    tensor(prefix + "ffn_gate_inp.weight", {16, 4}).tensor(prefix + "ffn_down_exps.weight", {32, 16, 4});
    tensor(prefix + "ffn_gate_exps.weight", {16, 32, 4}).tensor(prefix + "ffn_up_exps.weight", {16, 32, 4});
    if (is({"lfm2moe"})) tensor(prefix + "exp_probs_b.bias", {4});
    if (has_shared_expert()) {
      tensor(prefix + "ffn_gate_shexp.weight", {16, 8}).tensor(prefix + "ffn_up_shexp.weight", {16, 8});
      tensor(prefix + "ffn_down_shexp.weight", {8, 16});
    }
    if (is({"qwen35moe", "qwen3next"})) tensor(prefix + "ffn_gate_inp_shexp.weight", {16});
    if (!is({"gpt-oss"})) return;
    tensor(prefix + "ffn_gate_inp.bias", {4}).tensor(prefix + "ffn_down_exps.bias", {16, 4});
    tensor(prefix + "ffn_gate_exps.bias", {32, 4}).tensor(prefix + "ffn_up_exps.bias", {32, 4});
  }

  static void add(gguf::Writer& writer, const std::string& key, const std::string& value) {
    writer.add(key, std::string_view(value));
  }
  static void add(gguf::Writer& writer, const std::string& key, const std::vector<std::int32_t>& values) {
    writer.add_array<std::int32_t>(key, values);
  }
  static void add(gguf::Writer& writer, const std::string& key, const std::vector<std::string>& values) {
    const std::vector<std::string_view> views(values.begin(), values.end());
    writer.add_array<std::string_view>(key, views);
  }
  template <gguf::Number T>
  static void add(gguf::Writer& writer, const std::string& key, T value) {
    writer.add(key, value);
  }

  std::string architecture_;
  std::map<std::string, Value> entries_;
  std::map<std::string, std::vector<std::uint64_t>> tensors_;
  std::map<std::string, std::vector<float>> values_;  // of tensors that are neither random nor zeros
  std::uint32_t seed_ = 0;                            // of the weights; 0: zeros
};

// An opened image.
struct OpenedModel {
  explicit OpenedModel(const TestModel& model) : image(model.image()), file(gguf::File::from_memory(image, "test")) {
    EXPECT_TRUE(file) << file.error().message;
  }
  std::vector<std::byte> image;
  Result<gguf::File> file;
};

}  // namespace quire::model::testing
