#include "quire/grammar/json_schema_writer.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>

namespace quire::grammar {

namespace json = boost::json;

namespace {

std::uint32_t counter(std::uint64_t number) {
  return number >= kUnbounded ? kUnbounded : static_cast<std::uint32_t>(number);
}

// Arrays with `contains` and bounds are written out item by item up to here.
constexpr std::uint64_t kMostItemsWrittenOut = 100;
constexpr std::size_t kMostContains = 4;

}  // namespace

std::size_t SchemaWriter::Hash::operator()(const Conjuncts& conjuncts) const {
  std::size_t hash = conjuncts.size();
  for (const Conjunct& conjunct : conjuncts) {
    hash = hash * 0x9E3779B97F4A7C15U + std::hash<const void*>()(conjunct.schema) * 2 + (conjunct.negated ? 1 : 0);
  }
  return hash;
}

SchemaWriter::SchemaWriter(Grammar& grammar, SchemaReader& reader, SchemaTexts& texts)
    : grammar_(grammar), reader_(reader), texts_(texts), regexes_(grammar.regexes()) {}

void SchemaWriter::refuse(const Error& error) {
  if (!error_) error_ = error;
}

void SchemaWriter::refuse(const LazyKeyword& keyword, std::string_view why) {
  if (!error_) error_ = texts_.not_enforced(*keyword.schema, keyword.keyword, why);
}

void SchemaWriter::refuse_at(const json::value* part, std::string_view keyword, std::string_view why) {
  const json::object* object = part == nullptr ? nullptr : part->if_object();
  if (error_) return;
  error_ = object == nullptr ? Error{fmt::format("{}: {}", keyword, why)} : texts_.not_enforced(*object, {}, why);
}

Result<SymbolId> SchemaWriter::write(const Conjuncts& conjuncts) {
  const SymbolId symbol = value(conjuncts);
  // Not by recursion: schemas may be nested as deep as they like.
  while (!jobs_.empty() && !error_ && !grammar_.budget().exhausted()) {
    const Job job = jobs_.front();
    jobs_.pop_front();
    write_structured(job);
  }
  if (grammar_.budget().exhausted()) return fail("the schema is too large");
  if (error_) return std::unexpected(*error_);
  const SchemaReader::Expansion& expansion = reader_.expand(conjuncts);
  if (expansion.facts.empty()) {
    const json::object* schema = conjuncts.front().schema->if_object();
    if (schema == nullptr) return fail("#: no value fits the schema");
    return std::unexpected(texts_.not_enforced(*schema, {}, "no value fits the schema"));
  }
  return symbol;
}

SymbolId SchemaWriter::value(const Conjuncts& conjuncts) {
  const auto [entry, fresh] = values_.try_emplace(conjuncts, 0);
  if (!fresh) return entry->second;
  const SchemaReader::Expansion& expansion = reader_.expand(conjuncts);
  if (expansion.error) refuse(*expansion.error);
  std::vector<RegexId> ways;
  bool structured = false;
  for (const Facts& facts : expansion.facts) {
    if (grammar_.budget().exhausted()) break;
    ways.push_back(scalars(facts));
    structured = structured || (!facts.allowed && (facts.types & (kArray | kObject)) != 0);
  }
  const RegexId scalar = regexes_.any_of(ways);
  SymbolId symbol = 0;
  if (!structured) {
    symbol = grammar_.terminal(scalar);
  } else {
    symbol = grammar_.rule();
    if (scalar != RegexSet::kNothing) grammar_.add(symbol, {grammar_.terminal(scalar)});
    jobs_.push_back({.rule = symbol, .expansion = &expansion});
  }
  return values_[conjuncts] = symbol;
}

RegexId SchemaWriter::scalars(const Facts& facts) {
  std::vector<RegexId> ways;
  if (facts.allowed) {
    for (const json::value* value : *facts.allowed) ways.push_back(texts_.literal(*value));
    return regexes_.any_of(ways);
  }
  const auto excluded = [&](const json::value& value) {
    return std::any_of(facts.excluded.begin(), facts.excluded.end(),
                       [&](const json::value* other) { return equal_values(*other, value, grammar_.budget()); });
  };
  if ((facts.types & kNull) != 0) ways.push_back(regexes_.text("null"));
  if ((facts.types & kBoolean) != 0) {
    for (const bool which : {false, true}) {
      if (!excluded(json::value(which))) ways.push_back(regexes_.text(which ? "true" : "false"));
    }
  }
  if ((facts.types & kNumber) != 0) {
    const auto number = texts_.number(facts);
    if (!number) refuse(number.error());
    if (number) ways.push_back(*number);
  }
  if ((facts.types & kString) != 0) {
    const auto content = texts_.string_content(facts);
    if (!content) refuse(content.error());
    if (content) ways.push_back(texts_.between(*content));
  }
  return regexes_.any_of(ways);
}

void SchemaWriter::write_structured(const Job& job) {
  for (const Facts& facts : job.expansion->facts) {
    if (facts.allowed || error_) continue;
    for (const json::value* value : facts.excluded) {
      if (value->is_structured() && (type_of(*value) & facts.types) != 0) {
        return refuse_at(value, "not", "an array or object cannot be excluded by its value");
      }
    }
    if ((facts.types & kArray) != 0) write_array(job.rule, facts);
    if ((facts.types & kObject) != 0) write_object(job.rule, facts, job.expansion->facts.size());
  }
}

void SchemaWriter::write_array(SymbolId rule, const Facts& facts) {
  Array array{.prefix = {}, .items = {}, .least = facts.least_items, .most = facts.most_items, .contains = {}};
  const std::size_t prefix = reader_.prefix_length(facts);
  for (std::size_t i = 0; i < prefix && i < array.most && !grammar_.budget().exhausted(); ++i) {
    array.prefix.push_back(reader_.item(facts, i));
    if (reader_.is_empty(array.prefix.back())) {
      array.most = i;
      array.prefix.pop_back();
    }
  }
  array.items = reader_.item(facts, prefix);
  if (array.most > prefix && reader_.is_empty(array.items)) array.most = prefix;
  for (const LazyKeyword& keyword : facts.not_enforced_array) {
    // One item is always unique.
    if (keyword.keyword != "uniqueItems" || keyword.negated || array.most > 1) {
      return refuse(keyword, keyword.negated ? "cannot be negated" : "cannot be enforced");
    }
  }
  array.contains = facts.contains;
  std::uint64_t hits = 0;
  if (array.contains.size() == 1) hits = array.contains.front().least;
  if (array.contains.size() > 1) {
    hits = (std::uint64_t{1} << array.contains.size()) - 1;
    if (array.contains.size() > kMostContains ||
        std::any_of(array.contains.begin(), array.contains.end(), [](const Contains& one) { return one.least > 1; })) {
      return refuse_at(array.contains.front().item.schema, "contains", "so many of them cannot be enforced together");
    }
  }
  const bool many = (array.most != UINT64_MAX && array.most > kMostItemsWrittenOut) ||
                    array.least > kMostItemsWrittenOut || array.prefix.size() > kMostItemsWrittenOut;
  if (hits > kMostItemsWrittenOut || (hits > 0 && many)) {
    return refuse_at(array.contains.front().item.schema, "contains", "cannot be enforced together with so many items");
  }
  if (array.least > array.most) return;
  if (array.least == 0 && hits == 0) {
    grammar_.add(rule, {grammar_.terminal(regexes_.concat({texts_.open('['), regexes_.text("]")}))});
  }
  // From the last position to the first, so that a long prefix does not make a deep recursion.
  if (hits == 0) {
    for (std::uint64_t count = array.prefix.size(); count > 1 && !grammar_.budget().exhausted(); --count) {
      behind(array, count, 0);
    }
  }
  if (const auto first = item(array, 0, hits)) grammar_.add(rule, {grammar_.terminal(texts_.open('[')), *first});
}

const Conjuncts& SchemaWriter::item_at(const Array& array, std::uint64_t index) const {
  return index < array.prefix.size() ? array.prefix[index] : array.items;
}

std::vector<std::pair<Conjuncts, std::uint64_t>> SchemaWriter::hits_of(const Array& array, std::uint64_t count,
                                                                       std::uint64_t hits) {
  const Conjuncts& plain = item_at(array, count);
  std::vector<std::pair<Conjuncts, std::uint64_t>> result = {{plain, hits}};
  if (hits == 0) return result;
  if (array.contains.size() == 1) {
    result.emplace_back(plain, hits - 1);
    SchemaReader::add(result.back().first, array.contains.front().item);
    return result;
  }
  for (std::uint64_t found = hits; found > 0; found = (found - 1) & hits) {
    Conjuncts conjuncts = plain;
    for (std::size_t i = 0; i < array.contains.size(); ++i) {
      if ((found >> i & 1) != 0) SchemaReader::add(conjuncts, array.contains[i].item);
    }
    result.emplace_back(std::move(conjuncts), hits & ~found);
  }
  return result;
}

// The item at `count` and what follows it.
std::optional<SymbolId> SchemaWriter::item(Array& array, std::uint64_t count, std::uint64_t hits) {
  if (count >= array.most || !grammar_.budget().take(10)) return std::nullopt;
  const SymbolId close = grammar_.terminal(texts_.close(']'));
  const SymbolId comma = grammar_.terminal(texts_.comma());
  const bool free = count >= array.prefix.size();
  if (free && hits == 0) {
    const std::uint64_t least = array.least > count ? array.least - count : 0;
    const std::uint64_t most = array.most == UINT64_MAX ? UINT64_MAX : array.most - count;
    const SymbolId items = grammar_.repeat(value(array.items), std::max(counter(least), 1U), counter(most), comma);
    return grammar_.sequence({items, close});
  }
  std::vector<SymbolId> ways;
  for (const auto& [conjuncts, left] : hits_of(array, count, hits)) {
    if (reader_.is_empty(conjuncts)) continue;
    if (const auto after = behind(array, count + 1, left))
      ways.push_back(grammar_.sequence({value(conjuncts), *after}));
  }
  if (ways.empty()) return std::nullopt;
  return grammar_.choice(std::move(ways));
}

std::optional<SymbolId> SchemaWriter::behind(Array& array, std::uint64_t count, std::uint64_t hits) {
  // Far enough behind, all positions are alike.
  if (array.most == UINT64_MAX && count > array.prefix.size() && count > array.least) {
    count = std::max<std::uint64_t>(array.prefix.size(), array.least) + 1;
  }
  const auto known = array.behind.find({count, hits});
  if (known != array.behind.end()) return known->second;
  const SymbolId rule = grammar_.rule();
  array.behind[{count, hits}] = rule;
  bool possible = false;
  if (hits == 0 && count >= array.least) {
    grammar_.add(rule, {grammar_.terminal(texts_.close(']'))});
    possible = true;
  }
  if (const auto next = item(array, count, hits)) {
    grammar_.add(rule, {grammar_.terminal(texts_.comma()), *next});
    possible = true;
  }
  return possible ? std::optional(rule) : std::nullopt;
}

}  // namespace quire::grammar
