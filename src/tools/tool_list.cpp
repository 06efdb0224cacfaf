#include "quire/tools/tool_list.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "quire/grammar/json_schema_keyword.h"
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

// "#/$defs/A", "#/definitions/A". Null: another reference, or there is no such object.
const json::object* definition(const json::object& schema, std::string_view reference) {
  for (const std::string_view where : {"$defs", "definitions"}) {
    const std::string prefix = fmt::format("#/{}/", where);
    if (!reference.starts_with(prefix)) continue;
    const std::string_view name = reference.substr(prefix.size());
    const json::value* const all = schema.if_contains(where);
    if (all == nullptr || !all->is_object() || name.find_first_of("/~%") != std::string_view::npos) return nullptr;
    const json::value* const found = all->get_object().if_contains(name);
    return found == nullptr ? nullptr : found->if_object();
  }
  return nullptr;
}

constexpr int kMostReferences = 8;

}  // namespace

const json::object& top_of(const json::object& parameters) {
  const json::object* top = &parameters;
  for (int i = 0; i < kMostReferences; ++i) {
    const json::value* const reference = top->if_contains("$ref");
    if (reference == nullptr || !reference->is_string()) break;
    const bool alone = std::ranges::all_of(*top, [](const auto& member) {
      return member.key() == "$ref" || (member.key() == "type" && member.value() == "object") ||
             grammar::schema_keyword(member.key(), 0) == grammar::SchemaKeyword::Annotation;
    });
    const json::object* const target = alone ? definition(parameters, reference->get_string()) : nullptr;
    if (target == nullptr) break;
    top = target;
  }
  return *top;
}

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
    if (const json::value* const properties = top_of(read.parameters).if_contains("properties");
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
