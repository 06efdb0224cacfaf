#include "quire/tools/tool_grammar.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "quire/grammar/json_schema.h"
#include "quire/tools/pythonic.h"

namespace quire::tools {
namespace {

namespace json = boost::json;
using grammar::RegexId;
using grammar::RegexSet;
using grammar::SymbolId;
using Symbols = std::vector<SymbolId>;

constexpr std::uint32_t kMostSpace = 8;

class Builder {
 public:
  Builder(const CallGrammar& asked, const grammar::Limits& limits) : asked_(asked), grammar_(limits) {
    grammar::ByteSet spaces;
    for (const char c : {' ', '\t', '\n', '\r'}) spaces.add(static_cast<std::uint8_t>(c));
    RegexSet& regexes = grammar_.regexes();
    space_ = grammar_.terminal(regexes.repeat(regexes.bytes(spaces), 0, kMostSpace));
  }

  Result<grammar::Grammar> build() {
    const Shape& shape = asked_.shape != nullptr ? *asked_.shape : asked_.format->shapes.front();
    Symbols start;
    add_reasoning(start);
    if (!asked_.required) {
      if (shape.where != Shape::Where::Anywhere || !asked_.format->silent.empty()) {
        return fail(
            "this model's calls have no mark of their own, so that they cannot be enforced when it begins one by "
            "itself");
      }
      std::vector<std::string> triggers;
      for (const Shape& each : asked_.format->shapes) triggers.emplace_back(trigger(each));
      start.push_back(grammar_.free_text(triggers));
    }
    const SymbolId calls = sections(shape);
    start.push_back(asked_.required ? calls : grammar_.optional(calls));
    start.push_back(space_);
    grammar_.set_start(grammar_.sequence(std::move(start)));
    if (error_) return std::unexpected(*error_);
    if (const auto checked = grammar_.check(); !checked) return std::unexpected(checked.error());
    return std::move(grammar_);
  }

 private:
  // Text of the format: its control tokens are tokens.
  void add_text(Symbols& to, std::string_view text) {
    while (!text.empty()) {
      std::size_t first = text.size();
      std::string_view found;
      for (const std::string& control : asked_.controls) {
        const std::size_t at = text.find(control);
        if (at < first || (at == first && at < text.size() && control.size() > found.size())) {
          first = at;
          found = control;
        }
      }
      if (first > 0) to.push_back(grammar_.text(text.substr(0, first)));
      if (!found.empty()) to.push_back(grammar_.token(found));
      text.remove_prefix(first + found.size());
    }
  }
  SymbolId literal(std::string_view text) {
    Symbols parts;
    add_text(parts, text);
    return grammar_.sequence(std::move(parts));
  }

  void add_reasoning(Symbols& to) {
    if (asked_.reasoning == nullptr) return;
    const Reasoning& reasoning = *asked_.reasoning;
    const bool open = asked_.primer == reasoning.begin;
    Symbols parts;
    if (!open) add_text(parts, reasoning.begin);
    const std::string end(reasoning.end);
    parts.push_back(grammar_.free_text(std::span(&end, 1)));
    add_text(parts, reasoning.end);
    if (!reasoning.next.empty()) parts.push_back(grammar_.optional(literal(reasoning.next)));
    parts.push_back(space_);
    const SymbolId whole = grammar_.sequence(std::move(parts));
    to.push_back(open ? whole : grammar_.optional(whole));
  }

  // --- sections

  SymbolId sections(const Shape& shape) {
    const std::uint32_t most = asked_.several ? grammar::kUnbounded : 1;
    const SymbolId call = any_call(shape, false);
    if (shape.several) {
      Symbols between;
      add_parts(between, shape.between, shape, nullptr);
      between.push_back(space_);
      Symbols parts;
      add_parts(parts, shape.begin, shape, nullptr);
      parts.push_back(grammar_.repeat(call, 1, most, grammar_.sequence(std::move(between))));
      parts.push_back(space_);
      add_parts(parts, shape.end, shape, nullptr);
      return grammar_.sequence(std::move(parts));
    }
    const std::string_view primer = asked_.format->primer;
    if (primer.empty() || asked_.primer != primer) return grammar_.repeat(call, 1, most, space_);
    // The prompt has written the first mark already.
    const SymbolId first = any_call(shape, true);
    if (most == 1) return first;
    return grammar_.sequence({first, space_, grammar_.repeat(call, 0, most, space_)});
  }

