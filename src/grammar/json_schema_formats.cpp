#include "quire/grammar/json_schema_formats.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "quire/grammar/regex_syntax.h"

namespace quire::grammar {

namespace {

// Some formats have texts that are better not written: not every reader takes them. `all`: with these texts, since what
// must not be of the format must be none of them either.

// RFC 3339. The year 0000 is left out: not every reader has it.
std::string date(bool all) {
  const std::string year = all ? "[0-9]{4}" : "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)";
  const std::string leap_year =
      fmt::format("([0-9]{{2}}(0[48]|[2468][048]|[13579][26])|(0[{}48]|[2468][048]|[13579][26])00)", all ? "0" : "");
  return fmt::format(
      "({}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
      "|{}-02-29)",
      year, leap_year);
}

// A leap second is the last of a day in UTC. The offsets are those of time zones: full hours and quarters. `all`: with
// other offsets at any time of the day.
std::string leap_second(bool all) {
  std::string result = "23:59:60(\\.[0-9]+)?[Zz]";
  if (all) {
    result +=
        "|([01][0-9]|2[0-3]):[0-5][0-9]:60(\\.[0-9]+)?[+-]([01][0-9]|2[0-3])"
        ":(0[1-9]|1[0-46-9]|2[0-9]|3[1-9]|4[0-46-9]|5[0-9])";
  }
  for (int hours = 0; hours < 24; ++hours) {
    for (int minutes = 0; minutes < 60; minutes += 15) {
      for (const int sign : {1, -1}) {
        const int local = (24 * 60 - 1 + sign * (hours * 60 + minutes) + 24 * 60) % (24 * 60);
        result += fmt::format("|{:02}:{:02}:60(\\.[0-9]+)?{}{:02}:{:02}", local / 60, local % 60,
                              sign > 0 ? "\\+" : "-", hours, minutes);
      }
    }
  }
  return result;
}

std::string time(bool all) {
  const std::string hour_minute = "([01][0-9]|2[0-3]):[0-5][0-9]";
  return fmt::format("({0}:[0-5][0-9](\\.[0-9]+)?([Zz]|[+-]{0})|{1})", hour_minute, leap_second(all));
}

// RFC 3339, appendix A: units follow each other without a gap. Its letters may be small.
std::string duration(bool all) {
  const std::string in_time = "T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)";
  return (all ? "(?i)" : "") +
         fmt::format("P(([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)({0})?|{0}|[0-9]+W)", in_time);
}

std::string ipv4() {
  const std::string octet = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
  return fmt::format("{0}(\\.{0}){{3}}", octet);
}

// RFC 3986, IPv6address.
std::string ipv6() {
  const std::string h16 = "[0-9A-Fa-f]{1,4}";
  const std::string ls32 = fmt::format("({0}:{0}|{1})", h16, ipv4());
  std::string result = fmt::format("(({0}:){{6}}{1}|::({0}:){{5}}{1}|({0})?::({0}:){{4}}{1}", h16, ls32);
  for (int before = 1; before <= 4; ++before) {
    result += fmt::format("|(({0}:){{0,{2}}}{0})?::({0}:){{{3}}}{1}", h16, ls32, before, 4 - before);
  }
  return result + fmt::format("|(({0}:){{0,5}}{0})?::{0}|(({0}:){{0,6}}{0})?::)", h16);
}

// RFC 3986 and, with characters beyond ASCII, RFC 3987.
struct Uri {
  std::string beyond;    // ucschar, to stand in a class
  std::string in_query;  // and iprivate

