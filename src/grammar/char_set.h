// A set of Unicode's characters, and the expression over bytes that matches one of them.
//
// Who may call: one thread at a time.
// What holds: the ranges are sorted, do not touch, and have no surrogates. Expressions are tries of bytes, with equal
//   branches put together, so that they stay small.
#pragma once

#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/grammar/regex_set.h"

namespace quire::grammar {

class CharSet {
 public:
  struct Range {
    char32_t first = 0, last = 0;
    auto operator<=>(const Range&) const = default;
  };

  CharSet() = default;
  CharSet(char32_t first, char32_t last) : ranges_{{first, last}} { normalize(); }
  // In any order, overlapping or not. Surrogates and what is above U+10FFFF are left out.
  explicit CharSet(std::vector<Range> ranges) : ranges_(std::move(ranges)) { normalize(); }
  static const CharSet& all();

  const std::vector<Range>& ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }
  bool has(char32_t character) const;
  void add(const CharSet& other);
  CharSet complement() const;
  CharSet intersection(const CharSet& other) const;
  // With each ASCII letter also in the other case.
  CharSet ignoring_case() const;
  auto operator<=>(const CharSet&) const = default;

 private:
  void normalize();
  std::vector<Range> ranges_;
};

// One character of the set: as UTF-8, or as it may stand between the quotation marks of a JSON string: raw where JSON
// allows it, or as an escape (\n, \", \u000A, pairs of surrogates), letters of hexadecimal numbers in both cases.
RegexId regex_of(RegexSet& regexes, const CharSet& set, bool json_string);

// A class of Unicode by its name, as \p{..} has it: a general category ("Lu", "Uppercase_Letter"), a script ("Greek",
// "Script=Greek") or "Any". Fails with one line if there is no such class. The first use of a name in a process takes
// some milliseconds; `budget` is charged every time.
Result<CharSet> unicode_class(std::string_view name, Budget& budget);

}  // namespace quire::grammar
