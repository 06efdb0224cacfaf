#include <algorithm>
#include <unordered_set>
#include <utility>

#include "quire/grammar/json_schema_writer.h"

namespace quire::grammar {

namespace json = boost::json;

namespace {

// Counting properties multiplies the rules: members times counts.
constexpr std::uint64_t kMostCountedRules = 20'000;

}  // namespace

void SchemaWriter::write_object(SymbolId rule, const Facts& facts) {
  for (const LazyKeyword& keyword : facts.not_enforced_object) {
    return refuse(keyword, keyword.negated ? "cannot be negated" : "cannot be enforced");
  }
  Object object{.members = {}, .others = {}, .facts = &facts, .rest = {}, .behind = {}};
  std::vector<std::string> names;
  auto named = members(facts, names);
  if (!named || error_) return;
  object.members = std::move(*named);
  std::vector<SymbolId> others;
  for (const KeyClass& keys : key_classes(facts, names)) {
    const RegexId key = regexes_.concat({texts_.between(keys.content), texts_.colon()});
    others.push_back(grammar_.sequence({grammar_.terminal(key), value(keys.value)}));
  }
  if (error_) return;
  if (!others.empty()) object.others = grammar_.choice(std::move(others));

  const auto required = static_cast<std::uint64_t>(
      std::count_if(object.members.begin(), object.members.end(), [](const Member& one) { return one.required; }));
  if (facts.least_properties > required) object.least = facts.least_properties;
  if (object.others || facts.most_properties < object.members.size()) object.most = facts.most_properties;
  if (object.least > object.members.size() && !object.others) return;
  const std::uint64_t counts = object.most != UINT64_MAX ? object.most : object.least;
  if ((std::min<std::uint64_t>(counts, object.members.size()) + 1) * (object.members.size() + 1) > kMostCountedRules) {
    return refuse(Error{"minProperties, maxProperties: too many properties to count"});
  }
  if (required == 0 && object.least == 0) {
    grammar_.add(rule, {grammar_.terminal(regexes_.concat({texts_.open('{'), regexes_.text("}")}))});
  }
  if (const auto all = rest(object, 0, 0)) grammar_.add(rule, {grammar_.terminal(texts_.open('{')), *all});
}

// The properties that have a name, in the order of the schema, then those that are only required.
// Nothing: a required property cannot be written.
std::optional<std::vector<SchemaWriter::Member>> SchemaWriter::members(const Facts& facts,
                                                                       std::vector<std::string>& names) {
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
    } else if (const json::value* properties = part.schema->if_contains("properties")) {
      for (const auto& [name, schema] : properties->get_object()) add(name);
    }
  }
  for (const std::string& name : facts.required) add(name);
  const std::unordered_set<std::string_view> required(facts.required.begin(), facts.required.end());

  std::vector<Member> result;
  for (const std::string& name : names) {
    if (!grammar_.budget().take(10)) return std::nullopt;
    const auto conjuncts = reader_.property(facts, name);
    if (!conjuncts) {
      refuse(conjuncts.error());
      return std::nullopt;
    }
    Member member{.name = name, .required = required.contains(name)};
    if (reader_.is_empty(*conjuncts)) {
      if (member.required) return std::nullopt;
      continue;
    }
    const std::string key = "\"" + SchemaTexts::spelling(name) + "\"";
    member.key = grammar_.terminal(regexes_.concat({regexes_.text(key), texts_.colon()}));
    member.value = value(*conjuncts);
    result.push_back(std::move(member));
  }
  return result;
}

// The content of keys that propertyNames allows. Nothing: all.
std::optional<RegexId> SchemaWriter::names_allowed(const Facts& facts) {
  if (facts.property_names.empty()) return std::nullopt;
  const SchemaReader::Expansion& expansion = reader_.expand(facts.property_names);
  if (expansion.error) refuse(*expansion.error);
  std::vector<RegexId> ways;
  for (const Facts& one : expansion.facts) {
    if ((one.types & kString) == 0) continue;
    if (one.allowed) {
      for (const json::value* value : *one.allowed) {
        if (value->is_string()) ways.push_back(regexes_.text(SchemaTexts::spelling(value->get_string())));
      }
      continue;
    }
    const auto content = texts_.string_content(one);
    if (!content) refuse(content.error());
    if (content) ways.push_back(*content);
  }
  return regexes_.any_of(ways);
}

