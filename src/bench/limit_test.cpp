#include "quire/bench/limit.h"

#include <cmath>
#include <deque>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "quire/gguf/writer.h"
#include "quire/model/model.h"
#include "quire/model/model_files_testing.h"

namespace quire::bench {
namespace {

using gguf::Type;

// A file with these tensors, without contents.
class Tensors {
 public:
  Tensors& add(const std::string& name, Type type, std::vector<std::uint64_t> shape) {
    std::uint64_t elements = 1;
    for (const std::uint64_t length : shape) elements *= length;
    data_.emplace_back(*gguf::byte_size(type, elements));
    writer_.add_tensor(name, type, std::move(shape), data_.back());
    return *this;
  }
  ModelCost cost(const StateLayout& layout = {}) {
    const auto image = writer_.to_memory();
    EXPECT_TRUE(image.has_value()) << image.error().message;
    const auto file = gguf::File::from_memory(*image, "tensors");
    EXPECT_TRUE(file.has_value()) << file.error().message;
    return cost_of(*file, layout);
  }

 private:
  std::deque<std::vector<std::byte>> data_;
  gguf::Writer writer_;
};

TEST(BenchLimit, MatricesCountAtTheirSizeInTheFileAndByTheRateOfTheirType) {
  const ModelCost cost = Tensors()
                             .add("token_embd.weight", Type::F32, {64, 100})
                             .add("output.weight", Type::F16, {64, 100})
                             .add("output_norm.weight", Type::F32, {64})
                             .add("blk.0.attn_norm.weight", Type::F32, {64})
                             .add("blk.0.attn_q.weight", Type::Q8_0, {64, 64})
                             .add("blk.11.ffn_down.weight", Type::BF16, {128, 64})
                             .add("blk.0.ssm_in.weight", Type::Q4_0, {64, 32})
                             .add("blk.0.ssm_conv1d.weight", Type::F32, {4, 96})
                             .add("blk.0.ssm_a", Type::F32, {1, 8})
                             .cost();
  EXPECT_EQ(cost.layers.bytes, 64u * 64 / 32 * 34 + 128 * 64 * 2 + 64 * 32 / 32 * 18);
  EXPECT_EQ(cost.layers.int8_elements, 64u * 64 + 64 * 32);
  EXPECT_EQ(cost.layers.bf16_elements, 128u * 64);
  EXPECT_EQ(cost.layers.f32_elements, 0u);
  EXPECT_EQ(cost.output.bytes, 64u * 100 * 2);
  EXPECT_EQ(cost.output.int8_elements, 0u);
  EXPECT_EQ(cost.output.f32_elements, 64u * 100);
  EXPECT_TRUE(cost.attention.empty());
  EXPECT_EQ(cost.state_bytes, 0u);
}

TEST(BenchLimit, WhereTheFileHasNoOutputTheEmbeddingIsMultipliedBy) {
  const ModelCost cost = Tensors().add("token_embd.weight", Type::Q8_0, {32, 10}).cost();
  EXPECT_EQ(cost.output.bytes, 340u);
  EXPECT_EQ(cost.output.int8_elements, 320u);
  EXPECT_EQ(cost.layers.bytes, 0u);
}

TEST(BenchLimit, StateIsWhatTheLayoutSays) {
  const LayerDesc layers[] = {LayerDesc::attention(2, 64), LayerDesc::attention(2, 64),
                              LayerDesc::attention(2, 64, ElementType::F16, 100), LayerDesc::recurrent(640, 6400)};
  const auto layout = StateLayout::from_layers(layers, 16);
  ASSERT_TRUE(layout.has_value());
  const ModelCost cost = Tensors().add("token_embd.weight", Type::F32, {32, 10}).cost(*layout);
  EXPECT_EQ(cost.state_bytes, 7040u);
  constexpr double kLayer = 2 * 2 * 64 * 2;  // bytes of a token: K and V, heads, elements, f16
  EXPECT_EQ(kv_bytes(cost, 10), 10 * 3 * kLayer);
  EXPECT_EQ(kv_bytes(cost, 1000), 1000 * 2 * kLayer + 100 * kLayer) << "a window is all that is read of its layer";
}

TEST(BenchLimit, OfExpertsThoseThatTokensChooseAreRead) {
  const auto model = model::Model::load(QUIRE_SOURCE_DIR "/testdata/golden/mixtral/model.gguf");
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const ModelCost cost = cost_of((*model)->file(), *(*model)->layout(16, ElementType::F16));
  const double experts = 2 * 3 * 4 * 64 * 64;  // layers, matrices, experts
  EXPECT_EQ(cost.experts.bytes, 2 * experts);
  EXPECT_EQ(cost.expert_share, 0.5);
  ModelCost none = cost;
  none.experts = {};
  const auto more = [&](double tokens, auto member) {
    return work_of(cost, {.tokens = tokens}).*member - work_of(none, {.tokens = tokens}).*member;
  };
  EXPECT_DOUBLE_EQ(more(1, &Work::bytes), 2 * experts * 0.5);
  EXPECT_DOUBLE_EQ(more(2, &Work::bytes), 2 * experts * 0.75);
  EXPECT_DOUBLE_EQ(more(2, &Work::f32_ops), 2 * experts);
}

// Only norms and other small tensors may be left out. If more is missing, a matrix has an unknown name.
TEST(BenchLimit, NearlyAllOfARealModelIsMultipliedBy) {
  for (const char* kind : {"llama", "mamba2", "hybrid"}) {
    const auto model = model::Model::load(fmt::format("{}/models/quire-demo-{}-q8_0.gguf", QUIRE_SOURCE_DIR, kind));
    ASSERT_TRUE(model.has_value()) << model.error().message;
    const gguf::File& file = (*model)->file();
    const ModelCost cost = cost_of(file, *(*model)->layout(16, ElementType::F16));
    std::uint64_t all = 0;
    for (std::size_t i = 0; i < file.tensor_count(); ++i) all += file.tensor(i).data.size();
    if (file.find_tensor("output.weight")) all -= file.find_tensor("token_embd.weight")->data.size();
    EXPECT_LE(cost.layers.bytes + cost.output.bytes, all) << kind;
    EXPECT_GT(cost.layers.bytes + cost.output.bytes, all - all / 20) << kind;
    EXPECT_EQ(cost.layers.f32_elements, 0u) << kind;
    EXPECT_EQ(cost.state_bytes > 0, std::string_view(kind) != "llama") << kind;
    EXPECT_EQ(cost.attention.empty(), std::string_view(kind) == "mamba2") << kind;
  }
}

class LimitOfGoldenModel : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, LimitOfGoldenModel, model::testing::golden_files(), model::testing::readable);

// As above. In small models norms and decays (mamba) are a larger part.
TEST_P(LimitOfGoldenModel, CountsNearlyAllOfIt) {
  const auto model = model::Model::load(QUIRE_SOURCE_DIR "/" + GetParam());
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const gguf::File& file = (*model)->file();
  const ModelCost cost = cost_of(file, *(*model)->layout(16, ElementType::F16));
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < file.tensor_count(); ++i) {
    const gguf::Tensor tensor = file.tensor(i);
    if (tensor.name == "position_embd.weight") continue;  // looked up
    if (tensor.name == "token_embd.weight" && file.find_tensor("output.weight")) continue;
    all += tensor.data.size();
  }
  const std::uint64_t counted = cost.layers.bytes + cost.experts.bytes + cost.output.bytes;
  EXPECT_LE(counted, all);
  EXPECT_GT(counted, all - all / 6);
}

