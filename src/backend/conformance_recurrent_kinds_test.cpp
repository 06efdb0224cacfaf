// What a backend promises for the other kinds of recurrent layers: the gated short convolution, Mamba-1 and the gated
// delta rule. Each is a case, and the same promises hold for all cases.
#include "quire/backend/conformance_batches_testing.h"
#include "quire/backend/reference_recurrent_testing.h"

namespace quire::conformance {
namespace {

using Inputs = std::vector<Matrix>;  // of one sequence, [positions] each

// An operation with its weights on the device.
struct Case {
  std::string name;
  std::uint32_t layer = 0;
  std::uint32_t conv_elements = 0, ssm_elements = 0;         // of the state of a layer
  std::uint32_t outputs = 0;                                 // columns; 0: the result is in the first input
  std::function<Inputs(std::uint32_t, std::uint32_t)> make;  // so many positions, with this seed
  std::function<void(std::span<const Tensor>, Tensor)> run;  // inputs, output
  std::function<Expected(const Inputs&, ElementType)> expected;
};

Matrix multiplied(Matrix x, const Matrix& factor) {
  for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] *= factor.values[i];
  return x;
}
Matrix negative(Matrix x) {
  for (float& value : x.values) value = -std::fabs(value);
  return x;
}
// Softplus of a large number is the number; e to a large negative one is nought.
void set_extremes(Matrix& gates) {
  gates.values.front() = 30;
  gates.values.back() = -30;
}

class ConformanceOfRecurrentKinds : public Conformance {
 protected:
  static constexpr std::uint32_t kLayers = 2;

  // A vector of the model: one row, also where it is a matrix.
  Tensor vector(const Matrix& values) {
    const std::uint32_t count = values.rows * values.cols;
    return {tensors().put(values).data, 1, count, count};
  }

  Case convolution(std::uint32_t channels, std::uint32_t width, bool factor, bool bias, bool silu,
                   std::uint32_t layer) {
    const Matrix weights = random_matrix(width, channels, 1);
    const Matrix biases = bias ? random_matrix(1, channels, 2) : Matrix{};
    const ConvolutionShape shape{.layer = layer, .channels = channels, .width = width, .silu = silu};
    const Tensor weight = vector(weights), b = bias ? vector(biases) : Tensor{};
    return {.name = std::to_string(channels) + " channels, " + std::to_string(width) + " taps",
            .layer = layer,
            .conv_elements = (width - 1) * channels,
            .make =
                [=](std::uint32_t rows, std::uint32_t seed) {
                  Inputs inputs = {random_matrix(rows, channels, seed)};
                  if (factor) inputs.push_back(random_matrix(rows, channels, seed + 1));
                  return inputs;
                },
            .run = [=, this](std::span<const Tensor> in,
                             Tensor) { backend().convolve(in[0], factor ? in[1] : Tensor{}, weight, b, shape); },
            .expected =
                [=](const Inputs& in, ElementType) {
                  return reference::convolve(factor ? multiplied(in[0], in[1]) : in[0], weights, biases, silu);
                }};
  }

  Case mamba1(std::uint32_t channels, std::uint32_t state_dim, std::uint32_t layer) {
    const Matrix bias = random_matrix(1, channels, 3), d = random_matrix(1, channels, 4);
    const Matrix a = negative(random_matrix(state_dim, channels, 5));
    const Mamba1Shape shape{.layer = layer, .channels = channels, .state_dim = state_dim};
    const Tensor bias_tensor = vector(bias), a_tensor = vector(a), d_tensor = vector(d);
    return {.name = std::to_string(channels) + " channels with states of " + std::to_string(state_dim),
            .layer = layer,
            .ssm_elements = channels * state_dim,
            .outputs = channels,
            .make =
                [=](std::uint32_t rows, std::uint32_t seed) {
                  Inputs in = {random_matrix(rows, channels, seed), random_matrix(rows, state_dim, seed + 1),
                               random_matrix(rows, state_dim, seed + 2), random_matrix(rows, channels, seed + 3)};
                  set_extremes(in[3]);
                  return in;
                },
            .run =
                [=, this](std::span<const Tensor> in, Tensor out) {
                  backend().mamba1_scan(out, in[0], in[1], in[2], in[3], bias_tensor, a_tensor, d_tensor, shape);
                },
            .expected =
                [=](const Inputs& in, ElementType type) {
                  return reference::mamba1_scan(in[0], in[1], in[2], in[3], bias, a, d, type);
                }};
  }

