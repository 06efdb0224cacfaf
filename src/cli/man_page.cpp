#include "quire/cli/man_page.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

#include "quire/cli/printable.h"

namespace quire::cli {

namespace {

// Text in roff: backslashes and dashes are what they are, and no line is a request.
std::string roff(std::string_view text) {
  std::string out;
  bool start = true;
  for (const char c : text) {
    if (start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
    start = c == '\n';
  }
  return out;
}

std::string flowing(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return roff(text);
}

std::string upper_name(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return text;
}

std::string head(const ProgramText& program, const std::string& name, const std::string& description) {
  return fmt::format(".TH {} 1 \"\" \"{}\" \"Quire\"\n.SH NAME\n{} \\- {}\n", upper_name(name), roff(program.version),
                     roff(name), flowing(description));
}

std::string option_entry(const OptionText& option) {
  std::string names;
  for (const std::string* name : {&option.short_name, &option.long_name}) {
    if (name->empty()) continue;
    names += fmt::format("{}\\fB{}\\fR", names.empty() ? "" : ", ", roff(*name));
  }
  if (!option.argument.empty()) names = fmt::format("\\fI{}\\fR", roff(option.argument));
  if (option.takes_value()) names += fmt::format(" \\fI{}\\fR", roff(option.value));
  return fmt::format(".TP\n{}\n{}\n", names, flowing(option.description));
}

// Examples keep their lines.
std::string verbatim(const std::string& title, const std::string& text) {
  return text.empty() ? "" : fmt::format(".SH {}\n.nf\n{}\n.fi\n", title, roff(text));
}

std::string program_page(const ProgramText& program) {
  std::string page = head(program, "quire", "a runtime for large language models");
  page += ".SH SYNOPSIS\n\\fBquire\\fR \\fICOMMAND\\fR ...\n.SH DESCRIPTION\n" + flowing(program.description) + "\n";
  page += ".SH COMMANDS\n";
  for (const CommandText& command : program.commands) {
    page += fmt::format(".TP\n\\fBquire\\-{}\\fR(1)\n{}\n", roff(command.name), flowing(command.description));
  }
  return page + verbatim("NOTES", program.footer);
}

std::string command_page(const ProgramText& program, const CommandText& command) {
  std::string page = head(program, "quire-" + command.name, command.description);
  page += fmt::format(".SH SYNOPSIS\n{}\n.SH DESCRIPTION\n{}.\n", roff(command.usage), flowing(command.description));
  std::string arguments, options;
  for (const OptionText& option : command.options)
    (option.argument.empty() ? options : arguments) += option_entry(option);
  if (!arguments.empty()) page += ".SH ARGUMENTS\n" + arguments;
  page += ".SH OPTIONS\n" + options;
  return page + verbatim("NOTES", command.footer) + ".SH SEE ALSO\n\\fBquire\\fR(1)\n";
}

}  // namespace

Result<std::string> man_page(const ProgramText& program, std::string_view command) {
  if (command.empty()) return program_page(program);
  const auto found = std::ranges::find(program.commands, command, &CommandText::name);
  if (found == program.commands.end()) {
    return fail(fmt::format("there is no command {}", printable(command, {.limit = 40, .quotes = true})));
  }
  return command_page(program, *found);
}

Result<void> write_man_pages(const ProgramText& program, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return fail(fmt::format("{}: cannot be created: {}", folder, error.message()));
  const auto write = [&](const std::string& name, const std::string& page) -> Result<void> {
    const std::string path = (std::filesystem::path(folder) / (name + ".1")).string();
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << page;
    file.close();
    if (!file) return fail(fmt::format("{}: cannot be written", path));
    return {};
  };
  if (const auto done = write("quire", program_page(program)); !done) return done;
  for (const CommandText& command : program.commands) {
    if (const auto done = write("quire-" + command.name, command_page(program, command)); !done) return done;
  }
  return {};
}

}  // namespace quire::cli
