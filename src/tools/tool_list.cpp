#include "quire/tools/tool_list.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "quire/tools/format.h"

namespace quire::tools {
namespace {

namespace json = boost::json;

bool only_strings(const json::value& schema) {
  if (!schema.is_object()) return false;
  const json::object& object = schema.get_object();
  if (const json::value* const type = object.if_contains("type")) return *type == "string";
  if (const json::value* const values = object.if_contains("enum"); values != nullptr && values->is_array()) {
    return std::ranges::all_of(values->get_array(), [](const json::value& each) { return each.is_string(); });
  }
  return false;
}

}  // namespace

Result<ToolList> ToolList::parse(const json::array& tools) {
  ToolList list;
  std::unordered_set<std::string_view> names;  // a client may send very many
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const auto wrong = [i](std::string_view what) { return fail(fmt::format("'tools[{}]{}", i, what)); };
    const json::object* const tool = tools[i].if_object();
    if (tool == nullptr) return wrong("' must be an object");
    if (const json::value* const type = tool->if_contains("type"); type != nullptr && *type != "function") {
      return wrong(".type' must be \"function\"");
    }
    const json::value* const inner = tool->if_contains("function");
    const json::object* const function = inner != nullptr ? inner->if_object() : nullptr;
    if (function == nullptr) return wrong(".function' must be an object");
    const json::value* const name = function->if_contains("name");
    if (name == nullptr || !name->is_string() || name->get_string().empty()) {
      return wrong(".function.name' must be a string that is not empty");
    }
    if (name->get_string().size() > kMostNameBytes) {
      return wrong(fmt::format(".function.name' must have at most {} bytes", kMostNameBytes));
    }
    Tool read{.name = std::string(name->get_string())};
    if (!names.insert(std::string_view(name->get_string())).second) {
      return wrong(fmt::format(".function.name' is there twice: {}", read.name));
    }
    if (const json::value* const schema = function->if_contains("parameters");
        schema != nullptr && !schema->is_null()) {
      if (!schema->is_object()) return wrong(".function.parameters' must be an object");
      read.parameters = schema->get_object();
    }
    if (const json::value* const strict = function->if_contains("strict"); strict != nullptr && !strict->is_null()) {
      if (!strict->is_bool()) return wrong(".function.strict' must be true or false");
      read.strict = strict->get_bool();
    }
    if (const json::value* const properties = read.parameters.if_contains("properties");
        properties != nullptr && properties->is_object()) {
      for (const auto& [key, schema] : properties->get_object()) read.strings.emplace(key, only_strings(schema));
    }
    list.tools_.push_back(std::move(read));
  }
  return list;
}

const Tool* ToolList::find(std::string_view name) const {
  const auto found = std::ranges::find(tools_, name, &Tool::name);
  return found == tools_.end() ? nullptr : &*found;
}

}  // namespace quire::tools
