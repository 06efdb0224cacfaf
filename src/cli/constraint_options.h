// The options that say what an answer must look like: --schema, --regex, --grammar and --compact.
//
// How it fails: read_constraint() with one line that names the file.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "quire/base/error.h"
#include "quire/grammar/constraint.h"
#include "quire/server/grammar_constraints.h"

namespace CLI {
class App;
}

namespace quire::cli {

constexpr std::size_t kMaxConstraintBytes = std::size_t{16} << 20;

struct ConstraintOptions {
  // At most one of these is given.
  std::string schema;   // a file
  std::string regex;    // the expression itself
  std::string grammar;  // a file
  bool has_regex = false;
  bool compact = false;
};

// Adds the options to a command. Only the files that build the command line may call it.
void add_constraint_options(CLI::App& command, ConstraintOptions& options);

// Nothing if no constraint is given.
Result<std::optional<grammar::ConstraintSpec>> read_constraint(const ConstraintOptions& options);
// The same for a model. An empty function if no constraint is given. `reasoning`: what may come before it.
Result<server::ConstraintFactory> make_constraint(const ConstraintOptions& options,
                                                  server::GrammarConstraints& constraints,
                                                  const grammar::ConstraintSpec::Reasoning& reasoning = {});

}  // namespace quire::cli
