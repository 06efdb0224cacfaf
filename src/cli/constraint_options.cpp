#include "quire/cli/constraint_options.h"

#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "quire/cli/input.h"

namespace quire::cli {

void add_constraint_options(CLI::App& command, ConstraintOptions& options) {
  auto* schema =
      command.add_option("--schema", options.schema, "The text must be JSON that is valid for this JSON Schema")
          ->type_name("FILE");
  auto* regex = command
                    .add_option_function<std::string>(
                        "--regex",
                        [&options](const std::string& text) {
                          options.regex = text;
                          options.has_regex = true;
                        },
                        "The whole text must match this regular expression")
                    ->type_name("TEXT")
                    ->excludes(schema);
  command
      .add_option("--grammar", options.grammar,
                  "The text must be one of this grammar: GBNF (root ::=) or Lark (start:)")
      ->type_name("FILE")
      ->excludes(schema)
      ->excludes(regex);
  command.add_flag("--compact", options.compact, "With --schema: no white space between the tokens of JSON");
}

Result<std::optional<grammar::ConstraintSpec>> read_constraint(const ConstraintOptions& options) {
  using Kind = grammar::ConstraintSpec::Kind;
  grammar::ConstraintSpec spec;
  spec.compact = options.compact;
  if (!options.schema.empty()) {
    const auto text = read_input(options.schema, kMaxConstraintBytes);
    if (!text) return std::unexpected(text.error());
    auto schema = grammar::parse_schema(*text);
    if (!schema) return fail(fmt::format("{}: {}", input_name(options.schema), schema.error().message));
    spec.kind = Kind::JsonSchema;
    spec.schema = std::move(*schema);
    return spec;
  }
  if (!options.grammar.empty()) {
    auto text = read_input(options.grammar, kMaxConstraintBytes);
    if (!text) return std::unexpected(text.error());
    spec.kind = Kind::Grammar;
    spec.text = std::move(*text);
    return spec;
  }
  if (!options.has_regex) return std::nullopt;
  spec.kind = Kind::Regex;
  spec.text = options.regex;
  return spec;
}

Result<server::ConstraintFactory> make_constraint(const ConstraintOptions& options,
                                                  server::GrammarConstraints& constraints,
                                                  const grammar::ConstraintSpec::Reasoning& reasoning) {
  auto spec = read_constraint(options);
  if (!spec) return std::unexpected(spec.error());
  if (!*spec) return server::ConstraintFactory();
  (*spec)->reasoning = reasoning;
  auto made = constraints.make(**spec);
  if (made) return made;
  const std::string& name = !options.schema.empty() ? options.schema : options.grammar;
  return fail(fmt::format("{}: {}", options.has_regex ? "--regex" : name, made.error().message));
}

}  // namespace quire::cli
