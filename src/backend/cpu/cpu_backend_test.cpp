// The operations of the CPU backend against the plainest possible versions in double precision, for every instruction
// set of this machine and shapes that no vector length divides.
#include "quire/backend/cpu/cpu_backend.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <span>
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
      ASSERT_TRUE(
          backend.prepare({.rows = 256, .cols = 512, .heads = 8, .groups = 1, .recurrent_heads = 4}).has_value());
      test(backend);
    }
  }
}

// A matrix in the backend's own order, and what it takes.
struct Arranged {
  LargeVector<std::byte> memory;
  Weight weight;

  Arranged(CpuBackend& backend, const Weight& plain) : memory(backend.arranged_bytes(plain)), weight(plain) {
    if (!memory.empty()) weight = backend.arrange(plain, memory.data());
  }
};

Weight floats(const Matrix& matrix) {
  return {gguf::Type::F32,
          matrix.rows,
          matrix.cols,
          reinterpret_cast<const std::byte*>(matrix.values.data()),
          matrix.cols * sizeof(float),
          0};
}

// A matrix of random blocks, as a file has it.
struct Blocks {
  std::vector<std::byte> bytes;
  Weight weight;

  Blocks(gguf::Type type, std::uint32_t rows, std::uint32_t cols, std::uint32_t seed) {
    const gguf::TypeInfo& info = gguf::type_info(type);
    bytes.resize(std::size_t{rows} * cols / info.block_size * info.block_bytes);
    std::mt19937 random(seed);
    // Any bytes are some block; halves with a large exponent are made small, so that no scale is infinite.
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0x3b);
    weight = {type, rows, cols, bytes.data(), bytes.size() / rows, 0};
  }
  std::span<const std::byte> row(std::size_t n) const {
    return std::span(bytes).subspan(n * weight.row_bytes, weight.row_bytes);
  }
};

TEST(CpuBackend, MatrixProductsAddUpRowByRowAndTakeABias) {
  for_each_backend([](CpuBackend& backend) {
    Matrix weight(37, 100, 1), x(5, 100, 2), bias(1, 37, 3), out(5, 37);
    const Arranged arranged(backend, floats(weight));
    const Product product{.out = out.view(), .weight = &arranged.weight, .bias = bias.values.data()};
    backend.matmul({&product, 1}, Input::plain(x.view()));
    for (std::uint32_t i = 0; i < 5; ++i) {
      for (std::uint32_t n = 0; n < 37; ++n) {
        double expected = bias.at(0, n);
        for (std::uint32_t k = 0; k < 100; ++k) expected += double{weight.at(n, k)} * x.at(i, k);
        EXPECT_NEAR(out.at(i, n), expected, 1e-4);
      }
    }
  });
}

TEST(CpuBackend, SeveralProductsOfOneInputCanBeAddedToWhatIsThere) {
  for_each_backend([](CpuBackend& backend) {
    Matrix first(33, 64, 30), second(70, 64, 31), x(3, 64, 32), a(3, 33, 33), b(3, 70);
    const Matrix before = a;
    const Arranged one(backend, floats(first)), two(backend, floats(second));
    const Product products[] = {{.out = a.view(), .weight = &one.weight, .add = true, .scale = 0.5f},
                                {.out = b.view(), .weight = &two.weight}};
    backend.matmul(products, Input::plain(x.view()));
    for (std::uint32_t i = 0; i < 3; ++i) {
      for (std::uint32_t n = 0; n < 70; ++n) {
        double sum = 0;
        for (std::uint32_t k = 0; k < 64; ++k) sum += double{second.at(n, k)} * x.at(i, k);
        EXPECT_NEAR(b.at(i, n), sum, 1e-4);
        if (n >= 33) continue;
        sum = 0;
        for (std::uint32_t k = 0; k < 64; ++k) sum += double{first.at(n, k)} * x.at(i, k);
        EXPECT_NEAR(a.at(i, n), before.at(i, n) + 0.5 * sum, 1e-4);
      }
    }
  });
}

