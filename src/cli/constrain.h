// `quire constrain`: whether a constraint admits files, byte for byte and, with a model's vocabulary, token by token.
//
// How it fails: with one line that says why the constraint cannot be enforced, or names the file that cannot be read.
//   That a file is not admitted is no failure: it is in the answer.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/cli/constraint_options.h"
#include "quire/cli/style.h"

namespace quire::cli {

constexpr std::size_t kMaxConstrainedBytes = std::size_t{64} << 20;

struct ConstrainOptions {
  ConstraintOptions constraint;
  std::string model;  // empty: bytes only
  std::vector<std::string> files;
  bool special = false;  // "<|im_end|>" in the files is the special token
  bool stats = false;
  bool json = false;
};

struct Constrained {
  std::string text;  // the whole output
  bool admitted = true;
};

Result<Constrained> constrain(const ConstrainOptions& options, const Style& style);

}  // namespace quire::cli
