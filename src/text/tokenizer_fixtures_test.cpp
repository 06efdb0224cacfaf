// Compares with the ids of other tokenizers: Hugging Face's for the demo models, and for the vocabularies in
// testdata/vocab the simple encoders of its generate.py, which agree with llama.cpp on published vocabularies.
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "quire/gguf/gguf.h"
#include "quire/text/stream_decoder.h"
#include "quire/text/tokenizer.h"
#include "quire/text/tokenizer_testing.h"

namespace quire::text {
namespace {

using namespace testing;  // of quire::text

class DemoModel : public ::testing::TestWithParam<const char*> {};

TEST_P(DemoModel, EncodesAndDecodesAllTextsAsHuggingFaceDoes) {
  const std::string path = std::string(QUIRE_SOURCE_DIR "/models/quire-demo-") + GetParam() + "-q8_0.gguf";
  const auto file = gguf::File::open(path);
  ASSERT_TRUE(file) << file.error().message;
  const auto tokenizer = Tokenizer::from_gguf(*file);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->pre(), "qwen2");
  EXPECT_EQ(tokenizer->size(), 1536u);
  EXPECT_FALSE(tokenizer->adds_bos());

  const auto cases = boost::json::parse(read_file(QUIRE_SOURCE_DIR "/testdata/demo/tokenization.json"));
  ASSERT_EQ(cases.as_array().size(), 70u);
  for (const auto& value : cases.as_array()) {
    const auto& text = value.at("text").as_string();
    const auto expected = boost::json::value_to<std::vector<TokenId>>(value.at("ids"));
    EXPECT_EQ(encode(*tokenizer, text, {.add_special = true, .parse_special = true}), expected) << text;
    const std::string decoded = boost::json::value_to<std::string>(value.at("decoded"));
    EXPECT_EQ(tokenizer->decode(expected, {.render_special = true}), decoded);

    StreamDecoder decoder(*tokenizer, {.render_special = true});
    std::string streamed;
    for (const TokenId id : expected) streamed += decoder.push(id);
    EXPECT_EQ(streamed + decoder.flush(), decoded);

    // The same text from a user never has a control token, and decodes to itself.
    const auto injected = encode(*tokenizer, text);
    for (const TokenId id : injected) EXPECT_NE(tokenizer->type(id), TokenType::control);
    EXPECT_EQ(tokenizer->decode(injected), text);
  }
}

INSTANTIATE_TEST_SUITE_P(All, DemoModel, ::testing::Values("llama", "mamba2", "hybrid"),
                         [](const auto& instance) { return std::string(instance.param); });

class PlainVocabulary : public ::testing::TestWithParam<const char*> {};

TEST_P(PlainVocabulary, EncodesAllTextsAsThePlainEncoderDoes) {
  const std::string path = std::string(QUIRE_SOURCE_DIR "/testdata/vocab/") + GetParam();
  const auto file = gguf::File::open(path + ".gguf");
  ASSERT_TRUE(file) << file.error().message;
  const auto tokenizer = Tokenizer::from_gguf(*file);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto cases = boost::json::parse(read_file(path + ".json"));
  EXPECT_GT(cases.as_array().size(), 60u);
  for (const auto& value : cases.as_array()) {
    const auto& text = value.at("text").as_string();
    const auto expected = boost::json::value_to<std::vector<TokenId>>(value.at("ids"));
    EXPECT_EQ(encode(*tokenizer, text), expected) << in_quotes(text);
    EXPECT_EQ(tokenizer->decode(expected), text);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PlainVocabulary, ::testing::Values("byte-level", "sentencepiece"), [](const auto& it) {
  std::string name = it.param;
  std::erase(name, '-');
  return name;
});

}  // namespace
}  // namespace quire::text
