#include "quire/cli/constrain.h"

#include <filesystem>
#include <string>
#include <vector>

#include <boost/json/parse.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/cli/cli_testing.h"

namespace quire::cli {
namespace {

using ::testing::AllOf;
using testing::call;
using testing::demo_model;
using testing::expect_refusal;
using ::testing::HasSubstr;
using testing::write_file;

class ConstrainTest : public ::testing::Test {
 protected:
  ConstrainTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() / (std::string("quire_constrain_") + info->name());
    std::filesystem::create_directories(folder_);
    file("schema.json", R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                            "required": ["name"], "additionalProperties": false})");
  }
  ~ConstrainTest() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name, std::string_view text) {
    write_file((folder_ / name).string(), text);
    return (folder_ / name).string();
  }
  std::string schema() const { return (folder_ / "schema.json").string(); }

 private:
  std::filesystem::path folder_;
};

TEST_F(ConstrainTest, SaysForEachFileWhetherItIsAdmittedAndWhereItFails) {
  const std::string good = file("good.json", R"({"name": "Ann", "age": 3})");
  const std::string bad = file("bad.json", "{\"name\": \"Ann\",\n \"age\": \"x\"}");
  const std::string cut = file("cut.json", R"({"name": "Ann")");
  const std::string line = file("line.json", "{\"name\": \"Ann\"}\n");
  auto outcome = call({"constrain", "--schema", schema(), good});
  EXPECT_EQ(outcome.exit_code, kSuccess) << outcome.err;
  EXPECT_EQ(outcome.out, good + ": admitted\n");
  outcome = call({"constrain", "--schema", schema(), good, bad, cut, line});
  EXPECT_EQ(outcome.exit_code, kNotAdmitted);
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.out,
            good + ": admitted\n" + bad +
                ": not admitted at byte 24 (line 2, column 9): \"\\\"x\\\"}\" cannot come here\n" + cut +
                ": not admitted at byte 14 (line 1, column 15): the text ends before it is complete\n" + line +
                ": not admitted at byte 15 (line 1, column 16): the text is complete before its last line end\n");
}

TEST_F(ConstrainTest, WithAModelTokensAreCheckedTooAndAgree) {
  const std::string good = file("good.json", R"({"name": "Once upon a ½ time", "age": 3})");
  const std::string bad = file("bad.json", R"({"name": "Once upon a time", "agent": 3})");
  for (const char* model : {"llama", "hybrid"}) {
    EXPECT_EQ(call({"constrain", "--schema", schema(), "-m", demo_model(model), good}).exit_code, kSuccess);
    const auto outcome = call({"constrain", "--schema", schema(), "-m", demo_model(model), "--json", bad});
    EXPECT_EQ(outcome.exit_code, kNotAdmitted);
    EXPECT_EQ(boost::json::parse(outcome.out).at("byte"), 33);
  }
}

TEST_F(ConstrainTest, SpecialTokensOfAGrammarAreReadFromTheFileIfAsked) {
  const std::string grammar = file("g.lark", "start: <|im_start|> /[a-z ]+/ <|im_end|> \"!\"");
  const std::string text = file("text", "<|im_start|>once upon<|im_end|>!");
  EXPECT_EQ(call({"constrain", "--grammar", grammar, "-m", demo_model("llama"), "--special", text}).exit_code,
            kSuccess);
  EXPECT_EQ(call({"constrain", "--grammar", grammar, "-m", demo_model("llama"), text}).exit_code, kNotAdmitted)
      << "in text, the spelling is only characters";
  EXPECT_EQ(call({"constrain", "--grammar", grammar, text}).exit_code, kSuccess)
      << "without a vocabulary there are only characters";
}

TEST_F(ConstrainTest, JsonIsOneLineForEachFile) {
  const std::string good = file("good", "aaa"), bad = file("bad", "ab");
  const auto outcome = call({"constrain", "--regex", "a+", "--json", good, bad});
  EXPECT_EQ(outcome.exit_code, kNotAdmitted);
  EXPECT_EQ(outcome.out, R"({"file":")" + good + R"(","admitted":true,"byte":null,"reason":null})" + "\n" +
                             R"({"file":")" + bad +
                             R"(","admitted":false,"byte":1,"reason":"\"b\" cannot come here"})" + "\n");
}

