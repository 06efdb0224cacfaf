// What the terminal can show and how wide it is. main() detects it once and passes it on.
#pragma once

namespace quire::cli {

struct Style {
  bool terminal = false;  // output is a terminal: text from files must be escaped
  bool utf8 = false;      // characters beyond ASCII can be shown
  bool colour = false;
  unsigned width = 80;  // columns
};

// The style for a file descriptor. The locale decides about UTF-8. A terminal has colours unless NO_COLOR is set or
// TERM is "dumb".
Style detect_style(int fd);

}  // namespace quire::cli
