#include "quire/cli/style.h"

#include <clocale>
#include <cstdlib>
#include <string_view>

#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace quire::cli {

namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

// The text encoding of the user's locale. The program's own locale stays "C", so that numbers look the same everywhere.
bool locale_is_utf8() {
  const locale_t locale = ::newlocale(LC_CTYPE_MASK, "", nullptr);
  if (locale == nullptr) return false;
  const bool utf8 = std::string_view(::nl_langinfo_l(CODESET, locale)) == "UTF-8";
  ::freelocale(locale);
  return utf8;
}

}  // namespace

Style detect_style(int fd) {
  Style style;
  style.utf8 = locale_is_utf8();
  style.terminal = ::isatty(fd) == 1;
  if (!style.terminal) return style;
  style.colour = variable("NO_COLOR").empty() && variable("TERM") != "dumb" && !variable("TERM").empty();
  winsize size = {};
  if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) style.width = size.ws_col;
  return style;
}

}  // namespace quire::cli
