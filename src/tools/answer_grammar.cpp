#include "quire/tools/answer_grammar.h"

#include <algorithm>
#include <map>
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

const Shape& written(const AnswerGrammar& asked) {
  return asked.shape != nullptr ? *asked.shape : asked.format->shapes.front();
}

// The template writes calls without a mark.
bool is_bare(const AnswerGrammar& asked) { return written(asked).where == Shape::Where::Line; }

std::span<const TextMarks> texts_of(const AnswerGrammar& asked) {
  if (asked.format != nullptr && !asked.format->texts.empty()) return asked.format->texts;
  return asked.reasoning != nullptr ? asked.reasoning->texts : std::span<const TextMarks>();
}

class Builder {
 public:
  Builder(const AnswerGrammar& asked, const grammar::Limits& limits)
      : asked_(asked), header_(header(asked.format, asked.reasoning)), texts_(texts_of(asked)), grammar_(limits) {
    grammar::ByteSet spaces;
    for (const char c : {' ', '\t', '\n', '\r'}) spaces.add(static_cast<std::uint8_t>(c));
    RegexSet& regexes = grammar_.regexes();
    space_ = grammar_.terminal(regexes.repeat(regexes.bytes(spaces), 0, kMostSpace));
  }

  Result<grammar::Grammar> build() {
    if (!calls_possible() && !asked_.text) return fail("there is nothing to constrain");
    if (auto error = unreadable()) return std::unexpected(std::move(*error));
    if (asked_.text && !asked_.required) {
      const auto text = asked_.text(grammar_);
      if (!text) return std::unexpected(text.error());
      text_ = *text;
    }
    grammar_.set_start(header_.empty() ? flat() : headed());
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

  // The parser must not take a text that was asked for as a call of a strict tool.
  std::optional<Error> unreadable() const {
    if (!calls_possible() || asked_.required || !asked_.text) return std::nullopt;
    if (std::ranges::none_of(asked_.tools->all(), &Tool::strict)) return std::nullopt;
    if (is_bare(asked_)) {
      return Error{fmt::format(
          "this model's calls (format '{}') have no mark of their own, so that those of strict functions cannot be "
          "enforced beside another shape of the answer",
          asked_.format->name)};
    }
    if (!asked_.text_is_json) {
      return Error{"calls of strict functions can be enforced beside a JSON Schema, but beside no other constraint"};
    }
    return std::nullopt;
  }

  // --- the parts of an answer

  // An answer whose sections have no headers. Marks of text may be left out.
  SymbolId flat() {
    Symbols start;
    if (asked_.reasoning != nullptr) {
      const SymbolId whole = grammar_.sequence({thought(opened()), space_});
      start.push_back(opened() ? whole : grammar_.optional(whole));
    }
    start.push_back(content());
    return grammar_.sequence(std::move(start));
  }

  SymbolId content() {
    if (asked_.required) return grammar_.sequence({sections(written(asked_)), space_});
    return text_ ? calls_or_text() : free_text_and_calls();
  }

  SymbolId calls_or_text() {
    Symbols ways = {*text_};
    for (const TextMarks& marks : texts_) {
      if (header_.empty() && !marks.aside) ways.push_back(between(marks, *text_));
    }
    if (calls_possible()) {
      for (const Shape& shape : asked_.format->shapes) {
        if (is_bare(asked_) || shape.where == Shape::Where::Anywhere) {
          ways.push_back(grammar_.sequence({sections(shape), space_}));
        }
      }
    }
    return grammar_.choice(std::move(ways));
  }

  // Text up to the mark of a call. Where calls have no mark, the answer begins with one, or has none.
  SymbolId free_text_and_calls() {
    std::vector<std::string> marks, first;
    if (!header_.empty()) marks.emplace_back(header_);
    Symbols calls, bare;
    for (const Shape& shape : asked_.format->shapes) {
      if (shape.where == Shape::Where::Anywhere) {
        marks.emplace_back(trigger(shape));
        calls.push_back(sections(shape));
      } else if (is_bare(asked_)) {
        first.emplace_back(trigger(shape));
        bare.push_back(grammar_.sequence({space_, sections(shape), space_}));
      }
    }
    Symbols free = {grammar_.free_text(marks, first)};
    if (!calls.empty()) {
      free.push_back(grammar_.optional(grammar_.sequence({grammar_.choice(std::move(calls)), space_})));
    }
    bare.push_back(grammar_.sequence(std::move(free)));
    return grammar_.choice(std::move(bare));
  }

  // An answer whose sections have headers: thoughts and texts, and then calls, or the text that was asked for. If the
  // calls have none (the format is not the reasoning's), they stand in texts.
  SymbolId headed() {
    const bool calls_too = calls_possible() && !asked_.format->header.empty();
    const bool only_calls = calls_too && asked_.required;
    const SymbolId header = literal(header_);
    const SymbolId rest = grammar_.rule();  // what may follow a header
    const SymbolId next = grammar_.sequence({space_, header, rest});
    const bool headless = asked_.reasoning != nullptr && asked_.reasoning->header.empty();
    const SymbolId after_thought = headless ? grammar_.sequence({space_, rest}) : next;
    if (asked_.reasoning != nullptr) grammar_.add(rest, {thought(false), after_thought});
    if (calls_too) grammar_.add(rest, {headed_calls(header)});
    const std::string end[] = {std::string(header_)};
    const SymbolId free = grammar_.free_text(end);
    const SymbolId text = text_ && (calls_too || !calls_possible()) ? *text_ : calls_too ? free : content();
    for (const TextMarks& marks : texts_) {
      if (only_calls || (marks.aside && (text_ || asked_.required))) continue;
      const SymbolId section = between(marks, marks.aside ? free : text);
      grammar_.add(rest, {section});
      if (!text_ && !asked_.required) grammar_.add(rest, {section, next});
    }
    if (opened()) return grammar_.sequence({thought(true), after_thought});
    if (asked_.primer == header_) return rest;
    // The prompt ends inside a text, which the answer continues.
    if (only_calls) return next;
    if (text_ || asked_.required) return grammar_.choice({text, next});
    return grammar_.sequence({text, grammar_.optional(next)});
  }

  // Calls in any of the shapes, the first without its header.
  SymbolId headed_calls(SymbolId header) {
    Symbols calls;
    for (const Shape& shape : asked_.format->shapes) calls.push_back(any_call(shape, header_));
    const SymbolId call = grammar_.choice(std::move(calls));
    const SymbolId next = grammar_.sequence({space_, header});
    return grammar_.sequence({grammar_.repeat(call, 1, asked_.several ? grammar::kUnbounded : 1, next), space_});
  }

  SymbolId between(const TextMarks& marks, SymbolId text) {
    Symbols parts;
    add_text(parts, marks.begin);
    parts.push_back(text);
    add_text(parts, marks.end);
    return grammar_.sequence(std::move(parts));
  }

  // `open`: the prompt has written its first mark.
  SymbolId thought(bool open) {
    const std::string end[] = {std::string(asked_.reasoning->end)};
    return between({.begin = open ? std::string_view() : asked_.reasoning->begin, .end = asked_.reasoning->end},
                   grammar_.free_text(end));
  }

  bool opened() const { return asked_.reasoning != nullptr && asked_.primer == asked_.reasoning->begin; }
  bool calls_possible() const { return asked_.format != nullptr && asked_.tools != nullptr; }

  // --- sections of calls

  SymbolId sections(const Shape& shape) {
    const std::uint32_t most = asked_.several ? grammar::kUnbounded : 1;
    const SymbolId call = any_call(shape);
    if (!shape.several) return grammar_.repeat(call, 1, most, space_);
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

  // A call of any tool. `header`: what has been written of it.
  SymbolId any_call(const Shape& shape, std::string_view header = {}) {
    Symbols calls;
    for (const Tool& tool : asked_.tools->all()) {
      if (!asked_.only.empty() && tool.name != asked_.only) continue;
      Symbols parts;
      std::span<const Part> rest = shape.call;
      if (!header.empty() && rest.front().text.starts_with(header)) {
        add_text(parts, rest.front().text.substr(header.size()));
        rest = rest.subspan(1);
      }
      add_parts(parts, rest, shape, &tool);
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
    const auto [found, is_new] = arguments_.try_emplace(&tool, 0);
    if (!is_new) return found->second;
    json::object schema = tool.parameters;
    if (!schema.empty()) schema.emplace("type", "object");
    const auto symbol = schema.empty() ? std::nullopt : value_of(std::move(schema), tool);
    return found->second = symbol ? *symbol : grammar::add_any_json_object(grammar_);
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

  const AnswerGrammar& asked_;
  const std::string_view header_;
  const std::span<const TextMarks> texts_;
  grammar::Grammar grammar_;
  SymbolId space_ = 0;
  std::optional<SymbolId> text_;               // that was asked for
  std::map<const Tool*, SymbolId> arguments_;  // as JSON; several shapes share them
  std::optional<Error> error_;
};

}  // namespace

Result<grammar::Grammar> answer_grammar(const AnswerGrammar& asked, const grammar::Limits& limits) {
  return Builder(asked, limits).build();
}

Reading reading(const AnswerGrammar& asked) {
  if (asked.format == nullptr || asked.tools == nullptr) return {};
  const bool bare = is_bare(asked);
  const bool has_text = asked.text && !asked.required;
  return {.bare = bare ? Reading::Bare::First : Reading::Bare::Never,
          .calls_first = has_text,
          // A call that has begun is one, unless a text that was asked for may begin in the same way.
          .progressive = !has_text || (asked.text_is_json && !bare)};
}

}  // namespace quire::tools
