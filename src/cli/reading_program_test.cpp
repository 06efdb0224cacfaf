// The program itself, as users and their scripts run it: info, tokenize and render.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "quire/cli/mutation_testing.h"
#include "quire/cli/program_testing.h"
#include "quire/gguf/gguf_testing.h"
#include "quire/model/model_testing.h"

namespace quire::cli {
namespace {

using gguf::testing::TemporaryFolder;
using model::testing::TestModel;
using testing::demo_model;
using testing::expect_refusal;
using ::testing::HasSubstr;
using testing::kProgram;
using testing::Mutator;
using ::testing::Not;
using testing::Outcome;
using testing::ProcessOptions;
using testing::read_file;
using testing::write_file;

Outcome quire(const std::vector<std::string>& arguments, const ProcessOptions& options = {}) {
  return testing::run_process(kProgram, arguments, options);
}

// The program fails with one line that contains this text.
void expect_refused(const Outcome& outcome, const std::string& about, int exit_code = kFailure) {
  expect_refusal(outcome, exit_code);
  EXPECT_THAT(outcome.err, HasSubstr(about));
}

TEST(Program, SaysWhatTheDemoModelsAre) {
  for (const std::string name : {"llama", "mamba2", "hybrid"}) {
    const Outcome outcome = quire({"info", demo_model(name)}, {.environment = {"LC_ALL=C.UTF-8"}});
    EXPECT_EQ(outcome.exit_code, kSuccess) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    EXPECT_EQ(outcome.out, read_file(QUIRE_SOURCE_DIR "/testdata/cli/info-" + name + ".txt"));
  }
}

TEST(Program, DrawsInAsciiWhereTheLocaleIsAscii) {
  const Outcome outcome = quire({"info", demo_model("hybrid")}, {.environment = {"LC_ALL=C"}});
  EXPECT_EQ(outcome.exit_code, kSuccess) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("  0  o o o # o o o #\n"));
}

TEST(Program, TellsWrongUsageFromFailure) {
  expect_refused(quire({}), "no command given", kUsage);
  expect_refused(quire({"info", "--colour", "file"}), "unknown option '--colour'", kUsage);
  expect_refused(quire({"tokenize", "-m", demo_model("llama")}), "TEXT is required", kUsage);
  expect_refused(quire({"info", "/no/such/file"}), "/no/such/file: cannot be opened", kFailure);
  EXPECT_EQ(quire({"--help"}).exit_code, kSuccess);
  EXPECT_EQ(quire({"--version"}).exit_code, kSuccess);
}

TEST(Program, WhatIsNoModelIsRefusedWithoutWaiting) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  write_file(folder / "empty", "");
  write_file(folder / "text", "Once upon a time there was a file that was no model at all.\n");
  const std::vector<std::pair<std::string, std::string>> files = {
      {folder.path().string(), "is a directory"},
      {folder / "pipe", "is a pipe"},
      {folder / "empty", "is empty"},
      {folder / "text", "text: "},
      {"/dev/null", "is a device"},
      {"/dev/zero", "is a device"},
  };
  for (const auto& [path, why] : files) {
    expect_refused(quire({"info", path}), why);
    expect_refused(quire({"info", "--json", path}), why);
    expect_refused(quire({"tokenize", "-m", path, "text"}), why);
    expect_refused(quire({"render", "-m", path, "--messages", "-"}, {.input = "[]"}), why);
  }
  expect_refused(quire({"render", "-m", demo_model("llama"), "--messages", folder / "pipe"}), "nobody writes to");
  expect_refused(quire({"render", "--template", folder / "pipe", "--messages", "-"}, {.input = "[]"}),
                 "nobody writes to");
}

TEST(Program, AnUnreadableFileIsRefused) {
  const TemporaryFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  std::filesystem::copy_file(demo_model("llama"), folder / "secret.gguf");
  ASSERT_EQ(::chmod((folder / "secret.gguf").c_str(), 0), 0);
  const Outcome outcome = quire({"info", folder / "secret.gguf"}, {.as_nobody = true});
  if (outcome.exit_code == 126) GTEST_SKIP() << "root may read any file, and nobody else may run the program here";
  expect_refused(outcome, "secret.gguf: cannot be opened: Permission denied");
}

