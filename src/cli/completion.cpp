#include "quire/cli/completion.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "quire/cli/printable.h"

namespace quire::cli {

namespace {

std::string replaced(std::string text, std::string_view what, std::string_view with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
  return text;
}

// In single quotes.
std::string quoted(const std::string& text) { return "'" + replaced(text, "'", R"('\'')") + "'"; }

std::vector<std::string> names_of(const OptionText& option) {
  std::vector<std::string> names;
  for (const std::string* name : {&option.short_name, &option.long_name}) {
    if (!name->empty()) names.push_back(*name);
  }
  return names;
}

bool takes_file_argument(const CommandText& command) {
  return std::ranges::any_of(command.options,
                             [](const OptionText& o) { return !o.argument.empty() && o.takes_file(); });
}

std::vector<std::string> command_names(const ProgramText& program) {
  std::vector<std::string> names;
  names.reserve(program.commands.size());
  for (const CommandText& command : program.commands) names.push_back(command.name);
  return names;
}

// What the first argument of a command can be.
std::vector<std::string> words_of(const ProgramText& program, const CommandText& command) {
  return command.name == "man" ? command_names(program) : command.words;
}

std::string bash(const ProgramText& program) {
  const auto commands = command_names(program);
  std::string values, options, arguments;
  for (const CommandText& command : program.commands) {
    std::vector<std::string> all;
    for (const OptionText& option : command.options) {
      const auto names = names_of(option);
      all.insert(all.end(), names.begin(), names.end());
      if (!option.takes_value()) continue;
      std::vector<std::string> patterns;
      patterns.reserve(names.size());
      for (const std::string& name : names) patterns.push_back(command.name + ":" + name);
      const std::string words = fmt::format("{}", fmt::join(option.choices(), " "));
      values += fmt::format("    {}) {}; return ;;\n", fmt::join(patterns, "|"),
                            !words.empty()        ? fmt::format("_quire_words '{}'", words)
                            : option.takes_file() ? "_quire_files"
                                                  : ":");
    }
    options += fmt::format("    {}) words='{}' ;;\n", command.name, fmt::join(all, " "));
    const auto words = words_of(program, command);
    if (!words.empty()) {
      arguments += fmt::format("    {}) _quire_words '{}' ;;\n", command.name, fmt::join(words, " "));
    } else if (takes_file_argument(command)) {
      arguments += fmt::format("    {}) _quire_files ;;\n", command.name);
    }
  }
  return fmt::format(R"(# Completion of quire for bash. Made by: quire completion bash
_quire_words() {{ mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur"); }}
_quire_files() {{
  mapfile -t COMPREPLY < <(compgen -f -- "$cur")
  compopt -o filenames 2>/dev/null
}}
_quire() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev='' command='' words='' i
  COMPREPLY=()
  if (( COMP_CWORD > 0 )); then prev=${{COMP_WORDS[COMP_CWORD - 1]}}; fi
  for (( i = 1; i < COMP_CWORD; ++i )); do
    case ${{COMP_WORDS[i]}} in
    {}) command=${{COMP_WORDS[i]}}; break ;;
    esac
  done
  case $command:$prev in
{}  esac
  case $command in
    '') words='{} --help --version' ;;
{}  esac
  if [[ -z $command || $cur == -* ]]; then
    _quire_words "$words"
    return
  fi
  case $command in
{}  esac
}}
complete -F _quire quire
)",
                     fmt::join(commands, "|"), values, fmt::join(commands, " "), options, arguments);
}

// Text within a specification of zsh's _arguments.
std::string zsh_text(std::string text) {
  for (const std::string_view c : {"\\", ":", "[", "]"}) text = replaced(std::move(text), c, "\\" + std::string(c));
  return replaced(std::move(text), "'", R"('\'')");
}

std::string zsh_value(const OptionText& option) {
  const std::string name = zsh_text(option.value);
  const auto choices = option.choices();
  if (!choices.empty()) return fmt::format(":{}:({})", name, fmt::join(choices, " "));
  return option.takes_file() ? fmt::format(":{}:_files", name) : fmt::format(":{}: ", name);
}

std::string zsh(const ProgramText& program) {
  std::string commands, cases;
  for (const CommandText& command : program.commands) {
    commands += fmt::format("    '{}:{}'\n", command.name, zsh_text(command.description));
    cases += fmt::format("    {})\n      _arguments -s \\\n", command.name);
    for (const OptionText& option : command.options) {
      if (!option.argument.empty()) continue;
      const auto names = names_of(option);
      const std::string about = zsh_text(option.summary()), value = option.takes_value() ? zsh_value(option) : "";
      const std::string repeats = option.repeats ? "*" : fmt::format("({})", fmt::join(names, " "));
      for (const std::string& name : names) {
        cases += fmt::format("        '{}{}[{}]{}' \\\n", repeats, name, about, value);
      }
    }
    const auto words = words_of(program, command);
    cases += words.empty() ? fmt::format("        '*:argument:{}'\n", takes_file_argument(command) ? "_files" : " ")
                           : fmt::format("        '1:argument:({})' '*:argument: '\n", fmt::join(words, " "));
    cases += "      ;;\n";
  }
  return fmt::format(R"(#compdef quire
# Completion of quire for zsh. Made by: quire completion zsh
_quire() {{
  local -a commands
  commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe -t commands 'quire command' commands
    return
  fi
  local command=${{words[2]}}
  shift words
  (( CURRENT-- ))
  case $command in
{}  esac
}}
if [[ $funcstack[1] == _quire ]]; then
  _quire "$@"
else
  compdef _quire quire
fi
)",
                     commands, cases);
}

std::string fish(const ProgramText& program) {
  std::string out = "# Completion of quire for fish. Made by: quire completion fish\ncomplete -c quire -f\n";
  for (const CommandText& command : program.commands) {
    out += fmt::format("complete -c quire -n __fish_use_subcommand -a {} -d {}\n", command.name,
                       quoted(command.description));
  }
  for (const CommandText& command : program.commands) {
    const std::string start = fmt::format("complete -c quire -n '__fish_seen_subcommand_from {}'", command.name);
    for (const OptionText& option : command.options) {
      if (!option.argument.empty()) continue;
      out += start;
      if (!option.short_name.empty()) out += " -s " + option.short_name.substr(1);
      if (!option.long_name.empty()) out += " -l " + option.long_name.substr(2);
      if (const auto choices = option.choices(); !choices.empty()) {
        out += fmt::format(" -x -a '{}'", fmt::join(choices, " "));
      } else if (option.takes_value()) {
        out += option.takes_file() ? " -r -F" : " -x";
      }
      out += fmt::format(" -d {}\n", quoted(option.summary()));
    }
    const auto words = words_of(program, command);
    if (!words.empty()) {
      out += fmt::format("{} -a '{}'\n", start, fmt::join(words, " "));
    } else if (takes_file_argument(command)) {
      out += start + " -F\n";
    }
  }
  return out;
}

}  // namespace

Result<std::string> completion(const ProgramText& program, std::string_view shell) {
  if (shell == "bash") return bash(program);
  if (shell == "zsh") return zsh(program);
  if (shell == "fish") return fish(program);
  return fail(fmt::format("{} is not one of bash, zsh, fish", printable(shell, {.limit = 40, .quotes = true})));
}

}  // namespace quire::cli