// A model with round numbers.
ModelCost example() {
  return {.layers = {.bytes = 1000, .int8_elements = 800, .f32_elements = 100},
          .output = {.bytes = 200, .int8_elements = 150},
          .attention = {{.bytes_per_token = 10}},
          .state_bytes = 30};
}

TEST(BenchLimit, AStepOfOneReadsAllMatricesTheContextAndTheStateTwice) {
  const Work work = work_of(example(), {.tokens = 1, .logits = 1, .context = 7});
  EXPECT_EQ(work.tokens, 1);
  EXPECT_EQ(work.bytes, 1000 + 200 + 70 + 2 * 30);
  EXPECT_EQ(work.int8_ops, 2 * (800 + 150));
  EXPECT_EQ(work.f32_ops, 2 * 100);
}

TEST(BenchLimit, ABatchReadsMatricesOnceAndWhatItsSequencesRememberForEach) {
  const Work work = work_of(example(), {.tokens = 4, .logits = 4, .sequences = 4, .context = 7});
  EXPECT_EQ(work.bytes, 1200 + 4 * (70 + 60));
  EXPECT_EQ(work.int8_ops, 4 * 2 * 950);
  const Work shared = work_of(example(), {.tokens = 4, .logits = 4, .sequences = 4, .context = 7, .shared = 5});
  EXPECT_EQ(shared.bytes, 1200 + 50 + 4 * 20 + 4 * 60) << "what they share once, the rest for each";
  EXPECT_EQ(shared.int8_ops, work.int8_ops);
}

