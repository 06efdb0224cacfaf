// Parses the source of a template.
//
// Who may call: anyone, from any thread.
// How it fails: with a Fault of Kind::syntax or Kind::limit that has a line.
#pragma once

#include <memory>
#include <string_view>

#include "quire/jinja/ast.h"

namespace quire::jinja {

// The source must be valid UTF-8.
std::shared_ptr<const Program> parse_program(std::string_view source);

}  // namespace quire::jinja
