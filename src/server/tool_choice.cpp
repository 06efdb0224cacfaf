#include "quire/server/tool_choice.h"

#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "quire/server/fields.h"

namespace quire::server {

namespace json = boost::json;

std::expected<ToolChoice, ApiError> read_tool_choice(const json::object& body) {
  using Kind = ToolChoice::Kind;
  Fields fields(body);
  const json::value* const choice = fields.any("tool_choice");
  if (choice == nullptr || *choice == "auto") return ToolChoice{};
  if (*choice == "none") return ToolChoice{.kind = Kind::None};
  if (*choice == "required") return ToolChoice{.kind = Kind::Required};
  if (const json::object* const object = choice->if_object()) {
    const json::value* const type = object->if_contains("type");
    const json::value* const function = object->if_contains("function");
    const json::value* const name =
        function != nullptr && function->is_object() ? function->get_object().if_contains("name") : nullptr;
    if (type != nullptr && *type == "function" && name != nullptr && name->is_string()) {
      return ToolChoice{.kind = Kind::Named, .name = std::string(name->get_string())};
    }
  }
  fields.refuse("tool_choice",
                R"(must be "auto", "none", "required" or {"type": "function", "function": {"name": ...}})");
  return std::unexpected(*fields.error());
}

std::optional<ApiError> check_choice(const ToolChoice& choice, const tools::ToolList& tools) {
  using Kind = ToolChoice::Kind;
  if (choice.kind == Kind::None || choice.kind == Kind::Auto) return std::nullopt;
  if (tools.empty()) return invalid("'tool_choice' needs 'tools'", "tool_choice");
  if (choice.kind != Kind::Named || tools.find(choice.name) != nullptr) return std::nullopt;
  return invalid(
      fmt::format("'tool_choice' names the function {}, and 'tools' has none of that name", in_quotes(choice.name)),
      "tool_choice");
}

}  // namespace quire::server
