// Completion and man pages: they name every command and option that --help names.
#include "quire/cli/option_text.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/cli/cli_testing.h"
#include "quire/cli/program_testing.h"

namespace quire::cli {
namespace {

using testing::call;
using testing::commands;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

// The long options in the help of a command.
std::vector<std::string> options_of(const std::string& command) {
  const std::string help = call({command, "--help"}).out;
  std::vector<std::string> names;
  for (std::size_t at = 0; (at = help.find("\n  ", at)) != std::string::npos; ++at) {
    const std::size_t name = help.find("--", at);
    const std::size_t end = help.find('\n', at + 1);
    if (name == std::string::npos || name > at + 8 || name > end) continue;
    names.push_back(help.substr(name, help.find_first_of(" ,\n", name) - name));
  }
  EXPECT_FALSE(names.empty()) << command;
  return names;
}

// The part of a script that is about the options of one command.
std::string part_of(const std::string& script, const std::string& shell, const std::string& command) {
  const auto between = [&](const std::string& begin, std::string_view end) {
    const std::size_t from = script.find(begin);
    EXPECT_NE(from, std::string::npos) << shell << " " << command;
    return from == std::string::npos ? std::string() : script.substr(from, script.find(end, from) - from);
  };
  if (shell == "bash") return between("\n    " + command + ") words='", "' ;;\n");
  if (shell == "zsh") return between("\n    " + command + ")\n", "\n      ;;\n");
  std::string lines;
  const std::string mark = "'__fish_seen_subcommand_from " + command + "'";
  for (std::size_t at = 0; (at = script.find(mark, at)) != std::string::npos; ++at) {
    lines += script.substr(at, script.find('\n', at) + 1 - at);
  }
  return lines;
}

bool has(const char* program) {
  return std::system(fmt::format("command -v {} > /dev/null 2>&1", program).c_str()) == 0;
}

TEST(Completion, KnowsEveryCommandAndOption) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto script = call({"completion", shell});
    ASSERT_EQ(script.exit_code, kSuccess) << script.err;
    for (const std::string& command : commands()) {
      const std::string part = part_of(script.out, shell, command);
      for (const std::string& option : options_of(command)) {
        const std::string name = std::string(shell) == "fish" ? " -l " + option.substr(2) : option;
        EXPECT_THAT(part, HasSubstr(name)) << shell << " " << command;
      }
    }
  }
  testing::expect_refusal(call({"completion", "tcsh"}));
  EXPECT_THAT(call({"completion", "tcsh"}).err, HasSubstr("\"tcsh\" is not one of bash, zsh, fish"));
}

// Runs a script of bash after the completion was loaded. Returns what it prints.
std::string in_bash(const std::string& script) {
  const TemporaryFolder folder;
  testing::write_file(folder / "quire.bash", call({"completion", "bash"}).out);
  testing::write_file(folder / "kite.gguf", "");
  testing::write_file(folder / "try", fmt::format("cd {}\nsource ./quire.bash || exit 1\n{}\n", folder / "", script));
  EXPECT_EQ(std::system(fmt::format("bash {} > {} 2>&1", folder / "try", folder / "out").c_str()), 0);
  return testing::read_file(folder / "out");
}

TEST(Completion, BashCompletesCommandsOptionsValuesAndFiles) {
  if (!has("bash")) GTEST_SKIP() << "there is no bash on this machine: its completion is not tried";
  const auto completes = [](const std::string& words) {
    return in_bash(
        fmt::format("COMP_WORDS=({0}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))\n_quire\n"
                    "printf '%s ' \"${{COMPREPLY[@]}}\"",
                    words));
  };
  EXPECT_EQ(completes("quire se"), "serve session ");
  EXPECT_THAT(completes("quire ''"), HasSubstr("chat "));
  EXPECT_EQ(completes("quire chat --chat"), "--chat-template-file ");
  EXPECT_EQ(completes("quire run --kv-type b"), "bf16 ");
  EXPECT_EQ(completes("quire run --device c"), "cpu cuda ");
  EXPECT_EQ(completes("quire run -m k"), "kite.gguf ");
  EXPECT_EQ(completes("quire info k"), "kite.gguf ");
  EXPECT_EQ(completes("quire keys re"), "revoke ");
  EXPECT_EQ(completes("quire completion f"), "fish ");
  EXPECT_EQ(completes("quire constrain --sc"), "--schema ");
  EXPECT_EQ(completes("quire man serv"), "serve ");
  EXPECT_EQ(completes("quire run --seed 1"), " ") << "any number";
  EXPECT_EQ(completes("quire serve --no-prefix-cache --jour"), "--journal ") << "a flag has no value";
}

