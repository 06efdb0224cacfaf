#include "quire/grammar/char_set.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>

namespace quire::grammar {
namespace {

constexpr char32_t kLast = 0x10FFFF;

// A view of a sorted list of ranges that answers questions about runs of code points.
class Runs {
 public:
  explicit Runs(const std::vector<CharSet::Range>& ranges) : ranges_(ranges) {}

  enum class Cover { none, some, full };
  Cover cover(char32_t first, char32_t last) const {
    const auto range = std::ranges::lower_bound(ranges_, first, {}, &CharSet::Range::last);
    if (range == ranges_.end() || range->first > last) return Cover::none;
    return range->first <= first && last <= range->last ? Cover::full : Cover::some;
  }

 private:
  const std::vector<CharSet::Range>& ranges_;
};

// Alternatives of the form "one of these bytes, then that", with those that go on in the same way put together.
class Branches {
 public:
  void add(const ByteSet& bytes, RegexId then) {
    if (then == RegexSet::kNothing || bytes.empty()) return;
    for (auto& branch : branches_) {
      if (branch.second != then) continue;
      branch.first = branch.first | bytes;
      return;
    }
    branches_.emplace_back(bytes, then);
  }
  RegexId regex(RegexSet& regexes) const {
    std::vector<RegexId> parts;
    parts.reserve(branches_.size());
    for (const auto& [bytes, then] : branches_) parts.push_back(regexes.concat({regexes.bytes(bytes), then}));
    return regexes.any_of(parts);
  }

 private:
  std::vector<std::pair<ByteSet, RegexId>> branches_;
};

ByteSet one(std::uint8_t byte) { return ByteSet::range(byte, byte); }

// The last `more` bytes of UTF-8 sequences that stand for the code points from `first` on.
RegexId continuation(RegexSet& regexes, const Runs& runs, char32_t first, int more) {
  if (more == 0) return RegexSet::kEmpty;
  const char32_t step = char32_t{1} << (6 * (more - 1));
  if (runs.cover(first, first + 64 * step - 1) == Runs::Cover::full) {
    return regexes.repeat(regexes.bytes(ByteSet::range(0x80, 0xBF)), static_cast<std::uint32_t>(more),
                          static_cast<std::uint32_t>(more));
  }
  Branches branches;
  for (unsigned i = 0; i < 64; ++i) {
    const char32_t from = first + i * step;
    if (runs.cover(from, from + step - 1) == Runs::Cover::none) continue;
    branches.add(one(static_cast<std::uint8_t>(0x80 + i)), continuation(regexes, runs, from, more - 1));
  }
  return branches.regex(regexes);
}

void add_utf8(RegexSet& regexes, const CharSet& set, Branches& branches) {
  ByteSet ascii;
  for (const auto& [first, last] : set.ranges()) {
    if (first >= 0x80) break;
    ascii = ascii |
            ByteSet::range(static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(std::min<char32_t>(last, 0x7F)));
  }
  branches.add(ascii, RegexSet::kEmpty);
  struct Form {
    unsigned zero;  // the lead byte that would begin with code point 0
    char32_t first, last;
    int more;
  };
  for (const auto& [zero, first, last, more] :
       {Form{0xC0, 0x80, 0x7FF, 1}, Form{0xE0, 0x800, 0xFFFF, 2}, Form{0xF0, 0x10000, kLast, 3}}) {
    const CharSet part = set.intersection(CharSet(first, last));
    if (part.empty()) continue;
    const Runs runs(part.ranges());
    const char32_t step = char32_t{1} << (6 * more);
    for (char32_t from = first / step * step; from <= last; from += step) {
      if (runs.cover(from, from + step - 1) == Runs::Cover::none) continue;
      branches.add(one(static_cast<std::uint8_t>(zero + from / step)), continuation(regexes, runs, from, more));
    }
  }
}

ByteSet hex_digit(unsigned value) {
  if (value < 10) return one(static_cast<std::uint8_t>('0' + value));
  return one(static_cast<std::uint8_t>('a' + value - 10)) | one(static_cast<std::uint8_t>('A' + value - 10));
}

// The last `digits` hexadecimal digits of the numbers from `first` on.
RegexId hexadecimal(RegexSet& regexes, const Runs& runs, char32_t first, int digits) {
  if (digits == 0) return RegexSet::kEmpty;
  const char32_t step = char32_t{1} << (4 * (digits - 1));
  if (runs.cover(first, first + 16 * step - 1) == Runs::Cover::full) {
    ByteSet any;
    for (unsigned i = 0; i < 16; ++i) any = any | hex_digit(i);
    return regexes.repeat(regexes.bytes(any), static_cast<std::uint32_t>(digits), static_cast<std::uint32_t>(digits));
  }
  Branches branches;
  for (unsigned i = 0; i < 16; ++i) {
    const char32_t from = first + i * step;
    if (runs.cover(from, from + step - 1) == Runs::Cover::none) continue;
    branches.add(hex_digit(i), hexadecimal(regexes, runs, from, digits - 1));
  }
  return branches.regex(regexes);
}

// The 16-bit units of `units` as "uXXXX". Unlike CharSet, they may be surrogates.
RegexId unit_escape(RegexSet& regexes, const std::vector<CharSet::Range>& units) {
  if (units.empty()) return RegexSet::kNothing;
  return regexes.concat({regexes.bytes(one('u')), hexadecimal(regexes, Runs(units), 0, 4)});
}

// What may follow the backslash of an escape that stands for a character above U+FFFF: two units.
RegexId pair_escape(RegexSet& regexes, const CharSet& set) {
  std::map<std::vector<CharSet::Range>, std::vector<CharSet::Range>> high_by_low;
  const auto note = [&](std::vector<CharSet::Range> low, char32_t first_high, char32_t last_high) {
    auto& high = high_by_low[std::move(low)];
    if (!high.empty() && high.back().last + 1 == first_high) {
      high.back().last = last_high;
    } else {
      high.push_back({first_high, last_high});
    }
  };
  for (const auto& range : set.ranges()) {
    if (range.last < 0x10000) continue;
    char32_t first = std::max<char32_t>(range.first, 0x10000);
    while (first <= range.last) {
      const char32_t row = (first - 0x10000) >> 10;
      const char32_t row_first = 0x10000 + (row << 10);
      if (first == row_first && range.last >= row_first + 0x3FF) {
        const char32_t rows = (range.last + 1 - first) >> 10;
        note({{0xDC00, 0xDFFF}}, 0xD800 + row, 0xD800 + row + rows - 1);
        first += rows << 10;
        continue;
      }
      // A row that is covered in part: everything of the set in it, once.
      std::vector<CharSet::Range> low;
      for (auto part = std::ranges::lower_bound(set.ranges(), row_first, {}, &CharSet::Range::last);
           part != set.ranges().end() && part->first <= row_first + 0x3FF; ++part) {
        low.push_back({0xDC00 + (std::max(part->first, row_first) - row_first),
                       0xDC00 + (std::min<char32_t>(part->last, row_first + 0x3FF) - row_first)});
      }
      const bool is_first = low.front().first == 0xDC00 + (first - row_first);
      if (is_first) note(std::move(low), 0xD800 + row, 0xD800 + row);
      first = row_first + 0x400;
    }
  }
  std::vector<RegexId> parts;
  parts.reserve(high_by_low.size());
  for (const auto& [low, high] : high_by_low) {
    parts.push_back(
        regexes.concat({hexadecimal(regexes, Runs(high), 0, 4), regexes.bytes(one('\\')), unit_escape(regexes, low)}));
  }
  return regexes.any_of(parts);
}

struct ShortEscape {
  char32_t character;
  char letter;
};
constexpr std::array<ShortEscape, 8> kShortEscapes = {
    {{'"', '"'}, {'\\', '\\'}, {'/', '/'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}}};

RegexId escapes(RegexSet& regexes, const CharSet& set) {
  ByteSet letters;
  for (const auto& [character, letter] : kShortEscapes) {
    if (set.has(character)) letters.add(static_cast<std::uint8_t>(letter));
  }
  const CharSet plane = set.intersection(CharSet(0, 0xFFFF));
  std::vector<RegexId> numbers;
  if (!plane.empty()) numbers.push_back(hexadecimal(regexes, Runs(plane.ranges()), 0, 4));
  numbers.push_back(pair_escape(regexes, set));
  Branches after;
  after.add(letters, RegexSet::kEmpty);
  after.add(one('u'), regexes.any_of(numbers));
  return after.regex(regexes);
}

}  // namespace

const CharSet& CharSet::all() {
  static const CharSet everything(0, kLast);
  return everything;
}

bool CharSet::has(char32_t character) const {
  const auto range = std::ranges::lower_bound(ranges_, character, {}, &Range::last);
  return range != ranges_.end() && range->first <= character;
}

void CharSet::add(const CharSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  normalize();
}

CharSet CharSet::complement() const {
  std::vector<Range> ranges;
  char32_t next = 0;
  for (const auto& range : ranges_) {
    if (range.first > next) ranges.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLast) ranges.push_back({next, kLast});
  return CharSet(std::move(ranges));
}

CharSet CharSet::intersection(const CharSet& other) const {
  std::vector<Range> ranges;
  auto a = ranges_.begin();
  auto b = other.ranges_.begin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    const char32_t first = std::max(a->first, b->first);
    const char32_t last = std::min(a->last, b->last);
    if (first <= last) ranges.push_back({first, last});
    if (a->last < b->last) {
      ++a;
    } else {
      ++b;
    }
  }
  return CharSet(std::move(ranges));
}

