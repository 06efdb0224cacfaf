// What a backend promises for mixtures of experts: how a router chooses, and how the chosen experts are computed.
#include <set>
#include <tuple>

#include "quire/backend/conformance_batches_testing.h"
#include "quire/backend/experts_testing.h"

namespace quire::conformance {
namespace {

using reference::Chosen;
using reference::HostExperts;
using reference::is_float;
using Scores = Router::Scores;

// A stack of matrices, loaded one by one as a model's loader does it.
struct LoadedStack {
  DeviceBuffer memory;
  std::vector<std::byte> bytes;  // as in the file; a backend may use them in place
  Weight weight;
};

class ConformanceOfExperts : public Conformance {
 protected:
  LoadedStack load_stack(const std::vector<FileWeight>& matrices) {
    LoadedStack stack;
    for (const FileWeight& matrix : matrices) {
      stack.bytes.insert(stack.bytes.end(), matrix.bytes.begin(), matrix.bytes.end());
    }
    FileMatrix file = matrices[0].file();
    const std::uint64_t each = file.bytes();
    const std::uint64_t room = (backend().weight_bytes(file, WeightUse::Product) + 63) / 64 * 64;
    stack.memory = must(DeviceBuffer::create(backend().device(), room * matrices.size()));
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      file.data = stack.bytes.data() + i * each;
      const Weight one = must(backend().load(file, WeightUse::Product, stack.memory.data() + i * room));
      if (i == 0) stack.weight = one;
    }
    must(backend().device().fence());
    stack.weight.count = static_cast<std::uint32_t>(matrices.size());
    stack.weight.stride = room > 0 ? room : each;
    return stack;
  }

  struct Routed {
    Matrix numbers, weights;
  };
  Routed route(const Router& router, const Matrix& logits, const Matrix& selection_bias) {
    const Choices choices{tensors().room_within(logits.rows, router.used, 1, 2),
                          tensors().room_within(logits.rows, router.used, 3, 1)};
    const Tensor in = tensors().put_within(logits, 2, 5);
    const Tensor bias = selection_bias.values.empty() ? Tensor{} : tensors().put(selection_bias);
    step(rows_alone(logits.rows), [&] { backend().route(choices, in, bias, router); });
    EXPECT_TRUE(tensors().surroundings_are_untouched(choices.numbers));
    EXPECT_TRUE(tensors().surroundings_are_untouched(choices.weights));
    EXPECT_TRUE(same_bits(tensors().get(in), logits)) << "the logits are as they were";
    return {tensors().get(choices.numbers), tensors().get(choices.weights)};
  }

  void expect_routed(const Router& router, const Matrix& logits, const Matrix& bias) {
    const Routed got = route(router, logits, bias);
    for (std::uint32_t i = 0; i < logits.rows; ++i) {
      const Chosen expected = reference::route(router, logits.row(i), bias.values);
      for (std::uint32_t k = 0; k < router.used; ++k) {
        ASSERT_EQ(got.numbers.at(i, k), static_cast<float>(expected.numbers[k])) << "row " << i << ", rank " << k;
        EXPECT_NEAR(got.weights.at(i, k), expected.weights[k], tolerance().floats * std::fabs(expected.weights[k]))
            << "row " << i << ", rank " << k;
      }
    }
  }

  // A layer on the device.
  struct Layer {
    LoadedStack gate, up, down;
    Tensor gate_bias, up_bias, down_bias;
    Activation activation;
  };
  Layer put(const HostExperts& experts) {
    const auto bias = [&](Matrix values) {  // one row
      if (values.rows == 0) return Tensor{};
      values.cols *= std::exchange(values.rows, 1);
      return tensors().put(values);
    };
    return {load_stack(experts.gate), load_stack(experts.up),  load_stack(experts.down), bias(experts.gate_bias),
            bias(experts.up_bias),    bias(experts.down_bias), experts.activation};
  }

