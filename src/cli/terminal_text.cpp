#include "quire/cli/terminal_text.h"

#include <algorithm>

#include "quire/cli/printable.h"

namespace quire::cli {

std::error_code write_text(Output& out, const Style& style, std::string_view text) {
  const bool plain = std::ranges::all_of(text, [](char c) { return (c >= ' ' && c <= '~') || c == '\n' || c == '\t'; });
  if (plain || !style.terminal) return out.write(text);
  return out.write(printable(text, {.lines = true}));
}

}  // namespace quire::cli
