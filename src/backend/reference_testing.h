// For tests: every operation of Backend in the plainest way, in double precision. No speed, no tricks: each function
// has its formula above it, and its code is that formula.
//
// The result of an operation is an Expected. It has a value and a size for each element. The size is the magnitude of
// the terms that the value was computed from. Rounding errors grow with it, so tolerances are relative to it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "quire/backend/backend.h"
#include "quire/base/check.h"
#include "quire/gguf/half.h"
#include "quire/gguf/types.h"

namespace quire::reference {

// Rows of floats in host memory: the inputs of operations.
struct Matrix {
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  std::vector<float> values;

  Matrix() = default;
  Matrix(std::uint32_t r, std::uint32_t c, float value = 0) : rows(r), cols(c), values(std::size_t{r} * c, value) {}

  float& at(std::uint32_t r, std::uint32_t c) { return values[std::size_t{r} * cols + c]; }
  float at(std::uint32_t r, std::uint32_t c) const { return values[std::size_t{r} * cols + c]; }
  std::span<const float> row(std::uint32_t r) const { return std::span(values).subspan(std::size_t{r} * cols, cols); }
  Matrix row_range(std::uint32_t first, std::uint32_t count) const {
    Matrix part(count, cols);
    std::copy_n(values.begin() + std::ptrdiff_t{first} * cols, part.values.size(), part.values.begin());
    return part;
  }
};

// Normally distributed values, the same for the same seed.
inline Matrix random_matrix(std::uint32_t rows, std::uint32_t cols, std::uint32_t seed) {
  Matrix matrix(rows, cols);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (float& value : matrix.values) value = normal(random);
  return matrix;
}

// The expected result of an operation.
struct Expected {
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  std::vector<double> values;
  std::vector<double> sizes;

  Expected(std::uint32_t r, std::uint32_t c)
      : rows(r), cols(c), values(std::size_t{r} * c), sizes(std::size_t{r} * c) {}
  void set(std::uint32_t r, std::uint32_t c, double value, double size) {
    values[std::size_t{r} * cols + c] = value;
    sizes[std::size_t{r} * cols + c] = size;
  }
};

using Row = std::vector<double>;

inline Row to_doubles(std::span<const float> row) { return {row.begin(), row.end()}; }

// --- scalar functions

// x / (1 + e^-x)
inline double silu(double x) { return x / (1 + std::exp(-x)); }
// x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))
inline double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
// log(1 + e^x); for large x that is x in double precision
inline double softplus(double x) { return x > 40 ? x : std::log1p(std::exp(x)); }
// cap * tanh(x / cap); a cap of 0 is none
inline double soft_cap(double x, double cap) { return cap > 0 ? cap * std::tanh(x / cap) : x; }

// --- rows

// x / sqrt(mean of x^2 + epsilon) * weight
inline Row rms_norm(const Row& x, std::span<const float> weight, double epsilon) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double root = std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
  Row out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) out[i] = x[i] / root * weight[i];
  return out;
}

inline Expected rms_norm(const Matrix& x, const Matrix& weight, double epsilon) {
  Expected out(x.rows, x.cols);
  for (std::uint32_t i = 0; i < x.rows; ++i) {
    const Row row = rms_norm(to_doubles(x.row(i)), weight.row(0), epsilon);
    for (std::uint32_t k = 0; k < x.cols; ++k) out.set(i, k, row[k], std::fabs(row[k]));
  }
  return out;
}

// (x - mean) / sqrt(mean of (x - mean)^2 + epsilon) * weight + bias; the bias may be empty
inline Row layer_norm(const Row& x, std::span<const float> weight, std::span<const float> bias, double epsilon) {
  double mean = 0, squares = 0;
  for (const double value : x) mean += value / static_cast<double>(x.size());
  for (const double value : x) squares += (value - mean) * (value - mean);
  const double root = std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
  Row out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    out[i] = (x[i] - mean) / root * weight[i] + (bias.empty() ? 0 : bias[i]);
  }
  return out;
}

