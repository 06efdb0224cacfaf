// Compares the type of each matrix with that of llama.cpp's quantize.
#include "quire/bench/synth/mix.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/bench/synth/synth.h"

namespace quire::synth {
namespace {

using gguf::Type;
using ::testing::ElementsAre;

std::vector<std::uint32_t> larger(std::string_view name, Role role, std::uint32_t count) {
  const Mix& mix = *find_mix(name);
  std::vector<std::uint32_t> found;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (mix.choose(role, i, count) != mix.type) found.push_back(i);
  }
  return found;
}

TEST(Mix, EveryTypeThatIsNamedIsFound) {
  for (const std::string& name : type_names()) {
    ASSERT_NE(find_mix(name), nullptr) << name;
    EXPECT_TRUE(gguf::type_info(find_mix(name)->type).dequantizable) << name;
  }
  EXPECT_EQ(find_mix("q4_k_m"), find_mix("Q4_K_M"));
  EXPECT_EQ(find_mix("Q4_K_X"), nullptr);
  EXPECT_EQ(find_mix(""), nullptr);
}

TEST(Mix, TheMediumOneHasMoreBitsAtBothEndsAndInEachThirdLayerBetween) {
  for (const char* name : {"Q4_K_M", "Q5_K_M"}) {
    for (const Role role : {Role::attention_value, Role::feed_forward_down}) {
      EXPECT_THAT(larger(name, role, 22), ElementsAre(0, 1, 4, 7, 10, 13, 16, 19, 20, 21));
      EXPECT_EQ(find_mix(name)->choose(role, 0, 22), Type::Q6_K);
    }
    EXPECT_THAT(larger(name, Role::other, 22), ElementsAre());
    EXPECT_THAT(larger(name, Role::attention_output, 22), ElementsAre());
  }
}

TEST(Mix, SmallAndLargeOnes) {
  EXPECT_THAT(larger("Q4_K_S", Role::attention_value, 22), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(larger("Q4_K_S", Role::feed_forward_down, 22), ElementsAre(0, 1));
  EXPECT_THAT(larger("Q5_K_S", Role::feed_forward_down, 22), ElementsAre());
  EXPECT_EQ(find_mix("Q3_K_M")->choose(Role::attention_value, 1, 22), Type::Q5_K);
  EXPECT_EQ(find_mix("Q3_K_M")->choose(Role::attention_value, 2, 22), Type::Q4_K);
  EXPECT_EQ(find_mix("Q3_K_M")->choose(Role::attention_output, 2, 22), Type::Q4_K);
  EXPECT_EQ(find_mix("Q3_K_L")->choose(Role::attention_output, 2, 22), Type::Q5_K);
}

TEST(Mix, TheOutputIsQ6KWhereTheRestIsSmaller) {
  for (const std::string& name : type_names()) {
    const Type type = find_mix(name)->type;
    const bool keeps = type == Type::F32 || type == Type::F16 || type == Type::BF16 || type == Type::Q8_0;
    EXPECT_EQ(find_mix(name)->choose(Role::output, 0, 1), keeps ? type : Type::Q6_K) << name;
  }
}

// gpt-oss as it is published.
TEST(Mix, OfMxfp4HasExpertsInItAndAllElseInQ8) {
  const Mix& mix = *find_mix("mxfp4_moe");
  EXPECT_EQ(mix.choose(Role::other, 0, 1, true), Type::MXFP4);
  EXPECT_EQ(mix.choose(Role::feed_forward_down, 0, 24, true), Type::MXFP4);
  for (const Role role : {Role::output, Role::attention_value, Role::attention_output, Role::feed_forward_down}) {
    EXPECT_EQ(mix.choose(role, 0, 24), Type::Q8_0);
  }
  EXPECT_EQ(mix.file_type, 38u);
}

TEST(Mix, ExpertsAreQuantisedByTheRulesOfTheBlockThatTheyReplace) {
  const Mix& mix = *find_mix("Q4_K_M");
  EXPECT_EQ(mix.choose(Role::other, 0, 48, true), Type::Q4_K);
  EXPECT_EQ(mix.choose(Role::feed_forward_down, 0, 48, true), Type::Q6_K);
  EXPECT_EQ(mix.choose(Role::feed_forward_down, 6, 48, true), Type::Q4_K);
}

TEST(Mix, RowsThatAreNoWholeBlocksGetATypeThatFits) {
  EXPECT_EQ(*fit(Type::Q4_K, Role::other, 512), Type::Q4_K);
  EXPECT_EQ(*fit(Type::Q2_K, Role::other, 96), Type::Q4_0);
  EXPECT_EQ(*fit(Type::Q3_K, Role::other, 96), Type::Q4_0);
  EXPECT_EQ(*fit(Type::Q4_K, Role::other, 96), Type::Q5_0);
  EXPECT_EQ(*fit(Type::Q5_K, Role::other, 96), Type::Q5_1);
  EXPECT_EQ(*fit(Type::Q6_K, Role::other, 96), Type::Q8_0);
  EXPECT_EQ(*fit(Type::Q6_K, Role::output, 96), Type::Q8_0);
  EXPECT_EQ(*fit(Type::IQ4_XS, Role::other, 96), Type::IQ4_NL);
  EXPECT_EQ(*fit(Type::Q4_K, Role::other, 100), Type::F16);
  EXPECT_EQ(*fit(Type::F16, Role::other, 100), Type::F16);
  const auto refused = fit(Type::Q4_0, Role::other, 100);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "rows of 100 elements are not whole blocks of Q4_0, which have 32");
}

}  // namespace
}  // namespace quire::synth
