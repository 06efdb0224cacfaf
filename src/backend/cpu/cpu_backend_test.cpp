// The operations of the CPU backend against the plainest possible versions in double precision, for every instruction
// set of this machine and shapes that no vector length divides.
#include "quire/backend/cpu/cpu_backend.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace quire {
namespace {

struct Matrix {
  std::vector<float> values;
  std::uint32_t rows, cols;

  Matrix(std::uint32_t r, std::uint32_t c, std::uint32_t seed = 0) : values(std::size_t{r} * c), rows(r), cols(c) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    if (seed != 0) {
      for (float& value : values) value = normal(random);
    }
  }
  Rows view() { return {values.data(), rows, cols, cols}; }
  float at(std::uint32_t r, std::uint32_t c) const { return values[std::size_t{r} * cols + c]; }
};

void for_each_backend(const std::function<void(CpuBackend&)>& test) {
  for (const char* name : {"scalar", "avx2", "avx512"}) {
    const cpu::Kernels* kernels = cpu::kernels_by_name(name);
    if (kernels == nullptr) continue;
    for (const std::uint32_t threads : {1u, 3u}) {
      SCOPED_TRACE(std::string(name) + ", " + std::to_string(threads) + " threads");
      CpuBackend backend(threads, *kernels);
      ASSERT_TRUE(backend.prepare(64, 512).has_value());
      test(backend);
    }
  }
}

TEST(CpuBackend, MatrixProductsAddUpRowByRowAndTakeABias) {
  for_each_backend([](CpuBackend& backend) {
    Matrix weight(37, 100, 1), x(5, 100, 2), bias(1, 37, 3), out(5, 37);
    const Weight w{gguf::Type::F32, 37, 100, reinterpret_cast<const std::byte*>(weight.values.data()), 400};
    backend.matmul(out.view(), w, x.view(), bias.values.data());
    for (std::uint32_t i = 0; i < 5; ++i) {
      for (std::uint32_t n = 0; n < 37; ++n) {
        double expected = bias.at(0, n);
        for (std::uint32_t k = 0; k < 100; ++k) expected += double{weight.at(n, k)} * x.at(i, k);
        EXPECT_NEAR(out.at(i, n), expected, 1e-4);
      }
    }
  });
}

TEST(CpuBackend, NormsDivideByTheRootMeanSquareAlsoInPlace) {
  for_each_backend([](CpuBackend& backend) {
    Matrix x(20, 50, 4), weight(1, 50, 5);
    const Matrix before = x;
    backend.rms_norm(x.view(), x.view(), weight.values.data(), 1e-6f);
    for (std::uint32_t i = 0; i < x.rows; ++i) {
      double squares = 0;
      for (std::uint32_t k = 0; k < 50; ++k) squares += double{before.at(i, k)} * before.at(i, k);
      for (std::uint32_t k = 0; k < 50; ++k) {
        EXPECT_NEAR(x.at(i, k), before.at(i, k) / std::sqrt(squares / 50 + 1e-6) * weight.at(0, k), 1e-5);
      }
    }
  });
}

TEST(CpuBackend, RotationTurnsPairsOfEitherKindAndLeavesTheRestOfAHeadAlone) {
  for_each_backend([](CpuBackend& backend) {
    const std::vector<Token> tokens(3);
    const std::vector<std::uint32_t> positions = {0, 7, 1000};
    backend.begin({.tokens = tokens, .positions = positions, .parts = {}, .kv = {}, .layer_bytes = {}, .states = {}});
    const std::vector<float> frequencies = {1.0f, 0.1f, 0.01f};  // six of the ten elements of a head
    Matrix cosines(3, 3), sines(3, 3);
    backend.rope_angles(cosines.view(), sines.view(), frequencies);
    for (const RopePairs pairs : {RopePairs::Neighbours, RopePairs::Halves}) {
      Matrix x(3, 20, 6);
      const Matrix before = x;
      backend.rope(x.view(), 2, 10, cosines.view(), sines.view(), pairs);
      for (std::uint32_t i = 0; i < 3; ++i) {
        for (std::uint32_t head = 0; head < 2; ++head) {
          for (std::uint32_t k = 0; k < 3; ++k) {
            const std::uint32_t first = head * 10 + (pairs == RopePairs::Halves ? k : 2 * k);
            const std::uint32_t second = pairs == RopePairs::Halves ? first + 3 : first + 1;
            const double angle = static_cast<double>(positions[i]) * frequencies[k];
            EXPECT_NEAR(x.at(i, first), before.at(i, first) * std::cos(angle) - before.at(i, second) * std::sin(angle),
                        1e-3);
            EXPECT_NEAR(x.at(i, second), before.at(i, first) * std::sin(angle) + before.at(i, second) * std::cos(angle),
                        1e-3);
          }
          for (std::uint32_t k = 6; k < 10; ++k) EXPECT_EQ(x.at(i, head * 10 + k), before.at(i, head * 10 + k));
        }
      }
    }
  });
}

