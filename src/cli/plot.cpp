#include "quire/cli/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

namespace quire::cli {
namespace {

// A character of the terminal has 2 x 4 dots of a braille pattern. Without UTF-8 it is one dot.
constexpr int kAcross = 2, kDown = 4;
constexpr int kRows = 12, kMostColumns = 64, kEdge = 7;  // kEdge: the percents on the left

struct Look {
  std::string_view ascii, unicode, colour;
};
// The marks of the points. The lines between them have the same colour.
constexpr std::array<Look, 4> kLooks = {
    {{"o", "●", "\x1b[36m"}, {"x", "◆", "\x1b[33m"}, {"+", "▲", "\x1b[32m"}, {"*", "■", "\x1b[35m"}}};

struct Cell {
  std::uint8_t dots = 0;  // of a braille pattern
  int point = -1;         // the curve that has a point here
  int line = -1;          // the curve whose line goes through here
};

std::string utf8(std::uint32_t code) {
  return {static_cast<char>(0xE0 | (code >> 12)), static_cast<char>(0x80 | ((code >> 6) & 0x3F)),
          static_cast<char>(0x80 | (code & 0x3F))};
}

class Canvas {
 public:
  Canvas(int columns, double left, double right, double top)
      : columns_(columns),
        left_(left),
        width_(right - left),
        top_(top),
        cells_(static_cast<std::size_t>(columns) * kRows) {}

  void draw(const Curve& curve, int number) {
    for (std::size_t i = 1; i < curve.points.size(); ++i) {
      const auto [ax, ay] = dot(curve.points[i - 1]);
      const auto [bx, by] = dot(curve.points[i]);
      const int steps = std::max({std::abs(bx - ax), std::abs(by - ay), 1});
      for (int s = 0; s <= steps; ++s) set(ax + (bx - ax) * s / steps, ay + (by - ay) * s / steps, number);
    }
    for (const auto& point : curve.points) {
      const auto [x, y] = dot(point);
      int& taken = at(x / kAcross, y / kDown).point;
      if (taken < 0) taken = number;
    }
  }

  std::string row(int row, const Style& style) const {
    std::string text;
    for (int column = 0; column < columns_; ++column) {
      const Cell& cell = cells_[index(column, row)];
      const int curve = cell.point >= 0 ? cell.point : cell.line;
      if (curve < 0) {
        text += ' ';
        continue;
      }
      const Look& look = kLooks[static_cast<std::size_t>(curve) % kLooks.size()];
      std::string glyph = style.utf8 ? utf8(0x2800 + cell.dots) : ".";
      if (cell.point >= 0) glyph = style.utf8 ? look.unicode : look.ascii;
      text += style.colour ? fmt::format("{}{}\x1b[0m", look.colour, glyph) : glyph;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  }

  int column(double x) const { return dot({x, 0}).first / kAcross; }

 private:
  std::pair<int, int> dot(std::pair<double, double> point) const {
    const double across = width_ > 0 ? (point.first - left_) / width_ : 0.5;
    const double up = top_ > 0 ? std::clamp(point.second / top_, 0.0, 1.0) : 0;
    const int last = columns_ * kAcross - 1, bottom = kRows * kDown - 1;
    return {static_cast<int>(std::lround(std::clamp(across, 0.0, 1.0) * last)),
            bottom - static_cast<int>(std::lround(up * bottom))};
  }
  std::size_t index(int column, int row) const {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(columns_) + static_cast<std::size_t>(column);
  }
  Cell& at(int column, int row) { return cells_[index(column, row)]; }
  void set(int x, int y, int curve) {
    // Unicode counts the dots of a braille pattern down the left column, then down the right, and the fourth row last.
    constexpr std::uint8_t kDots[kAcross][kDown] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
    Cell& cell = at(x / kAcross, y / kDown);
    cell.dots |= kDots[x % kAcross][y % kDown];
    if (cell.line < 0) cell.line = curve;
  }

  int columns_;
  double left_, width_, top_;
  std::vector<Cell> cells_;
};

// The texts of the marks on one line, each centred below its x. A text that would touch the one before is left out.
std::string mark_line(std::span<const Mark> marks, const Canvas& canvas) {
  std::string line(kEdge, ' ');
  for (const Mark& mark : marks) {
    const int middle = kEdge + 1 + canvas.column(mark.x);
    const int begin = std::max(0, middle - static_cast<int>(mark.text.size()) / 2);
    if (line.size() > kEdge && begin < static_cast<int>(line.size()) + 1) continue;
    line.resize(static_cast<std::size_t>(std::max(begin, 0)), ' ');
    line += mark.text;
  }
  return line + "\n";
}

}  // namespace

std::string plot(std::span<const Curve> curves, std::span<const Mark> marks, double top, const Style& style) {
  if (marks.empty()) return "";
  const int room = static_cast<int>(style.width) - kEdge - 2;
  const int columns = std::clamp(room, 16, kMostColumns);
  Canvas canvas(columns, marks.front().x, marks.back().x, top);
  for (std::size_t i = 0; i < curves.size(); ++i) canvas.draw(curves[i], static_cast<int>(i));
  std::string text;
  const std::string_view wall = style.utf8 ? "┤" : "|", side = style.utf8 ? "│" : "|";
  for (int row = 0; row < kRows; ++row) {
    // A percent stands at the top, at the bottom and at two rows between.
    const bool labelled = row % 4 == 0 || row == kRows - 1;
    const double share = top * (kRows - 1 - row) / (kRows - 1);
    const std::string label = labelled ? fmt::format("{:>{}.1f}%", 100 * share, kEdge - 2) : "";
    fmt::format_to(std::back_inserter(text), "{:>{}} {}{}\n", label, kEdge - 1, labelled ? wall : side,
                   canvas.row(row, style));
  }
  text += mark_line(marks, canvas);
  for (std::size_t i = 0; i < curves.size(); ++i) {
    const Look& look = kLooks[i % kLooks.size()];
    const std::string_view glyph = style.utf8 ? look.unicode : look.ascii;
    const std::string shown = style.colour ? fmt::format("{}{}\x1b[0m", look.colour, glyph) : std::string(glyph);
    fmt::format_to(std::back_inserter(text), "{:>{}}{} {}\n", "", kEdge + 1, shown, curves[i].name);
  }
  return text;
}

}  // namespace quire::cli