// Keys that have no name, by what their values must fit: patternProperties divide them.
std::vector<SchemaWriter::KeyClass> SchemaWriter::key_classes(const Facts& facts,
                                                              const std::vector<std::string>& names) {
  std::vector<RegexId> all = {texts_.key_content()};
  if (!names.empty()) {
    std::vector<RegexId> taken;
    for (const std::string& name : names) taken.push_back(regexes_.text(SchemaTexts::spelling(name)));
    all.push_back(regexes_.complement(regexes_.any_of(taken)));
  }
  if (const auto allowed = names_allowed(facts)) all.push_back(*allowed);
  std::vector<KeyClass> classes = {{.content = regexes_.all_of(all), .value = {}}};
  if (!facts.property_names.empty() && texts_.matches_nothing(classes[0].content)) return {};

  for (const ObjectPart& part : facts.object_parts) {
    if (part.schema == nullptr) continue;
    const json::value* others = SchemaReader::additional(*part.schema);
    const json::value* patterns = part.schema->if_contains("patternProperties");
    std::vector<KeyClass> divided;
    for (const KeyClass& keys : classes) {
      // Those that no pattern of this part has matched come last.
      std::vector<std::pair<KeyClass, bool>> parts = {{keys, false}};
      if (patterns != nullptr) {
        for (const auto& [pattern, schema] : patterns->get_object()) {
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
            if (!texts_.matches_nothing(inside.content)) finer.emplace_back(std::move(inside), true);
            one.content = regexes_.minus(one.content, *regex);
            if (!texts_.matches_nothing(one.content)) finer.emplace_back(std::move(one), matched);
          }
          parts = std::move(finer);
        }
      }
      for (auto& [one, matched] : parts) {
        if (!matched && others != nullptr) SchemaReader::add(one.value, {.schema = others});
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

// At least one of the members from `next` on, and the end of the object. Nothing: there cannot be one.
std::optional<SymbolId> SchemaWriter::rest(Object& object, std::size_t next, std::uint64_t count) {
  if (count >= object.most || !grammar_.budget().take(5)) return std::nullopt;
  const auto known = object.rest.find({next, count});
  if (known != object.rest.end()) return known->second;
  const SymbolId rule = grammar_.rule();
  bool possible = false;
  if (next < object.members.size()) {
    const Member& member = object.members[next];
    grammar_.add(rule, {member.key, member.value, behind(object, next + 1, count + 1)});
    possible = true;
    if (!member.required) {
      if (const auto later = rest(object, next + 1, count)) grammar_.add(rule, {*later});
    }
  }
  if (next == object.members.size() && object.others) {
    const std::uint64_t least = object.least > count ? object.least - count : 0;
    if (least > 1) {
      // Two additional keys may be equal, and then they are one property.
      refuse(Error{"minProperties: cannot be enforced where properties have no names"});
    }
    const std::uint64_t most = object.most == UINT64_MAX ? UINT64_MAX : object.most - count;
    const auto bound = most >= kUnbounded ? kUnbounded : static_cast<std::uint32_t>(most);
    const SymbolId comma = grammar_.terminal(texts_.comma());
    grammar_.add(rule, {grammar_.repeat(*object.others, 1, bound, comma), grammar_.terminal(texts_.close('}'))});
    possible = true;
  }
  if (!possible) return std::nullopt;
  object.rest[{next, count}] = rule;
  return rule;
}

SymbolId SchemaWriter::behind(Object& object, std::size_t next, std::uint64_t count) {
  // Counts matter only up to the last that makes a difference.
  if (object.most == UINT64_MAX) count = std::min(count, object.least);
  const auto known = object.behind.find({next, count});
  if (known != object.behind.end()) return known->second;
  const SymbolId rule = grammar_.rule();
  object.behind[{next, count}] = rule;
  const bool complete = std::none_of(object.members.begin() + static_cast<std::ptrdiff_t>(next), object.members.end(),
                                     [](const Member& member) { return member.required; });
  if (complete && count >= object.least) grammar_.add(rule, {grammar_.terminal(texts_.close('}'))});
  if (const auto more = rest(object, next, count)) grammar_.add(rule, {grammar_.terminal(texts_.comma()), *more});
  return rule;
}

}  // namespace quire::grammar
