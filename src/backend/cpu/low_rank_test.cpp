// The kernels of adapters: all variants give the same bits, in the order that low_rank.inl states.
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "quire/backend/cpu/kernels_testing.h"
#include "quire/backend/low_rank_tiles.h"

namespace quire::cpu {
namespace {

struct Tiles {
  std::vector<float> rows;  // as in a file
  std::vector<float> tiles;
  Tiles(std::uint32_t count, std::uint32_t cols, std::uint32_t seed)
      : rows(random_floats(std::size_t{count} * cols, seed)) {
    const FileMatrix file{gguf::Type::F32, count, cols, reinterpret_cast<const std::byte*>(rows.data()),
                          cols * sizeof(float)};
    tiles.resize(low_rank_bytes(file) / sizeof(float));
    make_low_rank_tiles(file, reinterpret_cast<std::byte*>(tiles.data()));
  }
};

TEST(LowRankKernels, GiveTheStatedBitsInEveryVariantAndWithAnyNumberOfRows) {
  for (const std::uint32_t cols : {1u, 7u, 64u, 333u}) {
    for (const std::uint32_t rank : {1u, 8u, 16u, 40u}) {
      for (const std::uint32_t outs : {1u, 16u, 37u}) {
        constexpr std::uint32_t kRows = 7;
        const Tiles a(rank, cols, 1), b(outs, rank, 2);
        const std::vector<float> x = random_floats(std::size_t{kRows} * cols, 3),
                                 before = random_floats(kRows * outs, 4);
        const std::uint32_t stride = (rank + 15) / 16 * 16;
        std::vector<float> expected = before;
        for (std::uint32_t i = 0; i < kRows; ++i) {
          std::vector<float> t(rank);
          for (std::uint32_t r = 0; r < rank; ++r) {
            float sums[4] = {};
            for (std::uint32_t k = 0; k < cols; ++k) {
              sums[k % 4] = std::fmaf(a.rows[r * cols + k], x[i * cols + k], sums[k % 4]);
            }
            t[r] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
          }
          for (std::uint32_t n = 0; n < outs; ++n) {
            float sum = 0;
            for (std::uint32_t r = 0; r < rank; ++r) sum = std::fmaf(b.rows[n * rank + r], t[r], sum);
            expected[i * outs + n] = std::fmaf(sum, 0.3f, expected[i * outs + n]);
          }
        }
        for (const Kernels* kernels : all_kernels()) {
          for (const std::uint32_t at_once : {1u, 4u, 7u}) {
            std::vector<float> out = before, t(std::size_t{kRows} * stride, NAN);
            for (std::uint32_t first = 0; first < kRows; first += at_once) {
              std::vector<std::uint32_t> rows;
              for (std::uint32_t i = first; i < std::min(kRows, first + at_once); ++i) rows.push_back(i);
              const LowRankRows some{.x = x.data(),
                                     .x_stride = cols,
                                     .t = t.data(),
                                     .t_stride = stride,
                                     .rows = rows.data(),
                                     .count = static_cast<std::uint32_t>(rows.size())};
              kernels->low_rank_a(a.tiles.data(), rank, cols, some);
              kernels->low_rank_b(b.tiles.data(), rank, outs, 0, (outs + 15) / 16, some, out.data(), outs, 0.3f);
            }
            EXPECT_EQ(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)), 0)
                << kernels->name << ", " << cols << " x " << rank << " x " << outs << ", " << at_once << " at once";
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire::cpu
