#include "quire/simulate/trace.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/simulate/simulate_testing.h"

namespace quire::simulate {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class TraceFile : public ::testing::Test {
 protected:
  std::string write(const std::string& text, const std::string& name = "trace") const {
    const std::string path = ::testing::TempDir() + "quire_" + std::to_string(::getpid()) + "_" + name + ".jsonl";
    std::ofstream(path) << text;
    paths_.push_back(path);
    return path;
  }
  Result<Trace> read(const std::string& text, std::uint64_t limit = 0) const {
    const std::string path = write(text);
    return read_trace(std::span(&path, 1), limit);
  }
  void TearDown() override {
    for (const std::string& path : paths_) std::filesystem::remove(path);
  }
  mutable std::vector<std::string> paths_;
};

constexpr const char* kLater =
    R"({"timestamp": 2500, "input_length": 700, "output_length": 3, "hash_ids": [7, 9], "other": null})";
constexpr const char* kFirst = R"({"timestamp": 1000, "input_length": 600, "output_length": 0, "hash_ids": [7, 8]})";

TEST_F(TraceFile, RequestsAreInTheOrderOfTheirTime) {
  const auto trace = read(std::string(kLater) + "\n\n" + kFirst + "\r\n");
  ASSERT_TRUE(trace) << trace.error().message;
  ASSERT_EQ(trace->requests.size(), 2u);
  EXPECT_EQ(trace->requests[0].seconds, 1.0);
  EXPECT_EQ(trace->requests[0].input, 600u);
  EXPECT_EQ(trace->requests[0].output, 0u);
  EXPECT_EQ(trace->requests[1].seconds, 2.5);
  EXPECT_EQ(trace->ids_of(trace->requests[1])[1], 9u);
  const auto limited = read(std::string(kLater) + "\n" + kFirst, 1);
  ASSERT_EQ(limited->requests.size(), 1u);
  EXPECT_EQ(limited->requests[0].input, 600u);
}

TEST_F(TraceFile, EqualIdsGiveEqualTokensAndOthersDoNot) {
  const auto trace = read(std::string(kFirst) + "\n" + kLater);
  ASSERT_TRUE(trace);
  const auto first = trace->prompt_of(trace->requests[0]), later = trace->prompt_of(trace->requests[1]);
  ASSERT_EQ(first.size(), 600u);
  ASSERT_EQ(later.size(), 700u);
  const auto common = std::ranges::mismatch(first, later).in1 - first.begin();
  EXPECT_EQ(common, 512);
  for (const Token token : later) EXPECT_TRUE(token >= 0 && token < static_cast<Token>(kVocabulary));
}

TEST_F(TraceFile, IdsOfTwoFilesAreDifferent) {
  const std::string paths[] = {write(kFirst, "a"), write(kFirst, "b")};
  const auto trace = read_trace(paths);
  ASSERT_TRUE(trace);
  EXPECT_NE(trace->prompt_of(trace->requests[0]), trace->prompt_of(trace->requests[1]));
  EXPECT_EQ(facts_of(*trace).repeated_tokens, 0u);
}

TEST_F(TraceFile, AWrongLineIsNamedWithItsNumber) {
  struct Wrong {
    const char *line, *message;
  };
  constexpr Wrong kWrong[] = {
      {"{", "is not JSON"},
      {"[1]", "is not a JSON object"},
      {R"({"timestamp": 1, "input_length": 5, "output_length": 1})", "has no hash_ids"},
      {R"({"timestamp": "x", "input_length": 5, "output_length": 1, "hash_ids": [1]})", "timestamp"},
      {R"({"timestamp": -1, "input_length": 5, "output_length": 1, "hash_ids": [1]})", "timestamp"},
      {R"({"timestamp": 1, "input_length": 0, "output_length": 1, "hash_ids": []})", "input_length"},
      {R"({"timestamp": 1, "input_length": 5.5, "output_length": 1, "hash_ids": [1]})", "input_length"},
      {R"({"timestamp": 1, "input_length": 5, "output_length": -1, "hash_ids": [1]})", "output_length"},
      {R"({"timestamp": 1, "input_length": 5, "output_length": 1e9, "hash_ids": [1]})", "output_length"},
      {R"({"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": 1})", "hash_ids is not an array"},
      {R"({"timestamp": 1, "input_length": 513, "output_length": 1, "hash_ids": [1]})", "there must be 2"},
      {R"({"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": [-1]})", "hash_ids"},
      {R"({"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": ["a"]})", "hash_ids"},
  };
  for (const Wrong& wrong : kWrong) {
    SCOPED_TRACE(wrong.line);
    const auto trace = read(std::string(kFirst) + "\n\n" + wrong.line + "\n");
    ASSERT_FALSE(trace);
    EXPECT_THAT(trace.error().message, HasSubstr("_trace.jsonl:3: "));
    EXPECT_THAT(trace.error().message, HasSubstr(wrong.message));
  }
}

TEST_F(TraceFile, AFileThatIsEmptyOrMissingIsRefused) {
  EXPECT_THAT(read("\n").error().message, EndsWith("has no requests"));
  const std::string path = "/nowhere/trace.jsonl";
  EXPECT_THAT(read_trace(std::span(&path, 1)).error().message, HasSubstr("/nowhere/trace.jsonl: No such file"));
}

TEST(TraceFacts, RepeatedTokensAreThoseThatPromptsHaveInCommon) {
  const Trace trace = testing::conversations_trace();
  const TraceFacts facts = facts_of(trace);
  EXPECT_GT(facts.repeated_tokens, 0u);
  EXPECT_EQ(facts.repeated_tokens, testing::repeated_tokens(trace));
  EXPECT_LT(facts.repeated_tokens, facts.prompt_tokens);
}

TEST_F(TraceFile, OfALastIdOnlyTheTokensSoFarAreKnown) {
  // 100 tokens of id 5, then all 512 and more, then the same again.
  const auto trace = read(R"({"timestamp": 0, "input_length": 100, "output_length": 1, "hash_ids": [5]})"
                          "\n"
                          R"({"timestamp": 1, "input_length": 600, "output_length": 1, "hash_ids": [5, 6]})"
                          "\n"
                          R"({"timestamp": 2, "input_length": 600, "output_length": 1, "hash_ids": [5, 6]})");
  ASSERT_TRUE(trace);
  EXPECT_EQ(facts_of(*trace).repeated_tokens, 100u + 599u);
  EXPECT_EQ(testing::repeated_tokens(*trace), 100u + 599u);
}

}  // namespace
}  // namespace quire::simulate
