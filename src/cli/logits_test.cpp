// Compares `quire logits` with Hugging Face's logits, and the variants with each other.
#include "quire/cli/logits.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/backend/cpu/kernels.h"
#include "quire/cli/cli_testing.h"
#include "quire/gguf/gguf_testing.h"
#include "quire/model/model_files_testing.h"

namespace quire::cli {
namespace {

namespace json = boost::json;
using testing::call;
using testing::demo_model;
using ::testing::HasSubstr;
using testing::Outcome;

std::vector<float> floats_of(const std::string& path) {
  const std::string bytes = testing::read_file(path);
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
  return out;
}

double worst(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double out = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) out = std::max(out, std::fabs(double{a[i]} - b[i]));
  return out;
}

double spread(std::span<const float> logits) {
  double sum = 0, squares = 0;
  for (const float x : logits) {
    sum += x;
    squares += double{x} * x;
  }
  const auto n = static_cast<double>(logits.size());
  return std::sqrt(squares / n - sum / n * sum / n);
}

class GoldenLogits : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenLogits, AreWrittenAsHuggingFaceHasThem) {
  const gguf::testing::TemporaryFolder folder;
  const std::string golden = std::filesystem::path(QUIRE_SOURCE_DIR "/" + GetParam()).parent_path();
  const json::value cases = json::parse(testing::read_file(golden + "/golden.json")).at("cases");
  for (const json::value& item : cases.as_array()) {
    const auto ids = json::value_to<std::vector<int>>(item.at("tokens"));
    const double spread = item.at("logit_std").to_number<double>();
    const auto expected = floats_of(golden + "/" + std::string(item.at("last_logits").as_string()));
    for (const char* variant : cpu::kVariants) {
      const Outcome ran = call({"logits", "-m", golden + "/model.gguf", "--ids", fmt::format("{}", fmt::join(ids, ",")),
                                "--kv-type", "f32", "--variant", variant, "-o", folder / "last.f32"});
      if (cpu::kernels_by_name(variant) == nullptr) {
        EXPECT_EQ(ran.exit_code, 1);
        EXPECT_THAT(ran.err, HasSubstr(fmt::format("this machine cannot run the variant '{}' (it can: ", variant)));
        std::printf("this machine has no %s: left out\n", variant);
        continue;
      }
      ASSERT_EQ(ran.exit_code, 0) << ran.err;
      EXPECT_EQ(ran.out, "");
      EXPECT_LE(worst(floats_of(folder / "last.f32"), expected), model::testing::golden_tolerance(golden) * spread)
          << variant << ", " << ids.size() << " ids";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenLogits, model::testing::golden_files(), model::testing::readable);

TEST(Logits, AllPositionsEndWithTheLastAndAreWhatTheLastWouldBe) {
  const gguf::testing::TemporaryFolder folder;
  for (const char* kind : {"llama", "mamba2", "hybrid"}) {
    std::vector<int> ids;
    for (int i = 0; i < 70; ++i) ids.push_back(20 + i * i % 500);
    const std::string all = fmt::format("{}", fmt::join(ids, ","));
    ASSERT_EQ(call({"logits", "-m", demo_model(kind), "--ids", all, "--all", "-o", folder / "all.f32"}).exit_code, 0);
    const auto rows = floats_of(folder / "all.f32");
    const std::size_t vocabulary = rows.size() / ids.size();
    for (const std::size_t count : {1, 32, 33, 70}) {
      const std::string some = fmt::format("{}", fmt::join(ids.begin(), ids.begin() + static_cast<long>(count), ","));
      ASSERT_EQ(call({"logits", "-m", demo_model(kind), "--ids", some, "-o", folder / "last.f32"}).exit_code, 0);
      const auto last = floats_of(folder / "last.f32");
      ASSERT_EQ(last.size(), vocabulary);
      EXPECT_EQ(std::memcmp(last.data(), rows.data() + (count - 1) * vocabulary, vocabulary * sizeof(float)), 0)
          << count;
    }
  }
}

TEST(Logits, VariantsAgreeOnQuantisedWeights) {
  const gguf::testing::TemporaryFolder folder;
  for (const char* kind : {"llama", "mamba2", "hybrid"}) {
    std::vector<float> scalar;
    for (const char* variant : cpu::kVariants) {
      if (cpu::kernels_by_name(variant) == nullptr) {
        std::printf("this machine has no %s: left out\n", variant);
        continue;
      }
      const std::string file = folder / (std::string(variant) + ".f32");
      ASSERT_EQ(
          call({"logits", "-m", demo_model(kind), "--ids", "300 301 302 303 304 305", "--variant", variant, "-o", file})
              .exit_code,
          0);
      if (scalar.empty()) scalar = floats_of(file);
      // Activations are rounded to eight bits: a difference in the last bit may become one rounding step.
      EXPECT_LE(worst(floats_of(file), scalar), 0.02 * spread(scalar)) << kind << ", " << variant;
    }
  }
}

TEST(Logits, WithoutAFileTheLikeliestArePrinted) {
  const Outcome ran = call({"logits", "-m", demo_model("llama"), "--ids", "1,2,3", "--top", "2"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, ::testing::MatchesRegex(
                           "position 2, after token 3  \"!\"\n +[0-9]+ +[0-9.]+ +[0-9.]+%  \".*\"\n +[0-9]+.*\n"));
  const Outcome all = call({"logits", "-m", demo_model("llama"), "--ids", "1,2,3", "--top", "1", "--all"});
  EXPECT_THAT(all.out, HasSubstr("position 0, after token 1"));
  EXPECT_THAT(all.out, HasSubstr("position 2, after token 3"));
}

TEST(Logits, TheLikeliestIsHuggingFacesToo) {
  const std::string golden = QUIRE_SOURCE_DIR "/testdata/golden/llama";
  const json::value cases = json::parse(testing::read_file(golden + "/golden.json")).at("cases");
  const json::value& one = cases.at(0);  // of a single token
  const auto id = one.at("tokens").at(0).to_number<int>(), likeliest = one.at("argmax").at(0).to_number<int>();
  const Outcome ran = call({"logits", "-m", golden + "/model.gguf", "--ids", fmt::format("{}", id)});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, ::testing::MatchesRegex(
                           fmt::format("position 0, after token {}  \"[^\n]*\n *{} (.|\n)*", id, likeliest)));
}

TEST(Logits, JsonHasTheLikeliestWithTheirProbabilities) {
  const Outcome ran =
      call({"logits", "-m", demo_model("llama"), "--ids", "1,2,3", "--json", "--all", "--top", "1000000"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json::value out = json::parse(ran.out);
  EXPECT_EQ(out.at("positions"), 3);
  ASSERT_EQ(out.at("logits").as_array().size(), 3u);
  double sum = 0;
  for (const json::value& token : out.at("logits").at(2).at("top").as_array()) {
    sum += std::exp(token.at("logprob").to_number<double>());
  }
  EXPECT_NEAR(sum, 1, 1e-6);
}

TEST(Logits, WhatIsWrongIsNamed) {
  const gguf::testing::TemporaryFolder folder;
  const auto message = [](std::vector<std::string> arguments, int code) {
    arguments.insert(arguments.begin(), {"logits", "-m", demo_model("llama")});
    const Outcome ran = call(arguments);
    EXPECT_EQ(ran.exit_code, code) << ran.err;
    EXPECT_EQ(ran.out, "");
    return ran.err;
  };
  EXPECT_THAT(message({"--ids", "1,x"}, 1), HasSubstr("\"x\" is not a token id"));
  EXPECT_THAT(message({"--ids", "999999"}, 1), HasSubstr("there is no token 999999"));
  EXPECT_THAT(message({"--ids", ","}, 1), HasSubstr("--ids is an empty list"));
  EXPECT_THAT(message({"--ids", "1", "-o", folder / "no/such/folder"}, 1),
              HasSubstr("cannot be written: No such file"));
  EXPECT_THAT(message({"--ids", "1,2,3", "--ctx", "2"}, 1),
              HasSubstr("the prompt has 3 tokens, and the context only 2"));
  EXPECT_THAT(message({"--ids", "1", "--variant", "sse"}, 2), HasSubstr("\"sse\" is not one of"));
  EXPECT_THAT(message({}, 2), HasSubstr("--ids is required"));
}

TEST(Logits, AFileIsCompleteOrNotThere) {
  const gguf::testing::TemporaryFolder folder;
  ASSERT_EQ(
      call({"logits", "-m", demo_model("llama"), "--ids", "1,2,3", "--ctx", "2", "-o", folder / "x.f32"}).exit_code, 1);
  EXPECT_FALSE(std::filesystem::exists(folder / "x.f32"));
  EXPECT_FALSE(std::filesystem::exists(folder / "x.f32.part"));
}

}  // namespace
}  // namespace quire::cli
