// Regular expressions as people write them (ECMAScript's syntax, which JSON Schema uses; and what Python's and Rust's
// have in common with it) to expressions over bytes.
//
// What holds:
// - Understood: classes, escapes (\d \w \s by ECMAScript: \d and \w are ASCII), groups (capturing or not, names
//   ignored), alternatives, greedy and lazy quantifiers (the language is the same), anchors, Unicode escapes and
//   \p{..}, the flags (?i) by ASCII and (?s). "." is any character but line ends (\n \r U+2028 U+2029).
// - Anchors are exact wherever they stand. Look-ahead is exact outside of repetitions, and as the text that a repeated
//   character must not begin: "^((?!x).)*$".
// - Refused by name: look-behind, back-references, \b, and what ECMAScript, Python and Rust read differently ({,n},
//   [:alpha:], octal numbers).
// How it fails: with one line that says what is not understood and at which byte. An expression that is too large shows
//   in the budget.
#pragma once

#include <string_view>

#include "quire/base/error.h"
#include "quire/grammar/regex_set.h"

namespace quire::grammar {

struct RegexOptions {
  // The expression must match the whole text. Otherwise it may match anywhere in it, as JSON Schema's `pattern` does,
  // unless it has anchors.
  bool whole = true;
  // The result matches the text as it stands between the quotation marks of a JSON string: with every spelling that
  // JSON has for a character (escapes, \uXXXX). Otherwise UTF-8.
  bool json_string = false;
  // As (?i) and (?s) at the front.
  bool ignore_case = false;
  bool dot_all = false;
};

Result<RegexId> parse_regex(RegexSet& regexes, std::string_view pattern, const RegexOptions& options = {});

// One character of a class, in the spellings of the option.
RegexId character_class(RegexSet& regexes, char32_t first, char32_t last, bool json_string);
// Any character.
RegexId any_character(RegexSet& regexes, bool json_string);
// This text, in every spelling.
RegexId spelled(RegexSet& regexes, std::string_view text, bool json_string);

}  // namespace quire::grammar
