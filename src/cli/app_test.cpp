// The whole command line, called in this process.
#include "quire/cli/app.h"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/cli/cli_testing.h"
#include "quire/gguf/gguf_testing.h"

namespace quire::cli {
namespace {

using ::testing::AllOf;
using testing::call;
using testing::demo_model;
using testing::expect_refusal;
using ::testing::HasSubstr;

// A wrong command line, and a part of its error message.
void expect_usage_error(const std::vector<std::string>& arguments, const std::string& about) {
  const auto outcome = call(arguments);
  expect_refusal(outcome, kUsage);
  EXPECT_THAT(outcome.err, HasSubstr(about));
  EXPECT_THAT(outcome.err, HasSubstr("--help')\n"));
}

TEST(CommandLine, HelpNamesEveryCommand) {
  for (const char* flag : {"--help", "-h"}) {
    const auto outcome = call({flag});
    EXPECT_EQ(outcome.exit_code, kSuccess);
    EXPECT_EQ(outcome.err, "");
    EXPECT_THAT(outcome.out,
                AllOf(HasSubstr("Usage: quire COMMAND"), HasSubstr("Examples:"), HasSubstr("Exit codes:")));
  }
  // There is a manual page for each command of the program.
  const gguf::testing::TemporaryFolder folder;
  ASSERT_EQ(call({"man", "-o", folder / ""}).exit_code, kSuccess);
  std::vector<std::string> paged;
  for (const auto& page : std::filesystem::directory_iterator(folder / "")) {
    const std::string name = page.path().stem().string();
    if (name != "quire") paged.push_back(name.substr(std::string_view("quire-").size()));
  }
  EXPECT_THAT(testing::commands(), ::testing::UnorderedElementsAreArray(paged));
  EXPECT_THAT(testing::commands(), ::testing::IsSupersetOf({"run", "chat", "serve", "constrain", "man"}));
}

TEST(CommandLine, HelpOfACommandNamesItsOptions) {
  const auto help = [](const std::string& command) {
    const auto outcome = call({command, "--help"});
    EXPECT_EQ(outcome.exit_code, kSuccess) << outcome.err;
    return outcome.out;
  };
  EXPECT_THAT(help("info"), AllOf(HasSubstr("Usage: quire info"), HasSubstr("--json")));
  EXPECT_THAT(help("tokenize"), AllOf(HasSubstr("Usage: quire tokenize -m FILE"), HasSubstr("--ids"),
                                      HasSubstr("--special"), HasSubstr("--decode"), HasSubstr("64 MiB")));
  EXPECT_THAT(help("render"), AllOf(HasSubstr("Usage: quire render (-m FILE | --template FILE) --messages FILE"),
                                    HasSubstr("--add-generation-prompt"), HasSubstr("--now DATE")));
  for (const char* command : {"run", "chat", "serve", "bench", "logits"}) {
    EXPECT_THAT(
        help(command),
        AllOf(HasSubstr(std::string("Usage: quire ") + command), HasSubstr("--device auto|cpu|cuda[:N]"),
              HasSubstr("--threads N"), HasSubstr("--kv-type f16|bf16|f32|q8_0"), HasSubstr("--pin auto|cores|off"),
              HasSubstr("--numa auto|interleave|local|off"), HasSubstr("--state-type f32|bf16|f16")));
  }
}

TEST(CommandLine, SaysItsVersion) {
  const auto outcome = call({"--version"});
  EXPECT_EQ(outcome.exit_code, kSuccess);
  EXPECT_THAT(outcome.out, ::testing::MatchesRegex("quire [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST(CommandLine, WhatIsUnknownIsNamed) {
  expect_usage_error({}, "no command given");
  expect_usage_error({"fly"}, "unknown command 'fly'");
  expect_usage_error({"--fly"}, "unknown option '--fly'");
  expect_usage_error({"info", "--fly", "file"}, "unknown option '--fly'");
  expect_usage_error({"info", "file", "more"}, "unexpected argument 'more'");
  expect_usage_error({"tokenize", "--modl", "file", "text"}, "unknown option '--modl'");
  expect_usage_error({"\x1b[31mfly"}, "unknown command '\\x1b[31mfly'");
}

TEST(CommandLine, WhatIsMissingIsNamed) {
  expect_usage_error({"info"}, "FILE is required");
  expect_usage_error({"tokenize", "text"}, "--model is required");
  expect_usage_error({"tokenize", "-m", "file"}, "TEXT is required");
  expect_usage_error({"tokenize", "-m"}, "--model");
  expect_usage_error({"render", "-m", "file"}, "--messages is required");
  expect_usage_error({"render", "--messages", "file"}, "-m or --template is required");
}

TEST(CommandLine, WhatDoesNotGoTogetherIsNamed) {
  expect_usage_error({"render", "-m", "a", "--template", "b", "--messages", "c"}, "--model excludes --template");
  expect_usage_error({"tokenize", "-m", "a", "--decode", "--ids", "1"}, "--ids excludes --decode");
  expect_usage_error({"render", "--template", "a", "--messages", "b", "--now", "soon"},
                     "--now: \"soon\" is not a date");
}

TEST(CommandLine, TextHasToBeUtf8) {
  expect_usage_error({"tokenize", "-m", demo_model("llama"), "ab\xff"}, "TEXT: the text is not UTF-8 at byte 2");
}

TEST(CommandLine, AnyTextIsText) {
  // Names of commands, lists and quotes that CLI11 would interpret, and after -- also what looks like options.
  for (const std::string text : {"info", "render", "[]", "[1,2]", "{}", "\"q\"", "'q'", "a=b", "", " ", "%%"}) {
    const auto outcome = call({"tokenize", "-m", demo_model("llama"), "--ids", text});
    ASSERT_EQ(outcome.exit_code, kSuccess) << outcome.err;
    EXPECT_EQ(call({"tokenize", "-m", demo_model("llama"), "--decode", outcome.out}).out, text);
  }
  for (const std::string text : {"--ids", "-m", "--", "-x"}) {
    const auto outcome = call({"tokenize", "-m", demo_model("llama"), "--ids", "--", text});
    ASSERT_EQ(outcome.exit_code, kSuccess) << outcome.err;
    EXPECT_EQ(call({"tokenize", "-m", demo_model("llama"), "--decode", outcome.out}).out, text);
  }
}

TEST(CommandLine, FailuresAreOneLineAndLeaveNoOutput) {
  const auto outcome = call({"info", "/no/such\n\x1b[2Jfile"});
  expect_refusal(outcome);
  EXPECT_THAT(outcome.err, HasSubstr("/no/such\\n\\x1b[2Jfile: cannot be opened"));
  expect_refusal(call({"info", "--json", "/no/such/file"}));
  expect_refusal(call({"tokenize", "-m", "/no/such/file", "text"}));
  expect_refusal(call({"render", "-m", "/no/such/file", "--messages", "/no/such/file"}));
}

TEST(CommandLine, ALongMessageKeepsItsEnd) {
  const auto outcome = call({"info", "/" + std::string(5000, 'x')});
  expect_refusal(outcome);
  EXPECT_THAT(outcome.err, HasSubstr("File name too long"));
}

class BrokenOutput : public Output {
 public:
  explicit BrokenOutput(std::errc error) : error_(std::make_error_code(error)) {}
  std::error_code write(std::string_view) override { return error_; }

 private:
  std::error_code error_;
};

TEST(CommandLine, OutputThatCannotBeWrittenIsAFailure) {
  const std::string model = demo_model("llama");
  const char* const argv[] = {"quire", "info", model.c_str()};
  StringOutput err;
  BrokenOutput full(std::errc::no_space_on_device);
  EXPECT_EQ(run(3, argv, full, err, {}), kFailure);
  EXPECT_EQ(err.text(), "quire: cannot write to standard output: No space left on device\n");
  StringOutput silent;
  BrokenOutput gone(std::errc::broken_pipe);
  EXPECT_EQ(run(3, argv, gone, silent, {}), kFailure);
  EXPECT_EQ(silent.text(), "");
  EXPECT_EQ(run(2, std::vector<const char*>{"quire", "--help"}.data(), full, err, {}), kFailure);
}

}  // namespace
}  // namespace quire::cli
