// What properties and items must fit, and whether anything fits.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "quire/grammar/json_schema_reader.h"

namespace quire::grammar {

namespace json = boost::json;

namespace {

// How many positions of an array a proof looks at.
constexpr std::uint64_t kProvedItems = 8;
constexpr std::uint64_t kProvedLength = 200;

bool contains_any(const json::object& schema, std::initializer_list<std::string_view> names) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) { return schema.contains(name); });
}

const json::value* items_behind_prefix(const json::object& schema) {
  const json::value* items = schema.if_contains("items");
  if (items != nullptr && !items->is_array()) return items;
  return items == nullptr ? nullptr : schema.if_contains("additionalItems");
}

}  // namespace

const json::value* SchemaReader::additional(const json::object& schema) {
  if (const json::value* value = schema.if_contains("additionalProperties")) return value;
  // Nothing else of the schema can evaluate properties: then it means the same.
  if (!contains_any(schema, {"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "if", "not",
                             "dependentSchemas", "dependencies"})) {
    return schema.if_contains("unevaluatedProperties");
  }
  return nullptr;
}

Result<Conjuncts> SchemaReader::property(const Facts& facts, std::string_view name) {
  Conjuncts result;
  for (const ObjectPart& part : facts.object_parts) {
    budget_.take(3);
    if (part.schema == nullptr) {
      if (part.name == name) add(result, part.property);
      continue;
    }
    bool named = false;
    if (part.properties != nullptr) {
      if (const json::value* schema = part.properties->if_contains(name)) {
        add(result, {.schema = schema});
        named = true;
      }
    }
    if (part.patterns != nullptr) {
      for (const auto& [pattern, schema] : *part.patterns) {
        const auto regex = texts_.pattern(*part.schema, "patternProperties", pattern);
        if (!regex) return std::unexpected(regex.error());
        if (!texts_.regexes().matches(*regex, SchemaTexts::spelling(name))) continue;
        add(result, {.schema = &schema});
        named = true;
      }
    }
    if (!named && part.others != nullptr) add(result, {.schema = part.others});
  }
  if (!facts.property_names.empty()) {
    static const json::value never(false);
    const auto fits = admits(facts.property_names, json::value(json::string_view(name)));
    if (!fits) return std::unexpected(fits.error());
    if (!*fits) result = {{.schema = &never}};
  }
  return result;
}

Result<RegexId> SchemaReader::key_language(const Conjuncts& property_names) {
  RegexSet& regexes = texts_.regexes();
  const Expansion& expansion = expand(property_names);
  if (expansion.error) return std::unexpected(*expansion.error);
  if (!expansion.done) return fail("a schema refers to itself through propertyNames");
  std::vector<RegexId> ways;
  for (const Facts& facts : expansion.facts) {
    if ((facts.types & kString) == 0) continue;
    if (facts.allowed) {
      for (const json::value* value : *facts.allowed) {
        if (value->is_string()) ways.push_back(regexes.text(SchemaTexts::spelling(value->get_string())));
      }
      continue;
    }
    const auto content = texts_.string_content(facts);
    if (!content) return content;
    ways.push_back(*content);
  }
  return regexes.any_of(ways);
}

Result<RegexId> SchemaReader::witness_keys(const Witness& witness) {
  if (witness.keyword == "propertyNames") return key_language({{.schema = witness.broken, .negated = true}});
  if (witness.keyword == "patternProperties") {
    return texts_.pattern(*witness.schema, "patternProperties", witness.pattern);
  }
  std::vector<RegexId> others;
  if (const json::value* properties = witness.schema->if_contains("properties");
      properties && properties->is_object()) {
    for (const auto& [name, schema] : properties->get_object()) {
      others.push_back(texts_.name_content(name));
    }
  }
  if (const json::value* patterns = witness.schema->if_contains("patternProperties");
      patterns && patterns->is_object()) {
    for (const auto& [pattern, schema] : patterns->get_object()) {
      const auto regex = texts_.pattern(*witness.schema, "patternProperties", pattern);
      if (!regex) return regex;
      others.push_back(*regex);
    }
  }
  return texts_.regexes().minus(texts_.key_content(), texts_.regexes().any_of(others));
}

Conjuncts SchemaReader::witness_value(const Witness& witness) {
  Conjuncts result;
  if (witness.keyword != "propertyNames") result.push_back({.schema = witness.broken, .negated = true});
  if (witness.broken->is_bool()) result.clear();  // false: everything breaks it
  return result;
}

bool SchemaReader::has_prefix_items(const json::object& schema) const {
  return (document_.draft() == 0 || document_.draft() >= 9) && schema.contains("prefixItems");
}

