// Decimal numbers of JSON as regular expressions: ranges and multiples, exact, with up to 64 digits that nothing bounds
// before and behind the point.
//
// What holds: bounds are decimal digits, not floating point. A number that has bounds or must be a multiple is written
//   without an exponent; one that has none may have an exponent of up to three digits.
#pragma once

#include <optional>
#include <span>
#include <string>

#include <boost/json/value.hpp>

#include "quire/grammar/regex_set.h"

namespace quire::grammar {

struct Decimal {
  bool negative = false;
  std::string whole = "0";  // no leading zeros, except for "0"
  std::string fraction;     // no trailing zeros

  bool is_integer() const { return fraction.empty(); }
  bool is_zero() const { return whole == "0" && fraction.empty(); }
  bool operator==(const Decimal&) const = default;
};

// The shortest decimal number that is read back as this one. Nothing if it is not a number.
std::optional<Decimal> decimal(const boost::json::value& value);
int compare(const Decimal& a, const Decimal& b);
std::string to_text(const Decimal& value);

struct NumberRange {
  struct End {
    Decimal value;
    bool exclusive = false;
  };
  std::optional<End> least, most;

  void at_least(const Decimal& value, bool exclusive);
  void at_most(const Decimal& value, bool exclusive);
  bool bounded() const { return least.has_value() || most.has_value(); }
  // No number is in it; `integers`: no integer.
  bool empty(bool integers) const;
};

struct NumberShape {
  bool integers = true, fractions = true;  // which numbers are meant, by value
  bool exponents = false;                  // where there are no bounds, or the sign alone decides
  bool zero_fraction = false;              // if only integers are meant: "1.0" is one
};
RegexId number_text(RegexSet& regexes, const NumberRange& range, const NumberShape& shape);
// Multiples of `of`, all of them, without exponents. Nothing if it cannot be written as a regular expression of
// bearable size.
std::optional<RegexId> multiple_text(RegexSet& regexes, const Decimal& of);
// The same for those around the range, one by one; they are to be intersected with it. Nothing if they are too many.
std::optional<RegexId> few_multiples_text(RegexSet& regexes, const Decimal& of, const NumberRange& range);
// All spellings without an exponent of this number.
RegexId equal_text(RegexSet& regexes, const Decimal& value);

}  // namespace quire::grammar
