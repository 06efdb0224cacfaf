#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>
#include <utility>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "quire/grammar/json_schema_formats.h"
#include "quire/grammar/json_schema_reader.h"

namespace quire::grammar {

namespace json = boost::json;

namespace {

// What a condition adds stands behind all other properties.
const Order kBehind = "\xFF";

}  // namespace

SchemaKeyword schema_keyword(std::string_view name, int draft) {
  using enum SchemaKeyword;
  static const std::unordered_map<std::string_view, SchemaKeyword> names = {
      {"$dynamicRef", DynamicRef},
      {"$recursiveRef", DynamicRef},
      {"$ref", Ref},
      {"additionalItems", AdditionalItems},
      {"additionalProperties", AdditionalProperties},
      {"allOf", AllOf},
      {"anyOf", AnyOf},
      {"const", Const},
      {"contains", Contains},
      {"contentEncoding", Content},
      {"contentMediaType", Content},
      {"dependencies", Dependencies},
      {"dependentRequired", DependentRequired},
      {"dependentSchemas", DependentSchemas},
      {"else", Else},
      {"enum", Enum},
      {"exclusiveMaximum", ExclusiveMaximum},
      {"exclusiveMinimum", ExclusiveMinimum},
      {"format", Format},
      {"if", If},
      {"items", Items},
      {"maxContains", MaxContains},
      {"maxItems", MaxItems},
      {"maxLength", MaxLength},
      {"maxProperties", MaxProperties},
      {"maximum", Maximum},
      {"minContains", MinContains},
      {"minItems", MinItems},
      {"minLength", MinLength},
      {"minProperties", MinProperties},
      {"minimum", Minimum},
      {"multipleOf", MultipleOf},
      {"not", Not},
      {"oneOf", OneOf},
      {"pattern", Pattern},
      {"patternProperties", PatternProperties},
      {"prefixItems", PrefixItems},
      {"properties", Properties},
      {"propertyNames", PropertyNames},
      {"required", Required},
      {"then", Then},
      {"type", Type},
      {"unevaluatedItems", UnevaluatedItems},
      {"unevaluatedProperties", UnevaluatedProperties},
      {"uniqueItems", UniqueItems},
  };
  const auto found = names.find(name);
  if (found == names.end()) return Annotation;
  if (draft == 0) return found->second;
  switch (found->second) {
    case Const:
    case Contains:
    case PropertyNames: return draft >= 6 ? found->second : Annotation;
    case If: return draft >= 7 ? If : Annotation;
    case DependentRequired:
    case DependentSchemas: return draft >= 8 ? found->second : Annotation;
    case PrefixItems: return draft >= 9 ? PrefixItems : Annotation;
    default: return found->second;
  }
}

void SchemaReader::absorb_keywords(State& state, Work& work, const json::object& schema, const Chain* chain) {
  if (document_.reference_stands_alone()) {
    const json::value* reference = schema.if_contains("$ref");
    if (reference != nullptr && reference->is_string()) {
      absorb_reference(state, work, schema, "$ref", *reference, chain);
      return;
    }
  }
  for (const auto& [name, value] : schema) {
    if (work.error || !budget_.take(2)) return;
    const Keyword keyword = schema_keyword(name, document_.draft());
    if (keyword != Keyword::Annotation) absorb_keyword(state, work, schema, keyword, name, value, chain);
  }
}

void SchemaReader::absorb_keyword(State& state, Work& work, const json::object& schema, Keyword keyword,
                                  std::string_view name, const json::value& value, const Chain* chain) {
  using enum SchemaKeyword;
  switch (keyword) {
    case Ref:
    case DynamicRef: absorb_reference(state, work, schema, name, value, chain); break;
    case AllOf:
      if (!value.is_array()) return fail_at(work, schema, name, "must be a list of schemas");
      for (const json::value& one : value.get_array()) absorb(state, work, {.schema = &one}, chain);
      break;
    case AnyOf: {
      if (!value.is_array()) return fail_at(work, schema, name, "must be a list of schemas");
      std::vector<Option> options;
      for (const json::value& one : value.get_array()) options.push_back({{.schema = {.schema = &one}}});
      add_choice(state, std::move(options), chain, state.next_order());
      break;
    }
    case OneOf:
      if (!value.is_array()) return fail_at(work, schema, name, "must be a list of schemas");
      state.choices.push_back(
          {.options = {}, .one_of = &value.get_array(), .chain = chain, .order = state.next_order()});
      break;
    case Not: absorb(state, work, {.schema = &value, .negated = true}, chain); break;
    case If: {
      const json::value* then = schema.if_contains("then");
      const json::value* otherwise = schema.if_contains("else");
      if (then == nullptr && otherwise == nullptr) break;
      std::vector<Option> options = {{{.schema = {.schema = &value}}}};
      if (then != nullptr) options.back().push_back({.schema = {.schema = then}});
      options.push_back({{.schema = {.schema = &value, .negated = true}}});
      if (otherwise != nullptr) options.back().push_back({.schema = {.schema = otherwise}});
      add_choice(state, std::move(options), chain, kBehind + state.next_order());
      break;
    }
    case Type: {
      Types types = 0;
      const auto one = [&](const json::value& type) {
        const Types named = type.is_string() ? type_named(type.get_string()) : Types{0};
        if (named == 0) fail_at(work, schema, name, fmt::format("there is no type {}", json::serialize(type)));
        types = static_cast<Types>(types | named);
      };
      if (value.is_array()) {
        for (const json::value& type : value.get_array()) one(type);
      } else {
        one(value);
      }
      narrow_to(state.facts, types);
      break;
    }
    case Const: {
      if (!is_finite(value)) return fail_at(work, schema, name, "a number is too large");
      const json::value* only = &value;
      absorb_values(state, &only, 1);
      break;
    }
    case Enum: {
      if (!value.is_array()) return fail_at(work, schema, name, "must be a list of values");
      if (!is_finite(value)) return fail_at(work, schema, name, "a number is too large");
      std::vector<const json::value*> values;
      for (const json::value& one : value.get_array()) values.push_back(&one);
      absorb_values(state, values.data(), values.size());
      break;
    }
    case MinLength:
    case MaxLength:
    case MinItems:
    case MaxItems:
    case MinProperties:
    case MaxProperties: absorb_counts(state, work, schema, keyword, name, value); break;
    case Minimum:
    case Maximum:
    case ExclusiveMinimum:
    case ExclusiveMaximum:
    case MultipleOf: absorb_number(state, work, schema, keyword, name, value); break;
    case Format:
      if (value.is_string() && format_kind(value.get_string()) != FormatKind::Annotation) {
        state.facts.texts.push_back({.schema = &schema, .keyword = "format"});
      }
      break;
    case Content:  // an assertion in draft 7 only, and one that is not enforced
      if (document_.draft() == 7) state.facts.texts.push_back({.schema = &schema, .keyword = name});
      break;
    case Pattern:
      if (!value.is_string()) return fail_at(work, schema, name, "must be a string");
      state.facts.texts.push_back({.schema = &schema, .keyword = "pattern"});
      break;
    case Items:
    case PrefixItems:
    case AdditionalItems:
    case UnevaluatedItems:
    case UniqueItems:
    case Contains: absorb_array(state, work, schema, keyword, name, value); break;
    case MinContains:
    case MaxContains:
    case Then:
    case Else:
    case Annotation: break;  // read with contains and if
    default: absorb_object(state, work, schema, keyword, name, value, chain);
  }
}

bool SchemaReader::is_finite(const json::value& value) {
  if (!budget_.take(1)) return true;
  const auto finite = [&](const json::value& one) { return is_finite(one); };
  if (const json::array* array = value.if_array()) return std::all_of(array->begin(), array->end(), finite);
  if (const json::object* object = value.if_object()) {
    return std::all_of(object->begin(), object->end(), [&](const auto& member) { return is_finite(member.value()); });
  }
  return !value.is_double() || std::isfinite(value.get_double());
}

void SchemaReader::absorb_values(State& state, const json::value* const* first, std::size_t count) {
  auto& allowed = state.facts.allowed;
  if (!budget_.take(count)) return;
  if (!allowed) {
    allowed.emplace();
    for (std::size_t i = 0; i < count; ++i) {
      // A value that is listed twice is written once.
      if (count < 100 && std::any_of(allowed->begin(), allowed->end(), [&](const json::value* other) {
            return equal_values(*other, *first[i], budget_);
          })) {
        continue;
      }
      allowed->push_back(first[i]);
    }
    return;
  }
  std::erase_if(*allowed, [&](const json::value* value) {
    return std::none_of(first, first + count, [&](const json::value* other) {
      return budget_.exhausted() || equal_values(*value, *other, budget_);
    });
  });
  if (allowed->empty()) state.facts.types = 0;
}

void SchemaReader::absorb_counts(State& state, Work& work, const json::object& schema, Keyword keyword,
                                 std::string_view name, const json::value& value) {
  using enum SchemaKeyword;
  const auto number = decimal(value);
  if (!number || !number->is_integer() || number->negative) {
    return fail_at(work, schema, name, "must be a whole number, at least 0");
  }
  const std::uint64_t count = number->whole.size() > 18 ? UINT64_MAX - 1 : std::stoull(number->whole);
  Facts& facts = state.facts;
  if (keyword == MinProperties || keyword == MaxProperties) facts.properties_counted = &schema;
  switch (keyword) {
    case MinLength: facts.least_length = std::max(facts.least_length, count); break;
    case MaxLength: facts.most_length = std::min(facts.most_length, count); break;
    case MinItems: facts.least_items = std::max(facts.least_items, count); break;
    case MaxItems: facts.most_items = std::min(facts.most_items, count); break;
    case MinProperties: facts.least_properties = std::max(facts.least_properties, count); break;
    default: facts.most_properties = std::min(facts.most_properties, count);
  }
}

void SchemaReader::absorb_number(State& state, Work& work, const json::object& schema, Keyword keyword,
                                 std::string_view name, const json::value& value) {
  using enum SchemaKeyword;
  // Draft 4: a boolean beside minimum and maximum.
  if (value.is_bool() && (keyword == ExclusiveMinimum || keyword == ExclusiveMaximum)) return;
  const auto number = decimal(value);
  if (!number) return fail_at(work, schema, name, "must be a number");
  const auto exclusive = [&](std::string_view other) {
    const json::value* flag = schema.if_contains(other);
    return flag != nullptr && flag->is_bool() && flag->get_bool();
  };
  NumberRange& range = state.facts.range;
  switch (keyword) {
    case Minimum: range.at_least(*number, exclusive("exclusiveMinimum")); break;
    case Maximum: range.at_most(*number, exclusive("exclusiveMaximum")); break;
    case ExclusiveMinimum: range.at_least(*number, true); break;
    case ExclusiveMaximum: range.at_most(*number, true); break;
    default:
      if (number->negative || number->is_zero()) return fail_at(work, schema, name, "must be more than 0");
      state.facts.multiples.push_back({.schema = &schema, .keyword = "multipleOf"});
  }
}

void SchemaReader::absorb_object(State& state, Work& work, const json::object& schema, Keyword keyword,
                                 std::string_view name, const json::value& value, const Chain* chain) {
  using enum SchemaKeyword;
  Facts& facts = state.facts;
  switch (keyword) {
    case Properties:
    case PatternProperties:
    case AdditionalProperties:
    case UnevaluatedProperties:
      if (keyword == Properties || keyword == PatternProperties) {
        if (!value.is_object()) return fail_at(work, schema, name, "must be an object of schemas");
      }
      if (keyword == UnevaluatedProperties && additional(schema) != &value &&
          !schema.contains("additionalProperties") && !(value.is_bool() && value.get_bool())) {
        facts.not_enforced_object.push_back({.schema = &schema, .keyword = "unevaluatedProperties"});
        break;
      }
      // One part for all of them, at the place of `properties`.
      if (keyword == Properties || (!schema.contains("properties") &&
                                    std::none_of(facts.object_parts.begin(), facts.object_parts.end(),
                                                 [&](const ObjectPart& part) { return part.schema == &schema; }))) {
        const auto object = [&](std::string_view which) {
          const json::value* const found = schema.if_contains(which);
          return found == nullptr ? nullptr : found->if_object();
        };
        facts.object_parts.push_back({.schema = &schema,
                                      .properties = object("properties"),
                                      .patterns = object("patternProperties"),
                                      .others = additional(schema),
                                      .name = {},
                                      .order = state.next_order()});
      }
      break;
    case Required:
      if (!value.is_array()) return fail_at(work, schema, name, "must be a list of names");
      for (const json::value& one : value.get_array()) {
        if (!one.is_string()) return fail_at(work, schema, name, "must be a list of names");
        // It is compared with those that are known.
        if (!budget_.take(1 + facts.required.size() / 4)) return;
        apply(facts, {.kind = Demand::Kind::Required, .name = std::string(one.get_string())});
      }
      break;
    case PropertyNames: facts.property_names.push_back({.schema = &value}); break;
    case Dependencies:
    case DependentRequired:
    case DependentSchemas:
      if (!value.is_object()) return fail_at(work, schema, name, "must be an object");
      for (const auto& [key, dependency] : value.get_object()) {
        static const json::value never(false);
        std::vector<Option> options;
        options.push_back({{.kind = Demand::Kind::Property, .schema = {.schema = &never}, .name = std::string(key)}});
        // What it depends on is written first.
        Option present = {{.kind = Demand::Kind::TypeIn, .types = kObject}};
        if (const json::array* names = dependency.if_array()) {
          for (const json::value& one : *names) {
            if (!one.is_string()) return fail_at(work, schema, name, "must list names");
            present.push_back({.kind = Demand::Kind::Required, .name = std::string(one.get_string())});
          }
        } else if (dependency.is_string()) {
          present.push_back({.kind = Demand::Kind::Required, .name = std::string(dependency.get_string())});
        } else {
          present.push_back({.schema = {.schema = &dependency}});
        }
        present.push_back({.kind = Demand::Kind::Required, .name = std::string(key)});
        options.push_back(std::move(present));
        add_choice(state, std::move(options), chain, kBehind + state.next_order());
      }
      break;
    default: break;
  }
}

void SchemaReader::absorb_array(State& state, Work& work, const json::object& schema, Keyword keyword,
                                std::string_view name, const json::value& value) {
  using enum SchemaKeyword;
  Facts& facts = state.facts;
  switch (keyword) {
    case Items:
    case PrefixItems:
    case AdditionalItems:
      if (keyword == PrefixItems && !value.is_array()) return fail_at(work, schema, name, "must be a list of schemas");
      if (std::none_of(facts.array_parts.begin(), facts.array_parts.end(),
                       [&](const ArrayPart& part) { return part.schema == &schema; })) {
        facts.array_parts.push_back({.schema = &schema});
      }
      break;
    case Contains: {
      std::uint64_t least = 1;
      const json::value* given = schema.if_contains("minContains");
      if (given != nullptr && (document_.draft() == 0 || document_.draft() >= 8)) {
        const auto number = decimal(*given);
        if (!number || !number->is_integer() || number->negative) {
          return fail_at(work, schema, "minContains", "must be a whole number, at least 0");
        }
        if (number->whole.size() > 9) return fail_at(work, schema, "minContains", "cannot be enforced");
        least = std::stoull(number->whole);
      }
      if (least > 0) facts.contains.push_back({.item = {.schema = &value}, .least = least});
      if (schema.contains("maxContains") && (document_.draft() == 0 || document_.draft() >= 8)) {
        facts.not_enforced_array.push_back({.schema = &schema, .keyword = "maxContains"});
      }
      break;
    }
    case UnevaluatedItems:
      if (!(value.is_bool() && value.get_bool())) {
        facts.not_enforced_array.push_back({.schema = &schema, .keyword = "unevaluatedItems"});
      }
      break;
    default:  // uniqueItems
      if (value.is_bool() && value.get_bool()) {
        facts.not_enforced_array.push_back({.schema = &schema, .keyword = "uniqueItems"});
      }
  }
}

void SchemaReader::absorb_reference(State& state, Work& work, const json::object& schema, std::string_view name,
                                    const json::value& value, const Chain* chain) {
  if (!value.is_string()) return fail_at(work, schema, name, "must be a string");
  if (name != "$ref" && document_.has_dynamic_anchors()) return fail_at(work, schema, name, "cannot be enforced");
  const auto target = document_.resolve(schema, value.get_string());
  if (!target) return fail_at(work, schema, name, target.error().message);
  absorb(state, work, {.schema = *target}, chain);
}

}  // namespace quire::grammar
