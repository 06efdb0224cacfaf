#include "quire/cli/option_text.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include <CLI/CLI.hpp>

namespace quire::cli {

namespace {

OptionText text_of(const CLI::Option& option) {
  OptionText out;
  if (option.nonpositional()) {
    if (!option.get_snames().empty()) out.short_name = "-" + option.get_snames().front();
    if (!option.get_lnames().empty()) out.long_name = "--" + option.get_lnames().front();
    if (option.get_type_size() != 0) out.value = option.get_type_name();  // a flag has none
  } else {
    out.argument = option.get_name(true);
  }
  out.description = option.get_description();
  out.repeats = option.get_expected_max() > 1;
  return out;
}

// The words of "f16|bf16". Of "cpu|cuda[:N]", the part that can be completed; a name in capitals is no word.
std::vector<std::string> words_in(const std::string& text) {
  std::vector<std::string> out;
  if (text.find('|') == std::string::npos) return out;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t end = std::min(text.find('|', from), text.size());
    std::string word = text.substr(from, end - from);
    word = word.substr(0, word.find('['));
    if (std::ranges::any_of(word, [](unsigned char c) { return std::islower(c) != 0; })) out.push_back(std::move(word));
    from = end + 1;
  }
  return out;
}

// The first argument in "quire keys add|list [NAME]".
std::vector<std::string> first_words(const std::string& usage, const std::string& name) {
  const std::size_t from = std::string_view("quire ").size() + name.size() + 1;
  if (from >= usage.size()) return {};
  const std::string argument = usage.substr(from, usage.find(' ', from) - from);
  const bool words = std::ranges::all_of(argument, [](unsigned char c) { return std::islower(c) != 0 || c == '|'; });
  return words ? words_in(argument) : std::vector<std::string>();
}

// The usage line, as it stands in the help.
std::string usage_of(const CLI::App& command) {
  const std::string help = command.help();
  constexpr std::string_view kMark = "Usage: ";
  const std::size_t at = help.find(kMark);
  if (at == std::string::npos) return "quire " + command.get_name();
  const std::size_t from = at + kMark.size();
  return help.substr(from, help.find('\n', from) - from);
}

}  // namespace

bool OptionText::takes_file() const {
  const auto any = [](const std::string& name) {
    return name.find("FILE") != std::string::npos || name == "PATH" || name == "DIR" || name == "TRACE";
  };
  return any(value) || any(argument);
}

std::vector<std::string> OptionText::choices() const { return words_in(value); }

std::string OptionText::summary() const {
  std::string line = description;
  std::ranges::replace(line, '\n', ' ');
  std::size_t end = std::min({line.find_first_of(";("), line.find(" [QUIRE_"), line.size()});
  for (std::size_t i = 0; i + 2 < end; ++i) {
    if (line[i] == '.' && line[i + 1] == ' ' && std::isupper(static_cast<unsigned char>(line[i + 2])) != 0) end = i;
  }
  line.resize(end);
  while (!line.empty() && (line.back() == ' ' || line.back() == '.' || line.back() == ',')) line.pop_back();
  return line;
}

ProgramText describe(const CLI::App& app) {
  ProgramText program{
      .description = app.get_description(), .footer = app.get_footer(), .version = app.version(), .commands = {}};
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    CommandText out{.name = command->get_name(),
                    .description = command->get_description(),
                    .footer = command->get_footer(),
                    .usage = usage_of(*command),
                    .words = {},
                    .options = {}};
    out.words = first_words(out.usage, out.name);
    for (const CLI::Option* option : command->get_options([](const CLI::Option*) { return true; })) {
      out.options.push_back(text_of(*option));
    }
    program.commands.push_back(std::move(out));
  }
  return program;
}

}  // namespace quire::cli
