// What a backend promises for LayerNorm, for tables of positions and for norms over all heads of a row.
#include "quire/backend/conformance_batches_testing.h"

namespace quire::conformance {
namespace {

class ConformanceOfDenseModels : public Conformance {
 protected:
  // Rows whose mean is large beside their deviations, as GPT-2's stream has them.
  static Matrix uneven(std::uint32_t rows, std::uint32_t cols, std::uint32_t seed) {
    Matrix x = random_matrix(rows, cols, seed);
    for (std::uint32_t i = 0; i < rows; ++i) {
      for (std::uint32_t k = 0; k < cols; ++k) x.at(i, k) += static_cast<float>(i % 5) * 10 - 20;
    }
    return x;
  }
};

constexpr std::uint32_t kLengths[] = {1, 3, 16, 50, 64, 100, 257, 512};

TEST_P(ConformanceOfDenseModels, LayerNormsSubtractTheMeanAndDivideByTheDeviation) {
  for (const std::uint32_t cols : kLengths) {
    const Matrix x = uneven(20, cols, 4), weight = random_matrix(1, cols, 5), bias = random_matrix(1, cols, 6);
    const Tensor in = tensors().put_within(x, 1, 2), out = tensors().room_within(20, cols, 3, 1);
    const Tensor same = tensors().put(x), plain = tensors().room(20, cols);
    const Tensor by = tensors().put(weight), plus = tensors().put(bias);
    step(rows_alone(20), [&] {
      backend().layer_norm(out, in, by, plus, 1e-5f);
      backend().layer_norm(same, same, by, plus, 1e-5f);
      backend().layer_norm(plain, in, by, {}, 1e-5f);
    });
    SCOPED_TRACE(std::to_string(cols) + " columns");
    expect_close(tensors().get(out), reference::layer_norm(x, weight, bias, 1e-5), tolerance().floats);
    expect_close(tensors().get(plain), reference::layer_norm(x, weight, {}, 1e-5), tolerance().floats);
    EXPECT_TRUE(same_bits(tensors().get(same), tensors().get(out))) << "in place";
    EXPECT_TRUE(same_bits(tensors().get(in), x)) << "the input is as it was";
    EXPECT_TRUE(tensors().surroundings_are_untouched(out));
  }
}

TEST_P(ConformanceOfDenseModels, ALayerNormOfEqualElementsIsItsBias) {
  const Matrix bias = random_matrix(1, 64, 6);
  const Tensor x = tensors().put(Matrix(3, 64, 0.5f)), by = tensors().put(random_matrix(1, 64, 5));
  const Tensor plus = tensors().put(bias);
  step(rows_alone(3), [&] { backend().layer_norm(x, x, by, plus, 1e-5f); });
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(tensors().get(x).row_range(i, 1).values, bias.values);
}

TEST_P(ConformanceOfDenseModels, ALayerNormHasTheSameBitsHoweverManyRowsThereAre) {
  const Matrix x = uneven(70, 100, 1);
  const Tensor by = tensors().put(random_matrix(1, 100, 2)), plus = tensors().put(random_matrix(1, 100, 3));
  const auto run = [&](std::uint32_t first, std::uint32_t count) {
    const Tensor normed = tensors().put(x.row_range(first, count));
    step(rows_alone(count), [&] { backend().layer_norm(normed, normed, by, plus, 1e-5f); });
    return tensors().get(normed.row_range(37 - first, 1));
  };
  const Matrix alone = run(37, 1);
  for (const auto& [first, count] : {std::pair{37u, 2u}, {33u, 7u}, {0u, 70u}}) {
    EXPECT_TRUE(same_bits(run(first, count), alone)) << count << " rows from " << first;
  }
}

TEST_P(ConformanceOfDenseModels, RowsOfATableAreAddedByPosition) {
  for (const gguf::Type type : {gguf::Type::F32, gguf::Type::F16, gguf::Type::BF16, gguf::Type::Q8_0}) {
    for (const std::uint32_t cols : {32u, 96u, 1024u}) {
      const FileWeight file = random_weight(type, 60, cols, 7);
      const Loaded loaded = load(backend(), file, WeightUse::Lookup);
      const Batch batch = make_batch(std::vector<Part>{
          {.position = 0, .rows = 3}, {.sequence = 1, .position = 59}, {.sequence = 2, .position = 17, .rows = 4}});
      const Matrix x = random_matrix(8, cols, 3), table = file.values();
      const Tensor on = tensors().put_within(x, 3, 2);
      step(batch, [&] { backend().add_positions(on, loaded.weight); });
      const Matrix got = tensors().get(on);
      for (std::uint32_t i = 0; i < 8; ++i) {
        const std::uint32_t position = batch.positions()[i];
        for (std::uint32_t k = 0; k < cols; ++k) {
          ASSERT_EQ(got.at(i, k), x.at(i, k) + table.at(position, k)) << gguf::type_name(type) << ", row " << i;
        }
      }
      EXPECT_TRUE(tensors().surroundings_are_untouched(on));
    }
  }
}

TEST_P(ConformanceOfDenseModels, AnglesHaveAMagnitude) {
  const Matrix frequencies = random_matrix(1, 24, 3);
  const Batch batch = make_batch(std::vector<Part>{{.position = 5, .rows = 3}, {.sequence = 1, .position = 1000}});
  const Tensor by = tensors().put(frequencies);
  const Tensor cosines = tensors().room(4, 24), sines = tensors().room(4, 24);
  step(batch, [&] { backend().rope_angles(cosines, sines, by, 1.2247449f); });
  const reference::Angles expected = reference::rope_angles(batch.positions(), frequencies.values, 1.2247449f);
  expect_close(tensors().get(cosines), expected.cosines, tolerance().floats);
  expect_close(tensors().get(sines), expected.sines, tolerance().floats);
}

// Norms over all heads of a row, as OLMo 2 has them. The rotation is still head by head.
TEST_P(ConformanceOfDenseModels, HeadsOfARowAreNormedTogether) {
  for (const std::uint32_t dim : {10u, 64u}) {
    for (const ElementType type : types_stored_by(backend())) {
      const AttentionShape shape{.group = 0, .layer = 0, .heads = 6, .kv_heads = 2, .head_dim = dim};
      const PageShape page{.block_size = 16, .num_layers = 1, .num_kv_heads = 2, .head_dim = dim, .type = type};
      KvPool pool{backend().device(), page, 2, 80, KvPool::Order::Scattered};
      const std::vector<Part> parts = {{.position = 14, .rows = 5}, {.sequence = 1, .position = 70}};
      const Matrix q = random_matrix(6, 6 * dim, 6), k = random_matrix(6, 2 * dim, 7), v = random_matrix(6, 2 * dim, 8);
      const Matrix q_norm = random_matrix(1, 6 * dim, 9), k_norm = random_matrix(1, 2 * dim, 10);
      reference::HostHeadChanges changes{.cosines = Matrix(6, 4, 0.6f), .sines = Matrix(6, 4, 0.8f)};
      const HeadChanges on{.q_norm = tensors().put(q_norm),
                           .k_norm = tensors().put(k_norm),
                           .epsilon = 1e-5f,
                           .cosines = tensors().put(changes.cosines),
                           .sines = tensors().put(changes.sines)};
      const auto run = [&](std::uint32_t first, std::uint32_t count, std::span<const Part> of) {
        const Tensor q_on = tensors().put_within(q.row_range(first, count), 3, 5);
        const Tensor k_on = tensors().put_within(k.row_range(first, count), 1, 2);
        const Tensor v_on = tensors().put(v.row_range(first, count));
        HeadChanges own = on;
        own.cosines = on.cosines.row_range(first, count);
        own.sines = on.sines.row_range(first, count);
        step(make_batch(of, {.kv = {pool.view()}}), [&] { backend().store_kv(shape, q_on, k_on, v_on, own); });
        EXPECT_TRUE(tensors().surroundings_are_untouched(q_on) && tensors().surroundings_are_untouched(k_on));
        return std::pair(tensors().get(q_on), tensors().get(k_on));
      };
      const auto [q_after, k_after] = run(0, 6, parts);
      const auto expected = [&](const Matrix& x, const Matrix& norm) {
        Matrix normed = x;
        for (std::uint32_t i = 0; i < x.rows; ++i) {
          const reference::Row row = reference::rms_norm(reference::to_doubles(x.row(i)), norm.row(0), 1e-5);
          for (std::uint32_t c = 0; c < x.cols; ++c) normed.at(i, c) = static_cast<float>(row[c]);
        }
        return change_heads(normed, dim, {}, changes);
      };
      SCOPED_TRACE(std::string(name(type)) + ", heads of " + std::to_string(dim));
      expect_close(q_after, expected(q, q_norm), tolerance().floats);
      expect_close(k_after, expected(k, k_norm), tolerance().floats);
      const Matrix stored = reference::stored(type, k_after, dim);
      EXPECT_TRUE(same_bits(pool.key(0, 0, 15), stored.row(1)));
      EXPECT_TRUE(same_bits(pool.key(1, 0, 70), stored.row(5)));
      const auto [q_alone, k_alone] = run(3, 1, std::vector<Part>{{.position = 17}});
      EXPECT_TRUE(same_bits(q_alone, q_after.row_range(3, 1)) && same_bits(k_alone, k_after.row_range(3, 1)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ConformanceOfDenseModels, ::testing::ValuesIn(backends_under_test()), name_of);

}  // namespace
}  // namespace quire::conformance
