#include "quire/tools/answer_grammar.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "quire/grammar/json_schema.h"
#include "quire/grammar/json_schema_formats.h"
#include "quire/grammar/json_schema_keyword.h"
#include "quire/tools/pythonic.h"

namespace quire::tools {
namespace {

namespace json = boost::json;
using grammar::RegexId;
using grammar::RegexSet;
using grammar::SymbolId;
using Symbols = std::vector<SymbolId>;

constexpr std::uint32_t kMostSpace = 8;
constexpr std::uint32_t kMostKeyBytes = 128;

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
    if (asked_.text && !asked_.required) {
      const auto text = asked_.text(grammar_);
      if (!text) return std::unexpected(text.error());
      text_ = *text;
    }
    return finish(header_.empty() ? flat() : headed());
  }

  Result<grammar::Grammar> build_calls() {
    Symbols ways;
    if (asked_.format->header.empty()) {
      for (const Shape* const shape : shapes_beside_text()) {
        ways.push_back(grammar_.sequence({sections(*shape), space_}));
      }
    } else {
      Symbols calls;
      for (const Shape& shape : asked_.format->shapes) calls.push_back(any_call(shape));
      const SymbolId next = grammar_.sequence({space_, grammar_.optional(literal(header_))});
      const std::uint32_t most = asked_.several ? grammar::kUnbounded : 1;
      ways.push_back(grammar_.sequence({grammar_.repeat(grammar_.choice(std::move(calls)), 1, most, next), space_}));
    }
    return finish(grammar_.choice(std::move(ways)));
  }

 private:
  Result<grammar::Grammar> finish(SymbolId start) {
    grammar_.set_start(start);
    if (error_) return std::unexpected(*error_);
    if (const auto checked = grammar_.check(); !checked) return std::unexpected(checked.error());
    return std::move(grammar_);
  }

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

  // --- the parts of an answer