  SymbolId any_call(const Shape& shape, bool primed) {
    Symbols calls;
    for (const Tool& tool : asked_.tools->all()) {
      if (!asked_.only.empty() && tool.name != asked_.only) continue;
      Symbols parts;
      add_parts(parts, shape.call.subspan(primed ? 1 : 0), shape, &tool);
      calls.push_back(grammar_.sequence(std::move(parts)));
    }
    return grammar_.choice(std::move(calls));
  }

  void add_parts(Symbols& to, std::span<const Part> parts, const Shape& shape, const Tool* tool) {
    bool arguments = false;  // they have come
    for (const Part& part : parts) {
      switch (part.kind) {
        case Part::Kind::Mark:
        case Part::Kind::Skip: add_text(to, part.text); break;
        case Part::Kind::Space: to.push_back(space_); break;
        case Part::Kind::Maybe:
          if (tool != nullptr && !arguments) to.push_back(grammar_.optional(literal(part.text)));
          break;
        case Part::Kind::MaybeId: break;
        case Part::Kind::Name:
          to.push_back(grammar_.text(tool->name));
          if (!shape.numbered.empty()) {
            RegexSet& regexes = grammar_.regexes();
            const RegexId digit = regexes.bytes(grammar::ByteSet::range('0', '9'));
            to.push_back(grammar_.terminal(regexes.concat({regexes.text(":"), regexes.repeat(digit, 1, 4)})));
          }
          break;
        case Part::Kind::Object: add_object(to, shape.keys, *tool); break;
        case Part::Kind::Json: to.push_back(arguments_of(*tool)); break;
        case Part::Kind::Tagged: to.push_back(tagged(shape.tags, *tool)); break;
        case Part::Kind::Keywords: to.push_back(keywords(*tool)); break;
      }
      arguments |= part.kind >= Part::Kind::Object;
    }
  }

  void add_object(Symbols& to, const Keys& keys, const Tool& tool) {
    const auto member = [&](std::string_view key, SymbolId value) {
      for (const SymbolId part : {grammar_.text(json_string(key)), space_, grammar_.text(":"), space_, value, space_}) {
        to.push_back(part);
      }
    };
    to.push_back(grammar_.text("{"));
    to.push_back(space_);
    if (keys.name_is_key) {
      member(tool.name, arguments_of(tool));
    } else {
      member(keys.name, grammar_.text(json_string(tool.name)));
      to.push_back(grammar_.text(","));
      to.push_back(space_);
      member(keys.arguments, arguments_of(tool));
    }
    to.push_back(grammar_.text("}"));
  }

  // --- arguments

  // The arguments as JSON.
  SymbolId arguments_of(const Tool& tool) {
    if (tool.parameters.empty()) return grammar::add_any_json_object(grammar_);
    json::object schema = tool.parameters;
    schema.emplace("type", "object");
    return value_of(std::move(schema), tool).value_or(grammar::add_any_json_object(grammar_));
  }

  // One JSON value that fits the schema. Nothing: it cannot be enforced, and need not.
  std::optional<SymbolId> value_of(json::object schema, const Tool& tool) {
    const auto symbol = grammar::add_json_schema(grammar_, json::value(std::move(schema)));
    if (symbol) return *symbol;
    if (tool.strict && !error_) {
      error_ = Error{
          fmt::format("the schema of the function '{}' cannot be enforced: {}", tool.name, symbol.error().message)};
    }
    return std::nullopt;
  }

  struct Property {
    std::string name;
    json::object schema;
    bool required = false;
  };
  // The properties of a tool's schema, each as a schema of its own.
  static std::vector<Property> properties_of(const Tool& tool) {
    std::vector<Property> out;
    const json::value* const properties = tool.parameters.if_contains("properties");
    const json::value* const required = tool.parameters.if_contains("required");
    if (properties == nullptr || !properties->is_object()) return out;
    for (const auto& [key, value] : properties->get_object()) {
      json::object schema = value.is_object() ? value.get_object() : json::object();
      for (const char* const shared : {"$defs", "definitions"}) {
        if (const json::value* const definitions = tool.parameters.if_contains(shared)) {
          schema.emplace(shared, *definitions);
        }
      }
      const bool wanted =
          required != nullptr && required->is_array() &&
          std::ranges::any_of(required->get_array(), [&](const json::value& one) { return one == key; });
      out.push_back({std::string(key), std::move(schema), wanted});
    }
    return out;
  }