TEST(Program, ATruncatedModelIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder / "short.gguf";
  std::filesystem::copy_file(demo_model("llama"), path);
  for (const std::uintmax_t size : {7168287u, 5000000u, 60000u, 1000u, 24u, 7u, 1u}) {
    std::filesystem::resize_file(path, size);
    expect_refused(quire({"info", path}), "short.gguf: ");
    expect_refused(quire({"tokenize", "-m", path, "text"}), "short.gguf: ");
  }
}

TEST(Program, AModelOfUnknownArchitectureIsRefusedByName) {
  const TemporaryFolder folder;
  ASSERT_TRUE(TestModel::attention("bert").writer().write(folder / "bert.gguf"));
  expect_refused(quire({"info", folder / "bert.gguf"}), "string 'bert' is not an architecture that Quire knows");
}

TEST(Program, EnormousClaimsAreRefused) {
  const TemporaryFolder folder;
  const auto refuse = [&folder](const TestModel& model, const std::string& why) {
    ASSERT_TRUE(model.writer().write(folder / "huge.gguf"));
    expect_refused(quire({"info", folder / "huge.gguf"}), why);
  };
  refuse(TestModel::attention("llama").set("block_count", 0xFFFFFFFFU), "'llama.block_count'");
  refuse(TestModel::attention("llama").set("attention.head_count", 0x7FFFFFFFU), "'llama.attention.head_count'");
  refuse(TestModel::attention("llama", 1024)
             .set("attention.head_count", 16384U)
             .set("attention.head_count_kv", 16384U)
             .set("attention.key_length", 65536U)
             .set("attention.value_length", 65536U),
         "terabyte");
  refuse(TestModel::recurrent("mamba2").set("ssm.state_size", 0xFFFFFFFFU), "'mamba2.ssm.state_size'");
}

TEST(Program, OutputThatCannotBeWrittenIsAFailure) {
  const std::vector<std::vector<std::string>> commands = {
      {"info", demo_model("llama")},
      {"info", "--json", demo_model("llama")},
      {"tokenize", "-m", demo_model("llama"), "x"},
      {"--help"},
      {"--version"},
      {"render", "-m", demo_model("llama"), "--messages", "-"},
  };
  for (const auto& command : commands) {
    const Outcome full = quire(command, {.input = R"([{"role": "user", "content": "x"}])", .out_path = "/dev/full"});
    expect_refused(full, "standard output: No space left on device");
    const Outcome closed = quire(command, {.input = R"([{"role": "user", "content": "x"}])", .out_path = ""});
    expect_refused(closed, "standard output: Bad file descriptor");
  }
}

TEST(Program, AReaderThatGoesAwayIsNoReasonToComplain) {
  const std::string command = fmt::format("{{ '{}' info '{}'; echo $? >&2; }} | true", kProgram, demo_model("llama"));
  const Outcome outcome = testing::run_process("/bin/sh", {"-c", "sleep 0.05; " + command});
  // It may have written everything before the reader closed the pipe. Then it succeeded.
  EXPECT_THAT(outcome.err, ::testing::AnyOf("0\n", "1\n"));
}

TEST(Program, StandardInputIsReadWhereADashStands) {
  const std::string model = demo_model("llama");
  EXPECT_EQ(quire({"tokenize", "-m", model, "--ids", "-"}, {.input = "Once upon a time"}).out, "899 898 261 714\n");
  EXPECT_EQ(quire({"tokenize", "-m", model, "--decode", "-"}, {.input = "899 898\n"}).out, "Once upon");
  EXPECT_EQ(quire({"render", "-m", model, "--messages", "-"}, {.input = R"([{"role":"user","content":"x"}])"}).out,
            "<|im_start|>user\nx<|im_end|>\n");
  expect_refused(quire({"tokenize", "-m", model, "-"}, {.close_input = true}), "standard input: ");
  expect_refused(quire({"tokenize", "-m", model, "-"}, {.input = "gr\xFC\xDF"}),
                 "standard input: the text is not UTF-8 at byte 2");
  expect_refused(quire({"render", "-m", model, "--messages", "-"}, {.input = "{\n\"messages\""}),
                 "standard input: line 2, column ");
}