  std::string percent = "%[0-9A-Fa-f]{2}";
  std::string character() const { return fmt::format("([A-Za-z0-9._~!$&'()*+,;=:@{}-]|{})", beyond, percent); }
  std::string path() const { return fmt::format("(/{}*)*", character()); }
  std::string authority() const {
    const std::string plain = fmt::format("A-Za-z0-9._~!$&'()*+,;={}-", beyond);
    const std::string future = "[Vv][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+";
    return fmt::format("(([:{0}]|{1})*@)?(\\[({2}|{3})\\]|([{0}]|{1})*)(:[0-9]*)?", plain, percent, ipv6(), future);
  }
  std::string end() const {
    return fmt::format("(\\?([A-Za-z0-9._~!$&'()*+,;=:@/?{0}{1}-]|{2})*)?(#([A-Za-z0-9._~!$&'()*+,;=:@/?{0}-]|{2})*)?",
                       beyond, in_query, percent);
  }
  std::string absolute() const {
    return fmt::format("[A-Za-z][A-Za-z0-9+.-]*:(//{0}{1}|/({2}+{1})?|{2}+{1}|){3}", authority(), path(), character(),
                       end());
  }
  std::string relative() const {
    const std::string without_colon = fmt::format("([A-Za-z0-9._~!$&'()*+,;=@{}-]|{})+", beyond, percent);
    return fmt::format("(//{0}{1}|/({2}+{1})?|{3}{1}|){4}", authority(), path(), character(), without_colon, end());
  }
};

Uri iri() {
  std::string beyond = "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF";
  for (int plane = 1; plane <= 14; ++plane) {
    beyond += fmt::format("\\u{{{:X}{}}}-\\u{{{:X}FFFD}}", plane, plane == 14 ? "1000" : "0000", plane);
  }
  return {.beyond = beyond, .in_query = "\\uE000-\\uF8FF\\u{F0000}-\\u{FFFFD}\\u{100000}-\\u{10FFFD}"};
}

// RFC 6570.
std::string uri_template() {
  const std::string character = "([A-Za-z0-9_]|%[0-9A-Fa-f]{2})";
  const std::string variable = fmt::format("{0}(\\.?{0})*(:[1-9][0-9]{{0,3}}|\\*)?", character);
  return fmt::format(
      "([!#$&'()*+,./0-9:;=?@A-Z\\[\\]_a-z~\\u00A0-\\uD7FF\\uE000-\\uFDCF\\uFDF0-\\uFFEF\\u{{10000}}-\\u{{10FFFD}}-]"
      "|%[0-9A-Fa-f]{{2}}|\\{{[+#./;?&=,!@|]?{0}(,{0})*\\}})*",
      variable);
}

// RFC 5321, Mailbox; with characters beyond ASCII RFC 6531. Addresses in brackets are those of IP; there may be others.
std::string email(std::string_view beyond, bool all) {
  const std::string atom = fmt::format("[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~{}-]+", beyond);
  const std::string quoted = fmt::format("\"([ !#-\\[\\]-~{}]|\\\\[ -~])*\"", beyond);
  const std::string part = fmt::format("[A-Za-z0-9{0}]([A-Za-z0-9{0}-]*[A-Za-z0-9{0}])?", beyond);
  const std::string address = all ? "[!-Z^-~]+" : fmt::format("({}|IPv6:{})", ipv4(), ipv6());
  return fmt::format("({0}(\\.{0})*|{1})@({2}(\\.{2})*|\\[{3}\\])", atom, quoted, part, address);
}

// RFC 1123. Labels with "--" as third and fourth character are those of other encodings (xn--), whose rules are not
// checked: none of them is admitted.
std::string hostname(bool all) {
  if (all) {
    const std::string label = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
    return fmt::format("{0}(\\.{0})*", label);
  }
  const std::string label =
      "[A-Za-z0-9]([A-Za-z0-9]|[A-Za-z0-9-]{1,2}[A-Za-z0-9]"
      "|[A-Za-z0-9-]([A-Za-z0-9][A-Za-z0-9-]|-[A-Za-z0-9])[A-Za-z0-9-]{0,58}[A-Za-z0-9])?";
  return fmt::format("{0}(\\.{0})*", label);
}

std::string json_pointer() { return "(/([^~/]|~[01])*)*"; }

std::optional<std::string> expression(std::string_view name, bool all) {
  if (name == "date") return date(all);
  if (name == "time") return time(all);
  if (name == "date-time") return fmt::format("{}[Tt]{}", date(all), time(all));
  if (name == "duration") return duration(all);
  if (name == "email") return email("", all);
  if (name == "idn-email") return email("\\u0080-\\u{10FFFF}", all);
  if (name == "hostname") return hostname(all);
  if (name == "ipv4") return ipv4();
  if (name == "ipv6") return ipv6();
  if (name == "uri") return Uri{}.absolute();
  if (name == "uri-reference") return fmt::format("({}|{})", Uri{}.absolute(), Uri{}.relative());
  if (name == "iri") return iri().absolute();
  if (name == "iri-reference") return fmt::format("({}|{})", iri().absolute(), iri().relative());
  if (name == "uri-template") return uri_template();
  if (name == "uuid") return "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}";
  if (name == "json-pointer") return json_pointer();
  if (name == "relative-json-pointer") {
    // Since 2020-12 a position may be moved.
    return fmt::format("(0|[1-9][0-9]*){}(#|{})", all ? "([+-](0|[1-9][0-9]*))?" : "", json_pointer());
  }
  return std::nullopt;
}

constexpr std::array<std::string_view, 17> kKnown = {"date",
                                                     "time",
                                                     "date-time",
                                                     "duration",
                                                     "email",
                                                     "idn-email",
                                                     "hostname",
                                                     "ipv4",
                                                     "ipv6",
                                                     "uri",
                                                     "uri-reference",
                                                     "iri",
                                                     "iri-reference",
                                                     "uri-template",
                                                     "uuid",
                                                     "json-pointer",
                                                     "relative-json-pointer"};
// Their expressions leave out texts that may be of the format.
constexpr std::array<std::string_view, 8> kIncomplete = {"date",  "time",      "date-time", "duration",
                                                         "email", "idn-email", "hostname",  "relative-json-pointer"};
// Their texts have characters that JSON must or may escape.
constexpr std::array<std::string_view, 7> kWithEscapes = {
    "email", "idn-email", "iri", "iri-reference", "uri-template", "json-pointer", "relative-json-pointer"};

}  // namespace

FormatKind format_kind(std::string_view name) {
  if (std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end()) return FormatKind::Known;
  return name == "regex" || name == "idn-hostname" ? FormatKind::NotEnforced : FormatKind::Annotation;
}

bool is_complete(std::string_view name) {
  return std::find(kIncomplete.begin(), kIncomplete.end(), name) == kIncomplete.end();
}

Result<RegexId> format_text(RegexSet& regexes, std::string_view name, FormatTexts which, bool every_spelling) {
  const auto text = expression(name, which == FormatTexts::All);
  if (!text) return fail(fmt::format("there is no expression for the format {}", name));
  if (std::find(kWithEscapes.begin(), kWithEscapes.end(), name) != kWithEscapes.end()) every_spelling = true;
  const auto regex = parse_regex(regexes, *text, {.whole = true, .json_string = every_spelling});
  if (!regex || name != "hostname") return regex;
  const RegexId short_enough = regexes.repeat(any_character(regexes, every_spelling), 1, 253);
  return regexes.all_of({*regex, short_enough});
}

}  // namespace quire::grammar
