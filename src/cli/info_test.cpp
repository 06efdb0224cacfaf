// `quire info`, called in this process: its exact output for the demo models, and its output for unusual files.
#include "quire/cli/info.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/cli/cli_testing.h"
#include "quire/cli/printable.h"
#include "quire/gguf/gguf_testing.h"
#include "quire/model/head_testing.h"
#include "quire/model/model_testing.h"

namespace quire::cli {
namespace {

using gguf::testing::TemporaryFolder;
using model::testing::OpenedModel;
using model::testing::TestModel;
using ::testing::AnyOf;
using testing::call;
using testing::demo_model;
using testing::expect_refusal;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_file;

std::string text_of(const TestModel& model, const Style& style = {}) {
  const OpenedModel opened(model);
  const auto facts = model_facts(*opened.file);
  EXPECT_TRUE(facts) << facts.error().message;
  return facts ? info_text(*facts, style) : "";
}

TEST(InfoDevices, ListsThemAndSaysWhyThereIsNoGpu) {
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
  DeviceChoices choices{.usable = {{"cpu", "2 cores, kernels: scalar", {.free = kGiB, .total = 2 * kGiB}}},
                        .why_no_gpu = "this machine has no NVIDIA GPU"};
  EXPECT_EQ(devices_text(choices),
            "cpu       2 cores, kernels: scalar, 2.0 GiB  (auto)\nno GPU: this machine has no NVIDIA GPU\n");
  choices.usable.insert(choices.usable.begin(), {"cuda:0", "NVIDIA H200", {.free = kGiB, .total = 140 * kGiB}});
  choices.why_no_gpu.clear();
  EXPECT_EQ(devices_text(choices),
            "cuda:0    NVIDIA H200, 140.0 GiB  (auto)\ncpu       2 cores, kernels: scalar, 2.0 GiB\n");
  EXPECT_EQ(devices_json(choices).at("why_no_gpu"), nullptr);
  EXPECT_EQ(devices_json(choices).at("devices").at(0).at("auto"), true);
}

TEST(InfoDevices, TheProcessorIsAlwaysOne) {
  const auto outcome = call({"info", "--devices"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("cpu       "));
  EXPECT_THAT(call({"info", "--devices", "--json"}).out, HasSubstr(R"("name":"cpu")"));
  EXPECT_NE(call({"info", "--devices", "file"}).exit_code, 0) << "a file, or the devices";
}

std::string refusal(const TestModel& model) {
  const OpenedModel opened(model);
  const auto facts = model_facts(*opened.file);
  return facts ? "(it was read)" : facts.error().message;
}

class InfoOfDemoModel : public ::testing::TestWithParam<const char*> {};

TEST_P(InfoOfDemoModel, IsWhatItAlwaysWas) {
  const auto outcome = call({"info", demo_model(GetParam())});
  EXPECT_EQ(outcome.exit_code, kSuccess) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.out, read_file(std::string(QUIRE_SOURCE_DIR "/testdata/cli/info-") + GetParam() + ".txt"));
}

TEST_P(InfoOfDemoModel, IsAsciiWhereTheLocaleIs) {
  const auto outcome = call({"info", demo_model(GetParam())}, {});
  EXPECT_EQ(outcome.exit_code, kSuccess) << outcome.err;
  EXPECT_TRUE(std::ranges::all_of(outcome.out, [](char c) { return c == '\n' || (c >= 0x20 && c < 0x7F); }));
}

TEST_P(InfoOfDemoModel, IsJsonThatSaysTheSame) {
  const auto outcome = call({"info", "--json", demo_model(GetParam())});
  ASSERT_EQ(outcome.exit_code, kSuccess) << outcome.err;
  EXPECT_EQ(std::ranges::count(outcome.out, '\n'), 1);
  const boost::json::value json = boost::json::parse(outcome.out);
  EXPECT_EQ(json.at("vocabulary"), 1536);
  EXPECT_EQ(json.at("tokenizer").at("pre"), "qwen2");
  EXPECT_EQ(json.at("tokenizer").at("supported"), true);
  EXPECT_EQ(json.at("tokenizer").at("special").at("EOS").at("spelling"), "<|im_end|>");
  EXPECT_EQ(json.at("file").at("bytes").to_number<std::uintmax_t>(),
            std::filesystem::file_size(demo_model(GetParam())));
  EXPECT_EQ(json.at("types").at(0).at("type"), "Q8_0");
  EXPECT_EQ(json.at("chat_template_bytes"), 180);
}

INSTANTIATE_TEST_SUITE_P(All, InfoOfDemoModel, ::testing::Values("llama", "mamba2", "hybrid"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST(Info, EachKindOfRecurrentLayerIsDescribed) {
  EXPECT_THAT(text_of(TestModel::recurrent("mamba")),
              HasSubstr("Mamba-1, 32 channels, state size 4, steps of rank 4, convolution 4"));
  EXPECT_THAT(text_of(TestModel::hybrid("lfm2", {0, 1})), HasSubstr("short convolution 3 of 16 channels"));
  const std::string qwen = text_of(TestModel::hybrid("qwen35", {1, 1, 1}).set("nextn_predict_layers", 1U));
  EXPECT_THAT(qwen, HasSubstr("gated delta rule, 4 heads of 4 x 8, 1 of keys, convolution 4"));
  EXPECT_THAT(qwen, HasSubstr("of 8 elements; outputs have gates"));
  EXPECT_THAT(qwen, HasSubstr("1 layer after the last that predicts further tokens"));
  const auto image = model::testing::HeadModel("qwen35").count(3).image();
  const auto file = gguf::File::from_memory(image, "test");
  const auto facts = model_facts(*file);
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_THAT(info_text(*facts, {}), HasSubstr("1 layer after the last guesses further tokens (--speculate heads)"));
  EXPECT_THAT(info_text(*facts, {}), HasSubstr("2 layers after the last that predict further tokens"));
  EXPECT_THAT(text_of(TestModel::hybrid("falcon-h1", {1, 1})), HasSubstr("% attention beside recurrent (2)"));
}

TEST(Info, AHeadThatCannotBeUsedIsNamedAndTheModelIsDescribed) {
  const auto image = model::testing::HeadModel("qwen35").remove("nextn.enorm.weight").image();
  const auto file = gguf::File::from_memory(image, "test");
  const auto facts = model_facts(*file);
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_THAT(info_text(*facts, {}), HasSubstr("1 layer after the last, which cannot be used: test: "));
  EXPECT_THAT(info_text(*facts, {}), HasSubstr("nextn.enorm.weight"));
}

TEST(Info, JsonHasTheStateInBytesAndALayerForEachLayer) {
  const auto outcome = call({"info", "--json", demo_model("hybrid")});
  ASSERT_EQ(outcome.exit_code, kSuccess) << outcome.err;
  const boost::json::value json = boost::json::parse(outcome.out);
  EXPECT_EQ(json.at("architecture"), "granitehybrid");
  ASSERT_EQ(json.at("layers").as_array().size(), 8u);
  EXPECT_EQ(json.at("layers").at(2).at("kind"), "recurrent");
  EXPECT_EQ(json.at("layers").at(3).at("kv_heads"), 2);
  EXPECT_TRUE(json.at("layers").at(3).at("window").is_null());
  EXPECT_EQ(json.at("recurrent").at("inner_size"), 512);
  // K and V of two layers with two heads of 64; six states of 3 x 640 and 512 x 64 floats.
  EXPECT_EQ(json.at("state").at("f16").at("bytes_per_token"), 2 * 2 * 2 * 64 * 2);
  EXPECT_EQ(json.at("state").at("f32").at("bytes_per_token"), 2 * 2 * 2 * 64 * 4);
  EXPECT_EQ(json.at("state").at("f16").at("bytes_per_sequence"), 6 * (3 * 640 + 512 * 64) * 4);
  EXPECT_EQ(json.at("state").at("f16").at("bytes_at_full_context"), 2048 * 1024 + 832512);
  const boost::json::value& recurrent = json.at("state").at("recurrent_bytes_per_sequence");
  EXPECT_EQ(recurrent.at("f32"), 832512);
  EXPECT_EQ(recurrent.at("bf16"), 6 * (3 * 640 * 4 + 512 * 64 * 2));
  EXPECT_EQ(recurrent.at("f16"), recurrent.at("bf16"));
}

TEST(Info, TheUnitOfCheckpointsFollowsFromThePageSize) {
  const auto unit = [](const std::string& model, const char* block_size) {
    const auto outcome = call({"info", "--json", "--block-size", block_size, demo_model(model)});
    EXPECT_EQ(outcome.exit_code, kSuccess) << outcome.err;
    return boost::json::parse(outcome.out).at("state").at("checkpoint_unit");
  };
  EXPECT_EQ(unit("hybrid", "64"), 16);
  EXPECT_EQ(unit("hybrid", "8"), 8);
  EXPECT_TRUE(unit("llama", "64").is_null());  // no recurrent state
  const auto text = call({"info", "--block-size", "8", demo_model("hybrid")}, {});
  EXPECT_THAT(text.out, HasSubstr("checkpoints     at multiples of 8 tokens"));
}

TEST(Info, TheGoldenModelsAreSaidToBeWhatTheyAre) {
  const std::filesystem::path folder = QUIRE_SOURCE_DIR "/testdata/golden";
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const auto outcome = call({"info", entry.path() / "model.gguf"}, {});
    EXPECT_EQ(outcome.exit_code, kSuccess) << outcome.err;
    if (entry.path().filename() == "gemma3") {
      EXPECT_THAT(outcome.out, HasSubstr("  0  = = = = = # =\n"));
      EXPECT_THAT(outcome.out, HasSubstr("a window of 16 tokens (6)"));
    }
    ++models;
  }
  EXPECT_GE(models, 10);
}

TEST(Info, PositionsAreSaidToBeWhatTheyAre) {
  const auto text = [](const std::string& model) {
    return call({"info", QUIRE_SOURCE_DIR "/testdata/golden/" + model + "/model.gguf"}, {}).out;
  };
  EXPECT_THAT(text("gpt2"), HasSubstr("positions       learned, a table of 512\n"));
  EXPECT_THAT(text("smollm3"), HasSubstr("positions       rotary, in 3 of 4 layers with attention\n"));
  EXPECT_THAT(text("llama-yarn"), HasSubstr("rotary scaling  YaRN, by 8 from 64 tokens\n"));
  EXPECT_THAT(text("phi3-longrope"),
              HasSubstr("rotary scaling  longrope, long factors (short ones with --ctx 64 or less)\n"));
  EXPECT_THAT(text("llama"), Not(AnyOf(HasSubstr("positions"), HasSubstr("rotary"))));
  const auto json = [](const std::string& model) {
    return boost::json::parse(
        call({"info", "--json", QUIRE_SOURCE_DIR "/testdata/golden/" + model + "/model.gguf"}).out);
  };
  EXPECT_EQ(json("gpt2").at("learned_positions"), true);
  EXPECT_EQ(json("cohere2").at("layers").at(2).at("rotary"), true);
  EXPECT_EQ(json("cohere2").at("layers").at(3).at("rotary"), false);
  EXPECT_EQ(json("llama-yarn").at("rope_scaling").at("kind"), "yarn");
  EXPECT_EQ(json("phi3-longrope").at("rope_scaling").at("factors"), "long");
  EXPECT_TRUE(json("llama").at("rope_scaling").is_null());
}

TEST(Info, ColoursAreForTerminals) {
  EXPECT_THAT(call({"info", demo_model("llama")}, {.terminal = true, .colour = true}).out, HasSubstr("\x1b["));
  EXPECT_THAT(call({"info", demo_model("llama")}, {.terminal = true}).out, Not(HasSubstr("\x1b[")));
}

TEST(Info, NothingFromAFileReachesTheTerminalAsAnOrder) {
  TestModel model = TestModel::attention("llama");
  const std::string evil = "\x1b]0;owned\x07\x1b[2J\u009b\u202e\r\n" + std::string(10000, 'x');
  model.set_key("general.name", evil)
      .set_key("tokenizer.ggml.model", evil)
      .set_key("tokenizer.ggml.pre", evil)
      .set_key("tokenizer.ggml.tokens", std::vector<std::string>{evil, "b"})
      .set_key("tokenizer.ggml.bos_token_id", 0U)
      .set_key("tokenizer.chat_template", evil);
  for (const bool utf8 : {false, true}) {
    const std::string text = text_of(model, {.terminal = true, .utf8 = utf8});
    EXPECT_TRUE(std::ranges::all_of(text, [](char c) { return c == '\n' || static_cast<unsigned char>(c) >= 0x20; }));
    EXPECT_EQ(text.find("\u009b"), std::string::npos);
    EXPECT_EQ(text.find("\u202e"), std::string::npos);
    EXPECT_LT(text.size(), 4000u);
    EXPECT_THAT(text, HasSubstr("\\x1b]0;owned"));
    EXPECT_THAT(text, HasSubstr("which Quire cannot use"));
  }
  const OpenedModel opened(model);
  const std::string json = json_line(info_json(*model_facts(*opened.file)));
  EXPECT_LT(json.size(), 4000u);
  EXPECT_EQ(json.find("\u009b"), std::string::npos);
}

TEST(Info, AFileWithoutTensorsOrTokenizerIsShownAsSuch) {
  const std::string text =
      text_of(TestModel::attention("llama").remove_key("tokenizer.ggml.tokens").set("vocab_size", 77U));
  EXPECT_THAT(text, HasSubstr("(no name)\n"));
  EXPECT_THAT(text, HasSubstr("parameters      none: the file has no tensors\n"));
  EXPECT_THAT(text, HasSubstr("vocabulary      77 tokens\n"));
  EXPECT_THAT(text, HasSubstr("tokenizer       none\n"));
  EXPECT_THAT(text, HasSubstr("chat template   none\n"));
}

TEST(Info, WindowsExpertsAndUnequalLayersAreShown) {
  const std::string text = text_of(TestModel::attention("gemma2", 2)
                                       .set("attention.sliding_window", 16U)
                                       .set("feed_forward_length", std::vector<std::int32_t>{32, 64})
                                       .set("expert_count", 8U)
                                       .set("expert_used_count", 2U));
  EXPECT_THAT(text, HasSubstr("feed-forward    32 to 64\n"));
  EXPECT_THAT(text, HasSubstr("experts         8, 2 for each token\n"
                              "  router          softmax\n"));
  EXPECT_THAT(text, HasSubstr("  per token                            128              64              40\n"
                              "    only in the window                  64              32              20\n"));
}

TEST(Info, RoutersAndSharedExpertsAreShown) {
  const std::string text = text_of(TestModel::attention("qwen3moe", 2)
                                       .set("expert_count", 8U)
                                       .set("expert_gating_func", 2U)
                                       .set("expert_group_count", 4U)
                                       .set("expert_group_used_count", 2U)
                                       .set("expert_shared_count", 2U));
  EXPECT_THAT(text, HasSubstr("router          sigmoid, 2 of 4 groups, weights add up to 1\n"
                              "  shared expert   64\n"));
}

TEST(Info, AModelInSeveralFilesIsShownAsOneWithItsParts) {
  const TemporaryFolder folder;
  TestModel first = TestModel::attention("llama", 1).with_tensors({false});
  TestModel second = TestModel::attention("llama", 1);
  first.remove_tensor("output_norm.weight");
  second.tensor("output_norm.weight", {16});
  for (const auto& [model, number] : {std::pair(&first, 0), std::pair(&second, 1)}) {
    model->set_key("split.no", std::int32_t{number}).set_key("split.count", 2);
    const std::string name = number == 0 ? "m-00001-of-00002.gguf" : "m-00002-of-00002.gguf";
    ASSERT_TRUE(model->writer().write(folder / name));
  }
  const auto outcome = call({"info", folder / "m-00002-of-00002.gguf"});
  ASSERT_EQ(outcome.exit_code, kSuccess) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\nFiles: 2\n"));
  EXPECT_THAT(outcome.out, HasSubstr("m-00001-of-00002.gguf\n"));
  const auto json = boost::json::parse(call({"info", "--json", folder / "m-00001-of-00002.gguf"}).out);
  EXPECT_EQ(json.at("file").at("parts").as_array().size(), 2u);
}

TEST(Info, ContradictionsAreRefused) {
  EXPECT_THAT(refusal(TestModel::attention("llama")
                          .set_key("tokenizer.ggml.model", std::string("gpt2"))
                          .set_key("tokenizer.ggml.bos_token_id", 3U)),
              HasSubstr("'tokenizer.ggml.bos_token_id': 3, but there are 3 tokens"));
  EXPECT_THAT(refusal(TestModel::attention("llama")
                          .set_key("tokenizer.ggml.model", std::string("gpt2"))
                          .set_key("tokenizer.ggml.token_type", std::vector<std::int32_t>{1, 1})),
              HasSubstr("'tokenizer.ggml.token_type': has 2 elements for 3 tokens"));
  EXPECT_THAT(refusal(TestModel::attention("llama").with_tensors({false, false}).set("block_count", 3U)),
              HasSubstr("has no tensor 'blk.2.attn_norm.weight'"));
  EXPECT_THAT(refusal(TestModel::attention("llama").set_key("general.name", 7U)), HasSubstr("'general.name'"));
  EXPECT_THAT(refusal(TestModel::attention("llama").set_key("tokenizer.chat_template", 7U)),
              HasSubstr("'tokenizer.chat_template'"));
}

TEST(Info, AModelOfUnknownArchitectureIsRefusedByName) {
  const TemporaryFolder folder;
  ASSERT_TRUE(TestModel::attention("bert").writer().write(folder / "bert.gguf"));
  const auto outcome = call({"info", folder / "bert.gguf"});
  expect_refusal(outcome);
  EXPECT_THAT(outcome.err, HasSubstr("string 'bert' is not an architecture that Quire knows (cohere2, "));
}

}  // namespace
}  // namespace quire::cli