  Case delta_rule(const DeltaShape& shape) {
    const Matrix bias = random_matrix(1, shape.heads, 6), a = negative(random_matrix(1, shape.heads, 7));
    const Tensor bias_tensor = vector(bias), a_tensor = vector(a);
    const std::uint32_t gates = shape.gate_column(shape.heads - 1) + 1;
    return {.name = std::to_string(shape.heads) + " heads, " + std::to_string(shape.key_heads) + " of keys, " +
                    std::to_string(shape.key_dim) + " x " + std::to_string(shape.value_dim),
            .layer = shape.layer,
            .ssm_elements = shape.heads * shape.key_dim * shape.value_dim,
            .outputs = shape.inner(),
            .make =
                [=](std::uint32_t rows, std::uint32_t seed) {
                  Inputs in = {random_matrix(rows, shape.keys(), seed), random_matrix(rows, shape.keys(), seed + 1),
                               random_matrix(rows, shape.inner(), seed + 2), random_matrix(rows, gates, seed + 3),
                               random_matrix(rows, gates, seed + 4)};
                  set_extremes(in[3]);
                  set_extremes(in[4]);
                  return in;
                },
            .run =
                [=, this](std::span<const Tensor> in, Tensor out) {
                  backend().delta_rule(out, in[0], in[1], in[2], in[3], in[4], bias_tensor, a_tensor, shape);
                },
            .expected =
                [=](const Inputs& in, ElementType type) {
                  return reference::delta_rule(in[0], in[1], in[2], in[3], in[4], bias, a, shape, type);
                }};
  }

  // Channels, states and heads that vectors divide, and that they do not; the shapes of published models.
  std::vector<Case> cases() {
    constexpr float kEpsilon = 1e-6f;
    return {convolution(64, 3, true, false, false, 1),
            convolution(37, 3, true, true, false, 0),
            convolution(128, 4, false, false, true, 1),
            convolution(33, 4, true, false, true, 0),
            convolution(80, 9, true, true, true, 1),
            convolution(5, 1, true, false, false, 0),
            mamba1(64, 16, 1),
            mamba1(75, 16, 0),
            mamba1(20, 5, 1),
            mamba1(16, 64, 0),
            delta_rule({1, 4, 2, 16, 16, true, 4, 4, kEpsilon}),
            delta_rule({0, 4, 2, 128, 128, false, 2, 4, kEpsilon}),
            delta_rule({1, 6, 2, 32, 20, false, 3, 6, kEpsilon}),
            delta_rule({0, 6, 3, 18, 33, true, 6, 6, 1e-2f}),
            delta_rule({1, 1, 1, 300, 16, false, 1, 1, kEpsilon}),
            delta_rule({0, 3, 3, 64, 64, true, 3, 3, kEpsilon})};
  }

  struct Run {
    std::vector<Matrix> results;                 // of each sequence, [positions]
    std::vector<std::vector<std::byte>> states;  // the final states, by sequence
    std::vector<std::vector<std::byte>> untouched;
    std::vector<std::vector<std::byte>> scratch;  // the scratch states, by sequence
  };

