#include "quire/gguf/grids.h"

#include "quire/gguf/grid_tables.h"

namespace quire::gguf {
namespace {

template <int kNumbers, typename Number, int kPoints, int kLevels>
constexpr auto unpacked(const std::uint16_t (&packed)[kPoints], const Number (&levels)[kLevels]) {
  Grid<Number, kPoints, kNumbers> grid{};
  for (int point = 0; point < kPoints; ++point) {
    for (int i = 0; i < kNumbers; ++i) {
      grid.points[point][i] = levels[kNumbers == 8 ? packed[point] >> (2 * i) & 3 : packed[point] >> (4 * i) & 7];
    }
  }
  return grid;
}

constexpr std::uint8_t kLevelsOf2[] = {8, 25, 43};
constexpr std::uint8_t kLevelsOf3Xxs[] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr std::uint8_t kLevelsOf3S[] = {1, 3, 5, 7, 9, 11, 13, 15};
constexpr std::int8_t kLevelsOf1[] = {-1, 0, 1};

}  // namespace

constexpr Grid<std::uint8_t, 256, 8> kGridIq2Xxs = unpacked<8>(kPackedIq2Xxs, kLevelsOf2);
constexpr Grid<std::uint8_t, 512, 8> kGridIq2Xs = unpacked<8>(kPackedIq2Xs, kLevelsOf2);
constexpr Grid<std::uint8_t, 1024, 8> kGridIq2S = unpacked<8>(kPackedIq2S, kLevelsOf2);
constexpr Grid<std::uint8_t, 256, 4> kGridIq3Xxs = unpacked<4>(kPackedIq3Xxs, kLevelsOf3Xxs);
constexpr Grid<std::uint8_t, 512, 4> kGridIq3S = unpacked<4>(kPackedIq3S, kLevelsOf3S);
constexpr Grid<std::int8_t, 2048, 8> kGridIq1 = unpacked<8>(kPackedIq1, kLevelsOf1);

}  // namespace quire::gguf
