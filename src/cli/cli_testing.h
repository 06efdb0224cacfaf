// For tests: calls the program within the test's process. program_testing.h starts it as a process.
#pragma once

#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "quire/cli/app.h"
#include "quire/cli/output.h"
#include "quire/cli/style.h"

namespace quire::cli::testing {

// The result of a run.
struct Outcome {
  int exit_code = -1;  // 128 plus the signal's number, if a signal ended it
  std::string out, err;
};

// Calls run() without a terminal. Standard input is that of the test.
inline Outcome call(const std::vector<std::string>& arguments, const Style& style = {.utf8 = true}) {
  std::vector<const char*> argv = {"quire"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  StringOutput out, err;
  Outcome outcome;
  outcome.exit_code = run(static_cast<int>(argv.size()), argv.data(), out, err, style);
  outcome.out = out.text();
  outcome.err = err.text();
  return outcome;
}

// The names of all commands, from the list in `quire --help`.
inline std::vector<std::string> commands() {
  const std::string help = call({"--help"}).out;
  std::vector<std::string> names;
  std::size_t at = help.find("\nCommands:\n");
  if (at != std::string::npos) at = help.find('\n', at + 1) + 1;
  // "  NAME   description"; the list ends at an empty line. A description may go on in lines that begin further right.
  for (; at < help.size() && help[at] == ' '; at = help.find('\n', at) + 1) {
    if (const std::size_t name = help.find_first_not_of(' ', at); name == at + 2) {
      names.push_back(help.substr(name, help.find_first_of(" \n", name) - name));
    }
  }
  EXPECT_FALSE(names.empty()) << help;
  return names;
}

// Expects one line on standard error and nothing on standard output.
inline void expect_refusal(const Outcome& outcome, int exit_code = kFailure) {
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(outcome.err.starts_with("quire: ")) << outcome.err;
  EXPECT_GT(outcome.err.size(), std::string_view("quire: \n").size());
  EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
  EXPECT_LT(outcome.err.size(), 2100u);
  EXPECT_EQ(outcome.err.find('\x1b'), std::string::npos) << outcome.err;
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_file(const std::string& path, std::string_view text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  EXPECT_TRUE(out.flush()) << path;
}

inline std::string demo_model(std::string_view name) {
  return std::string(QUIRE_SOURCE_DIR "/models/quire-demo-").append(name).append("-q8_0.gguf");
}

}  // namespace quire::cli::testing