// The mean is a sum, so each element carries an error of the size of the largest one.
inline Expected layer_norm(const Matrix& x, const Matrix& weight, const Matrix& bias, double epsilon) {
  Expected out(x.rows, x.cols);
  for (std::uint32_t i = 0; i < x.rows; ++i) {
    const Row row = layer_norm(to_doubles(x.row(i)), weight.row(0), bias.values, epsilon);
    double most = 0, mean = 0, squares = 0;
    for (const float value : x.row(i)) most = std::max(most, std::fabs(double{value})), mean += value / double(x.cols);
    for (const float value : x.row(i)) squares += (value - mean) * (value - mean);
    const double root = std::sqrt(squares / x.cols + epsilon);
    for (std::uint32_t k = 0; k < x.cols; ++k) {
      const double plus = bias.values.empty() ? 0 : std::fabs(bias.at(0, k));
      out.set(i, k, row[k], std::fabs(row[k]) + plus + most / root * std::fabs(weight.at(0, k)) / 10);
    }
  }
  return out;
}

// table[token] * scale
inline Expected embed(const Matrix& table, std::span<const Token> tokens, double scale) {
  Expected out(static_cast<std::uint32_t>(tokens.size()), table.cols);
  for (std::uint32_t i = 0; i < out.rows; ++i) {
    for (std::uint32_t k = 0; k < out.cols; ++k) {
      const double value = table.at(static_cast<std::uint32_t>(tokens[i]), k) * scale;
      out.set(i, k, value, std::fabs(value));
    }
  }
  return out;
}

// x + y * scale
inline Expected add(const Matrix& x, const Matrix& y, double scale) {
  Expected out(x.rows, x.cols);
  for (std::uint32_t i = 0; i < x.rows; ++i) {
    for (std::uint32_t k = 0; k < x.cols; ++k) {
      const double more = y.at(i, k) * scale;
      out.set(i, k, x.at(i, k) + more, std::fabs(x.at(i, k)) + std::fabs(more));
    }
  }
  return out;
}

// cap * tanh(x / cap) * scale
inline Expected cap_and_scale(const Matrix& x, double cap, double scale) {
  Expected out(x.rows, x.cols);
  for (std::uint32_t i = 0; i < x.rows; ++i) {
    for (std::uint32_t k = 0; k < x.cols; ++k) {
      const double value = soft_cap(x.at(i, k), cap) * scale;
      out.set(i, k, value, std::fabs(value) + cap * std::fabs(scale) / 50);
    }
  }
  return out;
}

// --- products

// The input of a product: Input, but on the host.
struct HostInput {
  Input::Kind kind = Input::Kind::Plain;
  Matrix x;
  Matrix gate = {};
  Activation activation = Activation::Silu;
  Matrix weight = {};
  float epsilon = 0;
  std::uint32_t groups = 1;
  Matrix bias = {};
};

inline double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::Silu: return silu(x);
    case Activation::GeluTanh: return gelu_tanh(x);
    case Activation::Sigmoid: return 1 / (1 + std::exp(-x));
    case Activation::ClampedSwiglu:  // of experts only: experts_testing.h
    case Activation::None: break;
  }
  return x;
}
inline Row norm_of_parts(const Row& row, const HostInput& input) {
  const std::uint32_t part = input.x.cols / input.groups;
  Row out;
  for (std::uint32_t at = 0; at < input.x.cols; at += part) {
    const Row normed =
        rms_norm({row.begin() + at, row.begin() + at + part}, input.weight.row(0).subspan(at, part), input.epsilon);
    out.insert(out.end(), normed.begin(), normed.end());
  }
  return out;
}
//   Plain         x
//   Normed        rms_norm(x) * weight
//   Gated         activation(gate) * x
//   GatedNormed   rms_norm(silu(gate) * x) * weight, over each of `groups` equal parts of a row
//   NormedGated   silu(gate) * (rms_norm(x) * weight), over the same parts
//   LayerNormed   layer_norm(x) * weight + bias
//   Activated     activation(x)
inline Row input_row(const HostInput& input, std::uint32_t i) {
  Row row = to_doubles(input.x.row(i));
  if (input.kind == Input::Kind::Normed) return rms_norm(row, input.weight.row(0), input.epsilon);
  if (input.kind == Input::Kind::Plain) return row;
  if (input.kind == Input::Kind::LayerNormed) {
    return layer_norm(row, input.weight.row(0), input.bias.values, input.epsilon);
  }
  if (input.kind == Input::Kind::Activated) {
    for (double& value : row) value = activated(input.activation, value);
    return row;
  }
  if (input.kind == Input::Kind::NormedGated) row = norm_of_parts(row, input);
  for (std::uint32_t k = 0; k < input.x.cols; ++k) row[k] *= activated(input.activation, input.gate.at(i, k));
  return input.kind == Input::Kind::GatedNormed ? norm_of_parts(row, input) : row;
}