  // An answer whose sections have no headers. Marks of text may be left out.
  SymbolId flat() {
    const SymbolId rest = content();
    if (asked_.reasoning == nullptr) return rest;
    const SymbolId reasoned = thought_and(opened(), grammar_.sequence({space_, rest}));
    return opened() ? reasoned : grammar_.choice({reasoned, rest});
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
      for (const Shape* const shape : shapes_beside_text()) {
        ways.push_back(grammar_.sequence({sections(*shape), space_}));
      }
    }
    return grammar_.choice(std::move(ways));
  }

  // The shapes of calls that an answer may have instead of a text that was asked for.
  std::vector<const Shape*> shapes_beside_text() const {
    std::vector<const Shape*> out;
    for (const Shape& shape : asked_.format->shapes) {
      if (is_bare(asked_) || shape.where == Shape::Where::Anywhere) out.push_back(&shape);
    }
    return out;
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
    if (asked_.reasoning != nullptr) grammar_.add(rest, {thought_and(false, after_thought)});
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
    if (opened()) return thought_and(true, after_thought);
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

  // Reasoning and what follows it. `open`: the prompt has written its first mark. Where nothing is asked of an answer,
  // it may end inside of its reasoning, as it may without a grammar.
  SymbolId thought_and(bool open, SymbolId rest) {
    const std::string end[] = {std::string(asked_.reasoning->end)};
    const SymbolId after = grammar_.sequence({literal(asked_.reasoning->end), rest});
    const bool free = !text_ && !asked_.required;
    Symbols parts;
    if (!open) add_text(parts, asked_.reasoning->begin);
    parts.push_back(grammar_.free_text(end));
    parts.push_back(free ? grammar_.optional(after) : after);
    return grammar_.sequence(std::move(parts));
  }

  bool opened() const { return asked_.reasoning != nullptr && asked_.primer == asked_.reasoning->begin; }
  bool calls_possible() const { return asked_.format != nullptr && asked_.tools != nullptr; }

  // --- sections of calls

  SymbolId sections(const Shape& shape) {
    const std::uint32_t most = asked_.several ? grammar::kUnbounded : 1;
    const SymbolId call = any_call(shape);
    if (!shape.several) return grammar_.repeat(call, 1, most, space_);
    Symbols between;
    add_marks(between, shape.between);
    between.push_back(space_);
    Symbols parts;
    add_marks(parts, shape.begin);
    parts.push_back(grammar_.repeat(call, 1, most, grammar_.sequence(std::move(between))));
    parts.push_back(space_);
    add_marks(parts, shape.end);
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
      add_parts(parts, rest, shape, tool);
      calls.push_back(grammar_.sequence(std::move(parts)));
    }
    return grammar_.choice(std::move(calls));
  }

  // What stands around calls. What may be left out there is.
  void add_marks(Symbols& to, std::span<const Part> parts) {
    for (const Part& part : parts) {
      if (part.kind == Part::Kind::Mark) add_text(to, part.text);
      if (part.kind == Part::Kind::Space) to.push_back(space_);
    }
  }

  void add_parts(Symbols& to, std::span<const Part> parts, const Shape& shape, const Tool& tool) {
    bool arguments = false;  // they have come
    for (const Part& part : parts) {
      switch (part.kind) {
        case Part::Kind::Mark: add_text(to, part.text); break;
        case Part::Kind::Skip:
          if (has_schema(tool)) {
            add_text(to, part.text);
          } else {
            to.push_back(grammar_.optional(literal(part.text)));
          }
          break;
        case Part::Kind::Space: to.push_back(space_); break;
        case Part::Kind::Maybe:
          if (arguments) break;
          if (tool.name.starts_with(part.text)) {
            add_text(to, part.text);  // otherwise the beginning of the name would be taken for it
          } else {
            to.push_back(grammar_.optional(literal(part.text)));
          }
          break;
        case Part::Kind::MaybeId:
          if (!has_schema(tool)) {
            Symbols id;
            add_text(id, part.text);
            id.push_back(grammar_.terminal(short_text(name_bytes())));
            to.push_back(grammar_.optional(grammar_.sequence(std::move(id))));
          }
          break;
        case Part::Kind::Name:
          if (!error_ && !is_function_name(shape, tool.name)) {
            error_ =
                Error{fmt::format("the name of the function '{}' cannot be written in this model's format", tool.name)};
          }
          to.push_back(grammar_.text(tool.name));
          if (!shape.numbered.empty()) {
            RegexSet& regexes = grammar_.regexes();
            const RegexId digit = regexes.bytes(grammar::ByteSet::range('0', '9'));
            to.push_back(
                grammar_.terminal(regexes.concat({regexes.text(":"), regexes.repeat(digit, 1, kMostNumberBytes - 1)})));
          }
          break;
        case Part::Kind::Object: add_object(to, shape.keys, tool); break;
        case Part::Kind::Json: to.push_back(arguments_of(tool)); break;
        case Part::Kind::Tagged: to.push_back(tagged(shape.tags, tool)); break;
        case Part::Kind::Keywords: to.push_back(keywords(tool)); break;
      }
      arguments |= part.kind >= Part::Kind::Object;
    }
  }

  // Bytes of ids and of keys between tags.
  static grammar::ByteSet name_bytes() {
    grammar::ByteSet bytes;
    for (char c = '!'; c <= '~'; ++c) {
      if (!std::string_view("<>[]\"\\").contains(c)) bytes.add(static_cast<std::uint8_t>(c));
    }
    return bytes;
  }
  RegexId short_text(const grammar::ByteSet& bytes) {
    return grammar_.regexes().repeat(grammar_.regexes().bytes(bytes), 1, kMostKeyBytes);
  }

  void add_object(Symbols& to, const Keys& keys, const Tool& tool) {
    const auto add_member = [&](Symbols& parts, std::string_view key, SymbolId value) {
      for (const SymbolId part : {grammar_.text(json_string(key)), space_, grammar_.text(":"), space_, value, space_}) {
        parts.push_back(part);
      }
    };
    const auto member = [&](std::string_view key, SymbolId value) { add_member(to, key, value); };
    const SymbolId comma = grammar_.sequence({grammar_.text(","), space_});
    // Some models write an id, before the name or behind the arguments. A call that is only kept well-formed may.
    const auto maybe_id = [&](bool first) {
      if (has_schema(tool) || keys.name_is_key) return;
      RegexSet& regexes = grammar_.regexes();
      const RegexId quote = regexes.text("\"");
      Symbols id;
      if (!first) id.push_back(comma);
      add_member(id, keys.id, grammar_.terminal(regexes.concat({quote, short_text(name_bytes()), quote})));
      if (first) id.push_back(comma);
      to.push_back(grammar_.optional(grammar_.sequence(std::move(id))));
    };
    to.push_back(grammar_.text("{"));
    to.push_back(space_);
    maybe_id(true);
    if (keys.name_is_key) {
      member(tool.name, arguments_of(tool));
    } else {
      member(keys.name, grammar_.text(json_string(tool.name)));
      to.push_back(comma);
      member(keys.arguments, arguments_of(tool));
    }
    maybe_id(false);
    to.push_back(grammar_.text("}"));
  }

  // --- arguments

  bool has_schema(const Tool& tool) const { return tool.strict || asked_.required; }

  // The arguments as JSON.
  SymbolId arguments_of(const Tool& tool) {
    const auto [found, is_new] = arguments_.try_emplace(&tool, 0);
    if (!is_new) return found->second;
    json::object schema = has_schema(tool) ? tool.parameters : json::object();
    if (!schema.empty()) schema.emplace("type", "object");
    const json::value whole(std::move(schema));
    const auto symbol = whole.get_object().empty() ? std::nullopt : value_of(whole, whole, tool);
    return found->second = symbol ? *symbol : grammar::add_any_json_object(grammar_);
  }

  // One JSON value that fits this part of a schema. Nothing: it cannot be enforced, and need not.
  std::optional<SymbolId> value_of(const json::value& schema, const json::value& part, const Tool& tool) {
    const auto symbol = grammar::add_json_schema_part(grammar_, schema, part);
    if (symbol) return *symbol;
    if (tool.strict && !error_) {
      error_ = Error{
          fmt::format("the schema of the function '{}' cannot be enforced: {}", tool.name, symbol.error().message)};
    }
    return std::nullopt;
  }

  struct Property {
    std::string name;
    const json::value* schema;  // in schema_of()
    bool required = false;
  };

  const json::value& schema_of(const Tool& tool) {
    const auto [found, is_new] = schemas_.try_emplace(&tool);
    if (is_new) found->second = tool.parameters;
    return found->second;
  }

  // A keyword that says something about values and is not one of these.
  static std::optional<std::string> keyword_beside(const json::object& schema,
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

  // The properties of a tool's schema that can be written, for formats that write them one by one. Fails with what else
  // the schema asks for: nothing would enforce it.
  Result<std::vector<Property>> properties_of(const Tool& tool) {
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
  std::optional<std::vector<Property>> properties_to_write(const Tool& tool, const auto& is_name) {
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

  void refuse_in_format(const Tool& tool, std::string_view what) {
    if (!tool.strict || error_) return;
    error_ = Error{
        fmt::format("the schema of the function '{}' cannot be enforced in this model's format: {}", tool.name, what)};
  }

  // Any JSON value.
  SymbolId any_value() {
    const auto symbol = grammar::add_json_schema(grammar_, json::value(json::object()));
    return symbol ? *symbol : grammar::add_any_json_object(grammar_);
  }

  void add_middle(Symbols& to, const Tags& tags) {
    const std::size_t line = tags.space_inside ? tags.middle.find('\n') : std::string_view::npos;
    add_text(to, tags.middle.substr(0, line));
    if (line == std::string_view::npos) return;
    to.push_back(space_);
    add_text(to, tags.middle.substr(line + 1));
  }

  SymbolId tagged(const Tags& tags, const Tool& tool) {
    if (!has_schema(tool)) return any_tagged(tags);
    const auto properties = properties_to_write(tool, [&](std::string_view name) { return is_tagged_key(tags, name); });
    if (!properties) return any_tagged(tags);
    Symbols all;
    for (const Property& property : *properties) {
      Symbols parts;
      add_text(parts, tags.open);
      parts.push_back(grammar_.text(property.name));
      add_middle(parts, tags);
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

  // Any parameters in any order. The parser reads whatever stands between the tags.
  SymbolId any_tagged(const Tags& tags) {
    Symbols parts;
    add_text(parts, tags.open);
    parts.push_back(grammar_.terminal(short_text(name_bytes())));
    add_middle(parts, tags);
    parts.push_back(text_before(tags.close));
    add_text(parts, tags.close);
    return grammar_.repeat(grammar_.sequence(std::move(parts)), 0, grammar::kUnbounded, space_);
  }

  // Any text without this mark.
  RegexId regex_before(std::string_view mark) {
    RegexSet& regexes = grammar_.regexes();
    const RegexId any = regexes.repeat(regexes.characters(0, 0x10FFFF), 0);
    const RegexId marked = regexes.concat({RegexSet::kEverything, regexes.text(mark), RegexSet::kEverything});
    return regexes.minus(any, marked);
  }
  SymbolId text_before(std::string_view mark) { return grammar_.terminal(regex_before(mark)); }

  SymbolId tagged_value(const Tags& tags, const Tool& tool, const Property& property) {
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
    // Each has the closing tag in it.
    refuse_in_format(tool, fmt::format("the values of '{}'", property.name));
    return text_before(tags.close);
  }

  // Keyword arguments in the order of the schema, with commas between those that are there.
  SymbolId keywords(const Tool& tool) {
    const auto properties = properties_to_write(tool, is_keyword_key);
    if (!properties) return any_keywords();
    SymbolId first = grammar_.empty(),
             later = grammar_.empty();  // what may follow, before and after the first argument
    for (auto property = properties->rbegin(); property != properties->rend(); ++property) {
      const SymbolId value = is_boolean(*property->schema)
                                 ? grammar_.choice({grammar_.text("True"), grammar_.text("False"),
                                                    grammar_.text("true"), grammar_.text("false")})
                                 : value_of(schema_of(tool), *property->schema, tool).value_or(any_value());
      const SymbolId one = grammar_.sequence({grammar_.text(property->name + "="), value});
      const SymbolId alone = grammar_.sequence({one, later});
      const SymbolId behind = grammar_.sequence({grammar_.text(","), space_, one, later});
      first = property->required ? alone : grammar_.choice({alone, first});
      later = property->required ? behind : grammar_.choice({behind, later});
    }
    return first;
  }

  // Either of both, and nothing else is asked for.
  static bool is_boolean(const json::value& schema) {
    const json::object* const object = schema.if_object();
    const json::value* const type = object == nullptr ? nullptr : object->if_contains("type");
    return type != nullptr && *type == "boolean" && !keyword_beside(*object, {grammar::SchemaKeyword::Type});
  }

  // Any keyword arguments in any order.
  SymbolId any_keywords() {
    RegexSet& regexes = grammar_.regexes();
    grammar::ByteSet letters;
    for (const char c : std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")) {
      letters.add(static_cast<std::uint8_t>(c));
    }
    const RegexId name = regexes.concat(
        {regexes.bytes(letters),
         regexes.repeat(regexes.bytes(letters | grammar::ByteSet::range('0', '9')), 0, kMostKeyBytes - 1)});
    const SymbolId one = grammar_.sequence({grammar_.terminal(name), grammar_.text("="), any_value()});
    return grammar_.repeat(one, 0, grammar::kUnbounded, grammar_.sequence({grammar_.text(","), space_}));
  }

  const AnswerGrammar& asked_;
  const std::string_view header_;
  const std::span<const TextMarks> texts_;
  grammar::Grammar grammar_;
  SymbolId space_ = 0;
  std::optional<SymbolId> text_;               // that was asked for
  std::map<const Tool*, SymbolId> arguments_;  // as JSON; several shapes share them
  std::map<const Tool*, json::value> schemas_;
  std::optional<Error> error_;
};

}  // namespace

Result<grammar::Grammar> answer_grammar(const AnswerGrammar& asked, const grammar::Limits& limits) {
  return Builder(asked, limits).build();
}

Result<grammar::Grammar> calls_grammar(const AnswerGrammar& asked, const grammar::Limits& limits) {
  return Builder(asked, limits).build_calls();
}

bool needs_check(const AnswerGrammar& asked) {
  if (asked.format == nullptr || asked.tools == nullptr || asked.required || !asked.text) return false;
  return std::ranges::any_of(asked.tools->all(), &Tool::strict) && (is_bare(asked) || !asked.text_is_json);
}

bool leaves_text_free(const Format& format) {
  return std::ranges::all_of(format.shapes, [](const Shape& shape) {
    return shape.where == Shape::Where::Anywhere &&
           std::ranges::none_of(shape.call, [](const Part& part) { return part.kind == Part::Kind::Keywords; });
  });
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
