// Layers as lists of blocks: how blocks are joined, and what they remember. Rows that no published architecture has yet
// are tested here against a plain double-precision walk through one token.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "quire/backend/cpu/cpu_backend.h"
#include "quire/model/model_testing.h"
#include "quire/model/runner.h"

namespace quire::model {
namespace {

using testing::OpenedModel;
using testing::TestModel;
using Doubles = std::vector<double>;

constexpr float kEpsilon = 1e-5F;
constexpr BlockSpec kOneAfterTheOther[] = {{BlockKind::Attention, "attn_norm.weight"},
                                           {BlockKind::FeedForward, "ffn_norm.weight"}};
constexpr BlockSpec kSideBySide[] = {{BlockKind::Attention, "attn_norm.weight"},
                                     {.kind = BlockKind::FeedForward, .join = Join::Beside}};
constexpr BlockSpec kNormedAfterwards[] = {{.kind = BlockKind::Attention, .post_norm = "post_attention_norm.weight"},
                                           {.kind = BlockKind::FeedForward, .post_norm = "post_ffw_norm.weight"}};
constexpr BlockSpec kTwoMixers[] = {{BlockKind::Attention, "attn_norm.weight"},
                                    {.kind = BlockKind::Mamba2, .join = Join::Beside}};
constexpr BlockSpec kNone[] = {{BlockKind::FeedForward, "ffn_norm.weight"}};

Architecture row_of(std::span<const BlockSpec> blocks) {
  return {.name = "llama", .title = "test", .blocks = blocks, .window_period = 0};
}

// One token through one layer: attention to itself alone gives its own value, and position 0 is not rotated.
class Reference {
 public:
  explicit Reference(const TestModel& model) : model_(model) {}

  Doubles embedding(Token token) const {
    const auto table = model_.weights("token_embd.weight");
    return {table.begin() + token * 16, table.begin() + token * 16 + 16};
  }
  Doubles norm(const Doubles& x, const std::string& name) const {
    double squares = 0;
    for (const double v : x) squares += v * v;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + kEpsilon);
    const auto weight = model_.weights(name);
    Doubles out(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * weight[i];
    return out;
  }
  Doubles times(const std::string& name, const Doubles& x) const {
    const auto weight = model_.weights(name);
    Doubles out(weight.size() / x.size());
    for (std::size_t n = 0; n < out.size(); ++n) {
      for (std::size_t k = 0; k < x.size(); ++k) out[n] += double{weight[n * x.size() + k]} * x[k];
    }
    return out;
  }
  Doubles attention(const Doubles& in) const {
    const Doubles value = times("blk.0.attn_v.weight", in);  // one head of K and V for two of queries
    Doubles both(value);
    both.insert(both.end(), value.begin(), value.end());
    return times("blk.0.attn_output.weight", both);
  }
  Doubles feed_forward(const Doubles& in) const {
    Doubles gate = times("blk.0.ffn_gate.weight", in);
    const Doubles up = times("blk.0.ffn_up.weight", in);
    for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    return times("blk.0.ffn_down.weight", gate);
  }
  Doubles logits(const Doubles& x) const { return times("token_embd.weight", norm(x, "output_norm.weight")); }

