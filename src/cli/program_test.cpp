// The program itself, as a process: pipes, terminals, signals, memory.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/bench/bench_testing.h"
#include "quire/cli/program_testing.h"

namespace quire::cli {
namespace {

using testing::demo_model;
using testing::Ended;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::start;
using ::testing::StartsWith;
using testing::TemporaryFolder;
using testing::Terminal;

TEST(Program, StreamsAStoryAndReportsOnStandardError) {
  const Ended ran = start({"run", "-p", "Once upon a time there was", "--temp", "0"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, StartsWith(" a grumpy boy named Oscar."));
  EXPECT_THAT(ran.out, ::testing::EndsWith("The end.\n"));
  EXPECT_THAT(ran.err, StartsWith("\nprefill  6 tokens in "));
  EXPECT_THAT(ran.err, Not(HasSubstr("\r"))) << "no progress bar where nobody is looking";
}

TEST(Program, ReadsThePromptFromStandardInputHoweverItComes) {
  const std::string whole = start({"run", "-p", "Once upon a time there was", "--temp", "0", "-n", "20"}).out;
  EXPECT_EQ(start({"run", "-p", "-", "--temp", "0", "-n", "20"}, {"Once up", "on a ti", "me there was\n"}).out, whole);
  EXPECT_EQ(start({"run", "-p", "-", "--temp", "0", "-n", "20"}, {"Once upon a time there was"}).out, whole);
}

TEST(Program, ALongPromptIsComputedInChunksAndOneThatDoesNotFitIsRefused) {
  std::string prompt;
  while (prompt.size() < 4000) prompt += "Once upon a time there was a small fox. ";
  const Ended ran = start({"run", "-p", "-", "--temp", "0", "-n", "5"}, {prompt});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  while (prompt.size() < 40'000) prompt += "Once upon a time there was a small fox. ";
  const Ended refused = start({"run", "-p", "-", "--temp", "0", "-n", "5"}, {prompt});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("tokens, and the context only 2048\n"));
}

TEST(Program, ChatsInAPipeALineATurn) {
  for (const char* kind : {"llama", "mamba2", "hybrid"}) {
    const Ended ran = start({"chat", "-m", demo_model(kind), "--temp", "0"},
                            {"What is 2 ", "+ 3?\nRepeat: red kite owl\n", "/reset\nWho are you?"});
    EXPECT_EQ(ran.exit_code, 0);
    EXPECT_EQ(ran.out, "5\nred kite owl\nI am Quire, a small model. I tell stories, remember notes and count.\n")
        << kind;
    EXPECT_EQ(ran.err, "") << kind;
  }
}

TEST(Program, WithoutAModelChatTakesTheBundledOne) {
  EXPECT_EQ(start({"chat", "--temp", "0"}, {"What is 2 + 3?\n"}).out, "5\n");
  EXPECT_EQ(start({"chat", "--temp", "0"}, {""}).out, "");
}

TEST(Program, ChatReadsItsQuestionFromStandardInput) {
  EXPECT_EQ(start({"chat", "--temp", "0", "-"}, {"What is 2 ", "+ 3?\n"}).out, "5\n");
  const TemporaryFolder folder;
  testing::write_file(folder / "kite", "kite owl\n");
  testing::write_file(folder / "repeat.jinja",
                      "<|im_start|>user\nRepeat: {{ messages[0].content.split('\\n\\n') | join(' ') }}<|im_end|>\n"
                      "<|im_start|>assistant{{ '\\n' }}");
  const Ended both = start(
      {"chat", "--temp", "0", "-", "-f", folder / "kite", "--chat-template-file", folder / "repeat.jinja"}, {"red\n"});
  EXPECT_EQ(both.out, "red kite owl\n") << both.err;
  const Ended twice = start({"chat", "-", "-f", "-"}, {"red\n"});
  EXPECT_EQ(twice.exit_code, kUsage);
  EXPECT_THAT(twice.err, HasSubstr("TEXT reads standard input already"));
}

TEST(Program, StandardInputThatIsNotUtf8IsRefusedWithItsPlace) {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"chat", "-"}, {"chat", "-f", "-"}, {"run", "-p", "-"}, {"run", "-f", "-"}}) {
    const Ended ended = start(command, {"gr\xFC\xDF\n"});
    EXPECT_EQ(ended.exit_code, kFailure) << command[0];
    EXPECT_EQ(ended.out, "") << command[0];
    EXPECT_EQ(ended.err, "quire: standard input: the text is not UTF-8 at byte 2\n") << command[0];
  }
}

