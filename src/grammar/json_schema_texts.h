// The regular expressions of a schema's scalars: strings, numbers, literal values, keys.
//
// What holds: keys, enum and const are written in one spelling only (what must not be escaped is not), so that keys can
//   be compared by their text, and what is decided needs no choice. Other strings may use every escape of JSON.
//   Integers have no fraction, unless the schema says that it is of draft 6 or later, where 1.0 is an integer.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include <boost/json/value.hpp>

#include "quire/base/error.h"
#include "quire/grammar/json_schema_document.h"
#include "quire/grammar/json_schema_facts.h"
#include "quire/grammar/regex_set.h"

namespace quire::grammar {

class SchemaTexts {
 public:
  SchemaTexts(RegexSet& regexes, const SchemaDocument& document, bool compact);

  RegexSet& regexes() { return regexes_; }
  RegexId space() const { return space_; }
  // The punctuation with white space around it; brackets and braces have it inside.
  RegexId open(char c) const { return c == '{' ? open_object_ : open_array_; }
  RegexId close(char c) const { return c == '}' ? close_object_ : close_array_; }
  RegexId comma() const { return comma_; }
  RegexId colon() const { return colon_; }
  RegexId between(RegexId content);  // quotation marks

  // What stands between the quotation marks.
  static std::string spelling(std::string_view text);
  // Any string in the one spelling of keys.
  RegexId key_content();
  // This key between its quotation marks; with them and the colon.
  RegexId name_content(std::string_view name) { return named(name).content; }
  RegexId name_and_colon(std::string_view name) { return named(name).member; }
  Result<RegexId> pattern(const boost::json::object& schema, std::string_view keyword, std::string_view pattern);
  // `proof`: for a proof that no string fits. Texts that may or may not be of a format are then among the strings;
  // otherwise they are not, whether it is asked for or excluded.
  Result<RegexId> string_content(const Facts& facts, bool proof = false);
  // Whether the strings of a proof may be more.
  static bool has_incomplete_format(const Facts& facts);
  Result<RegexId> number(const Facts& facts);
  RegexId literal(const boost::json::value& value);

  Error not_enforced(const boost::json::object& schema, std::string_view keyword, std::string_view why) const;

 private:
  struct Name {
    RegexId content, member;
  };
  const Name& named(std::string_view name);
  Result<RegexId> text_keyword(const LazyKeyword& keyword, bool proof);

  RegexSet& regexes_;
  const SchemaDocument& document_;
  RegexId space_, blanks_, open_object_, close_object_, open_array_, close_array_, comma_, colon_;
  RegexId character_;  // of a string
  RegexId key_content_ = RegexSet::kNothing;
  bool zero_fractions_;                     // 1.0 is an integer
  std::array<RegexId, 4> plain_numbers_{};  // without bounds, by the types
  std::unordered_map<std::string, Name> names_;
  std::unordered_map<std::string, RegexId> patterns_;
  std::unordered_map<std::string, RegexId> formats_;
};

}  // namespace quire::grammar
