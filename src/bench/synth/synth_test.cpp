// Writes files, then loads and runs them.
#include "quire/bench/synth/synth.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/backend/cpu/cpu_backend.h"
#include "quire/bench/synth/synth_testing.h"
#include "quire/gguf/gguf_testing.h"
#include "quire/model/runner.h"
#include "quire/text/tokenizer.h"

namespace quire::synth {
namespace {

using gguf::testing::TemporaryFolder;
using ::testing::HasSubstr;
using testing::small;

std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string written(const TemporaryFolder& folder, const Shape& shape, std::string_view type, std::uint64_t seed = 1) {
  const std::string path = folder / "model.gguf";
  const auto ok = write_model(shape, type, seed, path, {});
  EXPECT_TRUE(ok) << ok.error().message;
  return path;
}

// Logits of the last of a few tokens.
std::vector<float> logits_of(const std::string& path) {
  CpuBackend backend(1);  // outlives the model
  auto model = model::Model::load(path);
  EXPECT_TRUE(model) << model.error().message;
  if (!model) return {};
  const std::vector<Token> tokens = {1, 300, 17, 599, 42};
  EXPECT_TRUE((*model)->prepare(backend, 8, 8));
  PoolConfig config{.layout = *(*model)->layout(16, ElementType::F16), .max_sequences = 2, .max_tokens = 64};
  for (const PageShape& shape : config.layout.groups) config.budget_bytes += 64 * shape.page_bytes();
  if (config.layout.has_recurrent()) config.budget_bytes += 8 * config.layout.recurrent.bytes();
  auto pool = *SequencePool::create(backend.device(), config);
  auto runner = *model::Runner::create(**model, *pool);
  Batch batch = runner.make_batch();
  batch.add(pool->create({.prompt = tokens})->id, tokens);
  const auto rows = runner.run(batch);
  EXPECT_TRUE(rows) << rows.error().message();
  return rows ? std::vector<float>(rows->row(0).begin(), rows->row(0).end()) : std::vector<float>();
}

std::string readable(const ::testing::TestParamInfo<std::string>& shape) {
  std::string name = shape.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

class EveryShape : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Shapes, EveryShape, ::testing::ValuesIn(shape_names()), readable);

TEST_P(EveryShape, InEveryTypeGivesFiniteLogits) {
  const TemporaryFolder folder;
  for (const std::string& type : type_names()) {
    SCOPED_TRACE(type);
    const std::vector<float> logits = logits_of(written(folder, small(GetParam()), type));
    ASSERT_EQ(logits.size(), 600u);
    for (const float logit : logits) ASSERT_TRUE(std::isfinite(logit));
    const auto [least, most] = std::ranges::minmax(logits);
    EXPECT_GT(most - least, 0.5);
    EXPECT_LT(most - least, 40);
  }
}

TEST(Synth, DepthDoesNotMakeLogitsExplode) {
  const TemporaryFolder folder;
  for (const std::string& name : shape_names()) {
    Shape shape = small(name);
    shape.layers = 48;
    for (const float logit : logits_of(written(folder, shape, "Q8_0"))) ASSERT_LT(std::abs(logit), 20) << name;
  }
}

TEST(Synth, TheSameSeedGivesTheSameBytes) {
  const TemporaryFolder folder;
  const Shape shape = small("granite-h-350m");
  const std::string first = read_bytes(written(folder, shape, "Q4_K_M", 7));
  EXPECT_EQ(read_bytes(written(folder, shape, "Q4_K_M", 7)), first);
  const std::string other = read_bytes(written(folder, shape, "Q4_K_M", 8));
  EXPECT_EQ(other.size(), first.size());
  EXPECT_NE(other, first);
}

// The weights of a seed must never change: measurements with the old models could not be repeated.
TEST(Synth, TheWeightsOfASeedAreTheSameEverywhere) {
  const TemporaryFolder folder;
  const auto hash = [&](std::string_view shape, std::string_view type) {
    const auto file = gguf::File::open(written(folder, small(shape), type));
    EXPECT_TRUE(file) << file.error().message;
    std::uint64_t sum = 0xCBF29CE484222325;
    for (std::size_t i = 0; i < file->tensor_count(); ++i) {
      for (const std::byte byte : file->tensor(i).data) sum = (sum ^ static_cast<std::uint64_t>(byte)) * 0x100000001B3;
    }
    return sum;
  };
  EXPECT_EQ(hash("llama-1.1b", "Q4_K_M"), 3174503012710281379u);
  EXPECT_EQ(hash("granite-h-350m", "F16"), 10976119605375183101u);
  EXPECT_EQ(hash("gpt-oss-20b", "MXFP4_MOE"), 961024454584623389u);
  EXPECT_EQ(hash("qwen35-2b", "Q4_K_M"), 9548352285752334554u);
}

TEST(Synth, ProgressGoesToTheEnd) {
  const TemporaryFolder folder;
  std::uint64_t before = 0, last = 0, total = 0;
  const auto ok = write_model(small("llama-1.1b"), "Q8_0", 1, folder / "a.gguf", [&](auto done, auto all) {
    EXPECT_GE(done, before);
    before = last = done;
    total = all;
  });
  EXPECT_TRUE(ok) << ok.error().message;
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, summarize(small("llama-1.1b"), "Q8_0")->bytes);
}

TEST_P(EveryShape, HasATokenizerThatGivesTextBackAsItWas) {
  const TemporaryFolder folder;
  for (const std::uint32_t vocabulary : {260u, 600u, find_shape(GetParam())->vocabulary}) {
    Shape shape = small(GetParam());
    shape.vocabulary = vocabulary;
    shape.embedding = 32;
    const auto file = gguf::File::open(written(folder, shape, "Q8_0"));
    ASSERT_TRUE(file) << file.error().message;
    const auto tokenizer = text::Tokenizer::from_gguf(*file);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    EXPECT_EQ(tokenizer->size(), vocabulary);
    ASSERT_TRUE(tokenizer->bos() && tokenizer->eos());
    EXPECT_TRUE(tokenizer->is_end_of_generation(*tokenizer->eos()));
    for (const std::string text :
         {"Once upon a time there was a quick brown fox.", "  two  spaces\nand\tmore\n\n",
          "12345 + {\"json\": [1.5e-3]}", "Stra\u00dfe \u6f22\u5b57 \U0001F600", "<s> <|im_end|>"}) {
      const auto ids = tokenizer->encode(text);
      ASSERT_TRUE(ids) << ids.error().message;
      EXPECT_EQ(tokenizer->decode(*ids), text) << vocabulary;
    }
    // Words use tokens of several letters, not single letters.
    if (vocabulary > 30000) {
      EXPECT_LT(tokenizer->encode("the children were singing in the garden")->size(), 24u);
    }
  }
}

TEST(Synth, WhatDoesNotFitIsSaid) {
  Shape shape = small("llama-1.1b");
  shape.feed_forward = 96;
  const auto summary = summarize(shape, "Q4_K");
  ASSERT_TRUE(summary) << summary.error().message;
  EXPECT_THAT(summary->notes,
              ::testing::ElementsAre("rows of 96 are not whole blocks of Q4_K: 2 tensors are of type Q5_0 instead"));
  EXPECT_THAT(summarize(small("llama-1.1b"), "Q4_K")->notes, ::testing::IsEmpty());
  shape.feed_forward = 100;
  const auto refused = summarize(shape, "Q8_0");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("tensor 'blk.0.ffn_down.weight': rows of 100 elements"));
}

TEST(Synth, FailuresLeaveNoFile) {
  const TemporaryFolder folder;
  const auto failure = [&](const Shape& shape, std::string_view type, const std::string& path) {
    const auto ok = write_model(shape, type, 1, path, {});
    return ok ? "was written" : ok.error().message;
  };
  const Shape shape = small("llama-1.1b");
  EXPECT_THAT(failure(shape, "Q9_0", folder / "a.gguf"), HasSubstr("'Q9_0' is not one of the types F32, F16"));
  EXPECT_THAT(failure({}, "Q8_0", folder / "a.gguf"), HasSubstr("arch: ''"));
  EXPECT_THAT(failure(shape, "Q8_0", folder / "no/such/a.gguf"), HasSubstr("cannot be created"));
  Shape huge = *find_shape("llama-8b");
  huge.layers = 1024;
  huge.feed_forward = 1 << 20;
  huge.embedding = 1 << 18;
  EXPECT_THAT(failure(huge, "F32", folder / "a.gguf"), HasSubstr("left on that disk"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace quire::synth