  // Any JSON value.
  SymbolId any_value() {
    const auto symbol = grammar::add_json_schema(grammar_, json::value(json::object()));
    return symbol ? *symbol : grammar::add_any_json_object(grammar_);
  }

  SymbolId tagged(const Tags& tags, const Tool& tool) {
    Symbols all;
    for (const Property& property : properties_of(tool)) {
      Symbols parts;
      add_text(parts, tags.open);
      parts.push_back(grammar_.text(property.name));
      add_text(parts, tags.middle);
      if (tags.trims_line) parts.push_back(grammar_.text("\n"));
      parts.push_back(tagged_value(tags, tool, property));
      if (tags.trims_line) parts.push_back(grammar_.text("\n"));
      add_text(parts, tags.close);
      parts.push_back(space_);
      const SymbolId one = grammar_.sequence(std::move(parts));
      all.push_back(property.required ? one : grammar_.optional(one));
    }
    return grammar_.sequence(std::move(all));
  }

  SymbolId tagged_value(const Tags& tags, const Tool& tool, const Property& property) {
    const auto known = tool.strings.find(property.name);
    if (known == tool.strings.end() || !known->second) {
      return value_of(property.schema, tool).value_or(any_value());
    }
    RegexSet& regexes = grammar_.regexes();
    std::vector<RegexId> texts;
    if (const json::value* const values = property.schema.if_contains("enum");
        values != nullptr && values->is_array()) {
      for (const json::value& each : values->get_array()) {
        if (each.is_string()) texts.push_back(regexes.text(each.get_string()));
      }
      return grammar_.terminal(regexes.any_of(texts));
    }
    // Text is free. What else the schema asks of it (a length, a pattern) is not enforced between tags.
    for (const char* const key : {"pattern", "format", "minLength", "maxLength", "const"}) {
      if (tool.strict && !error_ && property.schema.contains(key)) {
        error_ =
            Error{fmt::format("the schema of the function '{}' cannot be enforced in this model's format: {} of '{}'",
                              tool.name, key, property.name)};
      }
    }
    const RegexId any = regexes.repeat(regexes.characters(0, 0x10FFFF), 0);
    const RegexId closing = regexes.concat({RegexSet::kEverything, regexes.text(tags.close), RegexSet::kEverything});
    return grammar_.terminal(regexes.minus(any, closing));
  }

  // Keyword arguments in the order of the schema, with commas between those that are there.
  SymbolId keywords(const Tool& tool) {
    SymbolId first = grammar_.empty(),
             later = grammar_.empty();  // what may follow, before and after the first argument
    const std::vector<Property> properties = properties_of(tool);
    for (auto property = properties.rbegin(); property != properties.rend(); ++property) {
      const json::value* const type = property->schema.if_contains("type");
      const SymbolId value = type != nullptr && *type == "boolean"
                                 ? grammar_.choice({grammar_.text("True"), grammar_.text("False"),
                                                    grammar_.text("true"), grammar_.text("false")})
                                 : value_of(property->schema, tool).value_or(any_value());
      const SymbolId one = grammar_.sequence({grammar_.text(property->name + "="), value});
      const SymbolId alone = grammar_.sequence({one, later});
      const SymbolId behind = grammar_.sequence({grammar_.text(","), space_, one, later});
      first = property->required ? alone : grammar_.choice({alone, first});
      later = property->required ? behind : grammar_.choice({behind, later});
    }
    return first;
  }

  const CallGrammar& asked_;
  grammar::Grammar grammar_;
  SymbolId space_ = 0;
  std::optional<Error> error_;
};

}  // namespace

Result<grammar::Grammar> call_grammar(const CallGrammar& asked, const grammar::Limits& limits) {
  return Builder(asked, limits).build();
}

}  // namespace quire::tools