const json::array* SchemaReader::prefix(const json::object& schema) const {
  const json::value* value = schema.if_contains(has_prefix_items(schema) ? "prefixItems" : "items");
  return value == nullptr ? nullptr : value->if_array();
}

std::size_t SchemaReader::prefix_length(const Facts& facts) const {
  std::size_t length = 0;
  for (const ArrayPart& part : facts.array_parts) {
    const json::array* list = part.schema == nullptr ? nullptr : prefix(*part.schema);
    if (list != nullptr) length = std::max(length, list->size());
  }
  return length;
}

Conjuncts SchemaReader::item(const Facts& facts, std::size_t index) const {
  Conjuncts result;
  for (const ArrayPart& part : facts.array_parts) {
    budget_.take(3);
    if (part.schema == nullptr) {
      add(result, part.items);
      continue;
    }
    const json::array* list = prefix(*part.schema);
    if (list != nullptr && index < list->size()) {
      add(result, {.schema = &(*list)[index]});
    } else if (const json::value* behind = items_behind_prefix(*part.schema)) {
      add(result, {.schema = behind});
    }
  }
  return result;
}

bool SchemaReader::may_have_string(const Facts& facts) {
  if (facts.least_length > facts.most_length) return false;
  // A text of many characters takes as many steps to find. Then the grammar's compiler finds out.
  if (facts.texts.empty() || facts.least_length > kProvedLength) return true;
  const auto content = texts_.string_content(facts);
  if (!content || !texts_.regexes().matches_nothing(*content) || budget_.exhausted()) return true;
  if (!SchemaTexts::has_incomplete_format(facts)) return false;
  const auto possible = texts_.string_content(facts, true);
  return !possible || !texts_.regexes().matches_nothing(*possible) || budget_.exhausted();
}

bool SchemaReader::may_have_number(const Facts& facts) {
  if (facts.range.empty((facts.types & kFraction) == 0)) return false;
  if (facts.multiples.empty() && facts.excluded.empty() && (facts.types & kFraction) != 0) return true;
  if (facts.multiples.empty() && facts.excluded.empty() && !(facts.range.least && facts.range.most)) return true;
  const auto number = texts_.number(facts);
  return !number || !texts_.regexes().matches_nothing(*number) || budget_.exhausted();
}

bool SchemaReader::may_have_array(const Facts& facts) {
  std::uint64_t least = facts.least_items;
  for (const Contains& contains : facts.contains) least = std::max(least, contains.least);
  if (least > facts.most_items) return false;
  for (std::uint64_t i = 0; i < std::min(least, kProvedItems); ++i) {
    if (is_empty(item(facts, i))) return false;
  }
  return true;
}

bool SchemaReader::may_have_object(const Facts& facts) {
  if (facts.least_properties > facts.most_properties || facts.required.size() > facts.most_properties) return false;
  for (const std::string& name : facts.required) {
    const auto conjuncts = property(facts, name);
    if (conjuncts && is_empty(*conjuncts)) return false;
  }
  return true;
}

bool SchemaReader::narrow(Facts& facts, Work& work) {
  if (facts.allowed) {
    Types types = 0;
    std::vector<const json::value*> kept;
    for (const json::value* value : *facts.allowed) {
      if (!budget_.take(2)) return false;
      if ((type_of(*value) & facts.types) == 0) continue;
      const auto fits = admits(facts, *value, true);
      if (!fits) {
        work.error = fits.error();
        return false;
      }
      if (!*fits) continue;
      kept.push_back(value);
      types = static_cast<Types>(types | type_of(*value));
    }
    facts.allowed = std::move(kept);
    facts.types = types;
    return types != 0;
  }
  for (const json::value* value : facts.excluded) {
    if (value->is_null()) narrow_to(facts, static_cast<Types>(~kNull));
  }
  const auto excludes = [&](bool which) {
    return std::any_of(facts.excluded.begin(), facts.excluded.end(),
                       [&](const json::value* value) { return value->is_bool() && value->get_bool() == which; });
  };
  if (excludes(true) && excludes(false)) narrow_to(facts, static_cast<Types>(~kBoolean));
  if ((facts.types & kString) != 0 && !may_have_string(facts)) narrow_to(facts, static_cast<Types>(~kString));
  if ((facts.types & kNumber) != 0 && !may_have_number(facts)) narrow_to(facts, static_cast<Types>(~kNumber));
  if ((facts.types & kArray) != 0 && !may_have_array(facts)) narrow_to(facts, static_cast<Types>(~kArray));
  if ((facts.types & kObject) != 0 && !may_have_object(facts)) narrow_to(facts, static_cast<Types>(~kObject));
  return facts.types != 0;
}