// Quantises to 8 bits, with a scale per 32 columns: scale = largest / 127, x = scale * round(x / scale). In floats, as
// the backend does it.
inline Row to_8_bits(const Row& row) {
  Row out(row.size());
  for (std::size_t at = 0; at < row.size(); at += 32) {
    float largest = 0;
    for (std::size_t k = at; k < at + 32; ++k) largest = std::max(largest, std::fabs(static_cast<float>(row[k])));
    const float scale = largest / 127.0f, inverse = scale < 0x1p-126f ? 0 : 1.0f / scale;
    for (std::size_t k = at; k < at + 32; ++k) {
      out[k] = double{scale} * std::nearbyint(static_cast<float>(row[k]) * inverse);
    }
  }
  return out;
}

// out[i][n] = sum over k of weight[n][k] * input[i][k]
inline Expected product(const Matrix& weight, std::span<const Row> input) {
  Expected out(static_cast<std::uint32_t>(input.size()), weight.rows);
  for (std::uint32_t i = 0; i < out.rows; ++i) {
    for (std::uint32_t n = 0; n < weight.rows; ++n) {
      double sum = 0, size = 0;
      for (std::uint32_t k = 0; k < weight.cols; ++k) {
        const double term = weight.at(n, k) * input[i][k];
        sum += term;
        size += std::fabs(term);
      }
      out.set(i, n, sum, size);
    }
  }
  return out;
}

// before + (product + bias) * scale; `bias` and `before` may be empty
inline Expected product_added(Expected out, const Matrix& bias, const Matrix& before, double scale) {
  for (std::uint32_t i = 0; i < out.rows; ++i) {
    for (std::uint32_t n = 0; n < out.cols; ++n) {
      const std::size_t at = std::size_t{i} * out.cols + n;
      const double b = bias.values.empty() ? 0 : bias.at(0, n), was = before.values.empty() ? 0 : before.at(i, n);
      out.set(i, n, was + (out.values[at] + b) * scale,
              std::fabs(was) + (out.sizes[at] + std::fabs(b)) * std::fabs(scale));
    }
  }
  return out;
}

// --- attention

// cos and sin of position * frequency, times magnitude. The angle itself may be a float: its error is proportional to
// the angle.
struct Angles {
  Expected cosines, sines;
};
inline Angles rope_angles(std::span<const std::uint32_t> positions, std::span<const float> frequencies,
                          double magnitude = 1) {
  const auto rows = static_cast<std::uint32_t>(positions.size()), cols = static_cast<std::uint32_t>(frequencies.size());
  Angles out{{rows, cols}, {rows, cols}};
  for (std::uint32_t i = 0; i < rows; ++i) {
    for (std::uint32_t k = 0; k < cols; ++k) {
      const double angle = double{frequencies[k]} * positions[i];
      const double size = magnitude * (1 + std::fabs(angle) / 100);
      out.cosines.set(i, k, std::cos(angle) * magnitude, size);
      out.sines.set(i, k, std::sin(angle) * magnitude, size);
    }
  }
  return out;
}

// A pair (a, b) becomes (a cos - b sin, a sin + b cos); n pairs are (0,1)(2,3)... or (0,n)(1,n+1)...
inline void rotate(std::span<double> head, std::span<const float> cosines, std::span<const float> sines,
                   RopePairs pairs) {
  const std::size_t n = cosines.size();
  for (std::size_t k = 0; k < n; ++k) {
    double& first = pairs == RopePairs::Neighbours ? head[2 * k] : head[k];
    double& second = pairs == RopePairs::Neighbours ? head[2 * k + 1] : head[k + n];
    const double a = first, b = second;
    first = a * cosines[k] - b * sines[k];
    second = a * sines[k] + b * cosines[k];
  }
}

// HeadChanges on the host. A norm or rotation with an empty matrix is left out.
struct HostHeadChanges {
  Matrix q_norm = {}, k_norm = {};
  float epsilon = 0;
  Matrix cosines = {}, sines = {};
  RopePairs pairs = RopePairs::Neighbours;
  std::uint32_t rotated_from = 0;
};

