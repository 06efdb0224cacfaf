// What a backend promises for recurrent layers: convolution and scan of Mamba-2, and the states between steps.
#include "quire/backend/conformance_batches_testing.h"

namespace quire::conformance {
namespace {

// The inputs of one sequence, [positions] each, and the weights of the layer.
struct Inputs {
  Matrix conv, x, b, c, dt;
};
struct Layer {
  Matrix conv_weight, conv_bias, dt_bias, a, d;
};

Inputs random_inputs(const Mamba2Shape& shape, std::uint32_t rows, std::uint32_t seed) {
  const std::uint32_t shared = shape.groups * shape.state_dim;
  Inputs inputs{random_matrix(rows, shape.conv_channels(), seed + 1), random_matrix(rows, shape.inner(), seed + 2),
                random_matrix(rows, shared, seed + 3), random_matrix(rows, shared, seed + 4),
                random_matrix(rows, shape.heads, seed + 5)};
  inputs.dt.at(0, 0) = 30;  // softplus of a large number is the number
  inputs.dt.at(rows - 1, shape.heads - 1) = -30;
  return inputs;
}
Layer random_layer(const Mamba2Shape& shape) {
  Layer layer{random_matrix(shape.conv_width, shape.conv_channels(), 11), random_matrix(1, shape.conv_channels(), 12),
              random_matrix(1, shape.heads, 13), random_matrix(1, shape.heads, 14), random_matrix(1, shape.heads, 15)};
  for (float& value : layer.a.values) value = -std::fabs(value);
  return layer;
}

// State dimensions, heads and channels that vectors divide, and that they do not; several groups.
constexpr Mamba2Shape kShapes[] = {
    {.layer = 1, .heads = 4, .head_dim = 3, .groups = 2, .state_dim = 18, .conv_width = 4},
    {.layer = 0, .heads = 2, .head_dim = 64, .groups = 1, .state_dim = 128, .conv_width = 4},
    {.layer = 1, .heads = 6, .head_dim = 9, .groups = 3, .state_dim = 16, .conv_width = 2},
    {.layer = 1, .heads = 3, .head_dim = 20, .groups = 1, .state_dim = 64, .conv_width = 7},
    {.layer = 0, .heads = 16, .head_dim = 5, .groups = 4, .state_dim = 1, .conv_width = 3},
    {.layer = 1, .heads = 1, .head_dim = 17, .groups = 1, .state_dim = 256, .conv_width = 4},
};

std::string describe(const Mamba2Shape& shape) {
  return std::to_string(shape.heads) + " heads of " + std::to_string(shape.head_dim) + ", " +
         std::to_string(shape.groups) + " groups, states of " + std::to_string(shape.state_dim) + ", " +
         std::to_string(shape.conv_width) + " taps";
}

class ConformanceOfRecurrentLayers : public Conformance {
 protected:
  static constexpr std::uint32_t kLayers = 2;

  struct Run {
    std::vector<Matrix> conv, scan;                 // results of each sequence, [positions]
    std::vector<std::vector<std::byte>> states;     // the final states, by sequence
    std::vector<std::vector<std::byte>> untouched;  // states of the other layer
  };

  // How far the output of a scan may be from the reference. A state that is nearly halfway between two values of its
  // type may round to either, and then differs by one unit in the last place.
  double scan_tolerance(ElementType type) const {
    switch (type) {
      case ElementType::F16: return tolerance().floats + 0x1p-10;
      case ElementType::BF16: return tolerance().floats + 0x1p-7;
      default: return tolerance().floats;
    }
  }