  // All positions of all sequences, in the steps of a schedule. The last `drafts` positions of a sequence are drafts,
  // if its last step has more.
  Run run(const Case& test, std::span<const Inputs> inputs, const Schedule& schedule, ElementType type,
          std::uint32_t drafts = 0) {
    const auto sequences = static_cast<std::uint32_t>(inputs.size());
    StatePool pool(backend().device(),
                   {.num_layers = kLayers,
                    .conv_bytes = test.conv_elements * sizeof(float),
                    .ssm_bytes = std::uint64_t{test.ssm_elements} * element_bytes(type),
                    .type = type},
                   2 * sequences);
    Run out;
    const std::uint32_t cols = test.outputs == 0 ? inputs[0][0].cols : test.outputs;
    for (const Inputs& one : inputs) out.results.emplace_back(one[0].rows, cols, poison());
    std::vector<std::uint32_t> lengths(inputs.size());
    for (const auto& entries : schedule) {
      std::vector<Part> parts;
      Inputs rows(inputs[0].size());
      for (const auto& [s, count] : entries) {
        const bool last = lengths[s] + count == inputs[s][0].rows;
        parts.push_back({.sequence = s,
                         .position = lengths[s],
                         .rows = count,
                         .drafts = last && count > drafts ? drafts : 0,
                         .scratch = sequences + s});
        for (std::size_t i = 0; i < rows.size(); ++i) append(rows[i], inputs[s][i].row_range(lengths[s], count));
      }
      // All inputs are columns of wider rows, each with another width.
      Tensors own(backend().device());
      std::vector<Tensor> in;
      for (std::uint32_t i = 0; i < rows.size(); ++i) in.push_back(own.put_within(rows[i], 3 - i % 3, 2 * i));
      const Tensor to = test.outputs == 0 ? in[0] : own.room_within(rows[0].rows, test.outputs, 1, 6);
      step(make_batch(parts, {.states = pool.view(), .state_stride = pool.stride()}), [&] { test.run(in, to); });
      for (const Tensor tensor : in) EXPECT_TRUE(own.surroundings_are_untouched(tensor));
      EXPECT_TRUE(own.surroundings_are_untouched(to));
      const Matrix result = own.get(to);
      std::uint32_t row = 0;
      for (const auto& [s, count] : entries) {
        for (std::uint32_t i = 0; i < count; ++i, ++row, ++lengths[s]) {
          std::ranges::copy(result.row(row), out.results[s].values.begin() + std::ptrdiff_t{lengths[s]} * cols);
        }
      }
    }
    for (std::uint32_t s = 0; s < inputs.size(); ++s) {
      out.states.push_back(pool.bytes(s, test.layer));
      out.untouched.push_back(pool.bytes(s, 1 - test.layer));
      out.scratch.push_back(pool.bytes(sequences + s, test.layer));
    }
    return out;
  }

  std::vector<ElementType> types_of(const Case& test) {
    if (test.ssm_elements == 0) return {ElementType::F32};
    return state_types_stored_by(backend());
  }
  // A state nearly halfway between two values of its type may round to either.
  double tolerance_of(ElementType type) const {
    return tolerance().floats + (type == ElementType::F16 ? 0x1p-10 : type == ElementType::BF16 ? 0x1p-7 : 0);
  }

