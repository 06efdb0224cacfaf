// What a backend promises for operations on single rows.
#include "quire/backend/conformance_batches_testing.h"

namespace quire::conformance {
namespace {

class ConformanceOfRows : public Conformance {};

// Lengths that are multiples of a vector, and lengths that are not.
constexpr std::uint32_t kLengths[] = {1, 3, 16, 50, 64, 100, 257, 512};

TEST_P(ConformanceOfRows, NormsDivideByTheRootMeanSquare) {
  for (const std::uint32_t cols : kLengths) {
    const Matrix x = random_matrix(20, cols, 4), weight = random_matrix(1, cols, 5);
    const Tensor in = tensors().put(x), out = tensors().room(20, cols), by = tensors().put(weight);
    step(rows_alone(20), [&] { backend().rms_norm(out, in, by, 1e-6f); });
    expect_close(tensors().get(out), reference::rms_norm(x, weight, 1e-6), tolerance().floats);
    EXPECT_TRUE(same_bits(tensors().get(in), x)) << "the input is as it was";
  }
}

TEST_P(ConformanceOfRows, NormsInPlaceAreTheSameBits) {
  const Matrix x = random_matrix(20, 50, 4), weight = random_matrix(1, 50, 5);
  const Tensor in = tensors().put(x), out = tensors().room(20, 50), same = tensors().put(x), by = tensors().put(weight);
  step(rows_alone(20), [&] {
    backend().rms_norm(out, in, by, 1e-6f);
    backend().rms_norm(same, same, by, 1e-6f);
  });
  EXPECT_TRUE(same_bits(tensors().get(out), tensors().get(same)));
}

TEST_P(ConformanceOfRows, NormsOfZerosAreZero) {
  const Tensor x = tensors().put(Matrix(3, 50)), by = tensors().put(random_matrix(1, 50, 5));
  step(rows_alone(3), [&] { backend().rms_norm(x, x, by, 1e-6f); });
  EXPECT_EQ(tensors().get(x).values, Matrix(3, 50).values);
}

TEST_P(ConformanceOfRows, RowsAreScaledAndAdded) {
  for (const std::uint32_t cols : kLengths) {
    for (const float scale : {1.0f, -0.3f}) {
      const Matrix x = random_matrix(9, cols, 1), y = random_matrix(9, cols, 2);
      const Tensor to = tensors().put(x), more = tensors().put(y);
      step(rows_alone(9), [&] { backend().add(to, more, scale); });
      expect_close(tensors().get(to), reference::add(x, y, scale), tolerance().floats);
      EXPECT_TRUE(same_bits(tensors().get(more), y));
    }
  }
}

TEST_P(ConformanceOfRows, LogitsAreCappedSmoothlyAndScaled) {
  for (const std::uint32_t cols : kLengths) {
    for (const auto& [cap, scale] : {std::pair{30.0f, 1.0f}, {30.0f, 0.25f}, {0.0f, 0.5f}, {0.0f, 1.0f}}) {
      Matrix x = random_matrix(6, cols, 3);
      for (float& value : x.values) value *= 40;
      x.at(0, 0) = 1e6f;
      x.at(5, cols - 1) = -1e6f;
      const Tensor to = tensors().put(x);
      step(rows_alone(6), [&] { backend().cap_and_scale(to, cap, scale); });
      expect_close(tensors().get(to), reference::cap_and_scale(x, cap, scale), tolerance().floats);
    }
  }
}

TEST_P(ConformanceOfRows, RowsThatTheBatchWantsAreGathered) {
  const Matrix x = random_matrix(12, 50, 7);
  const Batch batch = make_batch(std::vector<Part>{{.rows = 4, .logits = Logits::Last},
                                                   {.sequence = 1, .rows = 3, .logits = Logits::None},
                                                   {.sequence = 2, .rows = 3, .logits = Logits::All},
                                                   {.sequence = 3, .rows = 2, .logits = Logits::Last}});
  const std::vector<std::uint32_t> wanted = {3, 7, 8, 9, 11};
  const Tensor from = tensors().put_within(x, 3, 2), out = tensors().room_within(5, 50, 1, 4);
  step(batch, [&] { backend().gather_wanted(out, from); });
  const Matrix got = tensors().get(out);
  for (std::uint32_t i = 0; i < 5; ++i) EXPECT_TRUE(same_bits(got.row(i), x.row(wanted[i]))) << "row " << i;
  EXPECT_TRUE(tensors().surroundings_are_untouched(out));
}

TEST_P(ConformanceOfRows, AnglesArePositionsTimesFrequencies) {
  std::vector<float> frequencies;
  for (int i = 0; i < 37; ++i) frequencies.push_back(std::pow(10000.0f, -static_cast<float>(i) / 37));
  Matrix row(1, 37);
  row.values = frequencies;
  const Batch batch = make_batch(std::vector<Part>{
      {.position = 0, .rows = 5}, {.sequence = 1, .position = 1000}, {.sequence = 2, .position = 131000, .rows = 3}});
  const Tensor by = tensors().put(row), cosines = tensors().room(9, 37), sines = tensors().room(9, 37);
  step(batch, [&] { backend().rope_angles(cosines, sines, by, 1); });
  const reference::Angles expected = reference::rope_angles(batch.positions(), frequencies);
  expect_close(tensors().get(cosines), expected.cosines, tolerance().floats);
  expect_close(tensors().get(sines), expected.sines, tolerance().floats);
}

TEST_P(ConformanceOfRows, OperationsOnColumnsLeaveTheColumnsBesideThemAlone) {
  const std::uint32_t rows = 11, cols = 50;
  const Matrix x = random_matrix(rows, cols, 1), y = random_matrix(rows, cols, 2), weight = random_matrix(1, cols, 3);
  Tensors& t = tensors();
  const Tensor a = t.put_within(x, 3, 5), b = t.put_within(x, 1, 0), c = t.put_within(x, 7, 2),
               more = t.put_within(y, 5, 1);
  const Tensor cosines = t.room_within(rows, cols, 1, 2), sines = t.room_within(rows, cols, 3, 3), by = t.put(weight);
  step(rows_alone(rows), [&] {
    backend().rms_norm(a, more, by, 1e-5f);
    backend().add(b, more, 2);
    backend().cap_and_scale(c, 2, 3);
    backend().rope_angles(cosines, sines, by, 1);
  });
  expect_close(t.get(a), reference::rms_norm(y, weight, 1e-5), tolerance().floats);
  expect_close(t.get(b), reference::add(x, y, 2), tolerance().floats);
  expect_close(t.get(c), reference::cap_and_scale(x, 2, 3), tolerance().floats);
  for (const Tensor tensor : {a, b, c, more, cosines, sines}) EXPECT_TRUE(t.surroundings_are_untouched(tensor));
}

// The rule of exactness for rows: alone, among a few, among many.
TEST_P(ConformanceOfRows, ARowHasTheSameBitsHoweverManyThereAre) {
  const std::uint32_t rows = 70, cols = 100, row = 37;
  const Matrix x = random_matrix(rows, cols, 1), y = random_matrix(rows, cols, 2), weight = random_matrix(1, cols, 3);
  Tensors& t = tensors();
  const Tensor by = t.put(weight);
  const auto run = [&](std::uint32_t first, std::uint32_t count) {
    const Tensor normed = t.put(x.row_range(first, count)), added = t.put(x.row_range(first, count));
    const Tensor capped = t.put(x.row_range(first, count)), more = t.put(y.row_range(first, count));
    const Tensor cosines = t.room(count, cols), sines = t.room(count, cols);
    step(make_batch(std::vector<Part>{{.position = 1000 + first, .rows = count}}), [&] {
      backend().rms_norm(normed, normed, by, 1e-5f);
      backend().add(added, more, 0.7f);
      backend().cap_and_scale(capped, 3, 1.7f);
      backend().rope_angles(cosines, sines, by, 1);
    });
    std::vector<float> all;
    for (const Tensor tensor : {normed, added, capped, cosines, sines}) {
      const Matrix got = t.get(tensor.row_range(row - first, 1));
      all.insert(all.end(), got.values.begin(), got.values.end());
    }
    return all;
  };
  const std::vector<float> alone = run(row, 1);
  for (const auto& [first, count] : {std::pair{row, 2u}, {row - 1, 2u}, {row - 4, 7u}, {20u, 33u}, {0u, rows}}) {
    EXPECT_TRUE(same_bits(run(first, count), alone)) << count << " rows from " << first;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ConformanceOfRows, ::testing::ValuesIn(backends_under_test()), name_of);

}  // namespace
}  // namespace quire::conformance