TEST(BenchLimit, APromptIsMultipliedByTheOutputForItsLastTokenOnly) {
  const Work work = work_of(example(), {.tokens = 512, .logits = 1, .context = 512});
  EXPECT_EQ(work.bytes, 1200 + 5120 + 60);
  EXPECT_EQ(work.int8_ops, 2 * (512 * 800 + 150));
  EXPECT_EQ(work.f32_ops, 2 * 512 * 100);
  EXPECT_EQ(work_of(example(), {.tokens = 512, .context = 512}).bytes, 1000 + 5120 + 60) << "no logits, no output";
}

TEST(BenchLimit, TheLimitIsTheSmallerOfReadingAndMultiplying) {
  const MachineLimits machine{.read = 100, .int8 = 1000, .f32 = 10, .bf16 = 20};
  const Limit reading = limit_of({.tokens = 2, .bytes = 50, .int8_ops = 400}, machine);
  EXPECT_DOUBLE_EQ(reading.read, 4);
  EXPECT_DOUBLE_EQ(reading.compute, 5);
  EXPECT_DOUBLE_EQ(reading.tokens_per_second, 4);
  EXPECT_EQ(name(reading.bound), "read");

  const Limit bytes = limit_of({.tokens = 2, .bytes = 50, .int8_ops = 1000}, machine);
  EXPECT_DOUBLE_EQ(bytes.tokens_per_second, 2);
  EXPECT_EQ(name(bytes.bound), "int8");

  // Both kinds of matrices: the times add up, and the bound is the slower kind.
  const Limit mixed = limit_of({.tokens = 2, .bytes = 50, .int8_ops = 1000, .f32_ops = 30}, machine);
  EXPECT_DOUBLE_EQ(mixed.tokens_per_second, 0.5);
  EXPECT_EQ(name(mixed.bound), "f32");
  const Limit halves = limit_of({.tokens = 2, .bytes = 50, .f32_ops = 10, .bf16_ops = 60}, machine);
  EXPECT_DOUBLE_EQ(halves.tokens_per_second, 0.5);
  EXPECT_EQ(name(halves.bound), "bf16");
}

TEST(BenchLimit, WhereNothingIsMultipliedOnlyReadingLimits) {
  const Limit limit = limit_of({.tokens = 1, .bytes = 50}, {.read = 100, .int8 = 1, .f32 = 1, .bf16 = 1});
  EXPECT_DOUBLE_EQ(limit.tokens_per_second, 2);
  EXPECT_TRUE(std::isinf(limit.compute));
  EXPECT_EQ(limit.bound, Bound::read);
}

// TinyLlama 1.1B in Q8_0 on the machine that the targets were written for. 1,034,518,528 of its weights are in matrices
// (968,982,528 in the layers), with 1.0625 bytes each.
TEST(BenchLimit, TheFiguresOfAKnownModelAreThoseOfAPocketCalculator) {
  ModelCost cost{.layers = {.bytes = 1029543936, .int8_elements = 968982528},
                 .output = {.bytes = 69632000, .int8_elements = 65536000},
                 .attention = {{.bytes_per_token = 22528}}};
  const MachineLimits machine{.read = 29.5e9, .int8 = 1395e9, .f32 = 355e9};
  const Limit one = limit_of(work_of(cost, {.tokens = 1, .logits = 1, .context = 96}), machine);
  EXPECT_EQ(one.bound, Bound::read);
  EXPECT_NEAR(one.tokens_per_second, 26.79, 0.01);
  const Limit prompt = limit_of(work_of(cost, {.tokens = 512, .logits = 1, .context = 512}), machine);
  EXPECT_EQ(prompt.bound, Bound::int8);
  EXPECT_NEAR(prompt.tokens_per_second, 719.7, 0.1);
  const Limit many = limit_of(work_of(cost, {.tokens = 32, .logits = 32, .sequences = 32, .context = 96}), machine);
  EXPECT_NEAR(many.compute, 674.2, 0.1);
}

}  // namespace
}  // namespace quire::bench