TEST(Completion, TheShellsCanReadTheirScripts) {
  const TemporaryFolder folder;
  int tried = 0;
  for (const auto& [shell, check] : {std::pair{"bash", "bash -n"}, {"zsh", "zsh -n"}, {"fish", "fish --no-execute"}}) {
    if (!has(shell)) {
      std::printf("there is no %s on this machine: its script is not read\n", shell);
      continue;
    }
    testing::write_file(folder / shell, call({"completion", shell}).out);
    EXPECT_EQ(std::system(fmt::format("{} {}", check, folder / shell).c_str()), 0) << shell;
    ++tried;
  }
  if (tried == 0) GTEST_SKIP() << "none of bash, zsh and fish is on this machine";
}

// Quotes and brackets in the scripts that cannot be run here are in pairs, line by line.
TEST(Completion, TextIsQuoted) {
  for (const char* shell : {"zsh", "fish"}) {
    const std::string script = call({"completion", shell}).out;
    int number = 0;
    for (std::size_t from = 0; from < script.size(); ++number) {
      const std::size_t end = script.find('\n', from);
      std::string line = script.substr(from, end - from);
      for (std::size_t at = 0; (at = line.find("\\'", at)) != std::string::npos;) line.erase(at, 2);
      EXPECT_EQ(std::ranges::count(line, '\'') % 2, 0) << shell << ":" << number << ": " << line;
      from = end + 1;
    }
  }
}

TEST(ManPage, EveryCommandHasAPageWithItsOptions) {
  const TemporaryFolder folder;
  ASSERT_EQ(call({"man", "-o", folder / "man1"}).exit_code, kSuccess);
  for (const std::string& command : commands()) {
    const std::string page = testing::read_file(folder / ("man1/quire-" + command + ".1"));
    EXPECT_EQ(page, call({"man", command}).out);
    EXPECT_TRUE(page.starts_with(".TH QUIRE-")) << page.substr(0, 40);
    for (const std::string& option : options_of(command)) {
      std::string name;
      for (const char c : option) name += c == '-' ? std::string("\\-") : std::string(1, c);
      EXPECT_THAT(page, HasSubstr("\\fB" + name + "\\fR")) << command;
    }
    // No line of text is taken for a request.
    for (std::size_t at = 0; (at = page.find("\n.", at)) != std::string::npos; ++at) {
      const std::string request = page.substr(at + 1, 3);
      EXPECT_THAT((std::vector<std::string>{".TH", ".SH", ".TP", ".nf", ".fi"}), ::testing::Contains(request)) << page;
    }
  }
  EXPECT_EQ(testing::read_file(folder / "man1/quire.1"), call({"man"}).out);
  EXPECT_THAT(call({"man"}).out, HasSubstr("\\fBquire\\-serve\\fR(1)"));
  EXPECT_THAT(call({"man", "serve"}).out, HasSubstr("\\fB\\-\\-no\\-prefix\\-cache\\fR\nDo not reuse"));
  testing::expect_refusal(call({"man", "fly"}));
  testing::expect_refusal(call({"man", "-o", "/proc/nothing/here"}));
}

TEST(ManPage, GroffReadsThemWithoutAWarning) {
  if (!has("groff")) GTEST_SKIP() << "there is no groff on this machine: the pages are not formatted";
  const TemporaryFolder folder;
  ASSERT_EQ(call({"man", "-o", folder / ""}).exit_code, kSuccess);
  for (const std::string& command : commands()) {
    const std::string log = folder / "log";
    EXPECT_EQ(std::system(
                  fmt::format("groff -man -Tascii -ww -z {} 2> {}", folder / ("quire-" + command + ".1"), log).c_str()),
              0);
    EXPECT_EQ(testing::read_file(log), "") << command;
  }
}

}  // namespace
}  // namespace quire::cli