CharSet CharSet::ignoring_case() const {
  std::vector<Range> ranges = ranges_;
  for (char32_t letter = 'a'; letter <= 'z'; ++letter) {
    const char32_t upper = letter - 'a' + 'A';
    if (has(letter)) ranges.push_back({upper, upper});
    if (has(upper)) ranges.push_back({letter, letter});
  }
  return CharSet(std::move(ranges));
}

void CharSet::normalize() {
  std::vector<Range> valid;
  valid.reserve(ranges_.size() + 1);
  for (auto [first, last] : ranges_) {
    last = std::min(last, kLast);
    if (first > last) continue;
    // Surrogates are no characters.
    if (first < 0xD800) valid.push_back({first, std::min<char32_t>(last, 0xD7FF)});
    if (last > 0xDFFF) valid.push_back({std::max<char32_t>(first, 0xE000), last});
  }
  std::ranges::sort(valid);
  ranges_.clear();
  for (const auto& range : valid) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

RegexId regex_of(RegexSet& regexes, const CharSet& set, bool json_string) {
  if (!regexes.budget().take(set.ranges().size())) return RegexSet::kNothing;
  Branches branches;
  if (!json_string) {
    add_utf8(regexes, set, branches);
    return branches.regex(regexes);
  }
  static const CharSet raw({{0x20, 0x21}, {0x23, 0x5B}, {0x5D, kLast}});
  add_utf8(regexes, set.intersection(raw), branches);
  branches.add(one('\\'), escapes(regexes, set));
  return branches.regex(regexes);
}

}  // namespace quire::grammar
