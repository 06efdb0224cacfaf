// For tests: Mamba-1 and the gated delta rule in double precision, one sequence from its beginning, where the state is
// zero. See reference_testing.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "quire/backend/backend.h"
#include "quire/backend/reference_testing.h"

namespace quire::reference {

inline double as_state(ElementType type, double value) {
  return type == ElementType::F32 ? value : double{stored_state(type, static_cast<float>(value))};
}

// For each channel: step = softplus(dt + dt_bias); next[n] = state[n] * e^(step * a[n]) + step * x * b[n];
// out = sum over n of next[n] * c[n], plus d * x; state = next, as `type` can hold it. a is [state_dim][channels].
inline Expected mamba1_scan(const Matrix& x, const Matrix& b, const Matrix& c, const Matrix& dt, const Matrix& dt_bias,
                            const Matrix& a, const Matrix& d, ElementType type) {
  Expected out(x.rows, x.cols);
  for (std::uint32_t i = 0; i < x.cols; ++i) {
    Row state(b.cols), sizes(b.cols);
    for (std::uint32_t t = 0; t < x.rows; ++t) {
      const double step = softplus(double{dt.at(t, i)} + dt_bias.at(0, i)), value = x.at(t, i);
      double sum = d.at(0, i) * value, size = std::fabs(sum);
      for (std::uint32_t n = 0; n < b.cols; ++n) {
        const double decay = std::exp(step * a.at(n, i)), more = step * value * b.at(t, n);
        state[n] = state[n] * decay + more;
        sizes[n] = sizes[n] * decay + std::fabs(more);
        sum += state[n] * c.at(t, n);
        size += sizes[n] * std::fabs(c.at(t, n));
        state[n] = as_state(type, state[n]);
      }
      out.set(t, i, sum, size);
    }
  }
  return out;
}

// x / sqrt(x . x + epsilon)
inline Row unit(std::span<const float> x, double epsilon) {
  Row row = to_doubles(x);
  double squares = 0;
  for (const double value : row) squares += value * value;
  for (double& value : row) value /= std::sqrt(squares + epsilon);
  return row;
}

// For each head, with q = unit(q) / sqrt(key_dim) and k = unit(k):
//   decay = e^(a * softplus(alpha + dt_bias)); read = sum over n of k[n] * decay * state[n]
//   delta = (v - read) / (1 + e^-beta); next[n] = decay * state[n] + k[n] * delta; out = sum over n of q[n] * next[n]
// state = next, as `type` can hold it. The rule takes from a state what it finds there, so errors do not grow: they are
// relative to what is read and to the largest value so far.
inline Expected delta_rule(const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& alpha, const Matrix& beta,
                           const Matrix& dt_bias, const Matrix& a, const DeltaShape& shape, ElementType type) {
  Expected out(v.rows, v.cols);
  for (std::uint32_t head = 0; head < shape.heads; ++head) {
    const std::uint32_t key = shape.key_head(head) * shape.key_dim, gate = shape.gate_column(head);
    std::vector<Row> state(shape.value_dim, Row(shape.key_dim));
    double largest = 0;
    for (std::uint32_t t = 0; t < v.rows; ++t) {
      const Row queries = unit(q.row(t).subspan(key, shape.key_dim), shape.epsilon);
      const Row keys = unit(k.row(t).subspan(key, shape.key_dim), shape.epsilon);
      const double decay = std::exp(a.at(0, head) * softplus(double{alpha.at(t, gate)} + dt_bias.at(0, head)));
      const double strength = 1 / (1 + std::exp(-double{beta.at(t, gate)}));
      for (std::uint32_t i = 0; i < shape.value_dim; ++i) {
        const std::uint32_t column = head * shape.value_dim + i;
        double read = 0, sum = 0, size = 0;
        for (std::uint32_t n = 0; n < shape.key_dim; ++n) read += keys[n] * decay * state[i][n];
        const double delta = (v.at(t, column) - read) * strength;
        largest = std::max(largest, std::fabs(double{v.at(t, column)}));
        for (std::uint32_t n = 0; n < shape.key_dim; ++n) {
          const double next = decay * state[i][n] + keys[n] * delta, query = queries[n] / std::sqrt(shape.key_dim);
          sum += query * next;
          size += std::fabs(query * next);
          state[i][n] = as_state(type, next);
        }
        out.set(t, column, sum, size + largest);
      }
    }
  }
  return out;
}

}  // namespace quire::reference
