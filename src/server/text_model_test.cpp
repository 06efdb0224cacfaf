#include "quire/server/text_model.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <gtest/gtest.h>

#include "quire/gguf/writer.h"
#include "quire/server/embeddings.h"

namespace quire::server {
namespace {

namespace json = boost::json;
using engine::Pooling;

// The demo model's metadata, with this type of pooling.
std::unique_ptr<TextModel> model_with(std::optional<std::uint32_t> pooling_type, const TextModelOptions& options = {}) {
  const auto demo = gguf::File::open(QUIRE_SOURCE_DIR "/models/quire-demo-llama-q8_0.gguf");
  EXPECT_TRUE(demo.has_value()) << demo.error().message;
  gguf::Writer writer;
  for (std::size_t i = 0; i < demo->entry_count(); ++i) writer.add_value(demo->entry(i).key, demo->entry(i).value);
  if (pooling_type) writer.add("llama.pooling_type", *pooling_type);
  const auto image = writer.to_memory();
  EXPECT_TRUE(image.has_value()) << image.error().message;
  const auto file = gguf::File::from_memory(*image, "pooled.gguf");
  EXPECT_TRUE(file.has_value()) << file.error().message;
  auto model = TextModel::create(*file, 2048, 1536, options);
  EXPECT_TRUE(model.has_value()) << model.error().message;
  return std::move(*model);
}

EmbeddingResult embeddings(const TextModel& model) {
  return parse_embeddings(json::parse(R"({"input": "Once upon a time"})").as_object(), model);
}

// The numbers are llama.cpp's.
TEST(TextModel, APoolingIsThatOfItsFile) {
  const std::pair<std::optional<std::uint32_t>, Pooling> cases[] = {
      {std::nullopt, Pooling::Last}, {0, Pooling::Last}, {1, Pooling::Mean}, {2, Pooling::First}, {3, Pooling::Last}};
  for (const auto& [type, pooling] : cases) {
    const auto model = model_with(type);
    EXPECT_EQ(model->facts().pooling, pooling) << type.value_or(99);
    const auto request = embeddings(*model);
    ASSERT_TRUE(request.has_value()) << request.error().message;
    EXPECT_EQ(request->options.embedding, pooling) << type.value_or(99);
  }
}

TEST(TextModel, ThatRanksPairsOfTextsHasNoEmbeddingsUnlessTheOperatorSaysSo) {
  const auto model = model_with(4);
  EXPECT_EQ(model->facts().pooling, Pooling::None);
  const auto refused = embeddings(*model);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "this model has no embeddings: it ranks pairs of texts");
  const auto told = model_with(4, {.pooling = Pooling::Mean});
  EXPECT_EQ(told->facts().pooling, Pooling::Mean);
  EXPECT_TRUE(embeddings(*told).has_value());
}

}  // namespace
}  // namespace quire::server
