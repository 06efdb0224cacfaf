#include "quire/grammar/json_schema_texts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include <fmt/format.h>

#include "quire/grammar/json_schema_formats.h"
#include "quire/grammar/regex_syntax.h"

namespace quire::grammar {

namespace json = boost::json;

namespace {

// White space is what pretty printers write, and a little more. Nobody breaks a line before a comma or around a colon,
// and a model that is unsure would otherwise fill its answer with blanks.
RegexId few_blanks(RegexSet& regexes) {
  ByteSet blank;
  for (const char c : {' ', '\t'}) blank.add(static_cast<std::uint8_t>(c));
  return regexes.repeat(regexes.bytes(blank), 0, 2);
}
RegexId bounded_space(RegexSet& regexes) {
  ByteSet blank;
  for (const char c : {' ', '\t'}) blank.add(static_cast<std::uint8_t>(c));
  const RegexId line = regexes.concat(
      {regexes.optional(regexes.text("\r")), regexes.text("\n"), regexes.repeat(regexes.bytes(blank), 0, 64)});
  return regexes.concat({few_blanks(regexes), regexes.optional(line)});
}

std::string number_literal(const json::value& value) {
  if (value.is_int64()) return std::to_string(value.get_int64());
  if (value.is_uint64()) return std::to_string(value.get_uint64());
  std::array<char, 64> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value.get_double());
  return std::string(text.data(), static_cast<std::size_t>(end - text.data()));
}

std::uint32_t counter(std::uint64_t number) {
  return number >= kUnbounded ? kUnbounded : static_cast<std::uint32_t>(number);
}

}  // namespace

SchemaTexts::SchemaTexts(RegexSet& regexes, const SchemaDocument& document, bool compact)
    : regexes_(regexes),
      document_(document),
      space_(compact ? RegexSet::kEmpty : bounded_space(regexes)),
      blanks_(compact ? RegexSet::kEmpty : few_blanks(regexes)),
      open_object_(regexes.concat({regexes.text("{"), space_})),
      close_object_(regexes.concat({space_, regexes.text("}")})),
      open_array_(regexes.concat({regexes.text("["), space_})),
      close_array_(regexes.concat({space_, regexes.text("]")})),
      comma_(regexes.concat({blanks_, regexes.text(","), space_})),
      colon_(regexes.concat({blanks_, regexes.text(":"), blanks_})),
      character_(any_character(regexes, true)),
      zero_fractions_(document.draft() >= 6) {}

RegexId SchemaTexts::between(RegexId content) {
  return regexes_.concat({regexes_.text("\""), content, regexes_.text("\"")});
}

std::string SchemaTexts::spelling(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '"': result += "\\\""; break;
      case '\\': result += "\\\\"; break;
      case '\b': result += "\\b"; break;
      case '\f': result += "\\f"; break;
      case '\n': result += "\\n"; break;
      case '\r': result += "\\r"; break;
      case '\t': result += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          result += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          result += c;
        }
    }
  }
  return result;
}

RegexId SchemaTexts::key_content() {
  if (key_content_ != RegexSet::kNothing) return key_content_;
  std::vector<RegexId> characters;
  for (int c = 0; c < 0x20; ++c) {
    const char text = static_cast<char>(c);
    characters.push_back(regexes_.text(spelling(std::string_view(&text, 1))));
  }
  characters.push_back(regexes_.text("\\\""));
  characters.push_back(regexes_.text("\\\\"));
  characters.push_back(regexes_.characters(0x20, '"' - 1));
  characters.push_back(regexes_.characters('"' + 1, '\\' - 1));
  characters.push_back(regexes_.characters('\\' + 1, 0x10FFFF));
  return key_content_ = regexes_.repeat(regexes_.any_of(characters), 0);
}

const SchemaTexts::Name& SchemaTexts::named(std::string_view name) {
  const auto [entry, fresh] = names_.try_emplace(std::string(name));
  if (fresh) {
    const std::string text = spelling(name);
    entry->second = {.content = regexes_.text(text),
                     .member = regexes_.concat({regexes_.text(fmt::format("\"{}\"", text)), colon_})};
  }
  return entry->second;
}

Error SchemaTexts::not_enforced(const json::object& schema, std::string_view keyword, std::string_view why) const {
  return Error{fmt::format("{}: {}", document_.place(schema, keyword), why)};
}

Result<RegexId> SchemaTexts::pattern(const json::object& schema, std::string_view keyword, std::string_view pattern) {
  const auto found = patterns_.find(std::string(pattern));
  if (found != patterns_.end()) return found->second;
  const auto regex = parse_regex(regexes_, pattern, {.whole = false, .json_string = true});
  if (!regex) return std::unexpected(not_enforced(schema, keyword, regex.error().message));
  patterns_.emplace(pattern, *regex);
  return *regex;
}

