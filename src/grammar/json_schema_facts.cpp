#include "quire/grammar/json_schema_facts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace quire::grammar {

namespace json = boost::json;

namespace {

// What comparing values costs, see budget.h: two numbers as decimals, and bytes of text that take as long as a step.
constexpr std::uint64_t kDecimalSteps = 30;
constexpr std::size_t kBytesInAStep = 16;

}  // namespace

void narrow_to(Facts& facts, Types types) { facts.types = static_cast<Types>(facts.types & types); }

bool equal_values(const json::value& a, const json::value& b, Budget& budget) {
  if (!budget.take(1)) return false;
  if (a.is_int64() && b.is_int64()) return a.get_int64() == b.get_int64();
  if (a.is_number() && b.is_number()) {
    budget.take(kDecimalSteps);
    const auto left = decimal(a), right = decimal(b);
    return left && right && *left == *right;
  }
  if (a.kind() != b.kind()) return false;
  if (const json::string* left = a.if_string()) {
    const json::string& right = b.get_string();
    return left->size() == right.size() && budget.take(left->size() / kBytesInAStep) && *left == right;
  }
  if (const json::array* left = a.if_array()) {
    const json::array& right = b.get_array();
    return std::equal(
        left->begin(), left->end(), right.begin(), right.end(),
        [&](const json::value& one, const json::value& other) { return equal_values(one, other, budget); });
  }
  if (const json::object* left = a.if_object()) {
    const json::object& right = b.get_object();
    if (left->size() != right.size()) return false;
    return std::all_of(left->begin(), left->end(), [&](const auto& member) {
      budget.take(2 + member.key().size() / kBytesInAStep);
      const json::value* other = right.if_contains(member.key());
      return other != nullptr && equal_values(member.value(), *other, budget);
    });
  }
  return a == b;
}

Types type_of(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null: return kNull;
    case json::kind::bool_: return kBoolean;
    case json::kind::string: return kString;
    case json::kind::array: return kArray;
    case json::kind::object: return kObject;
    case json::kind::double_: {
      const double number = value.get_double();
      return std::isfinite(number) && std::trunc(number) == number ? kInteger : kFraction;
    }
    default: return kInteger;
  }
}

Types type_named(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, Types>, 7> kNames = {{{"null", kNull},
                                                                         {"boolean", kBoolean},
                                                                         {"integer", kInteger},
                                                                         {"number", kNumber},
                                                                         {"string", kString},
                                                                         {"array", kArray},
                                                                         {"object", kObject}}};
  for (const auto& [known, types] : kNames) {
    if (known == name) return types;
  }
  return 0;
}

void apply(Facts& facts, const Demand& demand) {
  using Kind = Demand::Kind;
  switch (demand.kind) {
    case Kind::Schema: break;  // the reader's
    case Kind::TypeIn: narrow_to(facts, demand.types); break;
    case Kind::Required:
      if (std::find(facts.required.begin(), facts.required.end(), demand.name) == facts.required.end()) {
        facts.required.push_back(demand.name);
      }
      break;
    case Kind::Property:
      facts.object_parts.push_back({.name = demand.name, .property = demand.schema, .order = {}});
      break;
    case Kind::Excluded: facts.excluded.push_back(demand.value); break;
    case Kind::Least: facts.range.at_least(demand.bound, demand.exclusive); break;
    case Kind::Most: facts.range.at_most(demand.bound, demand.exclusive); break;
    case Kind::Text: facts.texts.push_back(demand.keyword); break;
    case Kind::Multiple: facts.multiples.push_back(demand.keyword); break;
    case Kind::LeastLength: facts.least_length = std::max(facts.least_length, demand.number); break;
    case Kind::MostLength: facts.most_length = std::min(facts.most_length, demand.number); break;
    case Kind::LeastItems: facts.least_items = std::max(facts.least_items, demand.number); break;
    case Kind::MostItems: facts.most_items = std::min(facts.most_items, demand.number); break;
    case Kind::LeastProperties:
      facts.least_properties = std::max(facts.least_properties, demand.number);
      facts.properties_counted = demand.keyword.schema;
      break;
    case Kind::MostProperties:
      facts.most_properties = std::min(facts.most_properties, demand.number);
      facts.properties_counted = demand.keyword.schema;
      break;
    case Kind::Containing: facts.contains.push_back({.item = demand.schema, .least = demand.number}); break;
    case Kind::Items: facts.array_parts.push_back({.items = demand.schema}); break;
    case Kind::PropertyNames: facts.property_names.push_back(demand.schema); break;
    case Kind::Witness: facts.witnesses.push_back(demand.witness); break;
    case Kind::NotEnforced:
      (demand.types == kArray ? facts.not_enforced_array : facts.not_enforced_object).push_back(demand.keyword);
      break;
  }
}

}  // namespace quire::grammar
