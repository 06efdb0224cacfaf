// Recurrent layers on the CPU. A thread takes some channels or a head of one sequence and goes through its tokens, so
// that the state stays in registers or in the L1 cache.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "quire/backend/cpu/cpu_backend.h"
#include "quire/backend/cpu/for_each.h"
#include "quire/base/check.h"
#include "quire/base/numbers.h"

namespace quire {

using cpu::kFewRows;
using cpu::row_of;
using cpu::vector_of;

namespace {

constexpr std::uint32_t kTokens = 32;  // their inputs stay in the L1 cache while all of the state is updated

// Some consecutive rows of an entry, and the state that they change.
struct Rows {
  std::uint32_t first = 0;  // of the batch
  std::uint32_t count = 0;
  StateView state;
};

// Calls compute(rows) for the rows of an entry that are no drafts, in its state, and then for its drafts, in the
// scratch state. In between, copy(to, from) copies the part of the state that compute() changes: one thread does all
// three, so that the state is in its cache.
template <typename Copy, typename Compute>
void with_drafts(const BatchEntry& entry, const StatesView& states, const Copy& copy, const Compute& compute) {
  const StateView own = states.at(entry.state);
  compute(Rows{entry.first_row, entry.certain_rows(), own});
  if (entry.drafts == 0) return;
  const StateView scratch = states.at(entry.scratch);
  copy(scratch, own);
  compute(Rows{entry.first_row + entry.certain_rows(), entry.drafts, scratch});
}

}  // namespace

void CpuBackend::split_query_gate(Tensor q, Tensor gate, Tensor both, std::uint32_t head_dim) {
  cpu::for_each(team_, both.rows, kFewRows, [&](std::uint32_t i) {
    const float* from = row_of(both, i);
    for (std::uint32_t at = 0; at < q.cols; at += head_dim, from += 2 * std::size_t{head_dim}) {
      std::memcpy(row_of(q, i) + at, from, head_dim * sizeof(float));
      std::memcpy(row_of(gate, i) + at, from + head_dim, head_dim * sizeof(float));
    }
  });
}

// The convolution state is the last width - 1 inputs, oldest first: [width - 1][channels].
void CpuBackend::convolve(Tensor x, Tensor factor, Tensor weight, Tensor bias, const ConvolutionShape& shape) {
  constexpr std::uint32_t kChannels = 64;
  const std::uint32_t channels = shape.channels, chunks = divide_up(channels, kChannels);
  const auto entries = static_cast<std::uint32_t>(batch_->entries().size());
  QUIRE_CHECK(shape.width <= cpu::kMostTaps, "wider convolutions are refused when a model is read");
  cpu::for_each(team_, entries * chunks, batch_->rows() == 1 ? entries * chunks : 0, [&](std::uint32_t n) {
    const std::uint32_t begin = n % chunks * kChannels, end = std::min(channels, begin + kChannels);
    const auto window = [&](const StateView& state) { return reinterpret_cast<float*>(state.conv(shape.layer)); };
    const auto copy = [&](const StateView& to, const StateView& from) {
      for (std::uint32_t tap = 0; tap + 1 < shape.width; ++tap) {
        const std::size_t at = std::size_t{tap} * channels + begin;
        std::memcpy(window(to) + at, window(from) + at, (end - begin) * sizeof(float));
      }
    };
    with_drafts(batch_->entries()[n / chunks], batch_->states(), copy, [&](const Rows& rows) {
      const cpu::Convolution layer{.x = row_of(x, rows.first),
                                   .factor = factor.valid() ? row_of(factor, rows.first) : nullptr,
                                   .stride = x.stride,
                                   .factor_stride = factor.stride,
                                   .rows = rows.count,
                                   .channels = channels,
                                   .taps = shape.width,
                                   .weight = vector_of(weight),
                                   .bias = vector_of(bias),
                                   .window = window(rows.state),
                                   .silu = shape.silu};
      for (std::uint32_t c = begin; c < end; c += 16) kernels_.convolve(layer, c, std::min(16u, end - c));
    });
  });
}

// The state is [state_dim][channels].
void CpuBackend::mamba1_scan(Tensor out, Tensor x, Tensor b, Tensor c, Tensor dt, Tensor dt_bias, Tensor a, Tensor d,
                             const Mamba1Shape& shape) {
  constexpr std::uint32_t kChannels = 64;
  const std::uint32_t channels = shape.channels, chunks = divide_up(channels, kChannels);
  const StatesView& states = batch_->states();
  cpu::for_each(team_, static_cast<std::uint32_t>(batch_->entries().size()) * chunks, [&](std::uint32_t n) {
    const std::uint32_t begin = n % chunks * kChannels, end = std::min(channels, begin + kChannels);
    const auto copy = [&](const StateView& to, const StateView& from) {
      const std::size_t bytes = element_bytes(states.type);
      for (std::uint32_t i = 0; i < shape.state_dim; ++i) {
        const std::size_t at = (std::size_t{i} * channels + begin) * bytes;
        std::memcpy(to.ssm(shape.layer) + at, from.ssm(shape.layer) + at, (end - begin) * bytes);
      }
    };
    with_drafts(batch_->entries()[n / chunks], states, copy, [&](const Rows& rows) {
      for (std::uint32_t i = 0; i < rows.count; i += kTokens) {
        const std::uint32_t row = rows.first + i;
        const cpu::ChannelScan layer{.state = rows.state.ssm(shape.layer),
                                     .type = states.type,
                                     .channels = channels,
                                     .state_dim = shape.state_dim,
                                     .tokens = std::min(kTokens, rows.count - i),
                                     .x = row_of(x, row),
                                     .dt = row_of(dt, row),
                                     .b = row_of(b, row),
                                     .c = row_of(c, row),
                                     .out = row_of(out, row),
                                     .x_stride = x.stride,
                                     .dt_stride = dt.stride,
                                     .b_stride = b.stride,
                                     .c_stride = c.stride,
                                     .out_stride = out.stride,
                                     .dt_bias = vector_of(dt_bias),
                                     .d = vector_of(d),
                                     .a = vector_of(a)};
        for (std::uint32_t at = begin; at < end; at += 16) kernels_.scan_channels(layer, at, std::min(16u, end - at));
      }
    });
  });
}

// The state of a head is [head_dim][state_dim].
void CpuBackend::mamba2_scan(Tensor out, Tensor x, Tensor b, Tensor c, Tensor dt, Tensor dt_bias, Tensor a, Tensor d,
                             const Mamba2Shape& shape) {
  const std::uint32_t heads = shape.heads, per_group = heads / shape.groups;
  const StatesView& states = batch_->states();
  cpu::for_each(team_, x.rows, kFewRows, [&](std::uint32_t i) {
    kernels_.discretize(steps_.data() + std::size_t{i} * heads, decays_.data() + std::size_t{i} * heads, row_of(dt, i),
                        vector_of(dt_bias), vector_of(a), heads);
  });
  cpu::for_each(team_, static_cast<std::uint32_t>(batch_->entries().size()) * heads, [&](std::uint32_t n) {
    const std::uint32_t head = n % heads, group = head / per_group;
    const std::size_t bytes = std::size_t{shape.head_dim} * shape.state_dim * element_bytes(states.type);
    const auto of_head = [&](const StateView& state) { return state.ssm(shape.layer) + head * bytes; };
    const auto copy = [&](const StateView& to, const StateView& from) {
      std::memcpy(of_head(to), of_head(from), bytes);
    };
    with_drafts(batch_->entries()[n / heads], states, copy, [&](const Rows& rows) {
      for (std::uint32_t i = 0; i < rows.count; i += kTokens) {
        const std::uint32_t row = rows.first + i;
        kernels_.recur({.state = of_head(rows.state),
                        .type = states.type,
                        .head_dim = shape.head_dim,
                        .state_dim = shape.state_dim,
                        .tokens = std::min(kTokens, rows.count - i),
                        .steps = steps_.data() + std::size_t{row} * heads + head,
                        .decays = decays_.data() + std::size_t{row} * heads + head,
                        .x = row_of(x, row) + head * shape.head_dim,
                        .b = row_of(b, row) + group * shape.state_dim,
                        .c = row_of(c, row) + group * shape.state_dim,
                        .out = row_of(out, row) + head * shape.head_dim,
                        .step_stride = heads,
                        .x_stride = x.stride,
                        .b_stride = b.stride,
                        .c_stride = c.stride,
                        .out_stride = out.stride,
                        .d = vector_of(d)[head]});
      }
    });
  });
}

// The state of a head is [key_dim][value_dim].
void CpuBackend::delta_rule(Tensor out, Tensor q, Tensor k, Tensor v, Tensor alpha, Tensor beta, Tensor dt_bias,
                            Tensor a, const DeltaShape& shape) {
  constexpr std::uint32_t kValues = 16;  // a thread takes so many elements of a head's values
  const std::uint32_t heads = shape.heads, parts = divide_up(shape.value_dim, kValues);
  const float scale = 1.0f / std::sqrt(static_cast<float>(shape.key_dim));
  const StatesView& states = batch_->states();
  cpu::for_each(team_, q.rows, kFewRows, [&](std::uint32_t i) {
    for (std::uint32_t at = 0; at < shape.keys(); at += shape.key_dim) {
      kernels_.normalize(row_of(q, i) + at, scale, shape.epsilon, shape.key_dim);
      kernels_.normalize(row_of(k, i) + at, 1.0f, shape.epsilon, shape.key_dim);
    }
    float *betas = steps_.data() + std::size_t{i} * heads, *decays = decays_.data() + std::size_t{i} * heads;
    for (std::uint32_t head = 0; head < heads; head += shape.gate_run) {
      const std::uint32_t column = shape.gate_column(head);
      kernels_.delta_gates(betas + head, decays + head, row_of(beta, i) + column, row_of(alpha, i) + column,
                           vector_of(dt_bias) + head, vector_of(a) + head, std::min(shape.gate_run, heads - head));
    }
  });
  cpu::for_each(team_, static_cast<std::uint32_t>(batch_->entries().size()) * heads * parts, [&](std::uint32_t n) {
    const std::uint32_t head = n / parts % heads, first = n % parts * kValues, key = shape.key_head(head);
    const std::uint32_t values = std::min(kValues, shape.value_dim - first);
    const std::size_t bytes = element_bytes(states.type);
    const auto of_head = [&](const StateView& state) {
      return state.ssm(shape.layer) + std::size_t{head} * shape.key_dim * shape.value_dim * bytes;
    };
    const auto copy = [&](const StateView& to, const StateView& from) {
      for (std::uint32_t i = 0; i < shape.key_dim; ++i) {
        const std::size_t at = (std::size_t{i} * shape.value_dim + first) * bytes;
        std::memcpy(of_head(to) + at, of_head(from) + at, values * bytes);
      }
    };
    with_drafts(batch_->entries()[n / (heads * parts)], states, copy, [&](const Rows& rows) {
      const std::uint32_t row = rows.first;
      const cpu::DeltaHead all{.state = of_head(rows.state),
                               .type = states.type,
                               .key_dim = shape.key_dim,
                               .value_dim = shape.value_dim,
                               .tokens = rows.count,
                               .decays = decays_.data() + std::size_t{row} * heads + head,
                               .betas = steps_.data() + std::size_t{row} * heads + head,
                               .q = row_of(q, row) + key * shape.key_dim,
                               .k = row_of(k, row) + key * shape.key_dim,
                               .v = row_of(v, row) + head * shape.value_dim,
                               .out = row_of(out, row) + head * shape.value_dim,
                               .gate_stride = heads,
                               .q_stride = q.stride,
                               .k_stride = k.stride,
                               .v_stride = v.stride,
                               .out_stride = out.stride};
      kernels_.delta_rule(all, first, values);
    });
  });
}

}  // namespace quire
