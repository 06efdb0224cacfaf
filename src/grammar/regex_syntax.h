// Regular expressions as people write them (ECMAScript's syntax, which JSON Schema uses; and what Python's and Rust's
// have in common with it) to expressions over bytes.
//
// What holds: classes, escapes (\d \w \s \b is refused), groups (capturing or not, names ignored), alternatives, greedy
//   and lazy quantifiers (the language is the same), anchors at the ends, Unicode escapes and \p{..} where the tables
//   of base have it, (?i) by ASCII. Look-around and back-references are refused by name.
// How it fails: with one line that says what is not understood and at which byte.
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
};

Result<RegexId> parse_regex(RegexSet& regexes, std::string_view pattern, const RegexOptions& options = {});

// One character of a class, in the spellings of the option.
RegexId character_class(RegexSet& regexes, char32_t first, char32_t last, bool json_string);
// Any character.
RegexId any_character(RegexSet& regexes, bool json_string);
// This text, in every spelling.
RegexId spelled(RegexSet& regexes, std::string_view text, bool json_string);

}  // namespace quire::grammar