// For every head of every row: rms_norm(head) * norm, then the rotation, then factors: a row of them, one after the
// other for all heads, or none.
inline Expected change_heads(const Matrix& x, std::uint32_t head_dim, const Matrix& norm, const HostHeadChanges& with,
                             std::span<const float> factors = {}) {
  Expected out(x.rows, x.cols);
  for (std::uint32_t i = 0; i < x.rows; ++i) {
    for (std::uint32_t at = 0; at < x.cols; at += head_dim) {
      Row head = to_doubles(x.row(i).subspan(at, head_dim));
      if (!norm.values.empty()) head = rms_norm(head, norm.row(0), with.epsilon);
      const double largest = std::fabs(*std::ranges::max_element(head, {}, [](double v) { return std::fabs(v); }));
      if (!with.cosines.values.empty()) {
        rotate(std::span(head).subspan(with.rotated_from), with.cosines.row(i), with.sines.row(i), with.pairs);
      }
      for (std::uint32_t d = 0; d < head_dim; ++d) {
        const double factor = factors.empty() ? 1 : factors[at + d];
        out.set(i, at + d, head[d] * factor, largest * factor);
      }
    }
  }
  return out;
}

// The nearest value that an element type of the KV cache can hold, ties to even.
inline float stored(ElementType type, float value) {
  switch (type) {
    case ElementType::F16: return gguf::f16_to_f32(gguf::f32_to_f16(value));
    case ElementType::BF16: return gguf::bf16_to_f32(gguf::f32_to_bf16(value));
    default: return value;
  }
}
// Q8_0: the smallest half that brings every number of a block to at most 127, and the nearest whole numbers.
inline std::uint16_t scale_of(std::span<const float> block) {
  float largest = 0;
  for (const float value : block) largest = std::max(largest, std::abs(value));
  std::uint16_t half = gguf::f32_to_f16(largest / 127);
  if (gguf::f16_to_f32(half) < largest / 127) ++half;
  return std::min<std::uint16_t>(half, 0x7bff);
}
inline float whole_number(float value, std::uint16_t scale) {
  if (scale == 0) return 0;
  return std::clamp(std::nearbyint(value / gguf::f16_to_f32(scale)), -127.0f, 127.0f) + 0.0f;  // no -0
}
// Rows of heads with `head_dim` elements each.
inline Matrix stored(ElementType type, Matrix x, std::uint32_t head_dim) {
  if (type == ElementType::Q8_0) {
    for (std::size_t head = 0; head < x.values.size(); head += head_dim) {
      for (std::uint32_t at = 0; at < head_dim; at += kScaledElements) {
        const auto block = std::span(x.values).subspan(head + at, std::min(kScaledElements, head_dim - at));
        const std::uint16_t scale = scale_of(block);
        for (float& value : block) value = whole_number(value, scale) * gguf::f16_to_f32(scale);
      }
    }
    return x;
  }
  for (float& value : x.values) value = stored(type, value);
  return x;
}

// The same for a recurrent state. An f16 is clamped to the largest one instead of becoming infinite.
inline float stored_state(ElementType type, float value) {
  constexpr float kLargest = 65504;
  if (type == ElementType::F16 && std::fabs(value) > kLargest) return std::copysign(kLargest, value);  // not a NaN
  return stored(type, value);
}

// One row of queries over positions [first, position] of its context; `first` follows from the window:
//   score[t] = soft_cap(scale * (q . k[t]));  out = sum of e^score[t] * v[t], divided by the sum of e^score[t]
// k and v are [positions][kv_heads * head_dim]. One KV head serves heads / kv_heads neighbouring query heads. In latent
// attention v is k, and the first value_dim elements of each head count. A sink adds e^sink to the sum that is divided
// by. `sinks`: [heads], or none.
inline void attend(Expected& out, std::uint32_t row, std::span<const float> q, const Matrix& k, const Matrix& v,
                   std::uint32_t position, const AttentionShape& shape, std::span<const float> sinks = {}) {
  const std::uint32_t dim = shape.head_dim, per_head = shape.heads / shape.kv_heads;
  const std::uint32_t first = shape.window != 0 && position + 1 > shape.window ? position + 1 - shape.window : 0;
  for (std::uint32_t head = 0; head < shape.heads; ++head) {
    const std::uint32_t kv = head / per_head * dim;
    Row scores;
    double highest = -INFINITY, largest = 0, total = 0;
    for (std::uint32_t t = first; t <= position; ++t) {
      double score = 0;
      for (std::uint32_t d = 0; d < dim; ++d) score += double{q[head * dim + d]} * k.at(t, kv + d);
      scores.push_back(soft_cap(score * shape.scale, shape.soft_cap));
      highest = std::max(highest, scores.back());
      largest = std::max(largest, std::fabs(scores.back()));
    }
    if (!sinks.empty()) {
      highest = std::max(highest, double{sinks[head]});
      total = std::exp(sinks[head] - highest);
    }
    for (double& score : scores) total += score = std::exp(score - highest);
    for (std::uint32_t d = 0; d < shape.value_length(); ++d) {
      double sum = 0, size = 0;
      for (std::uint32_t t = first; t <= position; ++t) {
        const double term = scores[t - first] / total * v.at(t, kv + d);
        sum += term;
        size += std::fabs(term);
      }
      out.set(row, head * shape.value_length() + d, sum, size * (1 + largest));
    }
  }
}

