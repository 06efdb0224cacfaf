// Features of Jinja2 and Python that this interpreter leaves out, because no published template uses them
// (src/jinja/README.md). A template that uses one fails with the message that it is not supported, instead of unknown.
//
// Who may call: anyone; there is no state.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace quire::jinja {

inline constexpr std::string_view kLeftOutFilters[] = {
    "batch", "center",    "filesizeformat", "forceescape", "groupby", "pprint",    "random",   "round",
    "slice", "striptags", "truncate",       "urlencode",   "urlize",  "wordcount", "wordwrap", "xmlattr"};
inline constexpr std::string_view kLeftOutTextMethods[] = {
    "casefold",  "center",    "encode",       "expandtabs", "format_map",  "isalnum", "isalpha",
    "isascii",   "isdecimal", "isidentifier", "isnumeric",  "isprintable", "istitle", "ljust",
    "maketrans", "rjust",     "swapcase",     "translate",  "zfill"};
inline constexpr std::string_view kLeftOutLoopAttributes[] = {"changed"};
inline constexpr std::string_view kLeftOutGlobals[] = {"cycler", "joiner", "lipsum"};
inline constexpr std::string_view kLeftOutTags[] = {"autoescape", "block",  "do",      "extends",
                                                    "from",       "import", "include", "trans"};

inline bool is_left_out(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

inline std::string left_out_message(std::string_view kind, std::string_view name) {
  return fmt::format("{} '{}' is not supported in chat templates", kind, name);
}

}  // namespace quire::jinja
