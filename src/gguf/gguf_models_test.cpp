// Real files: the demo models, the golden models, the seeds of the fuzzer, and vocabularies without a model.
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/gguf/gguf.h"
#include "quire/gguf/gguf_testing.h"

namespace quire::gguf {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;

// What holds for any model: it has an architecture, and all tensors that can be dequantized are finite.
void expect_sane_model(const File& file) {
  EXPECT_EQ(file.version(), 3u);
  EXPECT_GT(testing::walk(file), 0u);
  const auto architecture = file.get<std::string_view>("general.architecture");
  ASSERT_TRUE(architecture) << architecture.error().message;
  const std::string prefix(*architecture);
  const auto width = file.get<std::uint64_t>(prefix + ".embedding_length");
  ASSERT_TRUE(width) << width.error().message;
  EXPECT_TRUE(file.get<std::uint32_t>(prefix + ".block_count"));
  const auto embedding = file.tensor("token_embd.weight");
  ASSERT_TRUE(embedding) << embedding.error().message;
  EXPECT_EQ(embedding->n_dims, 2u);
  EXPECT_EQ(embedding->shape[0], *width);
  if (file.has("tokenizer.ggml.tokens")) {
    const auto tokens = file.get_array<std::string_view>("tokenizer.ggml.tokens");
    ASSERT_TRUE(tokens) << tokens.error().message;
    EXPECT_EQ(tokens->size(), embedding->shape[1]);
  }
  for (std::size_t i = 0; i < file.tensor_count(); ++i) {
    const Tensor tensor = file.tensor(i);
    EXPECT_EQ(file.tensor(tensor.name)->data.data(), tensor.data.data()) << tensor.name;
    std::vector<float> floats(tensor.elements());
    const auto done = dequantize(tensor.type, tensor.data, floats);
    ASSERT_TRUE(done) << tensor.name << ": " << done.error().message;
    double largest = 0;
    for (const float value : floats) {
      ASSERT_TRUE(std::isfinite(value)) << tensor.name;
      largest = std::max<double>(largest, std::abs(value));
    }
    EXPECT_LT(largest, 1000) << tensor.name;
  }
}

TEST(GgufModels, TheDemoModelsAreRead) {
  const auto paths = testing::files_with_extension(QUIRE_SOURCE_DIR "/models", ".gguf");
  ASSERT_GE(paths.size(), 3u);
  for (const auto& path : paths) {
    SCOPED_TRACE(path.string());
    const auto file = File::open(path);
    ASSERT_TRUE(file) << file.error().message;
    expect_sane_model(*file);
    EXPECT_THAT(*file->get<std::string_view>("general.architecture"), AnyOf("llama", "mamba2", "granitehybrid"));
    EXPECT_EQ(file->get<std::string_view>("tokenizer.ggml.model"), "gpt2");
    EXPECT_TRUE(file->has("tokenizer.chat_template"));
    EXPECT_EQ(file->get_array<std::int32_t>("tokenizer.ggml.token_type")->size(),
              file->get_array<std::string_view>("tokenizer.ggml.tokens")->size());
  }
}

TEST(GgufModels, TheLlamaDemoModelIsAsItWasMade) {
  const auto file = File::open(QUIRE_SOURCE_DIR "/models/quire-demo-llama-q8_0.gguf");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->get<std::string_view>("general.architecture"), "llama");
  EXPECT_EQ(file->get<std::uint32_t>("llama.block_count"), 8u);
  EXPECT_EQ(file->get<std::uint32_t>("llama.context_length"), 2048u);
  EXPECT_EQ(file->get<std::uint32_t>("llama.attention.head_count_kv"), 2u);
  EXPECT_EQ(file->get<float>("llama.rope.freq_base"), 10000.0f);
  EXPECT_EQ(file->entry_count(), 28u);
  EXPECT_EQ(file->tensor_count(), 74u);
  const auto embedding = file->tensor("token_embd.weight");
  ASSERT_TRUE(embedding) << embedding.error().message;
  EXPECT_EQ(embedding->type, Type::Q8_0);
  EXPECT_THAT(embedding->shape, ElementsAre(256, 1536, 1, 1));
  EXPECT_EQ(embedding->row_bytes(), 272u);
}

TEST(GgufModels, TheGoldenModelsAreRead) {
  const auto paths = testing::files_with_extension(QUIRE_SOURCE_DIR "/testdata/golden", ".gguf");
  EXPECT_GE(paths.size(), 10u);
  for (const auto& path : paths) {
    SCOPED_TRACE(path.string());
    const auto file = File::open(path);
    ASSERT_TRUE(file) << file.error().message;
    expect_sane_model(*file);
  }
}

TEST(GgufModels, TheSeedsOfTheFuzzerAreRead) {
  const auto paths = testing::files_with_extension(QUIRE_SOURCE_DIR "/testdata/fuzz/gguf_fuzz", ".gguf");
  EXPECT_FALSE(paths.empty());
  for (const auto& path : paths) {
    const auto file = File::open(path);
    EXPECT_TRUE(file) << file.error().message;
  }
}

TEST(GgufModels, VocabulariesWithoutTensorsAreRead) {
  const auto paths = testing::files_with_extension(QUIRE_SOURCE_DIR "/testdata/vocab", ".gguf");
  EXPECT_EQ(paths.size(), 2u);
  for (const auto& path : paths) {
    SCOPED_TRACE(path.string());
    const auto file = File::open(path);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->tensor_count(), 0u);
    EXPECT_GT(testing::walk(*file), 0u);
    EXPECT_GT(file->get_array<std::string_view>("tokenizer.ggml.tokens")->size(), 900u);
  }
}

}  // namespace
}  // namespace quire::gguf