// --- recurrent layers: one sequence from its beginning, where the state is zero

// out[t] = act(bias + sum over j < width of weight[j] * x[t - (width - 1) + j]), channel by channel; act is SiLU or
// nothing
inline Expected convolve(const Matrix& x, const Matrix& weight, const Matrix& bias, bool with_silu = true) {
  Expected out(x.rows, x.cols);
  const std::uint32_t width = weight.rows;
  for (std::uint32_t t = 0; t < x.rows; ++t) {
    for (std::uint32_t c = 0; c < x.cols; ++c) {
      double sum = bias.values.empty() ? 0 : bias.at(0, c), size = std::fabs(sum);
      for (std::uint32_t j = 0; j < width; ++j) {
        if (t + j + 1 < width) continue;  // before the sequence begins
        const double term = double{weight.at(j, c)} * x.at(t + j + 1 - width, c);
        sum += term;
        size += std::fabs(term);
      }
      out.set(t, c, with_silu ? silu(sum) : sum, size);
    }
  }
  return out;
}

// For each head: step = softplus(dt + dt_bias); next[i][n] = state[i][n] * e^(step * a) + step * x[i] * b[n];
// out[i] = sum over n of next[i][n] * c[n], plus d * x[i]; state = next, as `type` can hold it. Heads of a group have
// the same b and c.
inline Expected mamba2_scan(const Matrix& x, const Matrix& b, const Matrix& c, const Matrix& dt, const Matrix& dt_bias,
                            const Matrix& a, const Matrix& d, const Mamba2Shape& shape,
                            ElementType type = ElementType::F32) {
  Expected out(x.rows, x.cols);
  const std::uint32_t dim = shape.head_dim, n_states = shape.state_dim, per_group = shape.heads / shape.groups;
  for (std::uint32_t head = 0; head < shape.heads; ++head) {
    const std::uint32_t bc = head / per_group * n_states;
    for (std::uint32_t i = 0; i < dim; ++i) {
      Row state(n_states), sizes(n_states);
      for (std::uint32_t t = 0; t < x.rows; ++t) {
        const double step = softplus(double{dt.at(t, head)} + dt_bias.at(0, head));
        const double decay = std::exp(step * a.at(0, head)), value = x.at(t, head * dim + i);
        double sum = d.at(0, head) * value, size = std::fabs(sum);
        for (std::uint32_t n = 0; n < n_states; ++n) {
          const double more = step * value * b.at(t, bc + n);
          state[n] = state[n] * decay + more;
          sizes[n] = sizes[n] * decay + std::fabs(more);
          sum += state[n] * c.at(t, bc + n);
          size += sizes[n] * std::fabs(c.at(t, bc + n));
          if (type != ElementType::F32) state[n] = stored_state(type, static_cast<float>(state[n]));
        }
        out.set(t, head * dim + i, sum, size);
      }
    }
  }
  return out;
}

// --- weights

// A matrix as it is in a model file, and its values as floats.
struct FileWeight {
  gguf::Type type = gguf::Type::F32;
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  std::vector<std::byte> bytes;

  FileMatrix file() const { return {type, rows, cols, bytes.data(), bytes.size() / rows}; }
  Matrix values() const {
    Matrix matrix(rows, cols);
    const auto read = gguf::dequantize(type, bytes, matrix.values);
    QUIRE_CHECK(read.has_value(), "whole blocks of a type that can be read");
    return matrix;
  }
};

