// `quire synth`, and the other commands on the files that it writes.
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/cli/cli_testing.h"
#include "quire/gguf/gguf_testing.h"

namespace quire::cli {
namespace {

using gguf::testing::TemporaryFolder;
using ::testing::AllOf;
using testing::call;
using testing::expect_refusal;
using ::testing::HasSubstr;

std::vector<std::string> with(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

const std::vector<std::string> kSmall = {"synth", "--arch",       "llama", "--layers",   "2",  "--embedding",
                                         "64",    "--heads",      "4",     "--kv-heads", "2",  "--feed-forward",
                                         "96",    "--vocabulary", "700",   "--context",  "128"};

TEST(SynthCommand, OtherCommandsTakeWhatItMade) {
  const TemporaryFolder folder;
  const std::string path = folder / "small.gguf";
  const auto made = call(with(kSmall, {"--type", "q8_0", "-o", path}));
  ASSERT_EQ(made.exit_code, kSuccess) << made.err;
  EXPECT_THAT(made.out,
              AllOf(HasSubstr("small.gguf: llama-custom Q8_0, "), HasSubstr(" parameters ("), HasSubstr(" s\n")));
  EXPECT_EQ(made.err, "");

  const auto info = call({"info", path});
  ASSERT_EQ(info.exit_code, kSuccess) << info.err;
  EXPECT_THAT(info.out, AllOf(HasSubstr("llama-custom Q8_0 random"), HasSubstr("4 heads, 2 for keys and values, of 16"),
                              HasSubstr("vocabulary      700 tokens"), HasSubstr("SentencePiece")));
  const auto ids = call({"tokenize", "-m", path, "--ids", "Once upon a time"});
  ASSERT_EQ(ids.exit_code, kSuccess) << ids.err;
  EXPECT_EQ(call({"tokenize", "-m", path, "--decode", ids.out}).out, "Once upon a time");
  const auto text = call({"run", "-m", path, "-p", "Once upon a time", "-n", "4", "--temp", "0"});
  EXPECT_EQ(text.exit_code, kSuccess) << text.err;
  const std::string chat = folder / "chat.json";
  testing::write_file(chat, R"([{"role": "user", "content": "Hi"}])");
  const auto prompt = call({"render", "-m", path, "--messages", chat, "--add-generation-prompt"});
  EXPECT_EQ(prompt.out, "<|user|>\nHi</s>\n<|assistant|>\n") << prompt.err;
}

TEST(SynthCommand, NumbersChangeAShapeThatHasAName) {
  const TemporaryFolder folder;
  const std::string path = folder / "hybrid.gguf";
  const auto made = call({"synth", "--shape", "granite-h-350m", "--layers", "3", "--embedding", "192", "--vocabulary",
                          "400", "--attention-layers", "0,2", "--untied", "--type", "Q4_K", "-o", path});
  ASSERT_EQ(made.exit_code, kSuccess) << made.err;
  EXPECT_THAT(made.out, HasSubstr("rows of 192 are not whole blocks of Q4_K: "));
  const auto info = call({"info", "--json", path});
  EXPECT_THAT(info.out, AllOf(HasSubstr("granitehybrid"), HasSubstr("Q5_0")));
  EXPECT_EQ(call({"logits", "-m", path, "--ids", "1,2,3"}).exit_code, kSuccess);
}

TEST(SynthCommand, TheSameSeedGivesTheSameFile) {
  const TemporaryFolder folder;
  for (const auto& [name, seed] : {std::pair{"a", "1"}, {"b", "1"}, {"c", "2"}}) {
    ASSERT_EQ(call(with(kSmall, {"--type", "Q4_0", "-o", folder / name, "--seed", seed})).exit_code, kSuccess);
  }
  EXPECT_EQ(testing::read_file(folder / "a"), testing::read_file(folder / "b"));
  EXPECT_NE(testing::read_file(folder / "a"), testing::read_file(folder / "c"));
}

TEST(SynthCommand, OutliersChangeTheWeightsAndNotTheName) {
  const TemporaryFolder folder;
  ASSERT_EQ(call(with(kSmall, {"--type", "Q8_0", "-o", folder / "plain"})).exit_code, kSuccess);
  const auto made = call(with(kSmall, {"--type", "Q8_0", "-o", folder / "outliers", "--outliers", "2"}));
  ASSERT_EQ(made.exit_code, kSuccess) << made.err;
  EXPECT_THAT(made.out, HasSubstr("llama-custom Q8_0"));
  EXPECT_NE(testing::read_file(folder / "plain"), testing::read_file(folder / "outliers"));
  EXPECT_EQ(call({"logits", "-m", folder / "outliers", "--ids", "1,2,3"}).exit_code, kSuccess);
}

TEST(SynthCommand, WhatCannotBeMeantIsRefusedByFlag) {
  const TemporaryFolder folder;
  const std::string path = folder / "x.gguf";
  const auto refusal = [&](const std::vector<std::string>& arguments) {
    const auto outcome = call(arguments);
    expect_refusal(outcome, kUsage);
    return outcome.err;
  };
  const std::vector<std::string> rest = {"--type", "Q8_0", "-o", path};
  EXPECT_THAT(refusal(with({"synth"}, rest)), HasSubstr("--shape or --arch is required"));
  EXPECT_THAT(refusal(with({"synth", "--shape", "llama-2b"}, rest)),
              HasSubstr("--shape: \"llama-2b\" is not one of llama-1.1b, "));
  EXPECT_THAT(refusal(with({"synth", "--arch", "gpt5"}, rest)),
              HasSubstr("--arch: \"gpt5\" is not one of deepseek2, "));
  EXPECT_THAT(refusal(with({"synth", "--shape", "llama-1.1b", "--arch", "llama"}, rest)), HasSubstr("excludes"));
  EXPECT_THAT(refusal(with(kSmall, {"--type", "Q9", "-o", path})), HasSubstr("--type: \"Q9\" is not one of F32, "));
  EXPECT_THAT(refusal(with(kSmall, {"-o", path})), HasSubstr("--type is required"));
  EXPECT_THAT(refusal(with(kSmall, {"--type", "Q8_0"})), HasSubstr("--output is required"));
  EXPECT_THAT(refusal(with({"synth", "--arch", "llama", "--layers", "2"}, rest)),
              HasSubstr("--embedding: a model of architecture llama needs it"));
  const auto changed = [&](const std::string& shape, const std::string& flag, const std::string& value) {
    return refusal(with({"synth", "--shape", shape, flag, value}, rest));
  };
  EXPECT_THAT(changed("llama-1.1b", "--kv-heads", "5"), HasSubstr("--kv-heads: 32 heads are not a multiple of 5"));
  EXPECT_THAT(changed("llama-1.1b", "--layers", "0"), HasSubstr("--layers: \"0\" is not a whole number"));
  EXPECT_THAT(changed("llama-1.1b", "--layers", "many"), HasSubstr("--layers: \"many\" is not a whole number"));
  EXPECT_THAT(changed("llama-1.1b", "--state", "16"), HasSubstr("--state: a model of architecture llama has none"));
  EXPECT_THAT(changed("llama-1.1b", "--vocabulary", "100"), HasSubstr("--vocabulary: 100 tokens are too few"));
  EXPECT_THAT(changed("granite-h-1b", "--layers", "4"), HasSubstr("--attention-layers: a hybrid has at least one"));
  EXPECT_THAT(changed("granite-h-1b", "--attention-layers", "x"), HasSubstr("--attention-layers"));
  EXPECT_THAT(changed("granite-h-1b", "--attention-layers", "3,99"),
              HasSubstr("--attention-layers: there is no layer 99"));
  EXPECT_THAT(changed("llama-1.1b", "--outliers", "3"),
              HasSubstr("--outliers: 3 is not an even number of at most 16 channels"));
  EXPECT_THAT(changed("mamba2-130m", "--outliers", "2"), HasSubstr("has neither keys nor a feed-forward block"));
  EXPECT_THAT(changed("mamba2-130m", "--ssm-heads", "7"), HasSubstr("--ssm-heads: 1536 channels do not divide"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SynthCommand, WhatCannotBeWrittenIsOneLine) {
  const TemporaryFolder folder;
  const auto nowhere = call(with(kSmall, {"--type", "Q8_0", "-o", folder / "no/such/x.gguf"}));
  expect_refusal(nowhere);
  EXPECT_THAT(nowhere.err, HasSubstr("x.gguf: cannot be created: No such file or directory"));
  const auto odd =
      call({"synth", "--shape", "llama-1.1b", "--feed-forward", "100", "--type", "Q4_0", "-o", folder / "x"});
  expect_refusal(odd);
  EXPECT_THAT(odd.err, HasSubstr("ffn_down.weight': rows of 100 elements are not whole blocks of Q4_0"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SynthCommand, HelpNamesShapesAndShowsExamples) {
  const auto help = call({"synth", "--help"});
  EXPECT_EQ(help.exit_code, kSuccess);
  EXPECT_THAT(help.out,
              AllOf(HasSubstr("Usage: quire synth (--shape NAME | --arch NAME) --type TYPE -o FILE"),
                    HasSubstr("granite-h-350m"), HasSubstr("--kv-heads N"), HasSubstr("--seed N"),
                    HasSubstr("--outliers N"), HasSubstr("mistral-7b"), HasSubstr("quire synth --shape llama-1.1b")));
}

}  // namespace
}  // namespace quire::cli