  Choices put(const std::vector<Chosen>& chosen) {
    const auto rows = static_cast<std::uint32_t>(chosen.size()),
               used = static_cast<std::uint32_t>(chosen[0].numbers.size());
    Matrix numbers(rows, used), weights(rows, used);
    for (std::uint32_t i = 0; i < rows; ++i) {
      for (std::uint32_t k = 0; k < used; ++k) {
        numbers.at(i, k) = static_cast<float>(chosen[i].numbers[k]);
        weights.at(i, k) = static_cast<float>(chosen[i].weights[k]);
      }
    }
    return {tensors().put(numbers), tensors().put(weights)};
  }

  // `before`: what the result is added to, times `scale`.
  Matrix run(const Layer& layer, const Input& in, const std::vector<Chosen>& chosen, const Matrix& before = {},
             float scale = 1) {
    const Choices choices = put(chosen);
    const std::uint32_t rows = in.x.rows, places = rows * choices.numbers.cols;
    const std::uint32_t inner = layer.gate.weight.rows, width = layer.down.weight.rows;
    const bool add = before.rows > 0;
    const Tensor out = add ? tensors().put_within(before, 3, 4) : tensors().room_within(rows, width, 3, 4);
    const Product gate{.out = tensors().room(places, inner), .weight = &layer.gate.weight, .bias = layer.gate_bias};
    const Product up{.out = tensors().room(places, inner), .weight = &layer.up.weight, .bias = layer.up_bias};
    const Product down{.out = out, .weight = &layer.down.weight, .bias = layer.down_bias, .add = add, .scale = scale};
    step(rows_alone(rows), [&] {
      backend().experts({.gate = gate, .up = up, .down = down, .activation = layer.activation}, in, choices);
    });
    EXPECT_TRUE(tensors().surroundings_are_untouched(out));
    return tensors().get(out);
  }
  Matrix run(const Layer& layer, const Matrix& x, const std::vector<Chosen>& chosen) {
    return run(layer, Input::plain(tensors().put(x)), chosen);
  }