TEST(Program, ATemplateThatNeverEndsIsStopped) {
  const TemporaryFolder folder;
  write_file(folder / "forever.jinja",
             "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}{% endfor %}"
             "{% endfor %}{% endfor %}");
  expect_refused(quire({"render", "--template", folder / "forever.jinja", "--messages", "-"}, {.input = "[]"}),
                 "forever.jinja: line 1: ");
}

TEST(Program, TokenizesTheFixturesOfHuggingFaceAndBack) {
  const auto cases = boost::json::parse(read_file(QUIRE_SOURCE_DIR "/testdata/demo/tokenization.json"));
  for (const auto& value : cases.as_array()) {
    const std::string text(value.at("text").as_string());
    const std::string ids =
        fmt::format("{}\n", fmt::join(boost::json::value_to<std::vector<int>>(value.at("ids")), " "));
    const std::string model = demo_model("llama");
    EXPECT_EQ(quire({"tokenize", "-m", model, "--ids", "--special", "-"}, {.input = text}).out, ids) << text;
    EXPECT_EQ(quire({"tokenize", "-m", model, "--decode", "--special", "-"}, {.input = ids}).out,
              value.at("decoded").as_string());
  }
}

// --- chat templates

TEST(ProgramTemplates, ChatTemplatesRenderAsJinja2RendersThem) {
  const auto paths = gguf::testing::files_with_extension(QUIRE_SOURCE_DIR "/testdata/chat", ".jinja");
  EXPECT_EQ(paths.size(), 8u);
  for (auto path : paths) {
    const std::string source = path;
    const auto fixtures = boost::json::parse(read_file(path.replace_extension(".json")));
    for (const auto& value : fixtures.at("cases").as_array()) {
      boost::json::object input = value.as_object();
      SCOPED_TRACE(source + ", " + std::string(input.at("name").as_string()));
      input["bos_token"] = fixtures.at("bos_token");
      input["eos_token"] = fixtures.at("eos_token");
      std::vector<std::string> arguments = {"render", "--template", source, "--messages", "-", "--now", "2024-07-26"};
      if (input.at("add_generation_prompt").as_bool()) arguments.emplace_back("--add-generation-prompt");
      input.erase("add_generation_prompt");
      const Outcome outcome = quire(arguments, {.input = boost::json::serialize(input)});
      if (const auto* error = input.if_contains("error")) {
        // Messages of Python itself are not repeated word for word.
        expect_refused(outcome, input.at("raised").as_bool() ? std::string(error->as_string()) : ": line ");
      } else {
        EXPECT_EQ(outcome.exit_code, kSuccess) << outcome.err;
        EXPECT_EQ(outcome.out, input.at("expected").as_string());
      }
    }
  }
}

// --- hostile files

class ProgramMutations : public ::testing::TestWithParam<const char*> {};

TEST_P(ProgramMutations, AreReadOrRefused) {
  constexpr int kCount = 120;
  const TemporaryFolder folder;
  const std::string path = folder / "mutant.gguf";
  Mutator mutator(demo_model(GetParam()), 5);
  int read = 0, refused = 0;
  for (int i = 0; i < kCount; ++i) {
    gguf::testing::write_whole(path, mutator.next(testing::kMutationKinds[i % std::size(testing::kMutationKinds)]));
    const Outcome outcome = quire({"info", path});
    if (outcome.exit_code == kSuccess) {
      ++read;
      EXPECT_EQ(outcome.err, "");
      EXPECT_THAT(outcome.out, HasSubstr("\nLayers: "));
      EXPECT_THAT(outcome.out, Not(HasSubstr("\x1b")));
    } else {
      ++refused;
      // The file's name. If the file claims to be part of a split model, the message may name another part.
      expect_refused(outcome, "mutant");
    }
  }
  EXPECT_GT(read, 0);
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(DemoModels, ProgramMutations, ::testing::Values("llama", "mamba2", "hybrid"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace quire::cli
