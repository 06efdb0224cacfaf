#include "quire/cli/layer_map.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "quire/base/readable.h"

namespace quire::cli {

namespace {

using model::Layer;

enum Cell : std::uint8_t { full, window, recurrent, both };

struct Look {
  std::string_view ascii, unicode, colour, meaning;
};
constexpr std::array<Look, 4> kLooks = {{
    {"#", "█", "\x1b[36m", "attention, all tokens"},
    {"=", "▒", "\x1b[33m", "attention, a window"},
    {"o", "●", "\x1b[32m", "recurrent"},
    {"%", "◉", "\x1b[35m", "attention beside recurrent"},
}};

Cell cell_of(const Layer& layer) {
  if (layer.recurrent) return layer.kv_heads > 0 ? both : recurrent;
  return layer.window == 0 ? full : window;
}

std::string drawn(Cell cell, const Style& style) {
  const Look& look = kLooks[cell];
  const std::string_view glyph = style.utf8 ? look.unicode : look.ascii;
  return style.colour ? fmt::format("{}{}\x1b[0m", look.colour, glyph) : std::string(glyph);
}

std::string meaning_of(Cell cell, std::span<const Layer> layers) {
  std::string meaning(kLooks[cell].meaning);
  if (cell != window) return meaning;
  std::set<std::uint32_t> lengths;
  for (const Layer& layer : layers) {
    if (layer.window != 0) lengths.insert(layer.window);
  }
  meaning += lengths.size() == 1 ? fmt::format(" of {} tokens", grouped(*lengths.begin())) : "";
  return meaning;
}

}  // namespace

std::string layer_map(std::span<const Layer> layers, const Style& style) {
  // A row is the number of its first layer, then two columns per cell.
  const std::size_t digits = fmt::formatted_size("{}", layers.empty() ? 0 : layers.size() - 1);
  const std::size_t room = style.width > digits + 4 ? (style.width - digits - 4 + 1) / 2 : 0;
  const std::size_t row = room >= 32 ? 32 : room >= 16 ? 16 : 8;

  std::string out;
  std::array<std::size_t, kLooks.size()> counts = {};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Cell cell = cell_of(layers[i]);
    ++counts[cell];
    if (i % row == 0) fmt::format_to(std::back_inserter(out), "{}  {:>{}} ", i == 0 ? "" : "\n", i, digits);
    out += ' ';
    out += drawn(cell, style);
  }
  out += '\n';
  for (const Cell cell : {full, window, recurrent, both}) {
    if (counts[cell] == 0) continue;
    fmt::format_to(std::back_inserter(out), "  {:>{}}  {} {} ({})\n", "", digits, drawn(cell, style),
                   meaning_of(cell, layers), counts[cell]);
  }
  return out;
}

}  // namespace quire::cli