Result<bool> SchemaReader::admits(const Conjuncts& conjuncts, const json::value& value) {
  if (conjuncts.empty()) return true;
  const Expansion& expansion = expand(conjuncts);
  if (expansion.error) return std::unexpected(*expansion.error);
  if (!expansion.done) return fail("a schema refers to itself through enum or propertyNames");
  for (const Facts& facts : expansion.facts) {
    const auto fits = admits(facts, value);
    if (!fits || *fits) return fits;
  }
  return false;
}

Result<bool> SchemaReader::admits(const Facts& facts, const json::value& value, bool listed) {
  budget_.take(3);
  if ((type_of(value) & facts.types) == 0) return false;
  const auto same = [&](const json::value* other) {
    return budget_.exhausted() || other == &value || equal_values(*other, value, budget_);
  };
  if (std::any_of(facts.excluded.begin(), facts.excluded.end(), same)) return false;
  if (facts.allowed && !listed) {
    if (std::none_of(facts.allowed->begin(), facts.allowed->end(), same)) return false;
  }
  if (const json::string* text = value.if_string()) {
    if (facts.texts.empty() && facts.least_length == 0 && facts.most_length == UINT64_MAX) return true;
    const auto content = texts_.string_content(facts);
    if (!content) return std::unexpected(content.error());
    if (texts_.regexes().matches(*content, SchemaTexts::spelling(*text))) return true;
    if (!SchemaTexts::has_incomplete_format(facts)) return false;
    // Neither answer would be sure.
    const auto possible = texts_.string_content(facts, true);
    if (!possible) return std::unexpected(possible.error());
    if (!texts_.regexes().matches(*possible, SchemaTexts::spelling(*text))) return false;
    const auto format = std::find_if(facts.texts.begin(), facts.texts.end(),
                                     [](const LazyKeyword& keyword) { return keyword.keyword == "format"; });
    return std::unexpected(
        texts_.not_enforced(*format->schema, "format",
                            fmt::format("not every reader agrees whether \"{}\" is one", std::string_view(*text))));
  }
  if (value.is_number()) {
    const NumberRange& range = facts.range;
    if (!range.bounded() && facts.multiples.empty()) return true;
    budget_.take(30);
    const auto number = decimal(value);
    if (!number) return false;
    const auto inside = [](int order, bool exclusive) { return exclusive ? order > 0 : order >= 0; };
    if (range.least && !inside(compare(*number, range.least->value), range.least->exclusive)) return false;
    if (range.most && !inside(compare(range.most->value, *number), range.most->exclusive)) return false;
    if (facts.multiples.empty()) return true;
    const auto texts = texts_.number(facts);
    if (!texts) return std::unexpected(texts.error());
    return texts_.regexes().matches(*texts, to_text(*number));
  }
  if (const json::array* array = value.if_array()) {
    if (!facts.not_enforced_array.empty()) {
      const LazyKeyword& keyword = facts.not_enforced_array.front();
      return std::unexpected(texts_.not_enforced(*keyword.schema, keyword.keyword, "cannot be enforced"));
    }
    if (array->size() < facts.least_items || array->size() > facts.most_items) return false;
    for (std::size_t i = 0; i < array->size(); ++i) {
      const auto fits = admits(item(facts, i), (*array)[i]);
      if (!fits || !*fits) return fits;
    }
    for (const Contains& contains : facts.contains) {
      std::uint64_t count = 0;
      for (const json::value& one : *array) {
        const auto fits = admits(Conjuncts{contains.item}, one);
        if (!fits) return fits;
        count += *fits ? 1 : 0;
      }
      if (count < contains.least) return false;
    }
    return true;
  }
  const json::object* object = value.if_object();
  if (object == nullptr) return true;
  if (!facts.not_enforced_object.empty()) {
    const LazyKeyword& keyword = facts.not_enforced_object.front();
    return std::unexpected(texts_.not_enforced(*keyword.schema, keyword.keyword, "cannot be enforced"));
  }
  if (object->size() < facts.least_properties || object->size() > facts.most_properties) return false;
  for (const std::string& name : facts.required) {
    if (!object->contains(name)) return false;
  }
  for (const Witness& witness : facts.witnesses) {
    const auto keys = witness_keys(witness);
    if (!keys) return std::unexpected(keys.error());
    bool found = false;
    for (const auto& [name, member] : *object) {
      if (!texts_.regexes().matches(*keys, SchemaTexts::spelling(name))) continue;
      const auto breaks = admits(witness_value(witness), member);
      if (!breaks) return breaks;
      found = found || *breaks;
    }
    if (!found) return false;
  }
  for (const auto& [name, member] : *object) {
    const auto conjuncts = property(facts, name);
    if (!conjuncts) return std::unexpected(conjuncts.error());
    const auto fits = admits(*conjuncts, member);
    if (!fits || !*fits) return fits;
  }
  return true;
}

}  // namespace quire::grammar