TEST(CpuBackend, AttentionIsASoftmaxOverWhatTheWindowShows) {
  constexpr std::uint32_t kHeads = 6, kKvHeads = 2, kDim = 20, kContext = 150;
  for_each_backend([](CpuBackend& backend) {
    Matrix k(kContext, kKvHeads * kDim, 7), v(kContext, kKvHeads * kDim, 8), q(kContext, kHeads * kDim, 9);
    std::vector<float> memory(2 * kContext * kKvHeads * kDim);
    KvView view;
    view.base = reinterpret_cast<std::byte*>(memory.data());
    view.token_stride = kDim * 4;
    view.head_stride = kContext * view.token_stride;
    view.v_offset = kKvHeads * view.head_stride;
    view.type = ElementType::F32;
    const std::vector<Token> tokens(kContext);
    std::vector<std::uint32_t> positions(kContext);
    for (std::uint32_t i = 0; i < kContext; ++i) positions[i] = i;
    const Step::Part part{0, kContext, 0};
    const std::uint64_t layer_bytes = 0;
    for (const auto& [window, cap] : {std::pair{0u, 0.0f}, {1u, 0.0f}, {70u, 0.0f}, {0u, 5.0f}}) {
      const AttentionShape shape{
          .heads = kHeads, .kv_heads = kKvHeads, .head_dim = kDim, .scale = 0.3f, .soft_cap = cap, .window = window};
      backend.begin({.tokens = tokens,
                     .positions = positions,
                     .parts = std::span(&part, 1),
                     .kv = std::span(&view, 1),
                     .layer_bytes = std::span(&layer_bytes, 1),
                     .states = {}});
      backend.store_kv(shape, k.view(), v.view());
      Matrix out(kContext, kHeads * kDim);
      backend.attention(out.view(), q.view(), shape);
      for (const std::uint32_t i : {0u, 1u, 63u, 64u, 149u}) {
        for (std::uint32_t head = 0; head < kHeads; ++head) {
          const std::uint32_t kv_head = head / 3, first = window != 0 && i + 1 > window ? i + 1 - window : 0;
          std::vector<double> weights;
          double total = 0;
          for (std::uint32_t t = first; t <= i; ++t) {
            double score = 0;
            for (std::uint32_t d = 0; d < kDim; ++d)
              score += double{q.at(i, head * kDim + d)} * k.at(t, kv_head * kDim + d);
            score *= 0.3;
            if (cap > 0) score = cap * std::tanh(score / cap);
            weights.push_back(std::exp(score));
            total += weights.back();
          }
          for (std::uint32_t d = 0; d < kDim; ++d) {
            double expected = 0;
            for (std::uint32_t t = first; t <= i; ++t)
              expected += weights[t - first] / total * v.at(t, kv_head * kDim + d);
            ASSERT_NEAR(out.at(i, head * kDim + d), expected, 1e-4)
                << "row " << i << ", window " << window << ", cap " << cap;
          }
        }
      }
    }
  });
}

