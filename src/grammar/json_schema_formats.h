// The formats of JSON Schema that have a grammar: date, time, email, uri, ... as the RFCs that the specification names
// write them.
#pragma once

#include <string_view>

#include "quire/base/error.h"
#include "quire/grammar/regex_set.h"

namespace quire::grammar {

enum class FormatKind {
  Known,        // format_text() has it
  NotEnforced,  // the specification defines it, and it has no regular expression
  Annotation,   // not of the specification: says nothing about the text
};
FormatKind format_kind(std::string_view name);

enum class FormatTexts {
  Written,  // those that everybody takes for texts of the format
  All,      // those that somebody does: what is not among them is certainly not of the format
};
// Whether both are the same.
bool is_complete(std::string_view name);

// The text between the quotation marks. `every_spelling`: with every escape that JSON has. Otherwise characters that
// need no escape stand for themselves only.
Result<RegexId> format_text(RegexSet& regexes, std::string_view name, FormatTexts which, bool every_spelling);

}  // namespace quire::grammar