inline FileWeight as_f32(const Matrix& matrix) {
  const auto* bytes = reinterpret_cast<const std::byte*>(matrix.values.data());
  return {gguf::Type::F32, matrix.rows, matrix.cols, {bytes, bytes + matrix.values.size() * sizeof(float)}};
}

// Every type that Quire computes with.
inline std::vector<gguf::Type> weight_types() {
  std::vector<gguf::Type> types;
  for (std::uint32_t id = 0; const gguf::TypeInfo* info = gguf::find_type(id); ++id) {
    if (info->dequantizable) types.push_back(info->type);
  }
  return types;
}
inline bool is_float(gguf::Type type) {
  return type == gguf::Type::F32 || type == gguf::Type::F16 || type == gguf::Type::BF16;
}

// The input of a product with a matrix of this type, as a backend sees it that rounds inputs.
inline Row rounded_input(gguf::Type type, const Row& row) {
  if (!is_float(type)) return to_8_bits(row);
  if (type != gguf::Type::BF16) return row;
  Row out(row.size());
  for (std::size_t k = 0; k < row.size(); ++k) {
    out[k] = gguf::bf16_to_f32(gguf::f32_to_bf16(static_cast<float>(row[k])));
  }
  return out;
}

// The offsets of the 16-bit scales in a block.
inline std::vector<std::uint32_t> scales_of_block(gguf::Type type) {
  switch (type) {
    case gguf::Type::Q4_1:
    case gguf::Type::Q5_1:
    case gguf::Type::Q4_K:
    case gguf::Type::Q5_K: return {0, 2};
    case gguf::Type::Q2_K: return {80, 82};
    case gguf::Type::Q3_K: return {108};
    case gguf::Type::Q6_K: return {208};
    case gguf::Type::TQ1_0: return {52};
    case gguf::Type::TQ2_0: return {64};
    case gguf::Type::IQ1_M: return {};  // its scale is in parts
    default: return {0};
  }
}

// IQ1_M: four bits of the scale are the upper bits of each of four words.
inline void put_scale_in_parts(std::byte* block, std::uint16_t half) {
  for (std::size_t i = 0; i < 4; ++i) {
    std::byte& upper = block[48 + 2 * i + 1];
    upper = (upper & std::byte{15}) | static_cast<std::byte>(half >> (4 * i) & 15) << 4;
  }
}

// Random blocks. Any bytes are a valid block, but the scales are set, so that none is infinite or much larger than the
// others.
inline FileWeight random_weight(gguf::Type type, std::uint32_t rows, std::uint32_t cols, std::uint32_t seed) {
  const Matrix floats = random_matrix(rows, cols, seed);
  if (type == gguf::Type::F32) return as_f32(floats);
  const gguf::TypeInfo& info = gguf::type_info(type);
  QUIRE_CHECK(cols % info.block_size == 0, "whole blocks");
  FileWeight weight{type, rows, cols, {}};
  weight.bytes.resize(std::size_t{rows} * cols / info.block_size * info.block_bytes);
  const auto put = [&](std::size_t at, std::uint16_t half) { std::memcpy(weight.bytes.data() + at, &half, 2); };
  if (is_float(type)) {
    for (std::size_t i = 0; i < floats.values.size(); ++i) {
      put(2 * i, type == gguf::Type::F16 ? gguf::f32_to_f16(floats.values[i]) : gguf::f32_to_bf16(floats.values[i]));
    }
    return weight;
  }
  std::mt19937 random(seed);
  for (std::byte& byte : weight.bytes) byte = static_cast<std::byte>(random());
  if (type == gguf::Type::MXFP4) {  // a scale is a byte: the exponent of a power of two
    for (std::size_t block = 0; block < weight.bytes.size(); block += info.block_bytes) {
      weight.bytes[block] = static_cast<std::byte>(117 + random() % 4);
    }
    return weight;
  }
  std::uniform_real_distribution<float> scale(0.003f, 0.01f);
  for (std::size_t block = 0; block < weight.bytes.size(); block += info.block_bytes) {
    if (type == gguf::Type::IQ1_M) put_scale_in_parts(weight.bytes.data() + block, gguf::f32_to_f16(scale(random)));
    for (const std::uint32_t at : scales_of_block(type)) {
      put(block + at, gguf::f32_to_f16(random() % 2 == 0 ? scale(random) : -scale(random)));
    }
  }
  return weight;
}

}  // namespace quire::reference