  double near(const HostExperts& experts) const {
    const gguf::Type type = experts.down[0].type;
    const bool rounded = !is_float(type) || (type == gguf::Type::BF16 && GetParam().inputs_rounded);
    return rounded ? tolerance().quantised_after : 20 * tolerance().products;
  }
};

HostExperts random_experts(gguf::Type type, std::uint32_t count, std::uint32_t width, std::uint32_t inner) {
  HostExperts experts;
  for (std::uint32_t e = 0; e < count; ++e) {
    experts.gate.push_back(random_weight(type, inner, width, 100 + e));
    experts.up.push_back(random_weight(type, inner, width, 300 + e));
    experts.down.push_back(random_weight(type, width, inner, 500 + e));
  }
  return experts;
}

// Each row has `used` different experts, chosen at random.
std::vector<Chosen> random_choices(std::uint32_t rows, std::uint32_t experts, std::uint32_t used, std::uint32_t seed) {
  std::vector<Chosen> all;
  const Router router{.experts = experts, .used = used, .normed = true};
  const Matrix logits = random_matrix(rows, experts, seed);
  for (std::uint32_t i = 0; i < rows; ++i) all.push_back(reference::route(router, logits.row(i), {}));
  return all;
}

// Scaled down, so that activations stay in a range where errors are easy to judge.
Matrix random_input(std::uint32_t rows, std::uint32_t cols, std::uint32_t seed) {
  Matrix x = random_matrix(rows, cols, seed);
  for (float& value : x.values) value *= 0.2f;
  return x;
}

// --- routers

TEST_P(ConformanceOfExperts, ARouterMatchesTheReference) {
  for (const Scores scores : {Scores::Softmax, Scores::Sigmoid, Scores::ChosenSoftmax}) {
    for (const bool normed : {false, true}) {
      for (const auto& [experts, used] : {std::pair{1u, 1u}, {4u, 2u}, {8u, 8u}, {60u, 4u}, {128u, 8u}, {160u, 6u}}) {
        for (const std::uint32_t rows : {1u, 9u, 70u}) {
          const Router router{.scores = scores, .experts = experts, .used = used, .normed = normed, .scale = 2.5f};
          SCOPED_TRACE(std::to_string(static_cast<int>(scores)) + ", " + std::to_string(used) + " of " +
                       std::to_string(experts) + ", " + std::to_string(rows) + " rows");
          const Matrix logits = random_matrix(rows, experts, experts + rows);
          expect_routed(router, logits, {});
          Matrix bias = random_matrix(1, experts, 5);
          for (float& value : bias.values) value *= 0.1f;
          expect_routed(router, logits, bias);
        }
      }
    }
  }
}

TEST_P(ConformanceOfExperts, OnlyTheBestGroupsAreChosenFrom) {
  for (const Scores scores : {Scores::Softmax, Scores::Sigmoid}) {
    for (const auto& [groups, kept] : {std::pair{8u, 4u}, {8u, 3u}, {4u, 1u}, {32u, 6u}, {2u, 2u}}) {
      const Router router{.scores = scores,
                          .experts = 64,
                          .used = 6,
                          .groups = groups,
                          .groups_used = kept,
                          .normed = true,
                          .scale = 1.5f};
      SCOPED_TRACE(std::to_string(kept) + " of " + std::to_string(groups) + " groups");
      expect_routed(router, random_matrix(40, 64, groups), random_matrix(1, 64, 6));
      expect_routed(router, random_matrix(40, 64, groups + 1), {});
    }
  }
}

TEST_P(ConformanceOfExperts, OfEqualExpertsTheLowerNumberIsChosen) {
  Matrix logits(3, 70);
  for (std::uint32_t i = 0; i < 70; ++i) {
    logits.at(1, i) = i % 2 == 0 ? -1.0f : 1.0f;
    logits.at(2, i) = i < 40 ? 0.0f : 0.5f;
  }
  for (const Scores scores : {Scores::Softmax, Scores::Sigmoid, Scores::ChosenSoftmax}) {
    const Routed got = route({.scores = scores, .experts = 70, .used = 4, .groups = 5, .groups_used = 4}, logits, {});
    const Matrix numbers = got.numbers;
    EXPECT_TRUE(same_bits(numbers.row(0), std::vector<float>{0, 1, 2, 3}));
    EXPECT_TRUE(same_bits(numbers.row(1), std::vector<float>{1, 3, 5, 7}));
    EXPECT_TRUE(same_bits(numbers.row(2), std::vector<float>{40, 41, 42, 43}));
    for (const float weight : got.weights.row(0)) EXPECT_EQ(weight, got.weights.at(0, 0));
  }
}

// Expert numbers become addresses: whatever the logits are, they are different numbers of experts that exist.
TEST_P(ConformanceOfExperts, ARowWithoutNumbersChoosesDifferentExpertsAndChangesNoOtherRow) {
  Matrix logits = random_matrix(5, 40, 3);
  const Router routers[] = {
      {.experts = 40, .used = 8, .normed = true},
      {.scores = Scores::Sigmoid, .experts = 40, .used = 8, .groups = 4, .groups_used = 1},
      {.scores = Scores::ChosenSoftmax, .experts = 40, .used = 8},
  };
  for (const Router& router : routers) {
    const Routed clean = route(router, logits, {});
    Matrix broken = logits;
    for (std::uint32_t i = 0; i < 40; ++i) {
      broken.at(1, i) = poison();
      broken.at(2, i) = -INFINITY;
      broken.at(3, i) = i % 3 == 0 ? poison() : i % 3 == 1 ? INFINITY : -INFINITY;
    }
    const Routed got = route(router, broken, {});
    for (std::uint32_t i = 0; i < 5; ++i) {
      const std::set<float> numbers(got.numbers.row(i).begin(), got.numbers.row(i).end());
      EXPECT_EQ(numbers.size(), router.used);
      EXPECT_TRUE(*numbers.begin() >= 0 && *numbers.rbegin() < 40);
      if (i != 0 && i != 4) continue;
      EXPECT_TRUE(same_bits(got.numbers.row(i), clean.numbers.row(i)));
      EXPECT_TRUE(same_bits(got.weights.row(i), clean.weights.row(i)));
    }
  }
}

// --- experts

TEST_P(ConformanceOfExperts, MatchTheReference) {
  for (const gguf::Type type :
       {gguf::Type::F32, gguf::Type::F16, gguf::Type::Q8_0, gguf::Type::Q4_K, gguf::Type::Q4_1}) {
    const std::uint32_t width = 256, inner = type == gguf::Type::F32 ? 50 : 256;
    const HostExperts host = random_experts(type, 6, width, inner);
    const Layer layer = put(host);
    for (const std::uint32_t rows : {1u, 3u, 40u}) {
      SCOPED_TRACE(std::string(gguf::type_name(type)) + ", " + std::to_string(rows) + " rows");
      const Matrix x = random_input(rows, width, 7);
      const std::vector<Chosen> chosen = random_choices(rows, 6, 3, rows);
      Expected expected(rows, width);
      for (std::uint32_t i = 0; i < rows; ++i) {
        add_experts(expected, i, reference::to_doubles(x.row(i)), host, chosen[i], GetParam().inputs_rounded, 1);
      }
      expect_close(run(layer, x, chosen), expected, near(host));
    }
  }
}

TEST_P(ConformanceOfExperts, HaveBiasesActivationsAndNormedInputsAndAreAdded) {
  for (const gguf::Type type : {gguf::Type::F16, gguf::Type::Q8_0}) {
    for (const Activation activation : {Activation::Silu, Activation::GeluTanh, Activation::ClampedSwiglu}) {
      HostExperts host = random_experts(type, 5, 96, 64);
      host.activation = activation;
      host.gate_bias = random_matrix(5, 64, 1);
      host.up_bias = random_matrix(5, 64, 2);
      host.down_bias = random_matrix(5, 96, 3);
      for (float& value : host.gate_bias.values) value *= 4;  // some are beyond the limit of a clamped gate
      for (float& value : host.up_bias.values) value *= 4;
      const Layer layer = put(host);
      for (const std::uint32_t rows : {1u, 6u, 30u}) {
        SCOPED_TRACE(std::string(gguf::type_name(type)) + ", activation " +
                     std::to_string(static_cast<int>(activation)) + ", " + std::to_string(rows) + " rows");
        const Matrix x = random_matrix(rows, 96, 7), norm = random_matrix(1, 96, 8),
                     before = random_matrix(rows, 96, 9);
        const std::vector<Chosen> chosen = random_choices(rows, 5, 2, rows);
        const reference::HostInput input{.kind = Input::Kind::Normed, .x = x, .weight = norm, .epsilon = 1e-5f};
        Expected expected(rows, 96);
        for (std::uint32_t i = 0; i < rows; ++i) {
          add_experts(expected, i, input_row(input, i), host, chosen[i], GetParam().inputs_rounded, 0.25);
          for (std::uint32_t k = 0; k < 96; ++k) {
            expected.values[i * 96 + k] += before.at(i, k);
            expected.sizes[i * 96 + k] += std::fabs(before.at(i, k));
          }
        }
        const Input in = Input::normed(tensors().put_within(x, 5, 2), tensors().put(norm), 1e-5f);
        expect_close(run(layer, in, chosen, before, 0.25f), expected, near(host));
      }
    }
  }
}

// Sums over many columns may be made of parts, and wide rows be made ready in another way.
TEST_P(ConformanceOfExperts, OfLargerSizesMatchTheReference) {
  for (const auto& [type, width, inner] :
       {std::tuple{gguf::Type::Q8_0, 1088u, 832u}, {gguf::Type::MXFP4, 1088u, 832u}, {gguf::Type::F16, 544u, 2880u}}) {
    HostExperts host = random_experts(type, 3, width, inner);
    const Layer layer = put(host);
    for (const std::uint32_t rows : {1u, 9u}) {
      SCOPED_TRACE(std::string(gguf::type_name(type)) + ", " + std::to_string(rows) + " rows");
      const Matrix x = random_input(rows, width, 7);
      const std::vector<Chosen> chosen = random_choices(rows, 3, 2, rows);
      Expected expected(rows, width);
      for (std::uint32_t i = 0; i < rows; ++i) {
        add_experts(expected, i, reference::to_doubles(x.row(i)), host, chosen[i], GetParam().inputs_rounded, 1);
      }
      const Matrix together = run(layer, x, chosen);
      expect_close(together, expected, near(host));
      const std::vector<Chosen> last(chosen.end() - 1, chosen.end());
      EXPECT_TRUE(same_bits(run(layer, x.row_range(rows - 1, 1), last), together.row_range(rows - 1, 1)));
    }
  }
}

// The rule of exactness. A row has the same bits alone and among rows that chose the same experts or others.
TEST_P(ConformanceOfExperts, ARowDoesNotDependOnWhatOthersChose) {
  for (const gguf::Type type : reference::weight_types()) {
    SCOPED_TRACE(gguf::type_name(type));
    const HostExperts host = random_experts(type, 8, 256, 256);
    const Layer layer = put(host);
    const std::uint32_t rows = 75;
    const Matrix x = random_input(rows, 256, 7);
    const std::vector<Chosen> chosen = random_choices(rows, 8, 3, 1);
    const Matrix together = run(layer, x, chosen);
    for (const auto& [first, count] : {std::pair{0u, 1u}, {74u, 1u}, {3u, 2u}, {17u, 5u}, {20u, 21u}, {10u, 60u}}) {
      const std::vector<Chosen> some(chosen.begin() + first, chosen.begin() + first + count);
      EXPECT_TRUE(same_bits(run(layer, x.row_range(first, count), some), together.row_range(first, count)))
          << count << " rows from " << first;
    }
    // The others choose other experts, or all the same ones.
    for (const bool same : {false, true}) {
      std::vector<Chosen> others = random_choices(rows, 8, 3, 2);
      for (std::uint32_t i = 0; same && i < rows; ++i) others[i] = chosen[40];
      others[40] = chosen[40];
      EXPECT_TRUE(same_bits(run(layer, x, others).row(40), together.row(40)));
    }
  }
}

// Whoever did not choose an expert must not see it: its weights are not numbers.
TEST_P(ConformanceOfExperts, ThoseThatNobodyChoseAreNotComputed) {
  HostExperts host = random_experts(gguf::Type::F32, 6, 64, 32);
  const std::vector<Chosen> chosen(9, Chosen{{4, 1}, {0.7, 0.3}});
  const Matrix x = random_input(9, 64, 7);
  const Matrix clean = run(put(host), x, chosen);
  for (const std::uint32_t e : {0u, 2u, 3u, 5u}) {
    for (auto* matrices : {&host.gate, &host.up, &host.down}) {
      FileWeight& matrix = (*matrices)[e];
      matrix = reference::as_f32(Matrix(matrix.rows, matrix.cols, poison()));
    }
  }
  EXPECT_TRUE(same_bits(run(put(host), x, chosen), clean));
}

TEST_P(ConformanceOfExperts, AreSummedInTheOrderOfTheirRank) {
  // The first two cancel, so a small third one is lost unless it is added last.
  HostExperts host = random_experts(gguf::Type::F32, 3, 16, 16);
  host.down_bias = Matrix(3, 16);
  for (std::uint32_t n = 0; n < 16; ++n) {
    host.down_bias.at(0, n) = 1e8f;
    host.down_bias.at(1, n) = -1e8f;
    host.down_bias.at(2, n) = 1.0f;
  }
  for (std::uint32_t e = 0; e < 3; ++e) host.down[e] = reference::as_f32(Matrix(16, 16));
  const Layer layer = put(host);
  const Matrix x = random_input(2, 16, 7);
  const std::vector<Chosen> last(2, Chosen{{1, 0, 2}, {1, 1, 1}}), first(2, Chosen{{2, 1, 0}, {1, 1, 1}});
  for (const float value : run(layer, x, last).values) EXPECT_EQ(value, 1.0f);
  for (const float value : run(layer, x, first).values) EXPECT_EQ(value, 0.0f);
}

INSTANTIATE_TEST_SUITE_P(Backends, ConformanceOfExperts, ::testing::ValuesIn(backends_under_test()), name_of);

}  // namespace
}  // namespace quire::conformance