  // Runs all positions of all sequences in the steps of a schedule.
  Run run(const Mamba2Shape& shape, const Layer& layer, std::span<const Inputs> inputs, const Schedule& schedule,
          ElementType type = ElementType::F32) {
    StatePool pool(backend().device(), shape, kLayers, static_cast<std::uint32_t>(inputs.size()), type);
    // A model has it as one row: the loader knows no matrices but those of products.
    const std::uint32_t taps = layer.conv_weight.rows * layer.conv_weight.cols;
    const Tensor conv_weight{tensors().put(layer.conv_weight).data, 1, taps, taps};
    const Tensor dt_bias = tensors().put(layer.dt_bias);
    const Tensor conv_bias = layer.conv_bias.values.empty() ? Tensor{} : tensors().put(layer.conv_bias);
    const Tensor a = tensors().put(layer.a), d = tensors().put(layer.d);
    Run out;
    for (const Inputs& one : inputs) {
      out.conv.emplace_back(one.conv.rows, one.conv.cols, poison());
      out.scan.emplace_back(one.x.rows, one.x.cols, poison());
    }
    std::vector<std::uint32_t> lengths(inputs.size());
    for (const auto& entries : schedule) {
      std::vector<Part> parts;
      Inputs rows;
      for (const auto& [s, count] : entries) {
        parts.push_back({.sequence = s, .position = lengths[s], .rows = count});
        const auto append = [&, s = s, count = count](Matrix& to, const Matrix& from) {
          const Matrix part = from.row_range(lengths[s], count);
          to.rows += count;
          to.cols = from.cols;
          to.values.insert(to.values.end(), part.values.begin(), part.values.end());
        };
        append(rows.conv, inputs[s].conv);
        append(rows.x, inputs[s].x);
        append(rows.b, inputs[s].b);
        append(rows.c, inputs[s].c);
        append(rows.dt, inputs[s].dt);
      }
      // All inputs are columns of wider rows, each with another width.
      Tensors own(backend().device());
      const Tensor conv = own.put_within(rows.conv, 3, 2), x = own.put_within(rows.x, 1, 0);
      const Tensor b = own.put_within(rows.b, 5, 7), c = own.put_within(rows.c, 2, 0),
                   dt = own.put_within(rows.dt, 1, 1);
      const Tensor to = own.room_within(rows.x.rows, rows.x.cols, 1, 6);
      step(make_batch(parts, {.states = pool.view(), .state_stride = pool.stride()}), [&] {
        backend().convolve(conv, {}, conv_weight, conv_bias, shape.convolution());
        backend().mamba2_scan(to, x, b, c, dt, dt_bias, a, d, shape);
      });
      for (const Tensor tensor : {conv, x, b, c, dt, to}) EXPECT_TRUE(own.surroundings_are_untouched(tensor));
      const Matrix convolved = own.get(conv), scanned = own.get(to);
      std::uint32_t row = 0;
      for (const auto& [s, count] : entries) {
        for (std::uint32_t i = 0; i < count; ++i, ++row, ++lengths[s]) {
          std::ranges::copy(convolved.row(row),
                            out.conv[s].values.begin() + std::ptrdiff_t{lengths[s]} * convolved.cols);
          std::ranges::copy(scanned.row(row), out.scan[s].values.begin() + std::ptrdiff_t{lengths[s]} * scanned.cols);
        }
      }
    }
    for (std::uint32_t s = 0; s < inputs.size(); ++s) {
      out.states.push_back(pool.bytes(s, shape.layer));
      out.untouched.push_back(pool.bytes(s, 1 - shape.layer));
    }
    return out;
  }
};

TEST_P(ConformanceOfRecurrentLayers, ConvolveAndScanFromAStateOfZeros) {
  for (const Mamba2Shape& shape : kShapes) {
    SCOPED_TRACE(describe(shape));
    const Layer layer = random_layer(shape);
    const std::vector<Inputs> inputs = {random_inputs(shape, 70, 20), random_inputs(shape, 2, 40)};
    for (const ElementType type : state_types_stored_by(backend())) {
      SCOPED_TRACE(name(type));
      const Run got = run(shape, layer, inputs, {{{0, 70}, {1, 2}}}, type);
      for (std::size_t s = 0; s < 2; ++s) {
        const auto& [conv, x, b, c, dt] = inputs[s];
        expect_close(got.conv[s], reference::convolve(conv, layer.conv_weight, layer.conv_bias), tolerance().floats);
        expect_close(got.scan[s], reference::mamba2_scan(x, b, c, dt, layer.dt_bias, layer.a, layer.d, shape, type),
                     scan_tolerance(type));
        // It was zero and must still be.
        EXPECT_EQ(got.untouched[s], std::vector<std::byte>(got.untouched[s].size())) << "the state of another layer";
      }
    }
  }
}

TEST_P(ConformanceOfRecurrentLayers, TheConvolutionNeedsNoBias) {
  const Mamba2Shape shape = kShapes[0];
  Layer layer = random_layer(shape);
  layer.conv_bias = {};
  const std::vector<Inputs> inputs = {random_inputs(shape, 9, 20)};
  expect_close(run(shape, layer, inputs, {{{0, 9}}}).conv[0],
               reference::convolve(inputs[0].conv, layer.conv_weight, {}), tolerance().floats);
}

TEST_P(ConformanceOfRecurrentLayers, TheStateContinuesWhereTheLastStepEnded) {
  for (const Mamba2Shape& shape : kShapes) {
    SCOPED_TRACE(describe(shape));
    const Layer layer = random_layer(shape);
    const std::vector<Inputs> inputs = {random_inputs(shape, 40, 20)};
    const auto& [conv, x, b, c, dt] = inputs[0];
    for (const ElementType type : state_types_stored_by(backend())) {
      SCOPED_TRACE(name(type));
      const Run got = run(shape, layer, inputs, {{{0, 1}}, {{0, 2}}, {{0, 20}}, {{0, 1}}, {{0, 16}}}, type);
      expect_close(got.conv[0], reference::convolve(conv, layer.conv_weight, layer.conv_bias), tolerance().floats);
      expect_close(got.scan[0], reference::mamba2_scan(x, b, c, dt, layer.dt_bias, layer.a, layer.d, shape, type),
                   scan_tolerance(type));
    }
  }
}

// One channel and a state of one element, from which everything else follows: the output is the state before it is
// rounded, and twice that state, rounded, is in the next output.
TEST_P(ConformanceOfRecurrentLayers, StatesTooLargeForTheirTypeAreClampedInF16AndInfiniteInBf16) {
  const Mamba2Shape shape{.layer = 0, .heads = 1, .head_dim = 1, .groups = 1, .state_dim = 1, .conv_width = 2};
  Layer layer = random_layer(shape);
  layer.a.values = {0};  // no decay
  layer.d.values = {0};
  layer.dt_bias.values = {0};
  Inputs inputs = random_inputs(shape, 3, 1);
  inputs.dt.values = {30, 30, 30};  // steps of 30
  inputs.c.values = {1, 1, 1};
  inputs.x.values = {1, 0, 0};
  const auto second_output = [&](ElementType type, float b) {
    inputs.b.values = {b / 30, 0, 0};
    std::vector<float> outputs;
    for (const Schedule& schedule : {Schedule{{{0, 3}}}, Schedule{{{0, 1}}, {{0, 1}}, {{0, 1}}}}) {
      const Matrix out = run(shape, layer, std::vector{inputs}, schedule, type).scan[0];
      EXPECT_NEAR(out.at(0, 0) / b, 1, 1e-5) << "not rounded yet";
      EXPECT_EQ(out.at(1, 0), out.at(2, 0));
      outputs.push_back(out.at(1, 0));
    }
    EXPECT_EQ(outputs[0], outputs[1]);
    return outputs[0];
  };
  for (const ElementType type : state_types_stored_by(backend())) {
    if (type == ElementType::F16) {
      EXPECT_EQ(second_output(type, 70000), 65504);
      EXPECT_EQ(second_output(type, -1e30f), -65504);
      EXPECT_EQ(second_output(type, 1e-9f), 0);
    } else if (type == ElementType::BF16) {
      EXPECT_EQ(second_output(type, 70000), 70144);  // 137 * 512
      EXPECT_EQ(second_output(type, 3.4e38f), INFINITY);
      EXPECT_NEAR(second_output(type, 1e-9f), 1e-9f, 4e-12f);
    } else {
      EXPECT_NEAR(second_output(type, 70000), 70000, 0.1);
    }
  }
}

// The rule of exactness, also for the states, since the next step depends on them.
TEST_P(ConformanceOfRecurrentLayers, HaveTheSameBitsHoweverPromptsAreCutAndWhoeverElseIsThere) {
  const std::uint32_t lengths[] = {1, 5, 33, 64, 100};
  for (const Mamba2Shape& shape : kShapes) {
    SCOPED_TRACE(describe(shape));
    const Layer layer = random_layer(shape);
    std::vector<Inputs> inputs;
    for (std::uint32_t s = 0; s < std::size(lengths); ++s) inputs.push_back(random_inputs(shape, lengths[s], 100 * s));
    std::vector<Schedule> schedules = {token_by_token(lengths)};
    for (std::uint32_t round = 0; round < repetitions(4); ++round) schedules.push_back(at_random(lengths, 200, round));
    for (const ElementType type : state_types_stored_by(backend())) {
      SCOPED_TRACE(name(type));
      const Run whole = run(shape, layer, inputs, one_by_one(lengths), type);
      for (const Schedule& schedule : schedules) {
        const Run other = run(shape, layer, inputs, schedule, type);
        for (std::size_t s = 0; s < inputs.size(); ++s) {
          EXPECT_TRUE(same_bits(other.conv[s], whole.conv[s])) << "sequence " << s;
          EXPECT_TRUE(same_bits(other.scan[s], whole.scan[s])) << "sequence " << s;
          EXPECT_EQ(other.states[s], whole.states[s]) << "sequence " << s;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ConformanceOfRecurrentLayers, ::testing::ValuesIn(backends_under_test()), name_of);

}  // namespace
}  // namespace quire::conformance
