#include "quire/grammar/json_schema_reader.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

namespace quire::grammar {

namespace json = boost::json;

namespace {

constexpr int kLongestChain = 200;  // $ref, allOf, anyOf inside each other
constexpr int kDeepestProof = 12;   // properties inside each other that a proof of emptiness looks into
constexpr std::size_t kMostFacts = 3'000;

}  // namespace

std::size_t SchemaReader::Hash::operator()(const Conjuncts& conjuncts) const {
  std::size_t hash = conjuncts.size();
  for (const Conjunct& conjunct : conjuncts) {
    hash = hash * 0x9E3779B97F4A7C15U + std::hash<const void*>()(conjunct.schema) * 2 + (conjunct.negated ? 1 : 0);
  }
  return hash;
}

Order SchemaReader::State::next_order() {
  Order result = order;
  ++position;
  for (const int shift : {16, 8, 0}) result += static_cast<char>((position >> shift) & 0xFF);
  return result;
}

SchemaReader::SchemaReader(const SchemaDocument& document, SchemaTexts& texts, Budget& budget)
    : document_(document), texts_(texts), budget_(budget) {}

void SchemaReader::fail_at(Work& work, const json::object& schema, std::string_view keyword, std::string_view why) {
  if (!work.error) work.error = texts_.not_enforced(schema, keyword, why);
}

const SchemaReader::Chain* SchemaReader::extend(const Chain* chain, const json::value& schema) {
  return &chains_.emplace_back(
      Chain{.schema = &schema, .parent = chain, .depth = chain == nullptr ? 1 : chain->depth + 1});
}

void SchemaReader::add(Conjuncts& conjuncts, const Conjunct& conjunct) {
  if (!conjunct.negated) {
    if (conjunct.schema->is_bool() && conjunct.schema->get_bool()) return;
    if (conjunct.schema->is_object() && conjunct.schema->get_object().empty()) return;
  }
  if (std::find(conjuncts.begin(), conjuncts.end(), conjunct) == conjuncts.end()) conjuncts.push_back(conjunct);
}

const SchemaReader::Expansion& SchemaReader::expand(const Conjuncts& conjuncts) {
  budget_.take(2 + conjuncts.size());
  const auto [entry, fresh] = expansions_.try_emplace(conjuncts);
  Expansion& expansion = entry->second;
  if (!fresh) return expansion;
  budget_.take(60, sizeof(Expansion) + sizeof(Facts));
  Work work{.out = expansion.facts};
  State state;
  for (const Conjunct& conjunct : conjuncts) absorb(state, work, conjunct, nullptr);
  choose(std::move(state), work);
  expansion.error = std::move(work.error);
  if (expansion.error) expansion.facts.clear();
  expansion.done = true;
  return expansion;
}

void SchemaReader::absorb(State& state, Work& work, const Conjunct& conjunct, const Chain* chain) {
  if (work.error || state.facts.types == 0 || !budget_.take(10)) return;
  const json::value& value = *conjunct.schema;
  if (value.is_bool()) {
    if (value.get_bool() == conjunct.negated) state.facts.types = 0;
    return;
  }
  if (!value.is_object()) {
    work.error = Error{
        fmt::format("{} stands where a schema must be an object or a boolean", json::serialize(value).substr(0, 60))};
    return;
  }
  const json::object& schema = value.get_object();
  for (const Chain* link = chain; link != nullptr; link = link->parent) {
    if (link->schema == &value) return fail_at(work, schema, {}, "the schema refers to itself");
  }
  if (chain != nullptr && chain->depth > kLongestChain) {
    return fail_at(work, schema, {}, "references and choices are nested too deep");
  }
  budget_.take(state.absorbed.size() / 4);
  if (std::find(state.absorbed.begin(), state.absorbed.end(), conjunct) != state.absorbed.end()) return;
  state.absorbed.push_back(conjunct);
  const Chain* longer = extend(chain, value);
  if (conjunct.negated) {
    absorb_negated(state, work, schema, longer);
  } else {
    absorb_keywords(state, work, schema, longer);
  }
}

void SchemaReader::take(State& state, Work& work, const Option& option, const Chain* chain, const Order& order) {
  // What the option brings stands where the choice stood.
  const Order outer = std::exchange(state.order, order);
  const std::uint32_t position = std::exchange(state.position, 0);
  for (const Demand& demand : option) {
    if (demand.kind == Demand::Kind::Schema) {
      absorb(state, work, demand.schema, chain);
    } else {
      apply(state.facts, demand);
      if (demand.kind == Demand::Kind::Property) state.facts.object_parts.back().order = state.next_order();
    }
  }
  state.order = outer;
  state.position = position;
}

// Without reading the whole option: whether it could fit at all.
bool SchemaReader::viable(const Facts& facts, const Option& option) {
  Types types = facts.types;
  for (const Demand& demand : option) {
    if (demand.kind == Demand::Kind::TypeIn) types = static_cast<Types>(types & demand.types);
    if (demand.kind == Demand::Kind::Schema && !demand.schema.negated) {
      types = static_cast<Types>(types & quick_types(*demand.schema.schema, 0));
    }
    if (demand.kind == Demand::Kind::Property && types == kObject && demand.schema.schema->is_bool() &&
        !demand.schema.schema->get_bool() && !demand.schema.negated &&
        std::find(facts.required.begin(), facts.required.end(), demand.name) != facts.required.end()) {
      return false;
    }
  }
  return types != 0;
}

// Whether everything that fits the facts fits the option as well. Without this, the complements of oneOf's branches
// multiply: what tells one branch from the next usually tells it from all others.
bool SchemaReader::implied(const Facts& facts, const Option& option) {
  using Kind = Demand::Kind;
  if (facts.types != kObject) return false;
  return std::all_of(option.begin(), option.end(), [&](const Demand& demand) {
    budget_.take(2);
    if (demand.kind == Kind::TypeIn) return (facts.types & ~demand.types) == 0;
    if (demand.kind == Kind::Required) {
      budget_.take(facts.required.size() / 4);
      return std::find(facts.required.begin(), facts.required.end(), demand.name) != facts.required.end();
    }
    if (demand.kind != Kind::Property) return false;
    auto others = property(facts, demand.name);
    if (!others) return false;
    add(*others, {.schema = demand.schema.schema, .negated = !demand.schema.negated});
    return is_empty(*others);
  });
}

void SchemaReader::add_choice(State& state, std::vector<Option> options, const Chain* chain, Order order) {
  state.choices.push_back({.options = std::make_shared<const std::vector<Option>>(std::move(options)),
                           .chain = chain,
                           .order = std::move(order)});
}

void SchemaReader::choose(State state, Work& work) {
  while (!work.error && state.facts.types != 0) {
    if (!budget_.take(10 + state.facts.object_parts.size()) || work.out.size() > kMostFacts) {
      budget_.take(UINT64_MAX / 4);
      return;
    }
    // A choice of one is none. Of the others the first is taken.
    std::optional<std::size_t> chosen;
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < state.choices.size(); ++i) {
      Choice& choice = state.choices[i];
      if (choice.one_of != nullptr) {
        if (chosen) continue;
        choice.options = std::make_shared<const std::vector<Option>>(one_of_options(state.facts, *choice.one_of));
      }
      if (std::any_of(choice.options->begin(), choice.options->end(),
                      [&](const Option& option) { return implied(state.facts, option); })) {
        state.choices.erase(state.choices.begin() + static_cast<std::ptrdiff_t>(i--));
        continue;
      }
      std::vector<std::size_t> left;
      for (std::size_t j = 0; j < choice.options->size(); ++j) {
        budget_.take(1 + (*choice.options)[j].size());
        if (viable(state.facts, (*choice.options)[j])) left.push_back(j);
      }
      if (left.empty()) return;
      if (!chosen || left.size() == 1) {
        chosen = i;
        open = std::move(left);
        if (open.size() == 1) break;
      }
    }
    if (!chosen) break;
    const Choice choice = std::move(state.choices[*chosen]);
    state.choices.erase(state.choices.begin() + static_cast<std::ptrdiff_t>(*chosen));
    if (open.size() == 1) {
      take(state, work, (*choice.options)[open.front()], choice.chain, choice.order);
      continue;
    }
    for (const std::size_t option : open) {
      const Facts& facts = state.facts;
      const std::size_t values = (facts.allowed ? facts.allowed->size() : 0) + facts.excluded.size();
      budget_.take(100 + 20 * (state.absorbed.size() + state.choices.size()) + facts.required.size() + values / 4,
                   1000);
      State branch = state;
      take(branch, work, (*choice.options)[option], choice.chain, choice.order);
      // Most combinations contradict each other; those are not multiplied further.
      if (work.error || branch.facts.types == 0) continue;
      if (branch.facts.types == kObject && !branch.choices.empty() && !may_have_object(branch.facts)) continue;
      choose(std::move(branch), work);
    }
    return;
  }
  std::stable_sort(state.facts.object_parts.begin(), state.facts.object_parts.end(),
                   [](const ObjectPart& a, const ObjectPart& b) { return a.order < b.order; });
  if (work.error || !narrow(state.facts, work)) return;
  budget_.take(20, 500);
  work.out.push_back(std::move(state.facts));
}

