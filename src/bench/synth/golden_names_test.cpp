// The tensors and the metadata of a shape are those that llama.cpp's converter writes. The golden models were converted
// by it; a shape with the sizes of a golden model must have the same names, sizes, types and keys.
#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/base/check.h"
#include "quire/bench/synth/metadata.h"
#include "quire/bench/synth/plan.h"
#include "quire/gguf/gguf.h"

namespace quire::synth {
namespace {

using ::testing::UnorderedElementsAreArray;

struct Golden {
  const char* name;  // of its folder
  Shape shape;
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
  return {.name = "qwen3moe", .shape = shape};
}

Golden olmoe() {
  Shape shape = with_experts(base("olmoe", 2, 0), 8, 3, 32);
  shape.kv_heads = 4;
  return {.name = "olmoe", .shape = shape};
}

Golden gpt_oss() {
  Shape shape = with_experts(base("gpt-oss", 4, 64), 4, 2, 64);
  shape.window = 16;
  return {.name = "gpt-oss", .shape = shape};
}

Golden lfm2() {
  Shape shape = base("lfm2", 4, 160);
  shape.tied = true;
  shape.conv = 3;
  shape.rope_base = 1000000;
  shape.attention_layers = {1};
  return {.name = "lfm2", .shape = shape};
}

Golden lfm2moe() {
  Shape shape = with_experts(base("lfm2moe", 4, 192), 4, 2, 32);
  shape.tied = true;
  shape.conv = 3;
  shape.rope_base = 1000000;
  shape.dense_layers = 1;
  shape.attention_layers = {1, 3};
  return {.name = "lfm2moe", .shape = shape};
}

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
  return {.name = "qwen35", .shape = shape};
}

Golden falcon_h1() {
  Shape shape = base("falcon-h1", 3, 128);
  shape.inner = 128;
  shape.state = 16;
  shape.groups = 1;
  shape.ssm_heads = 4;
  shape.conv = 4;
  return {.name = "falcon-h1", .shape = shape};
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
  return {.name = "granite-moe-hybrid", .shape = shape};
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
  return {.name = "mamba", .shape = shape};
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
  return {.name = "deepseek2", .shape = shape};
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

gguf::File open_golden(const Golden& golden) {
  auto file = gguf::File::open(fmt::format("{}/testdata/golden/{}/model.gguf", QUIRE_SOURCE_DIR, golden.name));
  QUIRE_CHECK(file.has_value(), "the golden model can be read");
  return std::move(*file);
}

std::string written(std::string_view name, std::span<const std::uint64_t> shape, gguf::Type type) {
  return fmt::format("{}[{}] {}", name, fmt::join(shape, ","), gguf::type_name(type));
}

TEST_P(GoldenNames, AreThoseOfTheTensors) {
  const Golden& golden = GetParam();
  ASSERT_TRUE(check_shape(golden.shape)) << check_shape(golden.shape).error().message;
  const auto plan = Plan::make(golden.shape, *find_mix("F16"));
  ASSERT_TRUE(plan) << plan.error().message;
  const gguf::File file = open_golden(golden);
  std::vector<std::string> expected, found;
  for (std::size_t i = 0; i < file.tensor_count(); ++i) {
    const gguf::Tensor tensor = file.tensor(i);
    expected.push_back(written(tensor.name, std::span(tensor.shape).first(tensor.n_dims), tensor.type));
  }
  for (const Tensor& tensor : plan->tensors()) found.push_back(written(tensor.name, tensor.shape, tensor.type));
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

// The keys of the architecture, with their values.
std::vector<std::string> hyperparameters(const gguf::File& file, const std::string& architecture) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < file.entry_count(); ++i) {
    const gguf::Entry entry = file.entry(i);
    // A golden model of four channels has sections [2, 1, 1, 0], which follow from nothing.
    if (!entry.key.starts_with(architecture + ".") || entry.key.ends_with("rope.dimension_sections")) continue;
    all.push_back(fmt::format("{} {}", entry.key, written_value(file, entry)));
  }
  return all;
}

TEST_P(GoldenNames, AreThoseOfTheMetadata) {
  const Golden& golden = GetParam();
  gguf::Writer writer;
  add_hyperparameters(writer, golden.shape);
  const auto image = writer.to_memory();
  ASSERT_TRUE(image) << image.error().message;
  const auto file = gguf::File::from_memory(*image, golden.name);
  ASSERT_TRUE(file) << file.error().message;
  std::vector<std::string> expected = hyperparameters(open_golden(golden), golden.shape.architecture);
  // This key is in every file of synth, so that its metadata alone say how large the model is.
  const std::string vocabulary = golden.shape.architecture + ".vocab_size 320";
  if (std::ranges::find(expected, vocabulary) == expected.end()) expected.push_back(vocabulary);
  EXPECT_THAT(hyperparameters(*file, golden.shape.architecture), UnorderedElementsAreArray(expected));
}

}  // namespace
}  // namespace quire::synth
