#include "quire/text/template.h"

#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "quire/text/template_ast.h"
#include "quire/text/template_fault.h"
#include "quire/text/template_interpreter.h"
#include "quire/text/template_parser.h"
#include "quire/text/template_runtime.h"
#include "quire/text/utf8.h"

namespace quire::text {
namespace {

std::unexpected<TemplateError> failure(jinja::Fault fault, int line) {
  TemplateError error;
  error.kind = fault.kind;
  error.line = fault.line != 0 ? fault.line : line;
  const bool raised = fault.kind == TemplateError::Kind::raised;
  error.message = fmt::format("line {}: {}{}", error.line, raised ? "the template refuses: " : "", fault.message);
  // An Error is one line; what a template raises, or quotes from its variables, may have several.
  for (char& c : error.message) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  if (raised) error.raised = std::move(fault.message);
  return std::unexpected(std::move(error));
}

}  // namespace

TemplateResult<ChatTemplate> ChatTemplate::parse(std::string_view source) {
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
    return ChatTemplate(jinja::parse_program(source));
  } catch (jinja::Fault& fault) {
    return failure(std::move(fault), 1);
  }
}

TemplateResult<std::string> ChatTemplate::render(const boost::json::object& variables,
                                                 const RenderOptions& options) const {
  jinja::Runtime runtime(options);
  try {
    return jinja::Interpreter(*program_, runtime).run(variables);
  } catch (jinja::Fault& fault) {
    return failure(std::move(fault), runtime.line);
  }
}

std::chrono::local_seconds local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm fields{};
  localtime_r(&now, &fields);
  return std::chrono::local_seconds(std::chrono::seconds(now + fields.tm_gmtoff));
}

}  // namespace quire::text
