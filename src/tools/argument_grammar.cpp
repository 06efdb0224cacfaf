#include "quire/tools/argument_grammar.h"

#include <algorithm>
#include <set>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <fmt/format.h>

#include "quire/grammar/json_schema.h"
#include "quire/grammar/json_schema_formats.h"
#include "quire/grammar/json_schema_keyword.h"
#include "quire/tools/call_matcher.h"
#include "quire/tools/pythonic.h"

namespace quire::tools {
namespace {

namespace json = boost::json;
using grammar::RegexId;
using grammar::RegexSet;
using grammar::SymbolId;
using Symbols = std::vector<SymbolId>;

constexpr std::uint32_t kMostKeyBytes = 128;

// A keyword that says something about values and is not one of these.
std::optional<std::string> keyword_beside(const json::object& schema,
                                          std::initializer_list<grammar::SchemaKeyword> known) {
  for (const auto& [key, value] : schema) {
    const grammar::SchemaKeyword keyword = grammar::schema_keyword(key, 0);
    if (keyword == grammar::SchemaKeyword::Annotation || std::ranges::find(known, keyword) != known.end()) continue;
    if (keyword == grammar::SchemaKeyword::Format && value.is_string() &&
        grammar::format_kind(value.get_string()) == grammar::FormatKind::Annotation) {
      continue;
    }
    return std::string(key);
  }
  return std::nullopt;
}

// Either of both, and nothing else is asked for.
bool is_boolean(const json::value& schema) {
  const json::object* const object = schema.if_object();
  const json::value* const type = object == nullptr ? nullptr : object->if_contains("type");
  return type != nullptr && *type == "boolean" && !keyword_beside(*object, {grammar::SchemaKeyword::Type});
}

}  // namespace

// --- text

void FormatText::add(Symbols& to, std::string_view text) const {
  while (!text.empty()) {
    std::size_t first = text.size();
    std::string_view found;
    for (const std::string& control : controls_) {
      const std::size_t at = text.find(control);
      if (at < first || (at == first && at < text.size() && control.size() > found.size())) {
        first = at;
        found = control;
      }
    }
    if (first > 0) to.push_back(grammar_->text(text.substr(0, first)));
    if (!found.empty()) to.push_back(grammar_->token(found));
    text.remove_prefix(first + found.size());
  }
}

SymbolId FormatText::literal(std::string_view text) const {
  Symbols parts;
  add(parts, text);
  return grammar_->sequence(std::move(parts));
}

RegexId ArgumentGrammar::short_text() {
  grammar::ByteSet bytes;
  for (char c = '!'; c <= '~'; ++c) {
    if (!std::string_view("<>[]\"\\").contains(c)) bytes.add(static_cast<std::uint8_t>(c));
  }
  return grammar_.regexes().repeat(grammar_.regexes().bytes(bytes), 1, kMostKeyBytes);
}

void ArgumentGrammar::refuse(std::string message) {
  if (!error_) error_ = Error{std::move(message)};
}

// --- arguments

// The arguments as JSON.
SymbolId ArgumentGrammar::as_json(const Tool& tool) {
  const auto [found, is_new] = json_.try_emplace(&tool, 0);
  if (!is_new) return found->second;
  json::object schema = has_schema(tool) ? tool.parameters : json::object();
  if (!schema.empty()) schema.emplace("type", "object");
  const json::value whole(std::move(schema));
  const auto symbol = whole.get_object().empty() ? std::nullopt : value_of(whole, whole, tool);
  return found->second = symbol ? *symbol : grammar::add_any_json_object(grammar_);
}

// One JSON value that fits this part of a schema. Nothing: it cannot be enforced, and need not.
std::optional<SymbolId> ArgumentGrammar::value_of(const json::value& schema, const json::value& part,
                                                  const Tool& tool) {
  const auto symbol = grammar::add_json_schema_part(grammar_, schema, part);
  if (symbol) return *symbol;
  if (tool.strict) {
    refuse(fmt::format("the schema of the function '{}' cannot be enforced: {}", tool.name, symbol.error().message));
  }
  return std::nullopt;
}

const json::value& ArgumentGrammar::schema_of(const Tool& tool) {
  const auto [found, is_new] = schemas_.try_emplace(&tool);
  if (is_new) found->second = tool.parameters;
  return found->second;
}

// The properties of a tool's schema that can be written, for formats that write them one by one. Fails with what else
// the schema asks for: nothing would enforce it.
Result<std::vector<ArgumentGrammar::Property>> ArgumentGrammar::properties_of(const Tool& tool) {
  using enum grammar::SchemaKeyword;
  const json::object& schema = top_of(schema_of(tool).get_object());
  if (const auto other =
          keyword_beside(schema, {Type, Properties, Required, AdditionalProperties, UnevaluatedProperties})) {
    return fail(*other);
  }
  const json::value object("object");
  if (const json::value* const type = schema.if_contains("type"); type != nullptr && *type != object) {
    if (!type->is_array() || std::ranges::find(type->get_array(), object) == type->get_array().end()) {
      return fail("type");
    }
  }
  const json::value* const properties = schema.if_contains("properties");
  const json::value* const required = schema.if_contains("required");
  if (properties != nullptr && !properties->is_object()) return fail("properties");
  if (required != nullptr && !required->is_array()) return fail("required");
  std::vector<Property> out;
  std::set<std::string_view> wanted;
  if (required != nullptr) {
    for (const json::value& one : required->get_array()) {
      if (!one.is_string()) return fail("required");
      wanted.insert(one.get_string());
    }
  }
  if (properties != nullptr) {
    for (const auto& [key, value] : properties->get_object()) {
      if (value == json::value(false)) continue;  // must not be there
      out.push_back({.name = std::string(key), .schema = &value, .required = wanted.erase(key) > 0});
    }
  }
  if (!wanted.empty()) return fail(fmt::format("required '{}'", *wanted.begin()));
  return out;
}

// Nothing: what the schema asks for cannot be enforced, and need not. `is_name`: whether the parser reads a name.
std::optional<std::vector<ArgumentGrammar::Property>> ArgumentGrammar::properties_to_write(const Tool& tool,
                                                                                           const auto& is_name) {
  auto properties = properties_of(tool);
  if (!properties) {
    refuse_in_format(tool, properties.error().message);
    return std::nullopt;
  }
  for (const Property& property : *properties) {
    if (is_name(property.name)) continue;
    refuse_in_format(tool, fmt::format("the name of '{}'", property.name));
    return std::nullopt;
  }
  return std::move(*properties);
}

void ArgumentGrammar::refuse_in_format(const Tool& tool, std::string_view what) {
  if (!tool.strict) return;
  refuse(fmt::format("the schema of the function '{}' cannot be enforced in this model's format: {}", tool.name, what));
}

// Any JSON value.
SymbolId ArgumentGrammar::any_value() {
  const auto symbol = grammar::add_json_schema(grammar_, json::value(json::object()));
  return symbol ? *symbol : grammar::add_any_json_object(grammar_);
}

void ArgumentGrammar::add_middle(Symbols& to, const Tags& tags) {
  const std::size_t line = tags.space_inside ? tags.middle.find('\n') : std::string_view::npos;
  text_.add(to, tags.middle.substr(0, line));
  if (line == std::string_view::npos) return;
  to.push_back(space_);
  text_.add(to, tags.middle.substr(line + 1));
}

SymbolId ArgumentGrammar::tagged(const Tags& tags, const Tool& tool) {
  if (!has_schema(tool)) return any_tagged(tags);
  const auto properties = properties_to_write(tool, [&](std::string_view name) { return is_tagged_key(tags, name); });
  if (!properties) return any_tagged(tags);
  Symbols all;
  for (const Property& property : *properties) {
    Symbols parts;
    text_.add(parts, tags.open);
    parts.push_back(grammar_.text(property.name));
    add_middle(parts, tags);
    if (tags.trims_line) parts.push_back(grammar_.text("\n"));
    parts.push_back(tagged_value(tags, tool, property));
    if (tags.trims_line) parts.push_back(grammar_.text("\n"));
    text_.add(parts, tags.close);
    parts.push_back(space_);
    const SymbolId one = grammar_.sequence(std::move(parts));
    all.push_back(property.required ? one : grammar_.optional(one));
  }
  return grammar_.sequence(std::move(all));
}

// Any parameters in any order. The parser reads whatever stands between the tags.
SymbolId ArgumentGrammar::any_tagged(const Tags& tags) {
  Symbols parts;
  text_.add(parts, tags.open);
  parts.push_back(grammar_.terminal(short_text()));
  add_middle(parts, tags);
  parts.push_back(text_before(tags.close));
  text_.add(parts, tags.close);
  return grammar_.repeat(grammar_.sequence(std::move(parts)), 0, grammar::kUnbounded, space_);
}

// Any text without this mark.
RegexId ArgumentGrammar::regex_before(std::string_view mark) {
  RegexSet& regexes = grammar_.regexes();
  const RegexId any = regexes.repeat(regexes.characters(0, 0x10FFFF), 0);
  const RegexId marked = regexes.concat({RegexSet::kEverything, regexes.text(mark), RegexSet::kEverything});
  return regexes.minus(any, marked);
}
SymbolId ArgumentGrammar::text_before(std::string_view mark) { return grammar_.terminal(regex_before(mark)); }

SymbolId ArgumentGrammar::tagged_value(const Tags& tags, const Tool& tool, const Property& property) {
  using enum grammar::SchemaKeyword;
  const auto known = tool.strings.find(property.name);
  if (known == tool.strings.end() || !known->second) {
    return value_of(schema_of(tool), *property.schema, tool).value_or(any_value());
  }
  // Text is free, or one of those that are listed. What else the schema asks of it (a length, a pattern) is not
  // enforced between tags.
  const json::object& schema = property.schema->get_object();
  if (const auto other = keyword_beside(schema, {Type, Enum, Const})) {
    refuse_in_format(tool, fmt::format("{} of '{}'", *other, property.name));
  }
  RegexSet& regexes = grammar_.regexes();
  std::vector<RegexId> parts = {regex_before(tags.close)};
  const auto add_one_of = [&](std::span<const json::value> values) {
    std::vector<RegexId> texts;
    for (const json::value& each : values) {
      if (each.is_string()) texts.push_back(regexes.text(each.get_string()));
    }
    parts.push_back(regexes.any_of(texts));
  };
  if (const json::value* const values = schema.if_contains("enum"); values != nullptr && values->is_array()) {
    add_one_of({values->get_array().data(), values->get_array().size()});
  }
  if (const json::value* const only = schema.if_contains("const")) add_one_of({only, 1});
  const RegexId listed = regexes.all_of(parts);
  if (parts.size() == 1 || !regexes.matches_nothing(listed)) return grammar_.terminal(listed);
  // No value is left that can be written: each has the closing tag in it, or none is a text that fits.
  refuse_in_format(tool, fmt::format("the values of '{}'", property.name));
  return text_before(tags.close);
}

// Keyword arguments in the order of the schema, with commas between those that are there.
SymbolId ArgumentGrammar::keywords(const Tool& tool) {
  const auto properties = properties_to_write(tool, is_keyword_key);
  if (!properties) return any_keywords();
  SymbolId first = grammar_.empty(),
           later = grammar_.empty();  // what may follow, before and after the first argument
  for (auto property = properties->rbegin(); property != properties->rend(); ++property) {
    const SymbolId value = is_boolean(*property->schema)
                               ? grammar_.choice({grammar_.text("True"), grammar_.text("False"), grammar_.text("true"),
                                                  grammar_.text("false")})
                               : value_of(schema_of(tool), *property->schema, tool).value_or(any_value());
    const SymbolId one = grammar_.sequence({grammar_.text(property->name + "="), value});
    const SymbolId alone = grammar_.sequence({one, later});
    const SymbolId behind = grammar_.sequence({grammar_.text(","), space_, one, later});
    first = property->required ? alone : grammar_.choice({alone, first});
    later = property->required ? behind : grammar_.choice({behind, later});
  }
  return first;
}

// Any keyword arguments in any order.
SymbolId ArgumentGrammar::any_keywords() {
  RegexSet& regexes = grammar_.regexes();
  grammar::ByteSet letters;
  for (const char c : std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")) {
    letters.add(static_cast<std::uint8_t>(c));
  }
  const RegexId name =
      regexes.concat({regexes.bytes(letters), regexes.repeat(regexes.bytes(letters | grammar::ByteSet::range('0', '9')),
                                                             0, kMostKeyBytes - 1)});
  const SymbolId one = grammar_.sequence({grammar_.terminal(name), grammar_.text("="), any_value()});
  return grammar_.repeat(one, 0, grammar::kUnbounded, grammar_.sequence({grammar_.text(","), space_}));
}

}  // namespace quire::tools