// The rule of exactness for products: every type, and every way that a number of rows is gone about.
TEST(CpuBackend, ARowOfAProductHasTheSameBitsHoweverManyThereAre) {
  const gguf::Type types[] = {gguf::Type::F32,  gguf::Type::F16,    gguf::Type::BF16,  gguf::Type::Q8_0,
                              gguf::Type::Q4_0, gguf::Type::Q4_1,   gguf::Type::Q5_0,  gguf::Type::Q5_1,
                              gguf::Type::Q2_K, gguf::Type::Q3_K,   gguf::Type::Q4_K,  gguf::Type::Q5_K,
                              gguf::Type::Q6_K, gguf::Type::IQ4_NL, gguf::Type::IQ4_XS};
  for (const gguf::Type type : types) {
    const std::uint32_t outputs = 83, cols = 512;
    const Blocks plain(type, outputs, cols, 7);
    for_each_backend([&](CpuBackend& backend) {
      SCOPED_TRACE(gguf::type_name(type));
      const Arranged arranged(backend, plain.weight);
      Matrix x(131, cols, 40), all(131, outputs);
      const Product product{.out = all.view(), .weight = &arranged.weight};
      backend.matmul({&product, 1}, Input::plain(x.view()));
      for (const std::uint32_t rows : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 33u}) {
        const std::uint32_t first = 131 - rows;
        Matrix some(rows, outputs);
        const Product few{.out = some.view(), .weight = &arranged.weight};
        backend.matmul({&few, 1}, Input::plain({x.view().row(first), rows, cols, cols}));
        ASSERT_EQ(std::memcmp(some.values.data(), &all.values[std::size_t{first} * outputs],
                              some.values.size() * sizeof(float)),
                  0)
            << rows << " rows";
      }
      // And it is the product: a row of weights as the reference reads it, times the input as it was quantised.
      std::vector<float> reference(cols);
      for (const std::uint32_t n : {0u, 15u, 16u, 47u, 48u, 82u}) {
        ASSERT_TRUE(gguf::dequantize(type, plain.row(n), reference).has_value());
        double sum = 0, size = 0;
        for (std::uint32_t k = 0; k < cols; ++k) {
          sum += double{reference[k]} * x.at(130, k);
          size += std::fabs(double{reference[k]} * x.at(130, k));
        }
        EXPECT_NEAR(all.at(130, n), sum, 0.02 * size + 1e-6) << "output " << n;
      }
    });
  }
}

TEST(CpuBackend, AnArrangedTableIsLookedUpAsTheFileMeansIt) {
  for (const gguf::Type type : {gguf::Type::F32, gguf::Type::F16, gguf::Type::BF16, gguf::Type::Q8_0, gguf::Type::Q4_0,
                                gguf::Type::Q4_K, gguf::Type::Q5_K, gguf::Type::Q6_K, gguf::Type::Q5_0}) {
    const std::uint32_t rows = 37, cols = type == gguf::Type::Q8_0 || type == gguf::Type::Q4_0 ? 96 : 256;
    const Blocks plain(type, rows, cols, 9);
    for_each_backend([&](CpuBackend& backend) {
      SCOPED_TRACE(gguf::type_name(type));
      const Arranged arranged(backend, plain.weight);
      const std::vector<Token> tokens = {0, 36, 16, 15, 7, 33};
      const std::vector<std::uint32_t> positions(tokens.size());
      backend.begin({.tokens = tokens, .positions = positions, .parts = {}, .kv = {}, .layer_bytes = {}, .states = {}});
      Matrix out(static_cast<std::uint32_t>(tokens.size()), cols);
      backend.embed(out.view(), arranged.weight, 1.0f);
      std::vector<float> reference(cols);
      for (std::uint32_t i = 0; i < out.rows; ++i) {
        ASSERT_TRUE(gguf::dequantize(type, plain.row(static_cast<std::size_t>(tokens[i])), reference).has_value());
        for (std::uint32_t k = 0; k < cols; ++k)
          ASSERT_EQ(out.at(i, k), reference[k]) << "row " << i << " column " << k;
      }
    });
  }
}

