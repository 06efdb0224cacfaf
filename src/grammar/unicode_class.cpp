// The classes come from PCRE2's tables, by matching every character once. So there is no table here to keep up to date.
#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "quire/base/utf8.h"
#include "quire/grammar/char_set.h"
#include "quire/text/regex.h"

namespace quire::grammar {
namespace {

// About what the first use costs. Charged for every use, so that what is accepted does not depend on what came before.
constexpr std::uint64_t kSteps = 400'000;

constexpr std::array<std::pair<std::string_view, std::string_view>, 38> kLongNames = {{
    {"Letter", "L"},
    {"Cased_Letter", "L&"},
    {"LC", "L&"},
    {"Uppercase_Letter", "Lu"},
    {"Lowercase_Letter", "Ll"},
    {"Titlecase_Letter", "Lt"},
    {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"},
    {"Mark", "M"},
    {"Nonspacing_Mark", "Mn"},
    {"Spacing_Mark", "Mc"},
    {"Enclosing_Mark", "Me"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"digit", "Nd"},
    {"Letter_Number", "Nl"},
    {"Other_Number", "No"},
    {"Punctuation", "P"},
    {"punct", "P"},
    {"Connector_Punctuation", "Pc"},
    {"Dash_Punctuation", "Pd"},
    {"Open_Punctuation", "Ps"},
    {"Close_Punctuation", "Pe"},
    {"Initial_Punctuation", "Pi"},
    {"Final_Punctuation", "Pf"},
    {"Other_Punctuation", "Po"},
    {"Symbol", "S"},
    {"Math_Symbol", "Sm"},
    {"Currency_Symbol", "Sc"},
    {"Modifier_Symbol", "Sk"},
    {"Other_Symbol", "So"},
    {"Separator", "Z"},
    {"Space_Separator", "Zs"},
    {"Line_Separator", "Zl"},
    {"Paragraph_Separator", "Zp"},
    {"Control", "Cc"},
    {"Format", "Cf"},
    {"Private_Use", "Co"},
}};

// Runs of characters of which every one is asked for, and runs whose characters all have the class of the first one:
// planes that are not assigned or are for private use.
struct Run {
  char32_t first, last;
  bool uniform;
};
constexpr std::array<Run, 9> kRuns = {{{1, 0xD7FF, false},
                                       {0xE000, 0xE000, false},
                                       {0xE001, 0xF8FF, true},
                                       {0xF900, 0x3FFFF, false},
                                       {0x40000, 0xDFFFF, true},
                                       {0xE0000, 0xE0FFF, false},
                                       {0xE1000, 0xEFFFF, true},
                                       {0xF0000, 0xFFFFD, true},
                                       {0x100000, 0x10FFFD, true}}};

Result<CharSet> ask(const std::string& name) {
  // Matches and the texts between them alternate. U+0000 always matches here and comes first, so the first piece is a
  // match.
  const auto regex = text::Regex::compile(fmt::format("[\\x{{0}}\\p{{{}}}]+", name));
  if (!regex) return std::unexpected(regex.error());
  std::vector<CharSet::Range> ranges;
  text::Regex::Scratch scratch;
  std::vector<std::uint32_t> ends;
  for (const auto& run : kRuns) {
    std::string subject(1, '\0');
    const char32_t last = run.uniform ? run.first : run.last;
    for (char32_t character = run.first; character <= last; ++character) append_utf8(subject, character);
    ends.clear();
    if (auto split = regex->split(subject, 0, scratch, ends); !split) return std::unexpected(split.error());
    bool member = true;
    char32_t character = run.first;
    std::size_t at = 1;
    for (const std::uint32_t end : ends) {
      const char32_t first = character;
      for (; at < end; ++character) at += utf8_step(std::string_view(subject).substr(at)).length;
      if (member && character > first) ranges.push_back({first, run.uniform ? run.last : character - 1});
      member = !member;
    }
  }
  CharSet set(std::move(ranges));
  if (set.has(1)) set.add(CharSet(0, 0));  // one control character is like the other
  return set;
}

}  // namespace

Result<CharSet> unicode_class(std::string_view name, Budget& budget) {
  std::string_view short_name = name;
  for (const std::string_view prefix : {"General_Category=", "gc=", "Script=", "sc="}) {
    if (name.starts_with(prefix)) short_name = name.substr(prefix.size());
  }
  if (short_name == "Any") return CharSet::all();
  for (const auto& [long_name, abbreviation] : kLongNames) {
    if (short_name == long_name) short_name = abbreviation;
  }
  const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '&'; };
  if (short_name.empty() || !std::ranges::all_of(short_name, allowed)) {
    return fail(fmt::format("\\p{{{}}}: there is no such class of characters", name));
  }
  if (!budget.take(kSteps)) return fail("the regular expression is too large");

  static std::mutex mutex;
  static std::map<std::string, CharSet, std::less<>> known;
  const std::scoped_lock lock(mutex);
  auto found = known.find(short_name);
  if (found == known.end()) {
    // Names are limited by what PCRE2 has; wrong ones are not kept.
    auto asked = ask(std::string(short_name));
    if (!asked) return fail(fmt::format("\\p{{{}}}: there is no such class of characters", name));
    found = known.emplace(std::string(short_name), *std::move(asked)).first;
  }
  return found->second;
}

}  // namespace quire::grammar