TEST(CpuBackend, TheConvolutionSeesTheWindowOfItsOwnSequenceAndMovesItOn) {
  for_each_backend([](CpuBackend& backend) {
    const Mamba2Shape shape{.heads = 2, .head_dim = 5, .groups = 1, .state_dim = 3, .conv_width = 4};
    const std::uint32_t channels = shape.conv_channels();
    Matrix input(9, channels, 10), weight(channels, 4, 11), bias(1, channels, 12);
    std::vector<float> window_a(3 * channels), window_b(3 * channels);
    // Sequence a has rows 0 to 6, b has 7 and 8; both begin with an empty window.
    const Step::Part parts[] = {{0, 7, 0}, {7, 2, 0}};
    const StateView states[] = {{reinterpret_cast<std::byte*>(window_a.data()), 0, 0, 1, 0},
                                {reinterpret_cast<std::byte*>(window_b.data()), 0, 0, 1, 0}};
    const std::vector<Token> tokens(9);
    const std::vector<std::uint32_t> positions(9);
    backend.begin(
        {.tokens = tokens, .positions = positions, .parts = parts, .kv = {}, .layer_bytes = {}, .states = states});
    Matrix x = input;
    backend.mamba2_conv(x.view(), weight.values.data(), bias.values.data(), shape);
    const auto expect = [&](std::uint32_t row, std::uint32_t first) {
      for (std::uint32_t c = 0; c < channels; ++c) {
        double sum = bias.at(0, c);
        for (std::uint32_t t = 0; t < 4; ++t) {
          if (row + t >= first + 3) sum += double{weight.at(c, t)} * input.at(row + t - 3, c);
        }
        ASSERT_NEAR(x.at(row, c), sum / (1 + std::exp(-sum)), 1e-5) << "row " << row;
      }
    };
    for (std::uint32_t row = 0; row < 7; ++row) expect(row, 0);
    for (std::uint32_t row = 7; row < 9; ++row) expect(row, 7);
    for (std::uint32_t c = 0; c < channels; ++c) {
      EXPECT_EQ(window_a[2 * channels + c], input.at(6, c));
      EXPECT_EQ(window_a[c], input.at(4, c));
      EXPECT_EQ(window_b[c], 0);
    }
  });
}

TEST(CpuBackend, TheRecurrenceIsThePlainOneForEveryGroup) {
  for_each_backend([](CpuBackend& backend) {
    const Mamba2Shape shape{.heads = 4, .head_dim = 3, .groups = 2, .state_dim = 18, .conv_width = 4};
    Matrix x(6, 12, 13), b(6, 36, 14), c(6, 36, 15), dt(6, 4, 16), bias(1, 4, 17), a(1, 4, 18), d(1, 4, 19), out(6, 12);
    for (float& value : a.values) value = -std::fabs(value);
    dt.values[0] = 30;  // softplus of a large number is the number
    std::vector<float> memory(4 * 3 * 18);
    const Step::Part part{0, 6, 0};
    const StateView state{reinterpret_cast<std::byte*>(memory.data()), 0, 0, 1, 0};
    const std::vector<Token> tokens(6);
    const std::vector<std::uint32_t> positions(6);
    backend.begin({.tokens = tokens,
                   .positions = positions,
                   .parts = std::span(&part, 1),
                   .kv = {},
                   .layer_bytes = {},
                   .states = std::span(&state, 1)});
    backend.mamba2_scan(out.view(), x.view(), b.view(), c.view(), dt.view(), bias.values.data(), a.values.data(),
                        d.values.data(), shape);
    std::vector<double> plain(memory.size());
    for (std::uint32_t i = 0; i < 6; ++i) {
      for (std::uint32_t head = 0; head < 4; ++head) {
        const double step = std::log1p(std::exp(double{dt.at(i, head)} + bias.at(0, head)));
        for (std::uint32_t k = 0; k < 3; ++k) {
          double read = d.at(0, head) * x.at(i, head * 3 + k);
          for (std::uint32_t n = 0; n < 18; ++n) {
            double& s = plain[(head * 3 + k) * 18 + n];
            s = s * std::exp(step * a.at(0, head)) + step * x.at(i, head * 3 + k) * b.at(i, head / 2 * 18 + n);
            read += s * c.at(i, head / 2 * 18 + n);
          }
          ASSERT_NEAR(out.at(i, head * 3 + k), read, 1e-3 * (1 + std::fabs(read))) << "row " << i;
        }
      }
    }
  });
}

TEST(CpuBackend, TheGatedNormWorksGroupByGroup) {
  for_each_backend([](CpuBackend& backend) {
    Matrix x(3, 24, 20), gate(3, 24, 21), weight(1, 24, 22), out(3, 24);
    backend.gated_norm(out.view(), x.view(), gate.view(), weight.values.data(), 1e-5f, 2);
    for (std::uint32_t i = 0; i < 3; ++i) {
      for (std::uint32_t g = 0; g < 2; ++g) {
        const auto gated = [&](std::uint32_t k) {
          return double{x.at(i, k)} * gate.at(i, k) / (1 + std::exp(-gate.at(i, k)));
        };
        double squares = 0;
        for (std::uint32_t k = g * 12; k < g * 12 + 12; ++k) squares += gated(k) * gated(k);
        for (std::uint32_t k = g * 12; k < g * 12 + 12; ++k) {
          EXPECT_NEAR(out.at(i, k), gated(k) / std::sqrt(squares / 12 + 1e-5) * weight.at(0, k), 1e-5);
        }
      }
    }
  });
}

}  // namespace
}  // namespace quire
