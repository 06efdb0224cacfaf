// `quire tokenize`, called in this process.
#include "quire/cli/tokenize.h"

#include <string>
#include <vector>

#include <boost/json.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/cli/cli_testing.h"
#include "quire/gguf/gguf_testing.h"
#include "quire/model/model_testing.h"

namespace quire::cli {
namespace {

using testing::call;
using testing::demo_model;
using testing::expect_refusal;
using ::testing::HasSubstr;
using testing::read_file;

std::string printed(const TokenizeOptions& options, const Style& style = {.utf8 = true}) {
  const auto out = tokenize(options, style);
  EXPECT_TRUE(out) << out.error().message;
  return out.value_or("");
}

TEST(Tokenize, PrintsALineForEachToken) {
  EXPECT_EQ(printed({.model = demo_model("llama"), .text = "Once upon a time"}),
            " 899  \"Once\"\n"
            " 898  \" upon\"\n"
            " 261  \" a\"\n"
            " 714  \" time\"\n");
  EXPECT_EQ(printed({.model = demo_model("llama"), .text = ""}), "");
}

TEST(Tokenize, HalfCharactersAndControlsAreEscaped) {
  EXPECT_EQ(printed({.model = demo_model("llama"), .text = "\"½\x1b"}),
            "   4  \"\\\"\"\n"
            " 129  \"\\xc2\"\n"
            " 124  \"\\xbd\"\n"
            " 218  \"\\x1b\"\n");
}

TEST(Tokenize, PrintsTheIdsOnOneLine) {
  EXPECT_EQ(printed({.model = demo_model("llama"), .text = "Once upon a time", .ids = true}), "899 898 261 714\n");
  EXPECT_EQ(printed({.model = demo_model("llama"), .text = "", .ids = true}), "\n");
}

TEST(Tokenize, ControlTokensAreReadOnlyIfAskedFor) {
  const std::string model = demo_model("llama");
  EXPECT_EQ(printed({.model = model, .text = "<|im_end|>", .special = true}), "   2  \"<|im_end|>\"  special\n");
  EXPECT_EQ(printed({.model = model, .text = "<|im_end|>", .ids = true}), "269 268 289 270\n");
}

TEST(Tokenize, PrintsJsonWithIdsAndPieces) {
  EXPECT_EQ(printed({.model = demo_model("llama"), .text = "½ Once", .json = true}),
            R"({"count":4,"ids":[129,124,665,422],"pieces":[[194],[189]," On","ce"]})"
            "\n");
}

TEST(Tokenize, DecodesIdsHoweverTheyAreWritten) {
  const std::string model = demo_model("llama");
  for (const char* ids : {"899 898 261 714", "899,898,261,714", "[899, 898, 261, 714]", " 899\n898\n261\n714\n"}) {
    EXPECT_EQ(printed({.model = model, .text = ids, .decode = true}), "Once upon a time");
  }
  EXPECT_EQ(printed({.model = model, .text = "", .decode = true}), "");
  EXPECT_EQ(printed({.model = model, .text = "899 2", .decode = true}), "Once");
  EXPECT_EQ(printed({.model = model, .text = "899 2", .special = true, .decode = true}), "Once<|im_end|>");
  EXPECT_EQ(printed({.model = model, .text = "899 129", .decode = true, .json = true}), "{\"text\":\"Once\uFFFD\"}\n");
}

TEST(Tokenize, OnATerminalDecodedControlsAreEscaped) {
  const std::string model = demo_model("llama");
  EXPECT_EQ(printed({.model = model, .text = "218 899", .decode = true}), "\x1bOnce");
  EXPECT_EQ(printed({.model = model, .text = "218 899", .decode = true}, {.terminal = true}), "\\x1bOnce");
}

TEST(Tokenize, WhatIsNoIdIsNamed) {
  const auto refusal = [](std::string ids) {
    const auto out = tokenize({.model = demo_model("llama"), .text = std::move(ids), .decode = true}, {});
    return out ? "(it was decoded)" : out.error().message;
  };
  EXPECT_EQ(refusal("1 2x 3"), "\"2x\" is not a token id");
  EXPECT_EQ(refusal("1 1536"), "there is no token 1536: ids are 0 to 1535");
  EXPECT_EQ(refusal("-1"), "there is no token -1: ids are 0 to 1535");
  EXPECT_THAT(refusal("99999999999999999999"), HasSubstr("there is no token"));
}

TEST(Tokenize, AModelWithoutATokenizerIsRefused) {
  const gguf::testing::TemporaryFolder folder;
  const auto model = model::testing::TestModel::attention("llama");
  ASSERT_TRUE(model.writer().write(folder / "none.gguf"));
  expect_refusal(call({"tokenize", "-m", folder / "none.gguf", "text"}));
  auto unknown = model;
  unknown.set_key("tokenizer.ggml.model", std::string("gpt2"))
      .set_key("tokenizer.ggml.pre", std::string("martian"))
      .set_key("tokenizer.ggml.merges", std::vector<std::string>{});
  ASSERT_TRUE(unknown.writer().write(folder / "unknown.gguf"));
  const auto outcome = call({"tokenize", "-m", folder / "unknown.gguf", "text"});
  expect_refusal(outcome);
  EXPECT_THAT(outcome.err, HasSubstr("martian"));
}

class TokenizeFixtures : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizeFixtures, OfHuggingFaceComeOutTheSameAndGoBack) {
  const std::string model = demo_model(GetParam());
  const auto cases = boost::json::parse(read_file(QUIRE_SOURCE_DIR "/testdata/demo/tokenization.json"));
  ASSERT_EQ(cases.as_array().size(), 70u);
  for (const auto& value : cases.as_array()) {
    const std::string text(value.at("text").as_string());
    const std::string ids =
        fmt::format("{}\n", fmt::join(boost::json::value_to<std::vector<int>>(value.at("ids")), " "));
    EXPECT_EQ(printed({.model = model, .text = text, .ids = true, .special = true}), ids) << text;
    const std::string decoded(value.at("decoded").as_string());
    EXPECT_EQ(printed({.model = model, .text = ids, .special = true, .decode = true}), decoded);
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizeFixtures, ::testing::Values("llama", "mamba2", "hybrid"),
                         [](const auto& instance) { return std::string(instance.param); });

class TokenizeVocabulary : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizeVocabulary, GivesTheIdsThatThePlainEncoderGives) {
  const std::string path = std::string(QUIRE_SOURCE_DIR "/testdata/vocab/") + GetParam();
  const auto cases = boost::json::parse(read_file(path + ".json"));
  for (const auto& value : cases.as_array()) {
    const std::string text(value.at("text").as_string());
    const std::string ids =
        fmt::format("{}\n", fmt::join(boost::json::value_to<std::vector<int>>(value.at("ids")), " "));
    EXPECT_EQ(printed({.model = path + ".gguf", .text = text, .ids = true, .no_bos = true}), ids) << text;
    EXPECT_EQ(printed({.model = path + ".gguf", .text = ids, .decode = true}), text);
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizeVocabulary, ::testing::Values("byte-level", "sentencepiece"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(Tokenize, BosCanBeLeftOut) {
  const std::string path = QUIRE_SOURCE_DIR "/testdata/vocab/sentencepiece.gguf";
  EXPECT_EQ(printed({.model = path, .text = "of"}), "   1  \"<s>\"  special\n 279  \" of\"\n");
  EXPECT_EQ(printed({.model = path, .text = "of", .ids = true, .no_bos = true}), "279\n");
}

}  // namespace
}  // namespace quire::cli