 private:
  const TestModel& model_;
};

Doubles sum(Doubles a, const Doubles& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

// A model on a pool of its own.
class Running {
 public:
  Running(const TestModel& model, const Architecture& row) : opened_(model) {
    auto made = Model::create(std::move(*opened_.file), &row);
    EXPECT_TRUE(made) << made.error().message;
    model_ = std::move(*made);
    EXPECT_TRUE(model_->prepare(backend_, 64, 64));
    PoolConfig config{.layout = *model_->layout(4, ElementType::F32), .max_sequences = 4, .max_tokens = 64};
    config.budget_bytes = 1 << 20;
    config.checkpoint_interval = 8;
    pool_ = *SequencePool::create(backend_.device(), config);
  }
  std::vector<float> run(SequenceId id, std::span<const Token> tokens) {
    auto runner = *Runner::create(*model_, *pool_);
    Batch batch = runner.make_batch();
    batch.add(id, tokens, Logits::All);
    const auto rows = runner.run(batch);
    EXPECT_TRUE(rows) << rows.error().message();
    std::vector<float> all;
    for (std::uint32_t i = 0; rows && i < rows->rows; ++i) {
      all.insert(all.end(), rows->row(i).begin(), rows->row(i).end());
    }
    return all;
  }
  SequencePool& pool() { return *pool_; }

 private:
  OpenedModel opened_;
  CpuBackend backend_{2};
  std::unique_ptr<Model> model_;
  std::unique_ptr<SequencePool> pool_;
};

void expect_near(const std::vector<float>& got, const Doubles& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 2e-4) << i;
}

TEST(Blocks, OneAfterTheOtherReadsWhatTheFirstAdded) {
  const TestModel model = TestModel::attention("llama", 1).with_tensors({false}).randomize(3);
  const Architecture row = row_of(kOneAfterTheOther);
  Running running(model, row);
  const Token token = 2;
  const Reference reference(model);
  Doubles x = reference.embedding(token);
  x = sum(x, reference.attention(reference.norm(x, "blk.0.attn_norm.weight")));
  x = sum(x, reference.feed_forward(reference.norm(x, "blk.0.ffn_norm.weight")));
  expect_near(running.run(running.pool().create({})->id, {&token, 1}), reference.logits(x));
}

TEST(Blocks, SideBySideBothReadTheSameInput) {
  TestModel model = TestModel::attention("llama", 1).with_tensors({false}).randomize(4);
  model.remove_tensor("blk.0.ffn_norm.weight");
  const Architecture row = row_of(kSideBySide);
  Running running(model, row);
  const Token token = 1;
  const Reference reference(model);
  const Doubles x = reference.embedding(token), in = reference.norm(x, "blk.0.attn_norm.weight");
  const Doubles out = sum(sum(x, reference.attention(in)), reference.feed_forward(in));
  expect_near(running.run(running.pool().create({})->id, {&token, 1}), reference.logits(out));
}

TEST(Blocks, AnOutputCanBeNormedInsteadOfTheInput) {
  TestModel model = TestModel::attention("llama", 1).with_tensors({false}).randomize(5);
  model.remove_tensor("blk.0.attn_norm.weight").remove_tensor("blk.0.ffn_norm.weight");
  model.tensor("blk.0.post_attention_norm.weight", {16}).tensor("blk.0.post_ffw_norm.weight", {16});
  const Architecture row = row_of(kNormedAfterwards);
  Running running(model, row);
  const Token token = 0;
  const Reference reference(model);
  Doubles x = reference.embedding(token);
  x = sum(x, reference.norm(reference.attention(x), "blk.0.post_attention_norm.weight"));
  x = sum(x, reference.norm(reference.feed_forward(x), "blk.0.post_ffw_norm.weight"));
  expect_near(running.run(running.pool().create({})->id, {&token, 1}), reference.logits(x));
}

TEST(Blocks, ALayerCanRememberNothing) {
  TestModel model = TestModel::attention("llama", 1).with_tensors({false}).randomize(6);
  for (const char* name : {"attn_norm", "attn_q", "attn_k", "attn_v", "attn_output"}) {
    model.remove_tensor("blk.0." + std::string(name) + ".weight");
  }
  const Architecture row = row_of(kNone);
  const OpenedModel opened(model);
  const auto hyperparameters = read_hyperparameters(*opened.file, &row);
  ASSERT_TRUE(hyperparameters) << hyperparameters.error().message;
  EXPECT_EQ(hyperparameters->count(BlockKind::Attention), 0u);
  EXPECT_TRUE(check_tensors(*opened.file, *hyperparameters));
  EXPECT_EQ(make_blocks(*hyperparameters).size(), 1u);
}

// Attention and Mamba-2 in one layer: pages and a state, reused together and the same bits however they are computed.
TEST(Blocks, TwoMixersOfALayerEachHaveTheirState) {
  TestModel model = TestModel::hybrid("llama", {1, 1}).remove("feed_forward_length").set("feed_forward_length", 0U);
  model.with_both(2).randomize(7);
  const Architecture row = row_of(kTwoMixers);
  Running running(model, row);
  const StateLayout& layout = running.pool().layout();
  ASSERT_EQ(layout.places.size(), 4u);
  EXPECT_EQ(layout.groups.size(), 1u);
  EXPECT_EQ(layout.groups[0].num_layers, 2u);
  EXPECT_EQ(layout.recurrent.num_layers, 2u);
  EXPECT_EQ(layout.places[0].kind, LayerDesc::Kind::Attention);
  EXPECT_EQ(layout.places[1].kind, LayerDesc::Kind::Recurrent);
  EXPECT_EQ(layout.places[3].index, 1u);

  std::vector<Token> prompt;
  for (int i = 0; i < 30; ++i) prompt.push_back((i * i + i / 3) % 3);
  const SequenceId whole = running.pool().create({.prompt = prompt, .reuse = false})->id;
  const std::vector<float> at_once = running.run(whole, prompt);
  const SequenceId cut = running.pool().create({.prompt = prompt, .name_space = 1})->id;
  std::vector<float> in_chunks;
  for (std::size_t at = 0; at < prompt.size();) {
    const std::size_t count = std::min<std::size_t>(at % 2 == 0 ? 8 : 3, prompt.size() - at);
    const auto some = running.run(cut, std::span(prompt).subspan(at, count));
    in_chunks.insert(in_chunks.end(), some.begin(), some.end());
    at += count;
  }
  ASSERT_EQ(in_chunks.size(), at_once.size());
  EXPECT_EQ(std::memcmp(in_chunks.data(), at_once.data(), at_once.size() * sizeof(float)), 0);

  const auto again = running.pool().create({.prompt = prompt, .name_space = 1});
  ASSERT_TRUE(again.has_value());
  EXPECT_GE(again->hit.tokens, 8u) << name(again->hit.end);
  const auto rest = running.run(again->id, std::span(prompt).subspan(again->hit.tokens));
  EXPECT_EQ(std::memcmp(rest.data(), at_once.data() + again->hit.tokens * 3, rest.size() * sizeof(float)), 0);
}

}  // namespace
}  // namespace quire::model
