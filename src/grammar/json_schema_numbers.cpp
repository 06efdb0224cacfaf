#include "quire/grammar/json_schema_numbers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <string_view>
#include <vector>

namespace quire::grammar {

namespace json = boost::json;

namespace {

// Limits on the size of the expression for multiples: remainders of an automaton, and endings in decimal digits.
constexpr std::uint64_t kLargestRemainders = 13;
constexpr std::uint64_t kLargestEndings = 2'000;
constexpr unsigned kMostDeciding = 18;  // digits of an ending: it is a number of 64 bits
// So many multiples between two bounds are written one by one.
constexpr std::int64_t kMostMultiples = 600;

Decimal from_digits(bool negative, std::string whole, std::string fraction) {
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  fraction.erase(fraction.find_last_not_of('0') + 1);
  Decimal result{.negative = negative, .whole = whole.empty() ? "0" : whole, .fraction = std::move(fraction)};
  if (result.is_zero()) result.negative = false;
  return result;
}

// "d.ddde-dd", as std::to_chars writes it.
Decimal from_scientific(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const std::size_t e = text.find('e');
  int exponent = 0;
  std::string_view power = text.substr(e + 1);
  if (power.starts_with('+')) power.remove_prefix(1);
  std::from_chars(power.data(), power.data() + power.size(), exponent);
  std::string digits(text.substr(0, 1));
  if (e > 2) digits += text.substr(2, e - 2);
  int point = 1 + exponent;  // digits before the point
  if (point < 0) {
    digits.insert(0, static_cast<std::size_t>(-point), '0');
    point = 0;
  }
  const auto before = static_cast<std::size_t>(point);
  if (digits.size() < before) digits.append(before - digits.size(), '0');
  return from_digits(negative, digits.substr(0, before), digits.substr(before));
}

RegexId digits_between(RegexSet& regexes, char first, char last) {
  if (first > last) return RegexSet::kNothing;
  return regexes.bytes(ByteSet::range(static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(last)));
}
RegexId digit(RegexSet& regexes) { return digits_between(regexes, '0', '9'); }
// Free digits are bounded, as white space is: a model that is unsure would otherwise write digits for ever.
constexpr std::uint32_t kMostDigits = 64;
RegexId digits(RegexSet& regexes) { return regexes.repeat(digit(regexes), 0, kMostDigits); }
// Digits behind the point, or none and no point.
RegexId any_fraction(RegexSet& regexes) {
  return regexes.optional(regexes.concat({regexes.text("."), regexes.repeat(digit(regexes), 1, kMostDigits)}));
}
RegexId zero_fraction(RegexSet& regexes) {
  return regexes.optional(regexes.concat({regexes.text("."), regexes.repeat(regexes.text("0"), 1)}));
}
// Any number of them: what must not be a multiple is none however long it is.
RegexId all_whole_digits(RegexSet& regexes) {
  return regexes.any_of(
      {regexes.text("0"), regexes.concat({digits_between(regexes, '1', '9'), regexes.repeat(digit(regexes), 0)})});
}
RegexId whole_digits(RegexSet& regexes) {
  return regexes.any_of({regexes.text("0"), regexes.concat({digits_between(regexes, '1', '9'), digits(regexes)})});
}

// What may stand behind the whole part `value.whole` so that the number is at least (greater: more than) `value`.
RegexId fraction_at_least(RegexSet& regexes, const std::string& fraction, bool exclusive) {
  // Behind all digits of the fraction: anything, but not only zeros if exclusive.
  RegexId tail = digits(regexes);
  if (exclusive) {
    tail = regexes.concat({regexes.repeat(regexes.text("0"), 0), digits_between(regexes, '1', '9'), digits(regexes)});
  }
  if (fraction.empty()) {
    return exclusive ? regexes.concat({regexes.text("."), tail}) : any_fraction(regexes);
  }
  for (std::size_t i = fraction.size(); i-- > 0;) {
    const char c = fraction[i];
    std::array<RegexId, 2> ways = {regexes.concat({regexes.text(std::string_view(&c, 1)), tail}), RegexSet::kNothing};
    if (c < '9') {
      ways[1] = regexes.concat({digits_between(regexes, static_cast<char>(c + 1), '9'), digits(regexes)});
    }
    tail = regexes.any_of(ways);
  }
  return regexes.concat({regexes.text("."), tail});
}

RegexId fraction_at_most(RegexSet& regexes, const std::string& fraction, bool exclusive) {
  // Behind all digits of the fraction: only zeros.
  RegexId tail = exclusive ? RegexSet::kNothing : regexes.repeat(regexes.text("0"), 0);
  if (fraction.empty()) return exclusive ? RegexSet::kNothing : zero_fraction(regexes);
  for (std::size_t i = fraction.size(); i-- > 0;) {
    const char c = fraction[i];
    std::array<RegexId, 3> ways = {regexes.concat({regexes.text(std::string_view(&c, 1)), tail}), RegexSet::kNothing,
                                   RegexSet::kNothing};
    if (c > '0') ways[1] = regexes.concat({digits_between(regexes, '0', static_cast<char>(c - 1)), digits(regexes)});
    if (i > 0) ways[2] = RegexSet::kEmpty;  // shorter, and so less: the last digit of the fraction is not zero
    tail = regexes.any_of(ways);
  }
  return regexes.optional(regexes.concat({regexes.text("."), tail}));
}

// Texts without a sign that are at least `value`, whose sign is not looked at.
RegexId magnitude_at_least(RegexSet& regexes, const Decimal& value, bool exclusive) {
  const std::size_t count = value.whole.size();
  RegexId same_length = fraction_at_least(regexes, value.fraction, exclusive);
  for (std::size_t i = count; i-- > 0;) {
    const char c = value.whole[i];
    std::array<RegexId, 2> ways = {regexes.concat({regexes.text(std::string_view(&c, 1)), same_length}),
                                   RegexSet::kNothing};
    if (c < '9') {
      ways[1] = regexes.concat({digits_between(regexes, static_cast<char>(c + 1), '9'),
                                regexes.repeat(digit(regexes), static_cast<std::uint32_t>(count - 1 - i),
                                               static_cast<std::uint32_t>(count - 1 - i)),
                                any_fraction(regexes)});
    }
    same_length = regexes.any_of(ways);
  }
  const RegexId longer = regexes.concat({digits_between(regexes, '1', '9'),
                                         regexes.repeat(digit(regexes), static_cast<std::uint32_t>(count),
                                                        static_cast<std::uint32_t>(count) + kMostDigits),
                                         any_fraction(regexes)});
  return regexes.any_of({same_length, longer});
}

RegexId magnitude_at_most(RegexSet& regexes, const Decimal& value, bool exclusive) {
  const std::size_t count = value.whole.size();
  RegexId same_length = fraction_at_most(regexes, value.fraction, exclusive);
  for (std::size_t i = count; i-- > 0;) {
    const char c = value.whole[i];
    // A number of several digits does not begin with zero.
    const char least = i == 0 && count > 1 ? '1' : '0';
    std::array<RegexId, 2> ways = {regexes.concat({regexes.text(std::string_view(&c, 1)), same_length}),
                                   RegexSet::kNothing};
    if (c > least) {
      ways[1] = regexes.concat({digits_between(regexes, least, static_cast<char>(c - 1)),
                                regexes.repeat(digit(regexes), static_cast<std::uint32_t>(count - 1 - i),
                                               static_cast<std::uint32_t>(count - 1 - i)),
                                any_fraction(regexes)});
    }
    same_length = regexes.any_of(ways);
  }
  if (count == 1) return same_length;
  const RegexId shorter = regexes.any_of(
      {regexes.text("0"), regexes.concat({digits_between(regexes, '1', '9'),
                                          regexes.repeat(digit(regexes), 0, static_cast<std::uint32_t>(count - 2))})});
  return regexes.any_of({same_length, regexes.concat({shorter, any_fraction(regexes)})});
}

RegexId in_range(RegexSet& regexes, const NumberRange& range) {
  const Decimal zero;
  std::vector<RegexId> ways;
  if (!range.most || compare(range.most->value, zero) >= 0) {
    std::vector<RegexId> parts = {regexes.concat({whole_digits(regexes), any_fraction(regexes)})};
    if (range.least && compare(range.least->value, zero) >= 0) {
      parts.push_back(magnitude_at_least(regexes, range.least->value, range.least->exclusive));
    }
    if (range.most) parts.push_back(magnitude_at_most(regexes, range.most->value, range.most->exclusive));
    ways.push_back(regexes.all_of(parts));
  }
  if (!range.least || range.least->value.negative) {
    std::vector<RegexId> parts = {magnitude_at_least(regexes, zero, true)};
    if (range.most && range.most->value.negative) {
      parts.push_back(magnitude_at_least(regexes, range.most->value, range.most->exclusive));
    }
    if (range.least) parts.push_back(magnitude_at_most(regexes, range.least->value, range.least->exclusive));
    ways.push_back(regexes.concat({regexes.text("-"), regexes.all_of(parts)}));
  }
  return regexes.any_of(ways);
}

// Without bounds, or with a bound at zero only: then the sign decides, and there may be an exponent.
std::optional<RegexId> with_exponent(RegexSet& regexes, const NumberRange& range) {
  const bool from_zero = range.least && range.least->value.is_zero() && !range.least->exclusive && !range.most;
  const bool to_zero = range.most && range.most->value.is_zero() && !range.most->exclusive && !range.least;
  if (range.bounded() && !from_zero && !to_zero) return std::nullopt;
  ByteSet e, sign;
  for (const char c : {'e', 'E'}) e.add(static_cast<std::uint8_t>(c));
  for (const char c : {'+', '-'}) sign.add(static_cast<std::uint8_t>(c));
  const RegexId exponent =
      regexes.concat({regexes.bytes(e), regexes.optional(regexes.bytes(sign)), regexes.repeat(digit(regexes), 1, 3)});
  const RegexId magnitude = regexes.concat({whole_digits(regexes), any_fraction(regexes), regexes.optional(exponent)});
  const RegexId minus = regexes.text("-");
  if (from_zero) return magnitude;
  if (to_zero) return regexes.any_of({regexes.concat({minus, magnitude}), regexes.text("0"), regexes.text("0.0")});
  return regexes.concat({regexes.optional(minus), magnitude});
}

// Whole digits whose number is a multiple of `of`, by the remainders: eliminates the states of the automaton one by
// one. The expression is shared as a graph, of about of³ nodes.
RegexId digits_modulo(RegexSet& regexes, unsigned of) {
  std::vector<std::vector<RegexId>> step(of, std::vector<RegexId>(of, RegexSet::kNothing));
  for (unsigned from = 0; from < of; ++from) {
    for (unsigned d = 0; d < 10; ++d) {
      const char c = static_cast<char>('0' + d);
      RegexId& way = step[from][(from * 10 + d) % of];
      way = regexes.any_of({way, regexes.text(std::string_view(&c, 1))});
    }
  }
  for (unsigned gone = of - 1; gone >= 1; --gone) {
    const RegexId loop = regexes.repeat(step[gone][gone], 0);
    for (unsigned from = 0; from < gone; ++from) {
      if (step[from][gone] == RegexSet::kNothing) continue;
      const RegexId in = regexes.concat({step[from][gone], loop});
      for (unsigned to = 0; to < gone; ++to) {
        step[from][to] = regexes.any_of({step[from][to], regexes.concat({in, step[gone][to]})});
      }
    }
  }
  return regexes.repeat(step[0][0], 0);
}

}  // namespace

std::optional<Decimal> decimal(const json::value& value) {
  if (value.is_int64()) {
    const std::int64_t number = value.get_int64();
    const auto magnitude = number < 0 ? ~static_cast<std::uint64_t>(number) + 1 : static_cast<std::uint64_t>(number);
    return from_digits(number < 0, std::to_string(magnitude), "");
  }
  if (value.is_uint64()) return from_digits(false, std::to_string(value.get_uint64()), "");
  if (!value.is_double() || !std::isfinite(value.get_double())) return std::nullopt;
  std::array<char, 64> text;
  const auto [end, error] =
      std::to_chars(text.data(), text.data() + text.size(), value.get_double(), std::chars_format::scientific);
  if (error != std::errc()) return std::nullopt;
  return from_scientific(std::string_view(text.data(), static_cast<std::size_t>(end - text.data())));
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  int order = 0;
  if (a.whole.size() != b.whole.size()) {
    order = a.whole.size() < b.whole.size() ? -1 : 1;
  } else {
    order = a.whole.compare(b.whole);
    if (order == 0) order = a.fraction.compare(b.fraction);
  }
  return a.negative ? -order : order;
}

std::string to_text(const Decimal& value) {
  return (value.negative ? "-" : "") + value.whole + (value.fraction.empty() ? "" : "." + value.fraction);
}

void NumberRange::at_least(const Decimal& value, bool exclusive) {
  const int order = least ? compare(value, least->value) : 1;
  if (order > 0) least = End{.value = value, .exclusive = exclusive};
  if (order == 0) least->exclusive = least->exclusive || exclusive;
}

void NumberRange::at_most(const Decimal& value, bool exclusive) {
  const int order = most ? compare(value, most->value) : -1;
  if (order < 0) most = End{.value = value, .exclusive = exclusive};
  if (order == 0) most->exclusive = most->exclusive || exclusive;
}

bool NumberRange::empty(bool integers) const {
  if (!least || !most) return false;
  const int order = compare(least->value, most->value);
  if (order > 0) return true;
  if (order == 0) return least->exclusive || most->exclusive || (integers && !least->value.is_integer());
  // Between two neighbours there is no integer. Wider gaps are left to the expression.
  return integers && least->value.whole == most->value.whole && least->value.negative == most->value.negative &&
         (least->exclusive || !least->value.is_integer()) && (most->exclusive || !most->value.is_integer());
}

RegexId number_text(RegexSet& regexes, const NumberRange& range, const NumberShape& shape) {
  if (shape.integers && shape.fractions) {
    if (shape.exponents) {
      if (const auto text = with_exponent(regexes, range)) return *text;
    }
    return in_range(regexes, range);
  }
  std::vector<RegexId> parts = {regexes.optional(regexes.text("-")), whole_digits(regexes)};
  if (shape.fractions) {
    parts.insert(parts.end(), {regexes.text("."), digits(regexes), digits_between(regexes, '1', '9'), digits(regexes)});
  } else if (shape.zero_fraction) {
    parts.push_back(regexes.optional(regexes.text(".0")));
  }
  const RegexId text = regexes.concat(parts);
  return range.bounded() ? regexes.all_of({in_range(regexes, range), text}) : text;
}

std::optional<RegexId> multiple_text(RegexSet& regexes, const Decimal& of) {
  // of = number / 10^shift; number = even * odd, and even has no prime factors but those of ten.
  const auto shift = static_cast<unsigned>(of.fraction.size());
  const std::string text = of.whole + of.fraction;
  std::uint64_t number = 0;
  if (of.negative || text.size() > 15 || shift > 12) return std::nullopt;
  std::from_chars(text.data(), text.data() + text.size(), number);
  if (number == 0) return std::nullopt;
  unsigned twos = 0, fives = 0;
  std::uint64_t odd = number;
  for (; odd % 2 == 0; odd /= 2) ++twos;
  for (; odd % 5 == 0; odd /= 5) ++fives;
  const std::uint64_t even = number / odd;
  if (odd > kLargestRemainders || (odd > 1 && shift > 0)) return std::nullopt;

  const RegexId sign = regexes.optional(regexes.text("-"));
  const RegexId zeros = regexes.repeat(regexes.text("0"), 0);
  RegexId whole = all_whole_digits(regexes);
  if (odd > 1) whole = regexes.all_of({whole, digits_modulo(regexes, static_cast<unsigned>(odd))});
  if (even == 1) {
    RegexId behind = zero_fraction(regexes);
    if (shift > 0) {
      behind = regexes.optional(regexes.concat({regexes.text("."), regexes.repeat(digit(regexes), 1, shift), zeros}));
    }
    return regexes.concat({sign, whole, behind});
  }
  // The digits behind the point, and some before it, decide whether it is a multiple of `even`.
  const unsigned decide = std::max({twos, fives, shift});
  const unsigned before = decide - shift;
  std::uint64_t power = 1;
  if (decide > kMostDeciding) return std::nullopt;
  for (unsigned i = 0; i < decide; ++i) power *= 10;
  if (power / even > kLargestEndings) return std::nullopt;
  // By the fraction: the endings of the whole part are one expression, whose digits in front are then shared.
  std::map<std::string, std::vector<RegexId>> wholes;
  for (std::uint64_t end = 0; end < power; end += even) {
    std::string last = std::to_string(end);
    last.insert(0, decide - last.size(), '0');
    std::string fraction = last.substr(before);
    fraction.erase(fraction.find_last_not_of('0') + 1);
    last.resize(before);
    std::vector<RegexId>& ways = wholes[fraction];
    ways.push_back(regexes.concat({regexes.repeat(digit(regexes), 0), regexes.text(last)}));
    const std::size_t first = last.find_first_not_of('0');
    if (before > 0) ways.push_back(regexes.text(first == std::string::npos ? "0" : last.substr(first)));
  }
  std::vector<RegexId> ways;
  for (const auto& [fraction, endings] : wholes) {
    const RegexId behind =
        fraction.empty() ? zero_fraction(regexes) : regexes.concat({regexes.text("." + fraction), zeros});
    ways.push_back(regexes.concat({regexes.all_of({whole, regexes.any_of(endings)}), behind}));
  }
  return regexes.concat({sign, regexes.any_of(ways)});
}

std::optional<RegexId> few_multiples_text(RegexSet& regexes, const Decimal& of, const NumberRange& range) {
  const auto whole = [](const Decimal& value) -> std::optional<std::int64_t> {
    std::int64_t number = 0;
    if (value.whole.size() > 15) return std::nullopt;
    std::from_chars(value.whole.data(), value.whole.data() + value.whole.size(), number);
    return value.negative ? -number : number;
  };
  if (!of.is_integer() || !range.least || !range.most) return std::nullopt;
  const auto step = whole(of), least = whole(range.least->value), most = whole(range.most->value);
  if (!step || *step < 1 || !least || !most) return std::nullopt;
  // Rounded to zero above: one more to each side.
  const std::int64_t first = *least / *step - 1, last = *most / *step + 1;
  if (last - first > kMostMultiples) return std::nullopt;
  std::vector<RegexId> ways;
  for (std::int64_t i = first; i <= last; ++i) {
    ways.push_back(equal_text(regexes, from_digits(i < 0, std::to_string(std::abs(i * *step)), {})));
  }
  return regexes.any_of(ways);
}

RegexId equal_text(RegexSet& regexes, const Decimal& value) {
  if (value.fraction.empty()) {
    const RegexId whole = regexes.concat({regexes.text(value.whole), zero_fraction(regexes)});
    if (value.is_zero()) return regexes.concat({regexes.optional(regexes.text("-")), whole});
    return value.negative ? regexes.concat({regexes.text("-"), whole}) : whole;
  }
  return regexes.concat({regexes.text(to_text(value)), regexes.repeat(regexes.text("0"), 0)});
}

}  // namespace quire::grammar