TEST(CpuBackend, InputsAreNormedAndGatedOnTheWay) {
  for_each_backend([](CpuBackend& backend) {
    Matrix x(6, 50, 41), gate(6, 50, 42), norm(1, 50, 43), weight(20, 50, 44), out(6, 20);
    const Arranged arranged(backend, floats(weight));
    const Product product{.out = out.view(), .weight = &arranged.weight};
    const auto check = [&](const Input& input, const std::function<double(std::uint32_t, std::uint32_t)>& element) {
      backend.matmul({&product, 1}, input);
      for (std::uint32_t i = 0; i < 6; ++i) {
        for (std::uint32_t n = 0; n < 20; ++n) {
          double sum = 0;
          for (std::uint32_t k = 0; k < 50; ++k) sum += element(i, k) * weight.at(n, k);
          EXPECT_NEAR(out.at(i, n), sum, 2e-4);
        }
      }
    };
    check(Input::normed(x.view(), norm.values.data(), 1e-6f), [&](std::uint32_t i, std::uint32_t k) {
      double squares = 0;
      for (std::uint32_t j = 0; j < 50; ++j) squares += double{x.at(i, j)} * x.at(i, j);
      return x.at(i, k) / std::sqrt(squares / 50 + 1e-6) * norm.at(0, k);
    });
    check(Input::gated(gate.view(), x.view(), Activation::Silu), [&](std::uint32_t i, std::uint32_t k) {
      return double{x.at(i, k)} * gate.at(i, k) / (1 + std::exp(-double{gate.at(i, k)}));
    });
    check(Input::gated(gate.view(), x.view(), Activation::GeluTanh), [&](std::uint32_t i, std::uint32_t k) {
      const double g = gate.at(i, k);
      return x.at(i, k) * 0.5 * g * (1 + std::tanh(0.7978845608 * (g + 0.044715 * g * g * g)));
    });
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

// Keys and values of one sequence, contiguous, in f32.
struct Context {
  std::vector<float> memory;
  KvView view;

  Context(std::uint32_t positions, std::uint32_t heads, std::uint32_t dim) : memory(2 * positions * heads * dim) {
    view.base = reinterpret_cast<std::byte*>(memory.data());
    view.token_stride = dim * 4;
    view.head_stride = positions * view.token_stride;
    view.v_offset = heads * view.head_stride;
    view.type = ElementType::F32;
  }
};

TEST(CpuBackend, RotationTurnsPairsOfEitherKindAndLeavesTheRestOfAHeadAlone) {
  for_each_backend([](CpuBackend& backend) {
    const std::vector<Token> tokens(3);
    const std::vector<std::uint32_t> positions = {0, 7, 1000};
    const Step::Part parts[] = {{0, 1, 0}, {1, 1, 7}, {2, 1, 1000}};
    Context context(1001, 2, 10);
    const KvView views[] = {context.view, context.view, context.view};
    const std::uint64_t layer_bytes = 0;
    backend.begin({.tokens = tokens,
                   .positions = positions,
                   .parts = parts,
                   .kv = views,
                   .layer_bytes = std::span(&layer_bytes, 1),
                   .states = {}});
    const std::vector<float> frequencies = {1.0f, 0.1f, 0.01f};  // six of the ten elements of a head
    Matrix cosines(3, 3), sines(3, 3);
    backend.rope_angles(cosines.view(), sines.view(), frequencies);
    for (const RopePairs pairs : {RopePairs::Neighbours, RopePairs::Halves}) {
      Matrix q(3, 20, 6), k(3, 20, 45), v(3, 20, 46);
      const Matrix q_before = q, k_before = k;
      const AttentionShape shape{.heads = 2, .kv_heads = 2, .head_dim = 10};
      backend.store_kv(shape, q.view(), k.view(), v.view(),
                       {.cosines = cosines.view(), .sines = sines.view(), .pairs = pairs});
      const auto check = [&](const Matrix& x, const Matrix& before) {
        for (std::uint32_t i = 0; i < 3; ++i) {
          for (std::uint32_t head = 0; head < 2; ++head) {
            for (std::uint32_t n = 0; n < 3; ++n) {
              const std::uint32_t first = head * 10 + (pairs == RopePairs::Halves ? n : 2 * n);
              const std::uint32_t second = pairs == RopePairs::Halves ? first + 3 : first + 1;
              const double angle = static_cast<double>(positions[i]) * frequencies[n];
              const double a = before.at(i, first), b = before.at(i, second);
              EXPECT_NEAR(x.at(i, first), a * std::cos(angle) - b * std::sin(angle), 1e-3);
              EXPECT_NEAR(x.at(i, second), a * std::sin(angle) + b * std::cos(angle), 1e-3);
            }
            for (std::uint32_t n = 6; n < 10; ++n) EXPECT_EQ(x.at(i, head * 10 + n), before.at(i, head * 10 + n));
          }
        }
      };
      check(q, q_before);
      check(k, k_before);
      // What was written is the turned key and the value as it is, at the sequence's own position.
      for (std::uint32_t i = 0; i < 3; ++i) {
        EXPECT_EQ(std::memcmp(context.view.k(1, positions[i]), &k.values[i * 20 + 10], 40), 0);
        EXPECT_EQ(std::memcmp(context.view.v(1, positions[i]), &v.values[i * 20 + 10], 40), 0);
      }
    }
  });
}

TEST(CpuBackend, AttentionIsASoftmaxOverWhatTheWindowShows) {
  constexpr std::uint32_t kHeads = 6, kKvHeads = 2, kDim = 20, kContext = 150;
  for_each_backend([](CpuBackend& backend) {
    Matrix k(kContext, kKvHeads * kDim, 7), v(kContext, kKvHeads * kDim, 8), q(kContext, kHeads * kDim, 9);
    Context context(kContext, kKvHeads, kDim);
    const KvView& view = context.view;
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
      backend.store_kv(shape, q.view(), k.view(), v.view(), {});
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

// Sequences that share pages go over them together, and each gets the bits that it would get alone.
TEST(CpuBackend, AttentionOverSharedPagesGivesTheSameBitsAsAlone) {
  constexpr std::uint32_t kHeads = 6, kKvHeads = 2, kDim = 32, kBlock = 16, kPages = 40, kSequences = 7;
  for_each_backend([](CpuBackend& backend) {
    const std::uint64_t plane = std::uint64_t{kKvHeads} * kBlock * kDim * 2;
    std::vector<std::uint16_t> memory(kPages * plane);
    std::mt19937 random(51);
    for (std::uint16_t& half : memory) half = static_cast<std::uint16_t>(random() & 0xb3ff);  // below 0.25 in size
    std::vector<std::vector<std::uint32_t>> tables(kSequences);
    std::vector<Step::Part> parts;
    std::vector<KvView> views;
    std::vector<std::uint32_t> positions;
    for (std::uint32_t i = 0; i < kSequences; ++i) {
      const std::uint32_t shared = i < 3 ? 12 : i < 5 ? 8 : 0;  // pages of the first sequence
      for (std::uint32_t p = 0; p < 14; ++p) tables[i].push_back(p < shared ? p : 12 + (i * 5 + p) % 28);
      const std::uint32_t position = 13 * kBlock + i;
      parts.push_back({i, 1, position});
      positions.push_back(position);
      KvView view;
      view.base = reinterpret_cast<std::byte*>(memory.data());
      view.table = tables[i].data();
      view.page_unit = 2 * plane;
      view.v_offset = plane;
      view.token_stride = kDim * 2;
      view.head_stride = kBlock * view.token_stride;
      view.block_size = kBlock;
      view.type = ElementType::F16;
      views.push_back(view);
    }
    const AttentionShape shape{.heads = kHeads, .kv_heads = kKvHeads, .head_dim = kDim, .scale = 0.5f};
    const std::vector<Token> tokens(kSequences);
    const std::uint64_t layer_bytes = 0;
    Matrix q(kSequences, kHeads * kDim, 52), together(kSequences, kHeads * kDim);
    backend.begin({.tokens = tokens,
                   .positions = positions,
                   .parts = parts,
                   .kv = views,
                   .layer_bytes = std::span(&layer_bytes, 1),
                   .states = {}});
    backend.attention(together.view(), q.view(), shape);
    for (std::uint32_t i = 0; i < kSequences; ++i) {
      const Step::Part part{0, 1, positions[i]};
      backend.begin({.tokens = std::span(tokens).first(1),
                     .positions = std::span(positions).subspan(i, 1),
                     .parts = std::span(&part, 1),
                     .kv = std::span(views).subspan(i, 1),
                     .layer_bytes = std::span(&layer_bytes, 1),
                     .states = {}});
      Matrix alone(1, kHeads * kDim);
      backend.attention(alone.view(), {q.view().row(i), 1, kHeads * kDim, kHeads * kDim}, shape);
      ASSERT_EQ(std::memcmp(alone.values.data(), &together.values[std::size_t{i} * kHeads * kDim],
                            alone.values.size() * sizeof(float)),
                0)
          << "sequence " << i;
    }
  });
}

TEST(CpuBackend, TheConvolutionSeesTheWindowOfItsOwnSequenceAndMovesItOn) {
  for_each_backend([](CpuBackend& backend) {
    const Mamba2Shape shape{.heads = 2, .head_dim = 5, .groups = 1, .state_dim = 3, .conv_width = 4};
    const std::uint32_t channels = shape.conv_channels();
    Matrix input(9, channels, 10), weight(4, channels, 11), bias(1, channels, 12);
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
          if (row + t >= first + 3) sum += double{weight.at(t, c)} * input.at(row + t - 3, c);
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
    Matrix x(3, 24, 20), gate(3, 24, 21), weight(1, 24, 22), out(3, 24), same(24, 24);
    for (std::uint32_t n = 0; n < 24; ++n) same.values[n * 25] = 1;  // what comes in goes out
    const Arranged arranged(backend, floats(same));
    const Product product{.out = out.view(), .weight = &arranged.weight};
    backend.matmul({&product, 1}, {.kind = Input::Kind::GatedNormed,
                                   .x = x.view(),
                                   .gate = gate.view(),
                                   .weight = weight.values.data(),
                                   .epsilon = 1e-5f,
                                   .groups = 2});
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
