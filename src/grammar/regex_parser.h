// The syntax of regular expressions: a pattern to a tree. See regex_syntax.h for what is understood.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/grammar/char_set.h"
#include "quire/grammar/regex_syntax.h"

namespace quire::grammar {

struct RegexNode {
  enum class Kind : std::uint8_t {
    Set,       // one character
    Sequence,  // parts; of none: the empty text
    Choice,    // parts
    Repeat,    // parts[0], least to most times
    Start,
    End,   // anchors
    Look,  // parts[0] must (not) match from here on
  };
  Kind kind = Kind::Sequence;
  bool negative = false;  // Look
  bool plain = true;      // no anchor and no look-ahead inside
  CharSet set;
  std::vector<std::unique_ptr<RegexNode>> parts;
  std::uint32_t least = 0, most = 0;
};

Result<std::unique_ptr<RegexNode>> parse_pattern(std::string_view pattern, const RegexOptions& options, Budget& budget);

}  // namespace quire::grammar
