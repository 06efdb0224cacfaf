#include "quire/jinja/template.h"

#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "quire/base/utf8.h"
#include "quire/jinja/ast.h"
#include "quire/jinja/fault.h"
#include "quire/jinja/interpreter.h"
#include "quire/jinja/parser.h"
#include "quire/jinja/runtime.h"

namespace quire::jinja {
namespace {

std::unexpected<TemplateError> failure(Fault fault, int line) {
  TemplateError error;
  error.kind = fault.kind;
  error.line = fault.line != 0 ? fault.line : line;
  const bool raised = fault.kind == TemplateError::Kind::raised;
  error.message = fmt::format("line {}: {}{}", error.line, raised ? "the template refuses: " : "", fault.message);
  // An Error is one line, but the message of a template may have several.
  for (char& c : error.message) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  if (raised) error.raised = std::move(fault.message);
  return std::unexpected(std::move(error));
}

}  // namespace

TemplateResult<Template> Template::parse(std::string_view source) {
  using Kind = TemplateError::Kind;
  if (source.size() > kMaxSourceBytes) {
    return failure(
        {Kind::limit, fmt::format("the template is {} bytes long, more than {}", source.size(), kMaxSourceBytes), 1},
        1);
  }
  if (const std::size_t valid = utf8_valid_prefix(source); valid != source.size()) {
    return failure({Kind::syntax, fmt::format("the template is not UTF-8 at byte {}", valid), 1}, 1);
  }
  try {
    return Template(parse_program(source));
  } catch (Fault& fault) {
    return failure(std::move(fault), 1);
  }
}

TemplateResult<Rendered> Template::render(const boost::json::object& variables, const RenderOptions& options) const {
  Runtime runtime(options);
  try {
    return Interpreter(*program_, runtime).run(variables, options.own);
  } catch (Fault& fault) {
    return failure(std::move(fault), runtime.line);
  }
}

std::chrono::local_seconds local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm fields{};
  localtime_r(&now, &fields);
  return std::chrono::local_seconds(std::chrono::seconds(now + fields.tm_gmtoff));
}

}  // namespace quire::jinja
