#include "quire/server/constraint_fields.h"

#include <array>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "quire/server/fields.h"

namespace quire::server {
namespace {

namespace json = boost::json;
using Spec = grammar::ConstraintSpec;
using Asked = std::expected<std::optional<AskedConstraint>, ApiError>;

constexpr std::size_t kMostChoiceTexts = 4096;

// A schema, as JSON or as the text of it.
Asked schema_of(const json::value& value, std::string field) {
  Spec spec{.kind = Spec::Kind::JsonSchema};
  if (value.is_string()) {
    auto parsed = grammar::parse_schema(std::string_view(value.get_string()));
    if (!parsed) return wrong(field, fmt::format("must be a JSON Schema: {}", parsed.error().message));
    spec.schema = std::move(*parsed);
  } else if (value.is_object() || value.is_bool()) {
    spec.schema = value;
  } else {
    return wrong(field, "must be a JSON Schema: an object, or its text");
  }
  return AskedConstraint{std::move(spec), std::move(field)};
}

Asked text_of(const json::value& value, Spec::Kind kind, std::string field) {
  if (!value.is_string()) return wrong(field, "must be a string");
  const std::string_view text = value.get_string();
  if (text.empty() && kind == Spec::Kind::Grammar) return std::nullopt;  // llama.cpp's clients send it
  return AskedConstraint{{.kind = kind, .schema = {}, .text = std::string(text)}, std::move(field)};
}

Asked choice_of(const json::value& value, std::string field) {
  constexpr std::string_view kMust = "must be an array of strings, and not an empty one";
  if (!value.is_array() || value.get_array().empty()) return wrong(field, kMust);
  if (value.get_array().size() > kMostChoiceTexts) {
    return wrong(field, fmt::format("must have at most {} strings", kMostChoiceTexts));
  }
  Spec spec{.kind = Spec::Kind::Choice};
  for (const json::value& each : value.get_array()) {
    if (!each.is_string()) return wrong(field, kMust);
    spec.choices.emplace_back(std::string_view(each.get_string()));
  }
  return AskedConstraint{std::move(spec), std::move(field)};
}

Asked object_of(const json::value& value, std::string field) {
  if (!value.is_bool()) return wrong(field, "must be true or false");
  if (!value.get_bool()) return std::nullopt;
  return AskedConstraint{{.kind = Spec::Kind::JsonObject}, std::move(field)};
}

Asked response_format(const json::value& value, const std::string& field) {
  if (!value.is_object()) return wrong(field, "must be an object");
  Fields fields(value.get_object(), field + ".");
  const auto type = fields.string("type");
  if (fields.error()) return std::unexpected(*fields.error());
  if (!type || *type == "text") return std::nullopt;
  if (*type == "json_object") {
    // llama.cpp takes a schema here as well.
    if (const json::value* const schema = fields.any("schema")) return schema_of(*schema, field + ".schema");
    return AskedConstraint{{.kind = Spec::Kind::JsonObject}, field};
  }
  if (*type == "json_schema") {
    const json::object* const outer = fields.object("json_schema");
    if (fields.error()) return std::unexpected(*fields.error());
    if (outer == nullptr) return wrong(field + ".json_schema", "is missing");
    Fields inner(*outer, field + ".json_schema.");
    (void)inner.boolean("strict");  // a schema is always kept to the letter
    if (inner.error()) return std::unexpected(*inner.error());
    const json::value* const schema = inner.any("schema");
    if (schema == nullptr) return wrong(field + ".json_schema.schema", "is missing");
    return schema_of(*schema, field + ".json_schema.schema");
  }
  return wrong(field + ".type",
               fmt::format("must be 'text', 'json_object' or 'json_schema', not {}", in_quotes(*type)));
}

Asked structured_outputs(const json::value& value, const std::string& field);

struct Way {
  std::string_view name;
  Asked (*read)(const json::value&, const std::string&);
};

constexpr auto kRegex = [](const json::value& v, const std::string& f) { return text_of(v, Spec::Kind::Regex, f); };
constexpr auto kGrammar = [](const json::value& v, const std::string& f) { return text_of(v, Spec::Kind::Grammar, f); };
constexpr auto kSchema = [](const json::value& v, const std::string& f) { return schema_of(v, f); };
constexpr auto kChoice = [](const json::value& v, const std::string& f) { return choice_of(v, f); };
constexpr auto kObject = [](const json::value& v, const std::string& f) { return object_of(v, f); };

constexpr std::array<Way, 9> kWays = {{{"response_format", response_format},
                                       {"structured_outputs", structured_outputs},
                                       {"json_schema", kSchema},
                                       {"guided_json", kSchema},
                                       {"guided_regex", kRegex},
                                       {"guided_choice", kChoice},
                                       {"guided_grammar", kGrammar},
                                       {"grammar", kGrammar},
                                       {"regex", kRegex}}};
constexpr std::array<Way, 5> kStructured = {
    {{"json", kSchema}, {"regex", kRegex}, {"choice", kChoice}, {"grammar", kGrammar}, {"json_object", kObject}}};

// The one that asks for something.
Asked only_one(const json::object& from, std::span<const Way> ways, const std::string& where) {
  std::optional<AskedConstraint> found;
  for (const Way& way : ways) {
    const json::value* const value = from.if_contains(way.name);
    if (value == nullptr || value->is_null()) continue;
    Asked asked = way.read(*value, where + std::string(way.name));
    if (!asked) return asked;
    if (!*asked) continue;
    if (found) return wrong((*asked)->field, fmt::format("cannot be used together with '{}'", found->field));
    found = std::move(*asked);
  }
  return found;
}

Asked structured_outputs(const json::value& value, const std::string& field) {
  if (!value.is_object()) return wrong(field, "must be an object");
  Fields fields(value.get_object(), field + ".");
  const bool compact = fields.boolean("disable_any_whitespace").value_or(false);
  const bool closed = fields.boolean("disable_additional_properties").value_or(false);
  if (fields.error()) return std::unexpected(*fields.error());
  if (closed) return wrong(fields.path("disable_additional_properties"), "is not supported, except as false");
  for (const std::string_view other : {"structural_tag", "whitespace_pattern"}) {
    if (fields.any(other) != nullptr) return wrong(fields.path(other), "is not supported");
  }
  Asked asked = only_one(value.get_object(), kStructured, field + ".");
  if (asked && *asked) (*asked)->spec.compact = compact;
  return asked;
}

}  // namespace

std::span<const std::string_view> constraint_fields() {
  static constexpr auto kNames = [] {
    std::array<std::string_view, kWays.size()> names;
    for (std::size_t i = 0; i < names.size(); ++i) names[i] = kWays[i].name;
    return names;
  }();
  return kNames;
}

Asked read_constraint(const json::object& body) { return only_one(body, kWays, ""); }

}  // namespace quire::server
