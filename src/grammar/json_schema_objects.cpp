#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "quire/grammar/json_schema_writer.h"

namespace quire::grammar {

namespace json = boost::json;

namespace {

// Counting properties multiplies the rules: members times counts.
constexpr std::uint64_t kMostCountedRules = 20'000;
// So many places may an object have because its lists of members interleave, so many all alternatives of a value
// together, and so many the whole schema.
constexpr std::uint64_t kMostPlaces = 256, kMostPlacesOfValue = 1024, kMostPlacesOfSchema = 1024;

}  // namespace

void SchemaWriter::write_object(SymbolId rule, const Facts& facts, std::size_t alternatives) {
  for (const LazyKeyword& keyword : facts.not_enforced_object) {
    return refuse(keyword, keyword.negated ? "cannot be negated" : "cannot be enforced");
  }
  Object object;
  object.facts = &facts;
  std::vector<std::string> names;
  if (!add_members(object, facts, names) || error_) return;
  const std::vector<KeyClass> classes = key_classes(facts, names);
  object.others = one_of(classes);
  const bool missing = !facts.witnesses.empty();
  if (missing && !add_witness(object, facts, classes)) return;
  if (error_) return;

  const auto required = static_cast<std::uint64_t>(
      std::count_if(object.members.begin(), object.members.end(), [](const Member& one) { return one.required; }));
  if (facts.least_properties > required) object.least = facts.least_properties;
  if (object.others || facts.most_properties < object.members.size()) object.most = facts.most_properties;
  if (object.least > object.members.size() && !object.others) return;
  const std::uint64_t counts = object.most != UINT64_MAX ? object.most : object.least;
  if ((std::min<std::uint64_t>(counts, object.members.size()) + 1) * (object.members.size() + 1) > kMostCountedRules) {
    if (facts.properties_counted == nullptr) return refuse(Error{"there are too many properties"});
    return refuse(texts_.not_enforced(*facts.properties_counted, {}, "there are too many properties to count"));
  }
  object.counted = missing || object.least > 0 || object.most != UINT64_MAX;
  const std::uint64_t places =
      std::min({kMostPlaces, kMostPlacesOfValue / alternatives, kMostPlacesOfSchema - places_});
  add_order(object, facts, object.counted ? 1 : places);
  if (required == 0 && object.least == 0 && !missing) {
    grammar_.add(rule, {grammar_.terminal(regexes_.concat({texts_.open('{'), regexes_.text("}")}))});
  }
  const SymbolId filled = grammar_.rule();
  grammar_.add(rule, {filled});
  add_rest(object, filled, grammar_.terminal(texts_.open('{')), 0, 0, missing);
  while (!object.open.empty()) {
    const auto [place, count, still_missing] = object.open.back();
    object.open.pop_back();
    write_behind(object, place, count, still_missing);
  }
}

// The properties that have a name, in the order of reading, then those that are only required.
// False: a required property cannot be written.
bool SchemaWriter::add_members(Object& object, const Facts& facts, std::vector<std::string>& names) {
  std::unordered_set<std::string_view> seen;
  const auto add = [&](std::string_view name) {
    if (!seen.contains(name)) {
      names.emplace_back(name);
      seen.insert(name);
    }
  };
  names.reserve(facts.object_parts.size() + facts.required.size());
  for (const ObjectPart& part : facts.object_parts) {
    if (part.schema == nullptr) {
      add(part.name);
    } else if (part.properties != nullptr) {
      for (const auto& [name, schema] : *part.properties) add(name);
    }
  }
  for (const std::string& name : facts.required) add(name);
  const std::unordered_set<std::string_view> required(facts.required.begin(), facts.required.end());

  for (const std::string& name : names) {
    if (!grammar_.budget().take(10)) return false;
    const auto conjuncts = reader_.property(facts, name);
    if (!conjuncts) {
      refuse(conjuncts.error());
      return false;
    }
    Member member{.name = name, .required = required.contains(name)};
    if (reader_.is_empty(*conjuncts)) {
      if (member.required) return false;
      continue;
    }
    member.key = grammar_.terminal(texts_.name_and_colon(name));
    member.value = value(*conjuncts);
    object.members.push_back(std::move(member));
  }
  return true;
}

void SchemaWriter::add_order(Object& object, const Facts& facts, std::uint64_t most_places) {
  std::unordered_map<std::string_view, std::uint32_t> numbers;
  std::vector<bool> required;
  for (const Member& member : object.members) {
    numbers.emplace(member.name, static_cast<std::uint32_t>(required.size()));
    required.push_back(member.required);
  }
  std::vector<MemberOrder::List> lists;
  for (const ObjectPart& part : facts.object_parts) {
    if (part.properties == nullptr) continue;
    grammar_.budget().take(part.properties->size());
    MemberOrder::List& list = lists.emplace_back();
    for (const auto& [name, schema] : *part.properties) {
      if (const auto found = numbers.find(name); found != numbers.end()) list.push_back(found->second);
    }
  }
  object.order = MemberOrder(lists, required, most_places);
  if (object.order.lists() > 1) places_ += object.order.places();
}

// Keys that have no name, by what their values must fit: patternProperties divide them.
std::vector<SchemaWriter::KeyClass> SchemaWriter::key_classes(const Facts& facts,
                                                              const std::vector<std::string>& names) {
  std::vector<RegexId> all = {texts_.key_content()};
  if (!names.empty()) {
    std::vector<RegexId> taken;
    taken.reserve(names.size());
    for (const std::string& name : names) taken.push_back(texts_.name_content(name));
    all.push_back(regexes_.complement(regexes_.any_of(taken)));
  }
  if (!facts.property_names.empty()) {
    const auto allowed = reader_.key_language(facts.property_names);
    if (!allowed) {
      refuse(allowed.error());
      return {};
    }
    all.push_back(*allowed);
  }
  std::vector<KeyClass> classes = {{.content = regexes_.all_of(all), .value = {}}};
  if (!facts.property_names.empty() && texts_.regexes().matches_nothing(classes[0].content)) return {};

  for (const ObjectPart& part : facts.object_parts) {
    if (part.schema == nullptr) continue;
    std::vector<KeyClass> divided;
    for (const KeyClass& keys : classes) {
      // Those that no pattern of this part has matched come last.
      std::vector<std::pair<KeyClass, bool>> parts = {{keys, false}};
      if (part.patterns != nullptr) {
        for (const auto& [pattern, schema] : *part.patterns) {
          const auto regex = texts_.pattern(*part.schema, "patternProperties", pattern);
          if (!regex) {
            refuse(regex.error());
            return {};
          }
          std::vector<std::pair<KeyClass, bool>> finer;
          for (auto& [one, matched] : parts) {
            if (!grammar_.budget().take(20)) return {};
            KeyClass inside{.content = regexes_.all_of({one.content, *regex}), .value = one.value};
            SchemaReader::add(inside.value, {.schema = &schema});
            if (!texts_.regexes().matches_nothing(inside.content)) finer.emplace_back(std::move(inside), true);
            one.content = regexes_.minus(one.content, *regex);
            if (!texts_.regexes().matches_nothing(one.content)) finer.emplace_back(std::move(one), matched);
          }
          parts = std::move(finer);
        }
      }
      for (auto& [one, matched] : parts) {
        if (!matched && part.others != nullptr) SchemaReader::add(one.value, {.schema = part.others});
        divided.push_back(std::move(one));
      }
    }
    classes = std::move(divided);
    std::erase_if(classes, [&](const KeyClass& keys) { return reader_.is_empty(keys.value); });
  }
  // Equal values, one class.
  std::vector<KeyClass> result;
  for (KeyClass& keys : classes) {
    const auto same =
        std::find_if(result.begin(), result.end(), [&](const KeyClass& other) { return other.value == keys.value; });
    if (same == result.end()) {
      result.push_back(std::move(keys));
    } else {
      same->content = regexes_.any_of({same->content, keys.content});
    }
  }
  return result;
}

// An additional member whose key is in one of the classes.
std::optional<SymbolId> SchemaWriter::one_of(const std::vector<KeyClass>& classes) {
  std::vector<SymbolId> ways;
  for (const KeyClass& keys : classes) {
    const RegexId key = regexes_.concat({texts_.between(keys.content), texts_.colon()});
    ways.push_back(grammar_.sequence({grammar_.terminal(key), value(keys.value)}));
  }
  if (ways.empty()) return std::nullopt;
  return grammar_.choice(std::move(ways));
}

// Which members, named or additional, can be the witness. False: refused.
bool SchemaWriter::add_witness(Object& object, const Facts& facts, const std::vector<KeyClass>& classes) {
  const Witness& witness = facts.witnesses.front();
  const LazyKeyword place{.schema = witness.schema, .keyword = witness.keyword};
  if (facts.witnesses.size() > 1) {
    refuse(place, "cannot be negated together with others");
    return false;
  }
  const auto keys = reader_.witness_keys(witness);
  if (!keys) {
    refuse(keys.error());
    return false;
  }
  const Conjuncts broken = SchemaReader::witness_value(witness);
  const auto with = [](Conjuncts conjuncts, const Conjuncts& more) {
    for (const Conjunct& one : more) SchemaReader::add(conjuncts, one);
    return conjuncts;
  };
  for (Member& member : object.members) {
    if (!regexes_.matches(*keys, SchemaTexts::spelling(member.name))) continue;
    const auto conjuncts = reader_.property(facts, member.name);
    if (!conjuncts) continue;
    const Conjuncts both = with(*conjuncts, broken);
    if (!reader_.is_empty(both)) member.witness = value(both);
  }
  std::vector<KeyClass> inside;
  for (const KeyClass& one : classes) {
    KeyClass narrow{.content = regexes_.all_of({one.content, *keys}), .value = with(one.value, broken)};
    if (texts_.regexes().matches_nothing(narrow.content) || reader_.is_empty(narrow.value)) continue;
    // The same key may come again, with a value that breaks nothing: readers keep only one of them.
    if (!broken.empty() && !reader_.is_empty(with(one.value, {{.schema = witness.broken}}))) {
      refuse(place, "cannot be negated");
      return false;
    }
    inside.push_back(std::move(narrow));
  }
  object.witness = one_of(inside);
  return true;
}

void SchemaWriter::add_rest(Object& object, SymbolId rule, SymbolId before, MemberOrder::Place place,
                            std::uint64_t count, bool missing) {
  if (count >= object.most || !grammar_.budget().take(2)) return;
  std::vector<SymbolId> ways;
  for (std::size_t list = 0; list < object.order.lists(); ++list) {
    const auto way = named(object, place, count, missing, list);
    if (!way) continue;
    ways.push_back(*way);
    grammar_.add(rule, {before, *way});
  }
  // Additional members may come as soon as no other must.
  const auto end = object.order.complete(place) ? last(object, count, missing) : std::nullopt;
  if (!end) return;
  grammar_.add(rule, {before, *end});
  if (object.counted || ways.empty()) return;
  const SymbolId members = ways.size() == 1 ? ways.front() : grammar_.choice(std::move(ways));
  grammar_.add(rule, {before, object.list_of_others, grammar_.terminal(texts_.comma()), members});
}

std::optional<SymbolId> SchemaWriter::named(Object& object, MemberOrder::Place place, std::uint64_t count, bool missing,
                                            std::size_t list) {
  std::optional<SymbolId> first, before;
  for (std::optional<MemberOrder::Place> here = place; here;) {
    const auto step = object.order.next(*here, list);
    if (!step || grammar_.budget().exhausted()) break;
    const auto [entry, fresh] = object.named.try_emplace({{*here, count, missing}, list}, 0);
    if (fresh) entry->second = grammar_.rule();
    const SymbolId rule = entry->second;
    if (before) grammar_.add(*before, {rule});
    if (!first) first = rule;
    if (!fresh) break;
    grammar_.budget().take(5);
    const Member& member = object.members[step->member];
    grammar_.add(rule, {member.key, member.value, behind(object, step->behind, count + 1, missing)});
    if (missing && member.witness) {
      grammar_.add(rule, {member.key, *member.witness, behind(object, step->behind, count + 1, false)});
    }
    before = rule;
    here = step->without;
  }
  return first;
}

std::optional<SymbolId> SchemaWriter::last(Object& object, std::uint64_t count, bool missing) {
  if (!(missing ? object.witness : object.others)) return std::nullopt;
  const auto [entry, fresh] = object.last.try_emplace({count, missing}, 0);
  if (!fresh) return entry->second;
  const SymbolId rule = entry->second = grammar_.rule();
  // Two additional keys may be equal, and then they are one property.
  if (object.least > count + 1) {
    refuse(texts_.not_enforced(*object.facts->properties_counted, "minProperties",
                               "cannot be enforced where properties have no names"));
  }
  const SymbolId comma = grammar_.terminal(texts_.comma()), close = grammar_.terminal(texts_.close('}'));
  const std::uint64_t most = object.most == UINT64_MAX ? UINT64_MAX : object.most - count;
  const auto bound = most >= kUnbounded ? kUnbounded : static_cast<std::uint32_t>(most);
  if (!missing) {
    const SymbolId others = grammar_.repeat(*object.others, 1, bound, comma);
    if (bound == kUnbounded) object.list_of_others = others;
    grammar_.add(rule, {others, close});
    return rule;
  }
  grammar_.add(rule, {*object.witness, close});
  if (bound == 1) return rule;
  if (bound != kUnbounded) {
    refuse({.schema = object.facts->witnesses.front().schema, .keyword = object.facts->witnesses.front().keyword},
           "cannot be negated together with maxProperties");
    return rule;
  }
  const SymbolId others = grammar_.repeat(*object.others, 1, kUnbounded, comma);
  grammar_.add(rule, {*object.witness, comma, others, close});
  grammar_.add(rule, {others, comma, *object.witness, close});
  grammar_.add(rule, {others, comma, *object.witness, comma, others, close});
  return rule;
}

SymbolId SchemaWriter::behind(Object& object, MemberOrder::Place place, std::uint64_t count, bool missing) {
  // Counts matter only up to the last that makes a difference.
  if (object.most == UINT64_MAX) count = std::min(count, object.least);
  const auto [entry, fresh] = object.behind.try_emplace({place, count, missing}, 0);
  if (fresh) {
    entry->second = grammar_.rule();
    object.open.emplace_back(place, count, missing);
  }
  return entry->second;
}

void SchemaWriter::write_behind(Object& object, MemberOrder::Place place, std::uint64_t count, bool missing) {
  const SymbolId rule = object.behind.at({place, count, missing});
  if (object.order.complete(place) && count >= object.least && !missing) {
    grammar_.add(rule, {grammar_.terminal(texts_.close('}'))});
  }
  add_rest(object, rule, grammar_.terminal(texts_.comma()), place, count, missing);
}

}  // namespace quire::grammar
