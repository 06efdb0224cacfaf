// What a backend promises for adapters: what they add to products, lookups and experts, to which rows, and that nothing
// else changes a bit.
#include <memory>
#include <vector>

#include "quire/backend/conformance_batches_testing.h"

namespace quire::conformance {
namespace {

using reference::as_f32;

// The pairs of a matrix, for adapters 1, 2, ...
struct Pairs {
  std::vector<FileWeight> a, b;  // as in the file
  std::vector<Loaded> memory;
  std::vector<LowRank> pairs;
};

class ConformanceOfAdapters : public Conformance {
 protected:
  struct Spec {
    std::uint32_t rank = 4;
    float scale = 1;
    gguf::Type type = gguf::Type::F32;
  };
  std::unique_ptr<Pairs> pairs(std::uint32_t rows, std::uint32_t cols, const std::vector<Spec>& specs,
                               std::uint32_t seed = 1) {
    auto all = std::make_unique<Pairs>();
    for (const Spec& spec : specs) {
      all->a.push_back(random_weight(spec.type, spec.rank, cols, 10 * seed));
      // The rows of B are as long as the rank, which need not be whole blocks.
      all->b.push_back(random_weight(gguf::type_info(spec.type).block_size > 1 ? gguf::Type::F32 : spec.type, rows,
                                     spec.rank, 10 * seed + 1));
      ++seed;
      LowRank pair{.a = {}, .b = {}, .scale = spec.scale};
      all->memory.push_back(load(backend(), all->a.back(), WeightUse::LowRank));
      pair.a = all->memory.back().weight;
      all->memory.push_back(load(backend(), all->b.back(), WeightUse::LowRank));
      pair.b = all->memory.back().weight;
      all->pairs.push_back(pair);
    }
    return all;
  }

  // One sequence for each of these adapters, with so many rows each.
  static Batch batch_of(const std::vector<std::uint32_t>& adapters, std::uint32_t rows, Logits logits = Logits::None,
                        std::span<const Token> tokens = {}) {
    Batch batch;
    const std::vector<Token> zeros(rows);
    for (std::size_t i = 0; i < adapters.size(); ++i) {
      batch.add({}, tokens.empty() ? std::span<const Token>(zeros) : tokens.subspan(i * rows, rows), logits, false, {},
                adapters[i]);
    }
    batch.bind({}, {});
    batch.set_positions();
    return batch;
  }

