// What a backend promises for keys and values: norms, rotation, and what is stored.
#include "quire/backend/conformance_batches_testing.h"

namespace quire::conformance {
namespace {

class ConformanceOfKeysAndValues : public Conformance {
 protected:
  KvPool make_pool(const AttentionShape& shape, ElementType type, std::uint32_t sequences, std::uint32_t positions) {
    const PageShape page{
        .block_size = 16, .num_layers = 3, .num_kv_heads = shape.kv_heads, .head_dim = shape.head_dim, .type = type};
    return {backend().device(), page, sequences, positions, KvPool::Order::Scattered};
  }
};

struct HeadCase {
  std::uint32_t head_dim, pairs;
  RopePairs order;
  bool norms;
  bool balanced = false;
};

// Powers of two for the keys of `heads` KV heads, as HeadChanges::key_balance has them. Any order: a backend does not
// rely on pairs that have the same factor.
Matrix some_balance(std::uint32_t heads, std::uint32_t head_dim) {
  Matrix balance(1, heads * head_dim, 1);
  for (std::size_t i = 0; i < balance.values.size(); ++i) {
    balance.values[i] = std::ldexp(1.0f, static_cast<int>(i * 7 % 19) - 9);
  }
  return balance;
}
// What queries are multiplied with and keys divided by, for heads of each.
std::vector<float> for_queries(const Matrix& balance, std::uint32_t heads, std::uint32_t head_dim) {
  const std::uint32_t per_head = heads * head_dim / balance.cols;
  std::vector<float> factors;
  for (std::uint32_t head = 0; head < heads; ++head) {
    const auto part = balance.row(0).subspan(std::size_t{head} / per_head * head_dim, head_dim);
    factors.insert(factors.end(), part.begin(), part.end());
  }
  return factors;
}
std::vector<float> for_keys(const Matrix& balance) {
  std::vector<float> factors;
  for (const float factor : balance.values) factors.push_back(1 / factor);
  return factors;
}

TEST_P(ConformanceOfKeysAndValues, HeadsAreNormedAndRotatedInPlaceAndKeysAndValuesAreStored) {
  for (const HeadCase& one : {HeadCase{64, 32, RopePairs::Neighbours, true},
                              {64, 32, RopePairs::Halves, true},
                              {128, 64, RopePairs::Halves, false},
                              {80, 16, RopePairs::Halves, true},
                              {10, 3, RopePairs::Neighbours, false},
                              {10, 3, RopePairs::Halves, true},
                              {33, 0, RopePairs::Halves, true},
                              {20, 0, RopePairs::Neighbours, false},
                              {64, 32, RopePairs::Neighbours, true, true},
                              {80, 16, RopePairs::Halves, false, true},
                              {33, 0, RopePairs::Halves, false, true}}) {
    for (const ElementType type : types_stored_by(backend())) {
      const AttentionShape shape{.group = 1, .layer = 1, .heads = 6, .kv_heads = 2, .head_dim = one.head_dim};
      SCOPED_TRACE(std::string(name(type)) + ", heads of " + std::to_string(one.head_dim) + ", " +
                   std::to_string(one.pairs) + " pairs");
      const std::vector<Part> parts = {
          {.position = 0, .rows = 5}, {.sequence = 2, .position = 70}, {.sequence = 1, .position = 14, .rows = 3}};
      KvPool pool = make_pool(shape, type, 3, 80);
      const Batch batch = make_batch(parts, {.kv = {KvGroupView{}, pool.view()}});
      const std::uint32_t rows = batch.rows();
      const Matrix q = random_matrix(rows, 6 * one.head_dim, 6), k = random_matrix(rows, 2 * one.head_dim, 7);
      const Matrix v = random_matrix(rows, 2 * one.head_dim, 8);
      reference::HostHeadChanges changes{.epsilon = 1e-6f, .pairs = one.order};
      HeadChanges on{.epsilon = 1e-6f, .pairs = one.order};
      if (one.norms) {
        changes.q_norm = random_matrix(1, one.head_dim, 9);
        changes.k_norm = random_matrix(1, one.head_dim, 10);
        on.q_norm = tensors().put(changes.q_norm);
        on.k_norm = tensors().put(changes.k_norm);
      }
      if (one.pairs != 0) {
        Matrix angles = random_matrix(rows, one.pairs, 11);
        changes.cosines = changes.sines = angles;
        for (std::size_t i = 0; i < angles.values.size(); ++i) {
          changes.cosines.values[i] = std::cos(angles.values[i]);
          changes.sines.values[i] = std::sin(angles.values[i]);
        }
        on.cosines = tensors().put_within(changes.cosines, 1, 2);
        on.sines = tensors().put_within(changes.sines, 2, 2);
      }
      // Keys of other types are left alone.
      std::vector<float> q_factors, k_factors;
      if (one.balanced) {
        const Matrix balance = some_balance(2, one.head_dim);
        on.key_balance = tensors().put(balance);
        if (type == ElementType::Q8_0) {
          q_factors = for_queries(balance, 6, one.head_dim);
          k_factors = for_keys(balance);
        }
      }
      const Tensor q_on = tensors().put_within(q, 3, 5), k_on = tensors().put_within(k, 1, 2);
      const Tensor v_on = tensors().put_within(v, 2, 0);
      step(batch, [&] { backend().store_kv(shape, q_on, k_on, v_on, on); });
      const Matrix q_after = tensors().get(q_on), k_after = tensors().get(k_on);
      if (one.norms || one.pairs != 0 || !q_factors.empty()) {
        expect_close(q_after, change_heads(q, one.head_dim, changes.q_norm, changes, q_factors), tolerance().floats);
        expect_close(k_after, change_heads(k, one.head_dim, changes.k_norm, changes, k_factors), tolerance().floats);
      } else {
        EXPECT_TRUE(same_bits(q_after, q));
        EXPECT_TRUE(same_bits(k_after, k));
      }
      EXPECT_TRUE(same_bits(tensors().get(v_on), v));
      for (const Tensor tensor : {q_on, k_on, v_on}) EXPECT_TRUE(tensors().surroundings_are_untouched(tensor));
      // Stored values are the nearest that the type has. They are at the positions of their sequence, and nowhere else.
      const Matrix k_stored = reference::stored(type, k_after, one.head_dim),
                   v_stored = reference::stored(type, v, one.head_dim);
      std::uint32_t row = 0;
      for (const Part& part : parts) {
        for (std::uint32_t i = 0; i < part.rows; ++i, ++row) {
          const std::uint32_t position = part.position + i;
          EXPECT_TRUE(same_bits(pool.key(part.sequence, 1, position), k_stored.row(row))) << "row " << row;
          EXPECT_TRUE(same_bits(pool.value(part.sequence, 1, position), v_stored.row(row))) << "row " << row;
        }
        for (const auto& [layer, position] :
             {std::pair{1u, part.position + part.rows}, {0u, part.position}, {2u, part.position}}) {
          for (const float value : pool.key(part.sequence, layer, position)) EXPECT_TRUE(std::isnan(value));
          for (const float value : pool.value(part.sequence, layer, position)) EXPECT_TRUE(std::isnan(value));
        }
      }
    }
  }
}

// Elements of a head that are not rotated are unchanged, to the bit.
TEST_P(ConformanceOfKeysAndValues, TheRestOfAHeadIsNotRotated) {
  const AttentionShape shape{.group = 1, .heads = 2, .kv_heads = 2, .head_dim = 10};
  const KvPool pool = make_pool(shape, ElementType::F32, 1, 16);
  const Matrix q = random_matrix(3, 20, 6), k = random_matrix(3, 20, 7);
  const Tensor q_on = tensors().put(q), k_on = tensors().put(k), v_on = tensors().put(k);
  const Tensor cosines = tensors().put(Matrix(3, 3, 0.6f)), sines = tensors().put(Matrix(3, 3, 0.8f));
  step(make_batch(std::vector<Part>{{.rows = 3}}, {.kv = {KvGroupView{}, pool.view()}}), [&] {
    backend().store_kv(shape, q_on, k_on, v_on, {.cosines = cosines, .sines = sines, .pairs = RopePairs::Halves});
  });
  const Matrix q_after = tensors().get(q_on), k_after = tensors().get(k_on);
  for (std::uint32_t i = 0; i < 3; ++i) {
    for (const std::uint32_t head : {0u, 10u}) {
      EXPECT_TRUE(same_bits(q_after.row(i).subspan(head + 6, 4), q.row(i).subspan(head + 6, 4)));
      EXPECT_TRUE(same_bits(k_after.row(i).subspan(head + 6, 4), k.row(i).subspan(head + 6, 4)));
      EXPECT_FALSE(same_bits(q_after.row(i).subspan(head, 6), q.row(i).subspan(head, 6)));
    }
  }
}

TEST_P(ConformanceOfKeysAndValues, ExtremeValuesAreStoredAsTheNearest) {
  const AttentionShape shape{.group = 1, .layer = 2, .heads = 1, .kv_heads = 1, .head_dim = 19};
  Matrix k = random_matrix(1, 19, 1);
  const float odd[] = {0.0f,  -0.0f,  65504.0f,   65519.0f,  -65519.0f, 6e-8f,   3e-8f,    2.9e-8f, 1e-7f,
                       6e-5f, 1e-40f, 1.0009766f, 1.001465f, 2049.0f,   2051.0f, -2049.0f, 256.5f,  257.0f};
  std::ranges::copy(odd, k.values.begin());
  for (const ElementType type : types_stored_by(backend())) {
    KvPool pool = make_pool(shape, type, 1, 16);
    const Tensor q_on = tensors().put(k), k_on = tensors().put(k), v_on = tensors().put(k);
    step(make_batch(std::vector<Part>{{.position = 3}}, {.kv = {KvGroupView{}, pool.view()}}),
         [&] { backend().store_kv(shape, q_on, k_on, v_on, {}); });
    const Matrix expected = reference::stored(type, k, shape.head_dim);
    EXPECT_TRUE(same_bits(pool.key(0, 2, 3), expected.row(0))) << name(type);
    EXPECT_TRUE(same_bits(pool.value(0, 2, 3), expected.row(0))) << name(type);
  }
}

TEST_P(ConformanceOfKeysAndValues, ARowOfHeadsHasTheSameBitsHoweverManyThereAre) {
  const AttentionShape shape{.group = 1, .heads = 4, .kv_heads = 2, .head_dim = 40};
  const Matrix q = random_matrix(60, 160, 1), k = random_matrix(60, 80, 2), norm = random_matrix(1, 40, 4);
  const Matrix angles = random_matrix(60, 20, 3), balance = some_balance(2, 40);
  const auto run = [&](ElementType type, std::uint32_t first, std::uint32_t count) {
    const KvPool pool = make_pool(shape, type, 1, 64);
    const Tensor q_on = tensors().put(q.row_range(first, count)), k_on = tensors().put(k.row_range(first, count));
    const Tensor v_on = tensors().put(k.row_range(first, count)), by = tensors().put(norm);
    const Tensor angles_on = tensors().put(angles.row_range(first, count)), factors = tensors().put(balance);
    step(make_batch(std::vector<Part>{{.position = first, .rows = count}}, {.kv = {KvGroupView{}, pool.view()}}), [&] {
      backend().store_kv(shape, q_on, k_on, v_on,
                         {.q_norm = by,
                          .k_norm = by,
                          .epsilon = 1e-5f,
                          .cosines = angles_on,
                          .sines = angles_on,
                          .key_balance = factors});
    });
    std::vector<Matrix> row = {tensors().get(q_on.row_range(37 - first, 1)),
                               tensors().get(k_on.row_range(37 - first, 1))};
    return row;
  };
  for (const ElementType type : types_stored_by(backend())) {
    const std::vector<Matrix> alone = run(type, 37, 1);
    for (const auto& [first, count] : {std::pair{37u, 2u}, {33u, 9u}, {0u, 60u}}) {
      const std::vector<Matrix> row = run(type, first, count);
      EXPECT_TRUE(same_bits(row[0], alone[0]) && same_bits(row[1], alone[1])) << name(type) << ", " << count << " rows";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ConformanceOfKeysAndValues, ::testing::ValuesIn(backends_under_test()), name_of);

}  // namespace
}  // namespace quire::conformance
