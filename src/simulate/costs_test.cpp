#include "quire/simulate/costs.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::simulate {
namespace {

using ::testing::HasSubstr;

Result<engine::StepCosts> read(const std::string& text) {
  const std::string path = ::testing::TempDir() + "quire_costs_" + std::to_string(::getpid()) + ".json";
  std::ofstream(path) << text;
  auto costs = read_costs(path);
  std::filesystem::remove(path);
  return costs;
}

constexpr const char* kPlain =
    R"({"base": 0.01, "decode_row": 0.002, "prefill_row": 3e-3, "decode_context": 4e-8, "prefill_context": 0})";

TEST(Costs, AreReadFromAFile) {
  const auto costs = read(kPlain);
  ASSERT_TRUE(costs) << costs.error().message;
  EXPECT_EQ(costs->base, 0.01);
  EXPECT_EQ(costs->decode_row, 0.002);
  EXPECT_EQ(costs->prefill_row, 0.003);
  EXPECT_EQ(costs->decode_context, 4e-8);
  EXPECT_EQ(costs->prefill_context, 0);
}

TEST(Costs, TheLastRowOfABenchmarkThatHasThemCounts) {
  std::string other = kPlain;
  other.replace(other.find("0.01"), 4, "0.07");
  const auto costs = read(std::string(R"({"workload": "serve", "costs": )") + kPlain + "}\n" +
                          R"({"workload": "serve", "costs": )" + other + "}\n" + R"({"workload": "decode"})" + "\n");
  ASSERT_TRUE(costs) << costs.error().message;
  EXPECT_EQ(costs->base, 0.07);
}

TEST(Costs, AWrongFileIsRefused) {
  EXPECT_THAT(read("").error().message, HasSubstr("has no costs"));
  EXPECT_THAT(read(R"({"workload": "decode"})").error().message, HasSubstr("has no costs"));
  EXPECT_THAT(read("\nx").error().message, HasSubstr(":2: is not a JSON object"));
  EXPECT_THAT(read(R"({"base": 1})").error().message, HasSubstr(":1: has no decode_row"));
  EXPECT_THAT(read(R"({"costs": 1})").error().message, HasSubstr("costs is not an object"));
  std::string wrong = kPlain;
  wrong.replace(wrong.find("0.002"), 5, "-0.02");
  EXPECT_THAT(read(wrong).error().message, HasSubstr("decode_row is not a number of seconds"));
  wrong = kPlain;
  wrong.replace(wrong.find("0.01"), 4, "0.00");
  EXPECT_THAT(read(wrong).error().message, HasSubstr("base is 0"));
  EXPECT_FALSE(read_costs("/nowhere/costs.json"));
}

TEST(Costs, RatesAreThoseOfAShortPromptAndAShortAnswer) {
  const engine::StepCosts costs = costs_of({.prefill = 1000, .decode = 20});
  engine::StepShape decode, prefill;
  decode.add_decode(10);
  EXPECT_NEAR(costs.seconds(decode), 1.0 / 20, 0.02 / 20);
  prefill.add_prefill(0, 500);
  EXPECT_NEAR(costs.seconds(prefill) - costs.base, 0.5, 0.01);
}

}  // namespace
}  // namespace quire::simulate
