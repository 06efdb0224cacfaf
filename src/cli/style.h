// How text for people is written: what the terminal can show, and how wide it is. Found out once, in main(); everything
// else is told.
#pragma once

namespace quire::cli {

struct Style {
  bool terminal = false;  // a person is looking: nothing that a terminal would obey may come out of a file
  bool utf8 = false;      // beyond ASCII
  bool colour = false;
  unsigned width = 80;  // columns
};

// Of what is written to a file descriptor: the locale decides about UTF-8, a terminal has colours unless NO_COLOR is
// set or TERM is "dumb".
Style detect_style(int fd);

}  // namespace quire::cli