Result<RegexId> SchemaTexts::text_keyword(const LazyKeyword& keyword, bool proof) {
  if (keyword.keyword != "pattern" && keyword.keyword != "format") {
    return std::unexpected(not_enforced(*keyword.schema, keyword.keyword, "cannot be enforced"));
  }
  const std::string_view text = keyword.schema->at(keyword.keyword).get_string();
  if (keyword.keyword == "pattern") return pattern(*keyword.schema, keyword.keyword, text);
  if (format_kind(text) == FormatKind::NotEnforced) {
    return std::unexpected(not_enforced(*keyword.schema, "format", fmt::format("{} cannot be enforced", text)));
  }
  const bool all = keyword.negated != proof && !is_complete(text);
  std::string name = fmt::format("{} {} {}", all ? "all" : "written", keyword.negated ? "every" : "plain", text);
  const auto found = formats_.find(name);
  if (found != formats_.end()) return found->second;
  const auto regex = format_text(regexes_, text, all ? FormatTexts::All : FormatTexts::Written, keyword.negated);
  if (!regex) return std::unexpected(not_enforced(*keyword.schema, "format", regex.error().message));
  formats_.emplace(std::move(name), *regex);
  return *regex;
}

bool SchemaTexts::has_incomplete_format(const Facts& facts) {
  return std::any_of(facts.texts.begin(), facts.texts.end(), [](const LazyKeyword& keyword) {
    return keyword.keyword == "format" && !is_complete(keyword.schema->at("format").get_string());
  });
}

Result<RegexId> SchemaTexts::string_content(const Facts& facts, bool proof) {
  std::vector<RegexId> parts, without;
  for (const LazyKeyword& keyword : facts.texts) {
    const auto regex = text_keyword(keyword, proof);
    if (!regex) return regex;
    (keyword.negated ? without : parts).push_back(*regex);
  }
  for (const json::value* value : facts.excluded) {
    if (!regexes_.budget().take(1)) break;
    if (const json::string* text = value->if_string()) without.push_back(spelled(regexes_, *text, true));
  }
  // A pattern admits only what JSON can spell. Without one, or with lengths, that must be said.
  if (parts.empty() || facts.least_length > 0 || facts.most_length != UINT64_MAX) {
    parts.push_back(regexes_.repeat(character_, counter(facts.least_length), counter(facts.most_length)));
  }
  if (!without.empty()) parts.push_back(regexes_.complement(regexes_.any_of(without)));
  return regexes_.all_of(parts);
}

Result<RegexId> SchemaTexts::number(const Facts& facts) {
  const bool integers = (facts.types & kInteger) != 0, fractions = (facts.types & kFraction) != 0;
  if (facts.multiples.empty() && facts.excluded.empty() && !facts.range.bounded()) {
    RegexId& plain = plain_numbers_[(integers ? 1 : 0) + (fractions ? 2 : 0)];
    if (plain == RegexSet::kNothing) {
      plain = number_text(
          regexes_, facts.range,
          {.integers = integers, .fractions = fractions, .exponents = true, .zero_fraction = zero_fractions_});
    }
    return plain;
  }
  std::vector<RegexId> parts, without;
  for (const LazyKeyword& keyword : facts.multiples) {
    const auto of = decimal(keyword.schema->at(keyword.keyword));
    std::optional<RegexId> regex;
    if (of && !keyword.negated) regex = few_multiples_text(regexes_, *of, facts.range);
    if (of && !regex) regex = multiple_text(regexes_, *of);
    if (!regex) return std::unexpected(not_enforced(*keyword.schema, keyword.keyword, "cannot be enforced"));
    (keyword.negated ? without : parts).push_back(*regex);
  }
  for (const json::value* value : facts.excluded) {
    if (!regexes_.budget().take(1)) break;
    if (const auto number = decimal(*value)) without.push_back(equal_text(regexes_, *number));
  }
  parts.push_back(number_text(regexes_, facts.range,
                              {.integers = integers,
                               .fractions = fractions,
                               .exponents = parts.empty() && without.empty(),
                               .zero_fraction = zero_fractions_}));
  if (!without.empty()) parts.push_back(regexes_.complement(regexes_.any_of(without)));
  return regexes_.all_of(parts);
}

RegexId SchemaTexts::literal(const json::value& value) {
  if (!regexes_.budget().take(1)) return RegexSet::kNothing;
  switch (value.kind()) {
    case json::kind::null: return regexes_.text("null");
    case json::kind::bool_: return regexes_.text(value.get_bool() ? "true" : "false");
    case json::kind::string: return regexes_.text(fmt::format("\"{}\"", spelling(value.get_string())));
    case json::kind::array: {
      std::vector<RegexId> parts = {open('[')};
      for (const json::value& item : value.get_array()) {
        if (parts.size() > 1) parts.push_back(comma());
        parts.push_back(literal(item));
      }
      parts.push_back(parts.size() > 1 ? close(']') : regexes_.text("]"));
      return regexes_.concat(parts);
    }
    case json::kind::object: {
      std::vector<RegexId> parts = {open('{')};
      for (const auto& [key, member] : value.get_object()) {
        if (parts.size() > 1) parts.push_back(comma());
        parts.push_back(regexes_.text(fmt::format("\"{}\"", spelling(key))));
        parts.push_back(colon());
        parts.push_back(literal(member));
      }
      parts.push_back(parts.size() > 1 ? close('}') : regexes_.text("}"));
      return regexes_.concat(parts);
    }
    default: {
      const std::string text = number_literal(value);
      const auto number = decimal(value);
      // 1.0 in the schema may be written either way.
      if (number && number->is_integer() && (value.is_double() || zero_fractions_)) {
        const std::string whole = to_text(*number);
        return regexes_.any_of({regexes_.text(text), regexes_.text(whole), regexes_.text(whole + ".0")});
      }
      return regexes_.text(text);
    }
  }
}

}  // namespace quire::grammar