  // scale * B (A x), added to what there is. The sizes grow by the magnitude of its terms.
  static void add_expected(Expected& to, std::uint32_t row, std::span<const double> x, const Matrix& a, const Matrix& b,
                           double scale) {
    for (std::uint32_t n = 0; n < b.rows; ++n) {
      double sum = 0, size = 0;
      for (std::uint32_t r = 0; r < a.rows; ++r) {
        double t = 0, t_size = 0;
        for (std::uint32_t k = 0; k < a.cols; ++k) {
          t += a.at(r, k) * x[k];
          t_size += std::fabs(a.at(r, k) * x[k]);
        }
        sum += b.at(n, r) * t;
        size += std::fabs(b.at(n, r)) * t_size;
      }
      to.values[std::size_t{row} * to.cols + n] += scale * sum;
      to.sizes[std::size_t{row} * to.cols + n] += std::fabs(scale) * size;
    }
  }
};

TEST_P(ConformanceOfAdapters, AddTheirProductsToTheRowsThatHaveThem) {
  for (const gguf::Type type : {gguf::Type::F32, gguf::Type::F16, gguf::Type::BF16, gguf::Type::Q8_0}) {
    for (const std::uint32_t cols : {32u, 352u}) {
      for (const std::uint32_t outs : {1u, 17u, 83u}) {
        SCOPED_TRACE(std::string(gguf::type_name(type)) + ", " + std::to_string(cols) + " columns, " +
                     std::to_string(outs) + " outputs");
        const FileWeight file = random_weight(gguf::Type::F32, outs, cols, 7);
        Loaded loaded = load(backend(), file);
        const auto low = pairs(outs, cols, {{5, 0.5f, type}, {33, -1.25f, type}});
        loaded.weight.adapters = low->pairs.data();
        const std::vector<std::uint32_t> adapters = {2, 0, 1, 2, 0, 1, 1};
        for (const std::uint32_t rows : {1u, 5u}) {
          const Batch batch = batch_of(adapters, rows);
          const Matrix x = random_matrix(batch.rows(), cols, 40), before = random_matrix(batch.rows(), outs, 41);
          const Tensor plain = tensors().room(batch.rows(), outs), added = tensors().put(before);
          const Tensor in = tensors().put(x);
          const Product product{.out = plain, .weight = &loaded.weight};
          const Product sum{.out = added, .weight = &loaded.weight, .add = true, .scale = 0.75f};
          step(batch, [&] {
            backend().matmul({&product, 1}, Input::plain(in));
            backend().matmul({&sum, 1}, Input::plain(in));
          });
          std::vector<reference::Row> inputs;
          for (std::uint32_t i = 0; i < x.rows; ++i) inputs.push_back(reference::to_doubles(x.row(i)));
          Expected expected = reference::product(file.values(), inputs);
          for (std::uint32_t i = 0; i < x.rows; ++i) {
            const std::uint32_t adapter = adapters[i / rows];
            if (adapter == 0) continue;
            add_expected(expected, i, inputs[i], low->a[adapter - 1].values(), low->b[adapter - 1].values(),
                         low->pairs[adapter - 1].scale);
          }
          expect_close(tensors().get(plain), expected, tolerance().products);
          for (std::size_t i = 0; i < expected.values.size(); ++i) {
            expected.values[i] = before.values[i] + 0.75 * expected.values[i];
            expected.sizes[i] += std::fabs(before.values[i]);
          }
          expect_close(tensors().get(added), expected, tolerance().products);
        }
      }
    }
  }
}

TEST_P(ConformanceOfAdapters, ChangeNoBitOfOtherRowsAndDependOnNoOther) {
  for (const gguf::Type type : {gguf::Type::F32, gguf::Type::Q8_0}) {
    const FileWeight file = random_weight(type, 70, 256, 7);
    Loaded loaded = load(backend(), file);
    const auto low = pairs(70, 256, {{5}, {33}, {64}});
    const Matrix norm = random_matrix(1, 256, 3);
    const Tensor weight = tensors().put(norm);
    const auto run = [&](const std::vector<std::uint32_t>& adapters, std::uint32_t rows, const Matrix& x) {
      loaded.weight.adapters = low->pairs.data();
      const Tensor out = tensors().room(x.rows, 70), in = tensors().put(x);
      const Product products[] = {{.out = out, .weight = &loaded.weight}};
      step(batch_of(adapters, rows), [&] { backend().matmul(products, Input::normed(in, weight, 1e-5f)); });
      return tensors().get(out);
    };
    const std::vector<std::uint32_t> adapters = {3, 0, 1, 2, 0, 1, 2, 2, 3};
    const std::uint32_t rows = 4;
    const Matrix x = random_matrix(rows * static_cast<std::uint32_t>(adapters.size()), 256, 9);
    const Matrix together = run(adapters, rows, x);
    for (std::uint32_t s = 0; s < adapters.size(); ++s) {
      for (std::uint32_t i = 0; i < rows; ++i) {
        Matrix one(1, 256);
        std::ranges::copy(x.row(s * rows + i), one.values.begin());
        const Matrix alone = run({adapters[s]}, 1, one);
        EXPECT_TRUE(same_bits(alone.row(0), together.row(s * rows + i))) << "row " << i << " of sequence " << s;
        if (adapters[s] != 0) continue;
        // Nothing is added to a row without an adapter: its bits are those of the matrix alone.
        loaded.weight.adapters = nullptr;
        const Tensor out = tensors().room(1, 70), in = tensors().put(one);
        const Product product{.out = out, .weight = &loaded.weight};
        step(batch_of({0}, 1), [&] { backend().matmul({&product, 1}, Input::normed(in, weight, 1e-5f)); });
        EXPECT_TRUE(same_bits(tensors().get(out).row(0), together.row(s * rows + i)));
      }
    }
  }
}

TEST_P(ConformanceOfAdapters, OfTheWantedRowsAreThoseOfTheirSequences) {
  const FileWeight file = random_weight(gguf::Type::F32, 40, 64, 7);
  Loaded loaded = load(backend(), file);
  const auto low = pairs(40, 64, {{5}, {16}});
  loaded.weight.adapters = low->pairs.data();
  const std::vector<std::uint32_t> adapters = {1, 0, 2};
  const Matrix x = random_matrix(3, 64, 4);
  const Tensor out = tensors().room(3, 40), in = tensors().put(x);
  const Product product{.out = out, .weight = &loaded.weight};
  step(batch_of(adapters, 6, Logits::Last), [&] { backend().matmul({&product, 1}, Input::plain(in)); });
  const Matrix wanted = tensors().get(out);
  const Tensor same = tensors().room(3, 40);
  const Product again{.out = same, .weight = &loaded.weight};
  step(batch_of(adapters, 1, Logits::Last), [&] { backend().matmul({&again, 1}, Input::plain(in)); });
  EXPECT_TRUE(same_bits(wanted, tensors().get(same)));
}

TEST_P(ConformanceOfAdapters, AreAddedToRowsThatAreLookedUp) {
  constexpr std::uint32_t kTokens = 9, kCols = 70, kRank = 6;
  const FileWeight table = random_weight(gguf::Type::F32, kTokens, kCols, 3);
  Loaded loaded = load(backend(), table, WeightUse::Lookup);
  const FileWeight a = random_weight(gguf::Type::F16, kTokens, kRank, 4),
                   b = random_weight(gguf::Type::F32, kCols, kRank, 5);
  const Loaded loaded_a = load(backend(), a, WeightUse::Lookup), loaded_b = load(backend(), b, WeightUse::LowRank);
  const std::vector<LowRank> low = {{}, {loaded_a.weight, loaded_b.weight, 0.5f}};
  loaded.weight.adapters = low.data();
  const std::vector<Token> tokens = {3, 8, 0, 1, 7, 7, 2, 5};
  const Batch batch = batch_of({2, 0, 1, 2}, 2, Logits::None, tokens);
  const Tensor out = tensors().room(8, kCols);
  step(batch, [&] { backend().embed(out, loaded.weight, 3); });
  const Matrix got = tensors().get(out), values = table.values(), rows = a.values(), up = b.values();
  for (std::uint32_t i = 0; i < 8; ++i) {
    const auto token = static_cast<std::uint32_t>(tokens[i]);
    for (std::uint32_t n = 0; n < kCols; ++n) {
      double expected = 3 * double{values.at(token, n)};
      for (std::uint32_t r = 0; (i < 2 || i >= 6) && r < kRank; ++r) expected += 1.5 * rows.at(token, r) * up.at(n, r);
      ASSERT_NEAR(got.at(i, n), expected, 1e-4) << "row " << i << ", column " << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ConformanceOfAdapters, ::testing::ValuesIn(backends_under_test()), name_of);

}  // namespace
}  // namespace quire::conformance