// 64 MB are allowed besides the file and the pool.
TEST(Program, TakesNoMoreMemoryThanFilePoolAndALittle) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's memory would be counted too";
#endif
  for (const char* kind : {"llama", "mamba2", "hybrid"}) {
    const Ended ran = start({"run", "-m", demo_model(kind), "-p", "Once upon a time", "--temp", "0", "-n", "100"});
    ASSERT_EQ(ran.exit_code, 0);
    const auto file = static_cast<long>(std::filesystem::file_size(demo_model(kind)) / 1024);
    const testing::Outcome counted = testing::call({"run", "-m", demo_model(kind), "-p", "a", "-n", "1", "--json"});
    const std::string key = "\"pool_bytes\":";
    const long pool = std::stol(counted.out.substr(counted.out.find(key) + key.size())) / 1024;
    EXPECT_LE(ran.peak_kib, file + pool + 64'000'000 / 1024) << kind;
    std::printf("%s: %ld KiB at most; file %ld KiB, pool %ld KiB\n", kind, ran.peak_kib, file, pool);
  }
}

TEST(Program, NobodyReadingIsNoReasonToTalk) {
  const TemporaryFolder folder;
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(pipe[1], STDOUT_FILENO);
    ::dup2(::open((folder / "err").c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
    testing::become(testing::kProgram, {"run", "-p", "Once upon a time", "--temp", "0"});
  }
  ::close(pipe[0]);
  ::close(pipe[1]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_EQ(testing::read_file(folder / "err"), "");
}

// --- behind a terminal

TEST(ProgramTerminal, TalksAndEndsWithControlD) {
  const TemporaryFolder state;
  Terminal terminal({"chat", "--temp", "0"}, state / "");
  ASSERT_TRUE(terminal.shows("/help lists commands"));
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("What is 2 + 3?\r");
  EXPECT_TRUE(terminal.shows("\n5\r\n")) << terminal.screen();
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("\x04");
  EXPECT_EQ(terminal.ends(), 0) << terminal.screen();
}

TEST(ProgramTerminal, ControlCEndsAnAnswerAndNotTheProgram) {
  const TemporaryFolder state;
  Terminal terminal({"chat", "--temp", "0", "--threads", "1"}, state / "");
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("Tell me a story about Mia.\r");
  ASSERT_TRUE(terminal.shows("Mia.\r\n"));
  ASSERT_TRUE(terminal.shows(" ")) << "the answer has begun";
  terminal.interrupt();
  EXPECT_TRUE(terminal.shows("(it was stopped)")) << terminal.screen();
  EXPECT_TRUE(terminal.shows("decode   ")) << "the figures: " << terminal.screen();
  EXPECT_THAT(terminal.screen(), Not(HasSubstr("The end.")));
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("Repeat: red kite owl\r");
  EXPECT_TRUE(terminal.shows("\nred kite owl\r\n")) << terminal.screen();
  terminal.type("/quit\r");
  EXPECT_EQ(terminal.ends(), 0) << terminal.screen();
}

TEST(ProgramTerminal, ControlCAtThePromptGivesUpTheLine) {
  const TemporaryFolder state;
  Terminal terminal({"chat", "--temp", "0"}, state / "");
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("What is 99");
  ASSERT_TRUE(terminal.shows("99"));
  terminal.interrupt();
  ASSERT_TRUE(terminal.shows("> ")) << terminal.screen();
  terminal.type("What is 2 + 3?\r");
  EXPECT_TRUE(terminal.shows("\n5\r\n")) << terminal.screen();
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("\x04");
  EXPECT_EQ(terminal.ends(), 0) << terminal.screen();
}

TEST(ProgramTerminal, ControlCTwiceEndsTheProgram) {
  const TemporaryFolder state;
  Terminal terminal({"chat", "--temp", "0"}, state / "");
  ASSERT_TRUE(terminal.shows("> "));
  terminal.interrupt();
  ASSERT_TRUE(terminal.shows("(Ctrl-C again ends the conversation)")) << terminal.screen();
  ASSERT_TRUE(terminal.shows("> "));
  terminal.interrupt();
  EXPECT_EQ(terminal.ends(), 0) << terminal.screen();
}

TEST(ProgramTerminal, ControlCEndsTheAnswerToOneQuestionWithItsFigures) {
  const TemporaryFolder state;
  Terminal terminal({"chat", "--temp", "0", "--threads", "1", "Tell me a story about Mia."}, state / "");
  ASSERT_TRUE(terminal.shows(" ")) << "the answer has begun";
  terminal.interrupt();
  EXPECT_EQ(terminal.ends(), 0) << terminal.screen();
  EXPECT_THAT(terminal.screen(), HasSubstr("; it was stopped"));
}

TEST(ProgramTerminal, AMessageOfSeveralLinesHasAPromptOfItsOwn) {
  const TemporaryFolder state;
  Terminal terminal({"chat", "--temp", "0"}, state / "");
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("What is 2\\\r");
  ASSERT_TRUE(terminal.shows(". ")) << terminal.screen();
  terminal.type("+ 3?\r");
  ASSERT_TRUE(terminal.shows("> ")) << terminal.screen();
  terminal.type("/quit\r");
  EXPECT_EQ(terminal.ends(), 0) << terminal.screen();
}

TEST(ProgramTerminal, LinesCanBeEditedAndCalledBackAlsoTheNextDay) {
  const TemporaryFolder state;
  {
    Terminal terminal({"chat", "--temp", "0"}, state / "not-there-yet");
    ASSERT_TRUE(terminal.shows("> "));
    terminal.type(
        "What is 2 + 4?\x02\x7f"
        "3\r");  // cursor left, delete the 4, type a 3
    EXPECT_TRUE(terminal.shows("\n5\r\n")) << terminal.screen();
    ASSERT_TRUE(terminal.shows("> "));
    terminal.type("\x04");
    EXPECT_EQ(terminal.ends(), 0);
  }
  EXPECT_TRUE(std::filesystem::exists(state / "not-there-yet/quire/history"));
  Terminal terminal({"chat", "--temp", "0"}, state / "not-there-yet");
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("\x10\r");  // the previous line
  EXPECT_TRUE(terminal.shows("\n5\r\n")) << terminal.screen();
  terminal.type("/quit\r");
  EXPECT_EQ(terminal.ends(), 0);
}

// The demo models are too fast for a progress bar. This model takes a second.
TEST(ProgramTerminal, ALongPrefillShowsABarAndTakesItAwayAgain) {
  const TemporaryFolder folder;
  synth::Shape shape = bench::testing::tiny_llama();
  shape.layers = 4;
  shape.embedding = 512;
  shape.heads = shape.kv_heads = 8;
  shape.head_dim = 64;
  shape.feed_forward = 1536;
  shape.context = 4096;
  const auto written = synth::write_model(shape, "F32", 1, folder / "model.gguf", [](auto, auto) {});
  ASSERT_TRUE(written.has_value()) << written.error().message;
  std::string prompt;
  while (prompt.size() < 2500) prompt += "Once upon a time there was a small fox. ";
  Terminal terminal(
      {"run", "-m", folder / "model.gguf", "-p", prompt, "--temp", "0", "-n", "3", "--threads", "1", "--ctx", "4096"},
      folder / "");
  EXPECT_EQ(terminal.ends(), 0) << terminal.screen();
  EXPECT_THAT(terminal.screen(), HasSubstr("prefill"));
  EXPECT_THAT(terminal.screen(), HasSubstr("%\r   "));
  EXPECT_THAT(terminal.screen(), HasSubstr("\nprefill  "));
}

TEST(ProgramTerminal, ControlCWhileAModelIsMadeToMeasureWithLeavesNoneBehind) {
  const TemporaryFolder state, models;
  ::setenv("TMPDIR", models.path().c_str(), 1);
  Terminal terminal({"bench", "--shape", "llama-8b", "-w", "decode"}, state / "");
  ::unsetenv("TMPDIR");
  ASSERT_TRUE(terminal.shows("writing llama-8b Q8_0")) << terminal.screen();
  EXPECT_FALSE(std::filesystem::is_empty(models.path()));
  terminal.interrupt();
  EXPECT_EQ(terminal.ends(), 128 + SIGINT) << terminal.screen();
  EXPECT_TRUE(std::filesystem::is_empty(models.path()));
}

}  // namespace
}  // namespace quire::cli
