// What a backend promises for weights: how they are loaded, looked up and multiplied.
#include "quire/backend/conformance_batches_testing.h"

namespace quire::conformance {
namespace {

using reference::HostInput;
using reference::is_float;

class ConformanceOfProducts : public Conformance {
 protected:
  // The input on the device, as columns of wider rows if `before` or `after` is set.
  Input put(const HostInput& input, std::uint32_t before = 0, std::uint32_t after = 0) {
    Input on{.kind = input.kind,
             .x = tensors().put_within(input.x, before, after),
             .activation = input.activation,
             .epsilon = input.epsilon,
             .groups = input.groups};
    if (!input.gate.values.empty()) on.gate = tensors().put_within(input.gate, after, before + 1);
    if (!input.weight.values.empty()) on.weight = tensors().put(input.weight);
    if (!input.bias.values.empty()) on.bias = tensors().put(input.bias);
    return on;
  }

  Matrix multiply(const Weight& weight, const HostInput& input) {
    const Tensor out = tensors().room(input.x.rows, weight.rows);
    const Input in = put(input);
    const Product product{.out = out, .weight = &weight};
    step(rows_alone(input.x.rows), [&] { backend().matmul({&product, 1}, in); });
    return tensors().get(out);
  }

  Expected expected(const FileWeight& weight, const HostInput& input) const {
    std::vector<reference::Row> rows;
    for (std::uint32_t i = 0; i < input.x.rows; ++i) {
      rows.push_back(input_row(input, i));
      if (GetParam().inputs_rounded) rows.back() = reference::rounded_input(weight.type, rows.back());
    }
    return reference::product(weight.values(), rows);
  }
  double tolerance_of(const FileWeight& weight, Input::Kind kind = Input::Kind::Plain) const {
    if (weight.type == gguf::Type::BF16 && GetParam().inputs_rounded && kind != Input::Kind::Plain) {
      return tolerance().quantised_after;
    }
    if (is_float(weight.type)) return tolerance().products;
    return kind == Input::Kind::Plain ? tolerance().quantised : tolerance().quantised_after;
  }
};

// Numbers of columns that a matrix of this type can have: with and without whole pieces of 256, and a rest of 32s.
std::vector<std::uint32_t> columns_of(gguf::Type type) {
  switch (gguf::type_info(type).block_size) {
    case 1: return {1, 37, 100, 512};
    case 32: return {32, 96, 352, 512};
    default: return {256, 768};
  }
}

// Every kind of input, with this many rows and columns.
std::vector<HostInput> all_inputs(std::uint32_t rows, std::uint32_t cols) {
  const Matrix x = random_matrix(rows, cols, 41), gate = random_matrix(rows, cols, 42),
               norm = random_matrix(1, cols, 43);
  using Kind = Input::Kind;
  std::vector<HostInput> inputs = {
      {.x = x},
      {.kind = Kind::Normed, .x = x, .weight = norm, .epsilon = 1e-6f},
      {.kind = Kind::Gated, .x = x, .gate = gate, .activation = Activation::Silu},
      {.kind = Kind::Gated, .x = x, .gate = gate, .activation = Activation::GeluTanh},
      {.kind = Kind::Gated, .x = x, .gate = gate, .activation = Activation::Sigmoid},
      {.kind = Kind::Gated, .x = x, .gate = gate, .activation = Activation::None},
      {.kind = Kind::LayerNormed, .x = x, .weight = norm, .epsilon = 1e-5f},
      {.kind = Kind::LayerNormed, .x = x, .weight = norm, .epsilon = 1e-5f, .bias = random_matrix(1, cols, 44)},
      {.kind = Kind::Activated, .x = x, .activation = Activation::Silu},
      {.kind = Kind::Activated, .x = x, .activation = Activation::GeluTanh},
  };
  for (const std::uint32_t groups : {1u, 2u, 4u, 16u}) {
    if (cols % groups != 0) continue;
    for (const Kind kind : {Kind::GatedNormed, Kind::NormedGated}) {
      inputs.push_back({.kind = kind, .x = x, .gate = gate, .weight = norm, .epsilon = 1e-5f, .groups = groups});
    }
  }
  return inputs;
}

TEST_P(ConformanceOfProducts, OfEveryTypeMatchTheReference) {
  for (const gguf::Type type : reference::weight_types()) {
    for (const std::uint32_t cols : columns_of(type)) {
      const FileWeight file = random_weight(type, 83, cols, 7);
      const Loaded loaded = load(backend(), file);
      for (const std::uint32_t rows : {1u, 6u, 40u}) {
        SCOPED_TRACE(std::string(gguf::type_name(type)) + ", " + std::to_string(cols) + " columns, " +
                     std::to_string(rows) + " rows");
        const HostInput input{.x = random_matrix(rows, cols, 40)};
        expect_close(multiply(loaded.weight, input), expected(file, input), tolerance_of(file));
      }
    }
  }
}

TEST_P(ConformanceOfProducts, HaveAnyNumberOfOutputs) {
  for (const gguf::Type type : {gguf::Type::F32, gguf::Type::Q8_0, gguf::Type::Q4_1}) {
    for (const std::uint32_t outputs : {1u, 2u, 15u, 16u, 17u, 31u, 49u, 130u}) {
      SCOPED_TRACE(std::string(gguf::type_name(type)) + ", " + std::to_string(outputs) + " outputs");
      const FileWeight file = random_weight(type, outputs, 96, 8);
      const Loaded loaded = load(backend(), file);
      for (const std::uint32_t rows : {1u, 35u}) {
        const HostInput input{.x = random_matrix(rows, 96, 9)};
        expect_close(multiply(loaded.weight, input), expected(file, input), tolerance_of(file));
      }
    }
  }
}

// The rule of exactness for every type. A backend may have one algorithm for few rows and another for many.
TEST_P(ConformanceOfProducts, ARowHasTheSameBitsHoweverManyThereAre) {
  for (const gguf::Type type : reference::weight_types()) {
    SCOPED_TRACE(gguf::type_name(type));
    const std::uint32_t all = 131, cols = gguf::type_info(type).block_size == 1 ? 100 : 256;
    const FileWeight file = random_weight(type, 83, cols, 7);
    const Loaded loaded = load(backend(), file);
    const Matrix x = random_matrix(all, cols, 40), together = multiply(loaded.weight, {.x = x});
    for (const std::uint32_t rows : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 16u, 17u, 33u, 65u, 130u}) {
      const Matrix some = multiply(loaded.weight, {.x = x.row_range(all - rows, rows)});
      EXPECT_TRUE(same_bits(some, together.row_range(all - rows, rows))) << rows << " rows";
    }
  }
}

TEST_P(ConformanceOfProducts, InputsAreNormedAndGated) {
  for (const gguf::Type type :
       {gguf::Type::F32, gguf::Type::F16, gguf::Type::BF16, gguf::Type::Q8_0, gguf::Type::Q4_K}) {
    const std::uint32_t cols = type == gguf::Type::F32 ? 52 : type == gguf::Type::BF16 ? 51 : 256;
    const FileWeight file = random_weight(type, 20, cols, 44);
    const Loaded loaded = load(backend(), file);
    for (const std::uint32_t rows : {1u, 6u, 37u}) {
      for (const HostInput& input : all_inputs(rows, cols)) {
        SCOPED_TRACE(std::string(gguf::type_name(type)) + ", " + std::to_string(rows) + " rows, input of kind " +
                     std::to_string(static_cast<int>(input.kind)));
        expect_close(multiply(loaded.weight, input), expected(file, input), tolerance_of(file, input.kind));
      }
    }
  }
}

TEST_P(ConformanceOfProducts, ARowOfAnInputHasTheSameBitsHoweverManyThereAre) {
  for (const gguf::Type type : {gguf::Type::F32, gguf::Type::Q8_0}) {
    const FileWeight file = random_weight(type, 33, 96, 44);
    const Loaded loaded = load(backend(), file);
    for (const HostInput& input : all_inputs(40, 96)) {
      const Matrix together = multiply(loaded.weight, input);
      for (const auto& [first, count] : {std::pair{0u, 1u}, {39u, 1u}, {17u, 5u}}) {
        HostInput some = input;
        some.x = input.x.row_range(first, count);
        if (!input.gate.values.empty()) some.gate = input.gate.row_range(first, count);
        EXPECT_TRUE(same_bits(multiply(loaded.weight, some), together.row_range(first, count)))
            << gguf::type_name(type) << ", input of kind " << static_cast<int>(input.kind) << ", row " << first;
      }
    }
  }
}

TEST_P(ConformanceOfProducts, TakeABiasAndAreScaledAndAdded) {
  for (const gguf::Type type : {gguf::Type::F32, gguf::Type::Q8_0, gguf::Type::Q6_K, gguf::Type::Q5_0}) {
    const FileWeight file = random_weight(type, 37, 256, 1);
    const Loaded loaded = load(backend(), file);
    const Matrix bias = random_matrix(1, 37, 3);
    for (const std::uint32_t rows : {1u, 5u, 40u}) {
      const Matrix before = random_matrix(rows, 37, 4);
      const HostInput input{.x = random_matrix(rows, 256, 2)};
      const Expected sums = expected(file, input);
      const Input in = put(input);
      const Tensor by = tensors().put(bias);
      const auto run = [&](Product product) {
        product.weight = &loaded.weight;
        product.out = product.add ? tensors().put(before) : tensors().room(rows, 37);
        step(rows_alone(rows), [&] { backend().matmul({&product, 1}, in); });
        return tensors().get(product.out);
      };
      SCOPED_TRACE(std::string(gguf::type_name(type)) + ", " + std::to_string(rows) + " rows");
      const double near = tolerance_of(file);
      expect_close(run({.bias = by}), product_added(sums, bias, {}, 1), near);
      expect_close(run({.add = true}), product_added(sums, {}, before, 1), near);
      expect_close(run({.add = true, .scale = 0.5f}), product_added(sums, {}, before, 0.5), near);
      expect_close(run({.bias = by, .add = true, .scale = -2}), product_added(sums, bias, before, -2), near);
    }
  }
}

// Each product has the same bits as alone, whatever the types and outputs of the others.
TEST_P(ConformanceOfProducts, OfOneInputCanBeComputedTogether) {
  const FileWeight files[] = {random_weight(gguf::Type::F32, 33, 256, 30), random_weight(gguf::Type::Q8_0, 70, 256, 31),
                              random_weight(gguf::Type::Q3_K, 5, 256, 32), random_weight(gguf::Type::F16, 16, 256, 33)};
  std::vector<Loaded> loaded;
  for (const FileWeight& file : files) loaded.push_back(load(backend(), file));
  for (const std::uint32_t rows : {1u, 3u, 50u}) {
    for (const HostInput& input : all_inputs(rows, 256)) {
      std::vector<Product> products;
      std::vector<Matrix> before;
      for (const Loaded& one : loaded) {
        const bool add = products.size() % 2 == 0;
        before.push_back(random_matrix(rows, one.weight.rows, 34));
        products.push_back(
            {.out = tensors().put(before.back()), .weight = &one.weight, .add = add, .scale = add ? 0.5f : 1.0f});
      }
      const Input in = put(input);
      step(rows_alone(rows), [&] { backend().matmul(products, in); });
      for (std::size_t i = 0; i < products.size(); ++i) {
        Product alone = products[i];
        alone.out = tensors().put(before[i]);
        step(rows_alone(rows), [&] { backend().matmul({&alone, 1}, in); });
        const Matrix got = tensors().get(products[i].out);
        EXPECT_TRUE(same_bits(got, tensors().get(alone.out))) << "product " << i << " of " << rows << " rows";
        expect_close(got,
                     product_added(expected(files[i], input), {}, alone.add ? before[i] : Matrix(), products[i].scale),
                     tolerance_of(files[i], input.kind));
      }
    }
  }
}

TEST_P(ConformanceOfProducts, OfColumnsHaveTheSameBitsAndLeaveTheColumnsBesideThemAlone) {
  for (const gguf::Type type : {gguf::Type::F32, gguf::Type::BF16, gguf::Type::Q8_0, gguf::Type::IQ4_NL}) {
    const FileWeight file = random_weight(type, 37, 96, 1);
    const Loaded loaded = load(backend(), file);
    for (const std::uint32_t rows : {1u, 5u, 40u}) {
      for (const HostInput& input : all_inputs(rows, 96)) {
        const Matrix plain = multiply(loaded.weight, input);
        const Input in = put(input, 3, 6);
        const Tensor out = tensors().room_within(rows, 37, 5, 2);
        const Product product{.out = out, .weight = &loaded.weight};
        step(rows_alone(rows), [&] { backend().matmul({&product, 1}, in); });
        EXPECT_TRUE(same_bits(tensors().get(out), plain)) << gguf::type_name(type) << ", " << rows << " rows";
        EXPECT_TRUE(tensors().surroundings_are_untouched(out));
        EXPECT_TRUE(same_bits(tensors().get(in.x), input.x)) << "the input is as it was";
        EXPECT_TRUE(!in.gate.valid() || same_bits(tensors().get(in.gate), input.gate));
      }
    }
  }
}

TEST_P(ConformanceOfProducts, OfZerosAreZero) {
  for (const gguf::Type type : reference::weight_types()) {
    const FileWeight file = random_weight(type, 17, 256, 1);
    const Loaded loaded = load(backend(), file);
    // Also values so small that no scale can be divided by: the activation of a very negative number.
    for (const float tiny : {0.0f, 1e-45f}) {
      const Matrix got = multiply(loaded.weight, {.x = Matrix(3, 256, tiny)});
      for (const float value : got.values) ASSERT_LE(std::fabs(value), 1e-37f) << gguf::type_name(type);
    }
  }
}

// A sequence with NaN or infinity is lost, but no other one is.
TEST_P(ConformanceOfProducts, NanAndInfinityStayInTheirRow) {
  for (const gguf::Type type : reference::weight_types()) {
    const FileWeight file = random_weight(type, 17, 256, 1);
    const Loaded loaded = load(backend(), file);
    for (const std::uint32_t rows : {2u, 5u, 40u}) {
      Matrix x = random_matrix(rows, 256, 2);
      const Matrix clean = multiply(loaded.weight, {.x = x});
      for (const std::uint32_t k : {0u, 17u, 255u}) x.at(1, k) = poison();
      x.at(1, 100) = -poison();
      x.at(1, 200) = INFINITY;
      const Matrix got = multiply(loaded.weight, {.x = x});
      for (std::uint32_t i = 0; i < rows; ++i) {
        EXPECT_TRUE(i == 1 || same_bits(got.row(i), clean.row(i))) << gguf::type_name(type) << ", row " << i;
      }
    }
  }
}

// --- tables

TEST_P(ConformanceOfProducts, TableLookupsMatchTheReferenceToTheBit) {
  const std::vector<Token> tokens = {0, 36, 16, 15, 7, 33, 7};
  for (const gguf::Type type : reference::weight_types()) {
    for (const std::uint32_t cols : columns_of(type)) {
      const FileWeight file = random_weight(type, 37, cols, 9);
      const Matrix values = file.values();
      for (const WeightUse use : {WeightUse::Lookup, WeightUse::Both}) {
        SCOPED_TRACE(std::string(gguf::type_name(type)) + ", " + std::to_string(cols) + " columns, " +
                     (use == WeightUse::Lookup ? "lookup" : "both"));
        const Loaded loaded = load(backend(), file, use);
        for (const std::uint32_t rows : {1u, 7u}) {
          const Tensor out = tensors().room_within(rows, cols, 1, 2);
          step(make_batch(std::vector<Part>{{.rows = rows}}, {}, tokens),
               [&] { backend().embed(out, loaded.weight, 1.0f); });
          const Matrix got = tensors().get(out);
          for (std::uint32_t i = 0; i < rows; ++i) {
            EXPECT_TRUE(same_bits(got.row(i), values.row(static_cast<std::uint32_t>(tokens[i])))) << "row " << i;
          }
          EXPECT_TRUE(tensors().surroundings_are_untouched(out));
        }
      }
    }
  }
}

TEST_P(ConformanceOfProducts, LookedUpRowsAreScaled) {
  const std::vector<Token> tokens = {3, 0, 36, 5, 5};
  for (const gguf::Type type : {gguf::Type::F32, gguf::Type::Q8_0, gguf::Type::Q3_K}) {
    const FileWeight file = random_weight(type, 37, 256, 9);
    for (const WeightUse use : {WeightUse::Lookup, WeightUse::Both}) {
      const Loaded loaded = load(backend(), file, use);
      const Tensor out = tensors().room(5, 256);
      step(make_batch(std::vector<Part>{{.rows = 5}}, {}, tokens), [&] { backend().embed(out, loaded.weight, 45.3f); });
      expect_close(tensors().get(out), reference::embed(file.values(), tokens, 45.3f), tolerance().floats);
    }
  }
}

// A table that is also multiplied (tied embeddings).
TEST_P(ConformanceOfProducts, ATableForBothUsesMultipliesLikeOneForProducts) {
  for (const gguf::Type type : reference::weight_types()) {
    const FileWeight file = random_weight(type, 37, 256, 9);
    const Loaded product = load(backend(), file, WeightUse::Product), both = load(backend(), file, WeightUse::Both);
    for (const std::uint32_t rows : {1u, 6u}) {
      const HostInput input{.x = random_matrix(rows, 256, 2)};
      EXPECT_TRUE(same_bits(multiply(both.weight, input), multiply(product.weight, input))) << gguf::type_name(type);
    }
  }
}

// Rows of a fused matrix are a matrix themselves: FileMatrix::part().
TEST_P(ConformanceOfProducts, APartOfAMatrixIsAMatrix) {
  for (const gguf::Type type : {gguf::Type::F32, gguf::Type::Q8_0, gguf::Type::Q2_K}) {
    const FileWeight file = random_weight(type, 50, 256, 9);
    FileWeight part{type, 19, 256, {}};
    const std::size_t row_bytes = file.bytes.size() / 50;
    part.bytes.assign(file.bytes.begin() + static_cast<std::ptrdiff_t>(7 * row_bytes),
                      file.bytes.begin() + static_cast<std::ptrdiff_t>(26 * row_bytes));
    const FileMatrix fused = file.file().part(7, 19);
    const DeviceBuffer memory =
        must(DeviceBuffer::create(backend().device(), backend().weight_bytes(fused, WeightUse::Product)));
    const Weight weight = must(backend().load(fused, WeightUse::Product, memory.data()));
    must(backend().device().fence());
    const HostInput input{.x = random_matrix(4, 256, 2)};
    expect_close(multiply(weight, input), expected(part, input), tolerance_of(part));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ConformanceOfProducts, ::testing::ValuesIn(backends_under_test()), name_of);

}  // namespace
}  // namespace quire::conformance