std::vector<Option> SchemaReader::one_of_options(const Facts& facts, const json::array& branches) {
  std::vector<const json::value*> possible;
  for (const json::value& branch : branches) {
    if ((quick_types(branch, 0) & facts.types) != 0) possible.push_back(&branch);
  }
  std::vector<Option> options;
  options.reserve(possible.size());
  for (const json::value* branch : possible) options.push_back({{.schema = {.schema = branch}}});
  if (possible.size() < 2) return options;
  const json::value* types = types_schema(facts.types);
  for (std::size_t i = 0; i < possible.size(); ++i) {
    for (std::size_t j = 0; j < i && budget_.take(5); ++j) {
      const Types common = static_cast<Types>(quick_types(*possible[i], 0) & quick_types(*possible[j], 0));
      if ((common & facts.types) == 0) continue;
      if (is_empty({{.schema = types}, {.schema = possible[j]}, {.schema = possible[i]}})) continue;
      options[i].push_back({.schema = {.schema = possible[j], .negated = true}});
      options[j].push_back({.schema = {.schema = possible[i], .negated = true}});
    }
  }
  return options;
}

const json::value* SchemaReader::types_schema(Types types) {
  const auto [entry, fresh] = types_schemas_.try_emplace(types);
  if (fresh) {
    if (types == kAllTypes) {
      entry->second = true;
    } else {
      json::array names;
      for (const char* name : {"null", "boolean", "string", "array", "object"}) {
        if ((types & type_named(name)) != 0) names.push_back(json::value(name));
      }
      // There is no name for fractions alone; a proof for all numbers holds for them too.
      if ((types & kNumber) != 0) names.push_back(json::value(types & kFraction ? "number" : "integer"));
      entry->second = json::object{{"type", names}};
    }
  }
  return &entry->second;
}