TEST_F(ConstrainTest, StatsSayHowLongMasksTook) {
  const std::string good = file("good.json", R"({"name": "Ann"})");
  auto outcome = call({"constrain", "--schema", schema(), "-m", demo_model("llama"), "--stats", good});
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("compiled in "), HasSubstr(" masks: mean "), HasSubstr("99.9 % ")));
  outcome = call({"constrain", "--schema", schema(), "-m", demo_model("llama"), "--stats", "--json", good});
  const auto stats = boost::json::parse(outcome.out.substr(outcome.out.find('\n') + 1)).at("stats");
  EXPECT_GT(stats.at("masks").at("count").to_number<int>(), 4);
  EXPECT_GT(stats.at("compile_us").to_number<double>(), 0);
  EXPECT_GE(stats.at("masks").at("p999_us").to_number<double>(), stats.at("masks").at("p50_us").to_number<double>());
}

TEST_F(ConstrainTest, GrammarsOfBothKindsAreTold) {
  const std::string gbnf = file("g.gbnf", "root ::= \"a\" root \"b\" | \"\"");
  const std::string lark = file("g.lark", "start: \"a\" start \"b\" |");
  const std::string good = file("good", "aabb"), bad = file("bad", "aab");
  for (const std::string& grammar : {gbnf, lark}) {
    EXPECT_EQ(call({"constrain", "--grammar", grammar, good}).exit_code, kSuccess);
    EXPECT_EQ(call({"constrain", "--grammar", grammar, bad}).exit_code, kNotAdmitted);
  }
}

TEST_F(ConstrainTest, CompactAllowsNoWhiteSpace) {
  const std::string spaced = file("spaced", R"({"name": "Ann"})"), compact = file("compact", R"({"name":"Ann"})");
  EXPECT_EQ(call({"constrain", "--schema", schema(), "--compact", compact}).exit_code, kSuccess);
  EXPECT_EQ(call({"constrain", "--schema", schema(), "--compact", spaced}).exit_code, kNotAdmitted);
}

TEST_F(ConstrainTest, WhatCannotBeEnforcedOrReadIsNamed) {
  const std::string text = file("text", "x");
  const auto expect_why = [](const std::vector<std::string>& arguments, const std::string& why, int code = kFailure) {
    const auto outcome = call(arguments);
    expect_refusal(outcome, code);
    EXPECT_THAT(outcome.err, HasSubstr(why));
  };
  expect_why({"constrain", "--regex", "(a)\\1", text}, "--regex: regular expression, byte 3: back-references");
  expect_why({"constrain", "--schema", file("s", R"({"type": "nonsense"})"), text}, "/s: ");
  expect_why({"constrain", "--schema", file("s", "{"), text}, "/s: not JSON");
  expect_why({"constrain", "--grammar", file("g", "root ::= x"), text}, "/g: line 1: the rule \"x\"");
  expect_why({"constrain", "--grammar", file("g", "hello"), text}, "/g: the grammar is neither GBNF");
  expect_why({"constrain", "--regex", "x", "/no/such/file"}, "/no/such/file");
  expect_why({"constrain", "--schema", "/no/such/schema", text}, "/no/such/schema");
  expect_why({"constrain", "--regex", "x", "-m", "/no/such/model", text}, "/no/such/model");
  expect_why({"constrain", text}, "--schema, --regex or --grammar is required", kUsage);
  expect_why({"constrain", "--regex", "x"}, "FILE is required", kUsage);
  expect_why({"constrain", "--regex", "x", "--schema", "s", text}, "excludes", kUsage);
  expect_why({"constrain", "--regex", "x", "--special", text}, "-m (for --special)", kUsage);
}

}  // namespace
}  // namespace quire::cli
