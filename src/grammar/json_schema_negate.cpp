#include <algorithm>
#include <string>
#include <utility>

#include "quire/grammar/json_schema_formats.h"
#include "quire/grammar/json_schema_reader.h"

namespace quire::grammar {

namespace json = boost::json;

namespace {

using Kind = Demand::Kind;

Demand only(Types types) { return {.kind = Kind::TypeIn, .types = types}; }

}  // namespace

// A value does not fit a schema if it breaks one of its keywords.
void SchemaReader::absorb_negated(State& state, Work& work, const json::object& schema, const Chain* chain) {
  std::vector<Option> options;
  const json::value* reference = schema.if_contains("$ref");
  if (reference != nullptr && reference->is_string() && document_.reference_stands_alone()) {
    negate_keyword(options, work, schema, Keyword::Ref, "$ref", *reference);
  } else {
    for (const auto& [name, value] : schema) {
      if (work.error || !budget_.take(2)) return;
      const Keyword keyword = schema_keyword(name, document_.draft());
      if (keyword != Keyword::Annotation) negate_keyword(options, work, schema, keyword, name, value);
    }
  }
  if (options.empty()) {
    state.facts.types = 0;  // everything fits it
  } else if (options.size() == 1) {
    take(state, work, options.front(), chain, state.next_order());
  } else {
    add_choice(state, std::move(options), chain, state.next_order());
  }
}

void SchemaReader::negate_keyword(std::vector<Option>& options, Work& work, const json::object& schema, Keyword keyword,
                                  std::string_view name, const json::value& value) {
  using enum SchemaKeyword;
  const auto bound = [&](Kind kind, bool exclusive) {
    const auto number = decimal(value);
    if (!number) return fail_at(work, schema, name, "must be a number");
    options.push_back({only(kNumber), {.kind = kind, .bound = *number, .exclusive = exclusive}});
  };
  const auto flag = [&](std::string_view other) {
    const json::value* given = schema.if_contains(other);
    return given != nullptr && given->is_bool() && given->get_bool();
  };
  switch (keyword) {
    case Ref:
    case DynamicRef: {
      if (!value.is_string()) return fail_at(work, schema, name, "must be a string");
      if (name != "$ref" && document_.has_dynamic_anchors()) return fail_at(work, schema, name, "cannot be enforced");
      const auto target = document_.resolve(schema, value.get_string());
      if (!target) return fail_at(work, schema, name, target.error().message);
      options.push_back({{.schema = {.schema = *target, .negated = true}}});
      break;
    }
    case Type: {
      Types types = 0;
      const auto one = [&](const json::value& type) {
        const Types named = type.is_string() ? type_named(type.get_string()) : Types{0};
        if (named == 0) fail_at(work, schema, name, "there is no such type");
        types = static_cast<Types>(types | named);
      };
      if (value.is_array()) {
        for (const json::value& type : value.get_array()) one(type);
      } else {
        one(value);
      }
      options.push_back({only(static_cast<Types>(kAllTypes & ~types))});
      break;
    }
    case Const:
      if (!is_finite(value)) return fail_at(work, schema, name, "a number is too large");
      options.push_back({{.kind = Kind::Excluded, .value = &value}});
      break;
    case Enum: {
      if (!value.is_array()) return fail_at(work, schema, name, "must be a list of values");
      if (!is_finite(value)) return fail_at(work, schema, name, "a number is too large");
      Option all;
      for (const json::value& one : value.get_array()) all.push_back({.kind = Kind::Excluded, .value = &one});
      if (!all.empty()) options.push_back(std::move(all));
      break;
    }
    case Minimum: bound(Kind::Most, !flag("exclusiveMinimum")); break;
    case Maximum: bound(Kind::Least, !flag("exclusiveMaximum")); break;
    case ExclusiveMinimum:
      if (!value.is_bool()) bound(Kind::Most, false);
      break;
    case ExclusiveMaximum:
      if (!value.is_bool()) bound(Kind::Least, false);
      break;
    case MultipleOf:
      options.push_back(
          {only(kNumber),
           {.kind = Kind::Multiple, .keyword = {.schema = &schema, .keyword = "multipleOf", .negated = true}}});
      break;
    case Format:
      if (!value.is_string() || format_kind(value.get_string()) == FormatKind::Annotation) break;
      options.push_back(
          {only(kString), {.kind = Kind::Text, .keyword = {.schema = &schema, .keyword = "format", .negated = true}}});
      break;
    case Content:
      if (document_.draft() != 7) break;
      options.push_back(
          {only(kString), {.kind = Kind::Text, .keyword = {.schema = &schema, .keyword = name, .negated = true}}});
      break;
    case Pattern:
      if (!value.is_string()) return fail_at(work, schema, name, "must be a string");
      options.push_back(
          {only(kString), {.kind = Kind::Text, .keyword = {.schema = &schema, .keyword = "pattern", .negated = true}}});
      break;
    case MinLength:
    case MaxLength:
    case MinItems:
    case MaxItems:
    case MinProperties:
    case MaxProperties: {
      const auto number = decimal(value);
      if (!number || !number->is_integer() || number->negative || number->whole.size() > 18) {
        return fail_at(work, schema, name, "must be a whole number, at least 0");
      }
      const std::uint64_t count = std::stoull(number->whole);
      const bool least = keyword == MinLength || keyword == MinItems || keyword == MinProperties;
      if (least && count == 0) break;
      Demand demand{.number = least ? count - 1 : count + 1, .keyword = {.schema = &schema, .keyword = name}};
      const bool length = keyword == MinLength || keyword == MaxLength;
      const bool items = keyword == MinItems || keyword == MaxItems;
      demand.kind = length  ? (least ? Kind::MostLength : Kind::LeastLength)
                    : items ? (least ? Kind::MostItems : Kind::LeastItems)
                            : (least ? Kind::MostProperties : Kind::LeastProperties);
      options.push_back({only(length ? kString : items ? kArray : kObject), std::move(demand)});
      break;
    }
    case AllOf:
    case AnyOf:
    case OneOf:
    case Not:
    case If: negate_choice(options, schema, keyword, value); break;
    case Items:
    case PrefixItems:
    case AdditionalItems:
    case UnevaluatedItems:
    case UniqueItems:
    case Contains: negate_array(options, schema, keyword, name, value); break;
    case MinContains:
    case MaxContains:
    case Then:
    case Else:
    case Annotation: break;
    default: negate_object(options, schema, keyword, name, value);
  }
}

void SchemaReader::negate_choice(std::vector<Option>& options, const json::object& schema, Keyword keyword,
                                 const json::value& value) {
  using enum SchemaKeyword;
  const auto demand = [](const json::value& one, bool negated) {
    return Demand{.schema = {.schema = &one, .negated = negated}};
  };
  if (keyword == Not) {
    options.push_back({demand(value, false)});
  } else if (keyword == If) {
    if (const json::value* then = schema.if_contains("then")) {
      options.push_back({demand(value, false), demand(*then, true)});
    }
    if (const json::value* otherwise = schema.if_contains("else")) {
      options.push_back({demand(value, true), demand(*otherwise, true)});
    }
  } else if (value.is_array()) {
    const json::array& branches = value.get_array();
    if (keyword == AllOf) {
      for (const json::value& one : branches) options.push_back({demand(one, true)});
      return;
    }
    Option none;
    for (const json::value& one : branches) none.push_back(demand(one, true));
    options.push_back(std::move(none));
    if (keyword == AnyOf) return;
    for (std::size_t i = 0; i < branches.size(); ++i) {
      for (std::size_t j = 0; j < i && budget_.take(5); ++j) {
        options.push_back({demand(branches[i], false), demand(branches[j], false)});
      }
    }
  }
}

void SchemaReader::negate_array(std::vector<Option>& options, const json::object& schema, Keyword keyword,
                                std::string_view name, const json::value& value) {
  using enum SchemaKeyword;
  const bool trivial = value.is_bool() && value.get_bool() && keyword != UniqueItems && keyword != Contains;
  if (trivial || (keyword == UniqueItems && !(value.is_bool() && value.get_bool()))) return;
  if (keyword == Contains && !schema.contains("minContains") && !schema.contains("maxContains")) {
    options.push_back({only(kArray), {.kind = Kind::Items, .schema = {.schema = &value, .negated = true}}});
    return;
  }
  if (keyword == Items && !value.is_array() && !has_prefix_items(schema)) {
    options.push_back(
        {only(kArray), {.kind = Kind::Containing, .schema = {.schema = &value, .negated = true}, .number = 1}});
    return;
  }
  if (keyword == AdditionalItems && !(schema.contains("items") && schema.at("items").is_array())) return;
  options.push_back(
      {only(kArray),
       {.kind = Kind::NotEnforced, .types = kArray, .keyword = {.schema = &schema, .keyword = name, .negated = true}}});
}

void SchemaReader::negate_object(std::vector<Option>& options, const json::object& schema, Keyword keyword,
                                 std::string_view name, const json::value& value) {
  using enum SchemaKeyword;
  static const json::value never(false);
  const auto absent = [](std::string_view key) {
    return Demand{.kind = Kind::Property, .schema = {.schema = &never}, .name = std::string(key)};
  };
  const auto present = [](std::string_view key) { return Demand{.kind = Kind::Required, .name = std::string(key)}; };
  const auto not_enforced = [&] {
    options.push_back({only(kObject),
                       {.kind = Kind::NotEnforced,
                        .types = kObject,
                        .keyword = {.schema = &schema, .keyword = name, .negated = true}}});
  };
  switch (keyword) {
    case Required:
      if (!value.is_array()) return not_enforced();
      for (const json::value& one : value.get_array()) {
        if (one.is_string()) options.push_back({only(kObject), absent(one.get_string())});
      }
      break;
    case Properties:
      if (!value.is_object()) return not_enforced();
      for (const auto& [key, property] : value.get_object()) {
        if ((property.is_bool() && property.get_bool()) || (property.is_object() && property.get_object().empty())) {
          continue;
        }
        options.push_back(
            {only(kObject),
             present(key),
             {.kind = Kind::Property, .schema = {.schema = &property, .negated = true}, .name = std::string(key)}});
      }
      break;
    case Dependencies:
    case DependentRequired:
    case DependentSchemas:
      if (!value.is_object()) return not_enforced();
      for (const auto& [key, dependency] : value.get_object()) {
        if (const json::array* names = dependency.if_array()) {
          for (const json::value& one : *names) {
            if (one.is_string()) options.push_back({only(kObject), present(key), absent(one.get_string())});
          }
        } else if (dependency.is_string()) {
          options.push_back({only(kObject), present(key), absent(dependency.get_string())});
        } else {
          options.push_back({only(kObject), present(key), {.schema = {.schema = &dependency, .negated = true}}});
        }
      }
      break;
    case UnevaluatedProperties:
      if (!(value.is_bool() && value.get_bool())) not_enforced();
      break;
    case AdditionalProperties:
    case PropertyNames:
      if ((value.is_bool() && value.get_bool()) || (value.is_object() && value.get_object().empty())) break;
      options.push_back(
          {only(kObject), {.kind = Kind::Witness, .witness = {.schema = &schema, .keyword = name, .broken = &value}}});
      break;
    case PatternProperties:
      if (!value.is_object()) return not_enforced();
      for (const auto& [pattern, one] : value.get_object()) {
        if ((one.is_bool() && one.get_bool()) || (one.is_object() && one.get_object().empty())) continue;
        options.push_back({only(kObject),
                           {.kind = Kind::Witness,
                            .witness = {.schema = &schema, .keyword = name, .pattern = pattern, .broken = &one}}});
      }
      break;
    default: break;
  }
}

}  // namespace quire::grammar
