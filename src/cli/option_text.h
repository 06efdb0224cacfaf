// The commands and options of the program as data, taken from the descriptions that --help prints. Completion and man
// pages are made from it.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace quire::cli {

struct OptionText {
  std::string short_name;   // "-m", or empty
  std::string long_name;    // "--model"; empty for an argument
  std::string argument;     // "TEXT"; empty for an option
  std::string value;        // "FILE", "f16|bf16"; empty: a flag, or an argument
  std::string description;  // may have line breaks
  bool repeats = false;     // may be given several times

  bool takes_value() const { return !value.empty(); }
  bool takes_file() const;
  // The values, if the option takes one of a few.
  std::vector<std::string> choices() const;
  // The first line of the description, without what is in parentheses at its end.
  std::string summary() const;
};

struct CommandText {
  std::string name;
  std::string description;
  std::string footer;
  std::string usage;
  std::vector<std::string> words;  // what its first argument can be, if the usage lists it: add|list|set
  std::vector<OptionText> options;
};

struct ProgramText {
  std::string description, footer, version;
  std::vector<CommandText> commands;
};

// `usage` of a command is the line of its --help.
ProgramText describe(const CLI::App& app);

}  // namespace quire::cli