Types SchemaReader::quick_types(const json::value& value, int depth) {
  if (value.is_bool()) return value.get_bool() ? kAllTypes : Types{0};
  if (!value.is_object() || depth > 8 || !budget_.take(3)) return kAllTypes;
  const auto known = quick_types_.find(&value);
  if (known != quick_types_.end()) return known->second;
  const json::object& schema = value.get_object();
  Types types = kAllTypes;
  const auto keep = [&](Types other) { types = static_cast<Types>(types & other); };
  if (const json::value* reference = schema.if_contains("$ref"); reference != nullptr && reference->is_string()) {
    if (const auto target = document_.resolve(schema, reference->get_string())) keep(quick_types(**target, depth + 1));
    if (document_.reference_stands_alone()) return types;
  }
  if (const json::value* type = schema.if_contains("type")) {
    Types named = 0;
    if (type->is_string()) named = type_named(type->get_string());
    if (const json::array* list = type->if_array()) {
      for (const json::value& one : *list) {
        named = static_cast<Types>(named | (one.is_string() ? type_named(one.get_string()) : kAllTypes));
      }
    }
    if (named != 0) keep(named);
  }
  if (const json::value* only = schema.if_contains("const"); only != nullptr && document_.draft() != 4) {
    keep(type_of(*only));
  }
  if (const json::value* list = schema.if_contains("enum"); list != nullptr && list->is_array()) {
    Types listed = 0;
    for (const json::value& one : list->get_array()) listed = static_cast<Types>(listed | type_of(one));
    budget_.take(list->get_array().size());
    keep(listed);
  }
  if (const json::value* list = schema.if_contains("allOf"); list != nullptr && list->is_array()) {
    for (const json::value& one : list->get_array()) keep(quick_types(one, depth + 1));
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const json::value* list = schema.if_contains(keyword);
    if (list == nullptr || !list->is_array()) continue;
    Types any = 0;
    for (const json::value& one : list->get_array()) any = static_cast<Types>(any | quick_types(one, depth + 1));
    keep(any);
  }
  if (depth == 0) quick_types_.emplace(&value, types);
  return types;
}

bool SchemaReader::is_empty(const Conjuncts& conjuncts) {
  if (nesting_ >= kDeepestProof || budget_.exhausted()) return false;
  if (conjuncts.size() == 1 && !conjuncts[0].negated && quick_types(*conjuncts[0].schema, 0) == 0) return true;
  ++nesting_;
  const Expansion& expansion = expand(conjuncts);
  --nesting_;
  return expansion.done && !expansion.error && expansion.facts.empty() && !budget_.exhausted();
}

}  // namespace quire::grammar
