// How the template interpreter fails on the inside. Nearly every operation of a template can fail, at any depth, and
// all failures end the same way, so inside the interpreter they are thrown; Template's two functions catch them and
// nothing else of Quire ever sees one.
#pragma once

#include <string>

#include "quire/jinja/template.h"

namespace quire::jinja {

struct Fault {
  TemplateError::Kind kind = TemplateError::Kind::runtime;
  std::string message;
  int line = 0;  // 0: wherever the interpreter stands
};

// An operation failed as it would in Jinja2. Messages are Python's and Jinja2's own, which is what people search for.
[[noreturn]] void fail_operation(std::string message);
[[noreturn]] void fail_syntax(std::string message, int line);
[[noreturn]] void fail_limit(std::string message);
[[noreturn]] void fail_raised(std::string message);

}  // namespace quire::jinja
