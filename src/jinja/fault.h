// The exception of the template interpreter. Nearly every operation of a template can fail, at any depth, and every
// failure ends the rendering. So failures are thrown inside the interpreter. Template's two functions catch them; the
// rest of Quire never sees one.
#pragma once

#include <string>

#include "quire/jinja/template.h"

namespace quire::jinja {

struct Fault {
  TemplateError::Kind kind = TemplateError::Kind::runtime;
  std::string message;
  int line = 0;  // 0: the current line of the interpreter
};

// An operation failed as it would in Jinja2. The messages are those of Python and Jinja2, which people search for.
[[noreturn]] void fail_operation(std::string message);
[[noreturn]] void fail_syntax(std::string message, int line);
[[noreturn]] void fail_limit(std::string message);
[[noreturn]] void fail_raised(std::string message);

}  // namespace quire::jinja
