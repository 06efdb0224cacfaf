#include "quire/jinja/fault.h"

#include <utility>

namespace quire::jinja {

void fail_operation(std::string message) { throw Fault{TemplateError::Kind::runtime, std::move(message), 0}; }
void fail_syntax(std::string message, int line) { throw Fault{TemplateError::Kind::syntax, std::move(message), line}; }
void fail_limit(std::string message) { throw Fault{TemplateError::Kind::limit, std::move(message), 0}; }
void fail_raised(std::string message) { throw Fault{TemplateError::Kind::raised, std::move(message), 0}; }

}  // namespace quire::jinja