 private:
  static void append(Matrix& to, const Matrix& from) {
    to.rows += from.rows;
    to.cols = from.cols;
    to.values.insert(to.values.end(), from.values.begin(), from.values.end());
  }
};

TEST_P(ConformanceOfRecurrentKinds, MatchTheReferenceFromAStateOfZeros) {
  for (const Case& test : cases()) {
    SCOPED_TRACE(test.name);
    const std::vector<Inputs> inputs = {test.make(70, 20), test.make(2, 40)};
    for (const ElementType type : types_of(test)) {
      SCOPED_TRACE(name(type));
      const Run got = run(test, inputs, {{{0, 70}, {1, 2}}}, type);
      for (std::size_t s = 0; s < 2; ++s) {
        expect_close(got.results[s], test.expected(inputs[s], type), tolerance_of(type));
        EXPECT_EQ(got.untouched[s], std::vector<std::byte>(got.untouched[s].size())) << "the state of another layer";
      }
    }
  }
}

TEST_P(ConformanceOfRecurrentKinds, ContinueWhereTheLastStepEnded) {
  for (const Case& test : cases()) {
    SCOPED_TRACE(test.name);
    const std::vector<Inputs> inputs = {test.make(40, 20)};
    for (const ElementType type : types_of(test)) {
      SCOPED_TRACE(name(type));
      const Run got = run(test, inputs, {{{0, 1}}, {{0, 2}}, {{0, 20}}, {{0, 1}}, {{0, 16}}}, type);
      expect_close(got.results[0], test.expected(inputs[0], type), tolerance_of(type));
    }
  }
}

// The rule of exactness, also for the states, since the next step depends on them.
TEST_P(ConformanceOfRecurrentKinds, HaveTheSameBitsHoweverPromptsAreCutAndWhoeverElseIsThere) {
  const std::uint32_t lengths[] = {1, 5, 33, 64, 100};
  for (const Case& test : cases()) {
    SCOPED_TRACE(test.name);
    std::vector<Inputs> inputs;
    for (std::uint32_t s = 0; s < std::size(lengths); ++s) inputs.push_back(test.make(lengths[s], 100 * s));
    std::vector<Schedule> schedules = {token_by_token(lengths)};
    for (std::uint32_t round = 0; round < repetitions(3); ++round) schedules.push_back(at_random(lengths, 200, round));
    for (const ElementType type : types_of(test)) {
      SCOPED_TRACE(name(type));
      const Run whole = run(test, inputs, one_by_one(lengths), type);
      for (const Schedule& schedule : schedules) {
        const Run other = run(test, inputs, schedule, type);
        for (std::size_t s = 0; s < inputs.size(); ++s) {
          EXPECT_TRUE(same_bits(other.results[s], whole.results[s])) << "sequence " << s;
          EXPECT_EQ(other.states[s], whole.states[s]) << "sequence " << s;
        }
      }
    }
  }
}

// Drafts have the bits of other rows. The state is that before them, and the scratch state that after them.
TEST_P(ConformanceOfRecurrentKinds, DraftsContinueInAStateOfTheirOwn) {
  const std::uint32_t lengths[] = {2, 9, 40};
  for (const Case& test : cases()) {
    SCOPED_TRACE(test.name);
    std::vector<Inputs> inputs;
    for (std::uint32_t s = 0; s < std::size(lengths); ++s) inputs.push_back(test.make(lengths[s], 100 * s));
    for (const ElementType type : types_of(test)) {
      SCOPED_TRACE(name(type));
      const Run whole = run(test, inputs, one_by_one(lengths), type);
      for (const std::uint32_t drafts : {1u, 5u}) {
        std::vector<Inputs> before = inputs;
        std::vector<std::uint32_t> certain;
        for (std::uint32_t s = 0; s < std::size(lengths); ++s) {
          certain.push_back(lengths[s] - (lengths[s] > drafts ? drafts : 0));
          for (Matrix& each : before[s]) each = each.row_range(0, certain[s]);
        }
        const Run short_of_drafts = run(test, before, one_by_one(certain), type);
        // All in one step, and the largest in two, so that its drafts follow a single row.
        const Schedule schedules[] = {{{{0, 2}, {1, 9}, {2, 40}}},
                                      {{{2, 39 - drafts}}, {{0, 2}, {2, 1 + drafts}, {1, 9}}}};
        for (const Schedule& schedule : schedules) {
          const Run got = run(test, inputs, schedule, type, drafts);
          for (std::size_t s = 0; s < inputs.size(); ++s) {
            EXPECT_TRUE(same_bits(got.results[s], whole.results[s])) << "sequence " << s;
            EXPECT_EQ(got.states[s], short_of_drafts.states[s]) << "sequence " << s;
            if (certain[s] < lengths[s]) {
              EXPECT_EQ(got.scratch[s], whole.states[s]) << "sequence " << s;
            }
          }
        }
      }
    }
  }
}

TEST_P(ConformanceOfRecurrentKinds, QueriesAndGatesOfHeadsAreTakenApart) {
  constexpr std::uint32_t kHeads = 3, kDim = 7;
  for (const std::uint32_t rows : {1u, 9u}) {
    const Matrix both = random_matrix(rows, 2 * kHeads * kDim, 1);
    const Tensor from = tensors().put_within(both, 1, 2);
    const Tensor q = tensors().room_within(rows, kHeads * kDim, 2, 3),
                 gate = tensors().room_within(rows, kHeads * kDim, 0, 1);
    step(rows_alone(rows), [&] { backend().split_query_gate(q, gate, from, kDim); });
    const Matrix queries = tensors().get(q), gates = tensors().get(gate);
    for (std::uint32_t i = 0; i < rows; ++i) {
      for (std::uint32_t c = 0; c < kHeads * kDim; ++c) {
        const std::uint32_t at = c / kDim * 2 * kDim + c % kDim;
        EXPECT_EQ(queries.at(i, c), both.at(i, at));
        EXPECT_EQ(gates.at(i, c), both.at(i, at + kDim));
      }
    }
    EXPECT_TRUE(tensors().surroundings_are_untouched(q));
    EXPECT_TRUE(tensors().surroundings_are_untouched(gate));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ConformanceOfRecurrentKinds, ::testing::ValuesIn(backends_under_test()), name_of);

}  // namespace
}  // namespace quire::conformance
