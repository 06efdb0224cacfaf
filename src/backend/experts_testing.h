// For tests: routers and experts in the plainest way, in double precision (see reference_testing.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "quire/backend/reference_testing.h"

namespace quire::reference {

// The experts of one row, best first.
struct Chosen {
  std::vector<std::uint32_t> numbers;
  Row weights;
};

// e^x over the sum of all
inline Row softmax(const Row& x) {
  const double highest = *std::ranges::max_element(x);
  Row out;
  for (const double value : x) out.push_back(std::exp(value - highest));
  const double sum = std::accumulate(out.begin(), out.end(), 0.0);
  for (double& value : out) value /= sum;
  return out;
}

// The indices of the highest scores, best first; the lower index of equal ones.
inline std::vector<std::uint32_t> best(const Row& scores, std::uint32_t count) {
  std::vector<std::uint32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, [&](std::uint32_t a, std::uint32_t b) { return scores[a] > scores[b]; });
  order.resize(count);
  return order;
}

// Router: the formulas of backend.h.
inline Chosen route(const Router& router, std::span<const float> logits, std::span<const float> selection_bias) {
  const Row all = to_doubles(logits);
  Row scores = all;
  if (router.scores == Router::Scores::Softmax) scores = softmax(all);
  if (router.scores == Router::Scores::Sigmoid) {
    for (double& score : scores) score = 1 / (1 + std::exp(-score));
  }
  Row selection = scores;
  for (std::size_t i = 0; i < selection_bias.size(); ++i) selection[i] += selection_bias[i];
  const std::uint32_t each = router.experts / router.groups;
  Row groups;
  for (std::uint32_t g = 0; g < router.groups; ++g) {
    Row own(selection.begin() + g * each, selection.begin() + (g + 1) * each);
    std::ranges::sort(own, std::greater<>());
    groups.push_back(own[0] + (router.scores == Router::Scores::Sigmoid && each > 1 ? own[1] : 0));
  }
  const std::vector<std::uint32_t> kept = best(groups, router.groups_used);
  for (std::uint32_t i = 0; i < router.experts; ++i) {
    if (std::ranges::find(kept, i / each) == kept.end()) selection[i] = -INFINITY;
  }
  Chosen chosen{best(selection, router.used), {}};
  for (const std::uint32_t number : chosen.numbers) chosen.weights.push_back(scores[number]);
  if (router.scores == Router::Scores::ChosenSoftmax) chosen.weights = softmax(chosen.weights);
  const double sum = std::accumulate(chosen.weights.begin(), chosen.weights.end(), 0.0);
  for (double& weight : chosen.weights) {
    if (router.normed) weight /= std::max(sum, double{Router::kLeastSum});
    weight *= router.scale;
  }
  return chosen;
}

// g * sigmoid(1.702 g) * (u + 1), g at most 7, u between -7 and 7
inline double clamped_swiglu(double gate, double up) {
  const double g = std::min(gate, 7.0);
  return g / (1 + std::exp(-1.702 * g)) * (std::clamp(up, -7.0, 7.0) + 1);
}

inline double gated(Activation activation, double gate, double up) {
  switch (activation) {
    case Activation::Silu: return silu(gate) * up;
    case Activation::GeluTanh: return gelu_tanh(gate) * up;
    case Activation::ClampedSwiglu: return clamped_swiglu(gate, up);
    default: return activated(activation, gate) * up;
  }
  return 0;
}

// The experts of a layer: a matrix each for gate, up and down. Biases have a row per expert, or are empty.
struct HostExperts {
  std::vector<FileWeight> gate, up, down;
  Matrix gate_bias = {}, up_bias = {}, down_bias = {};
  Activation activation = Activation::Silu;
};

// weight * x + bias
inline Row apply(const Matrix& weight, const Row& x, const Matrix& bias, std::uint32_t expert, Row* sizes = nullptr) {
  Row out(weight.rows);
  for (std::uint32_t n = 0; n < weight.rows; ++n) {
    double size = 0;
    for (std::uint32_t k = 0; k < weight.cols; ++k) {
      out[n] += weight.at(n, k) * x[k];
      size += std::fabs(weight.at(n, k) * x[k]);
    }
    if (bias.rows > 0) out[n] += bias.at(expert, n);
    if (sizes != nullptr) (*sizes)[n] += size + (bias.rows > 0 ? std::fabs(bias.at(expert, n)) : 0);
  }
  return out;
}

// Sum over the row's experts of weight * down(activation(gate(x), up(x))), added to `out` at `row`. `rounded`: inputs
// of products are rounded as rounded_input() does.
inline void add_experts(Expected& out, std::uint32_t row, const Row& x, const HostExperts& experts,
                        const Chosen& chosen, bool rounded, double scale) {
  const auto input = [&](const FileWeight& weight, const Row& values) {
    return rounded ? rounded_input(weight.type, values) : values;
  };
  for (std::size_t k = 0; k < chosen.numbers.size(); ++k) {
    const std::uint32_t e = chosen.numbers[k];
    const Row gate = apply(experts.gate[e].values(), input(experts.gate[e], x), experts.gate_bias, e);
    const Row up = apply(experts.up[e].values(), input(experts.up[e], x), experts.up_bias, e);
    Row inner(gate.size());
    for (std::size_t i = 0; i < inner.size(); ++i) inner[i] = gated(experts.activation, gate[i], up[i]);
    Row sizes(experts.down[e].rows);
    const Row down = apply(experts.down[e].values(), input(experts.down[e], inner), experts.down_bias, e, &sizes);
    const double factor = chosen.weights[k] * scale;
    for (std::uint32_t n = 0; n < down.size(); ++n) {
      out.values[std::size_t{row} * out.cols + n] += factor * down[n];
      out.sizes[std::size_t{row} * out.cols + n] += std::fabs(factor) * sizes[n];
    }
  }
}

}  // namespace quire::reference
