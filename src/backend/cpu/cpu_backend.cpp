#include "quire/backend/cpu/cpu_backend.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "quire/base/check.h"
#include "quire/base/numbers.h"

namespace quire {
namespace {

float silu(float x) { return x / (1.0f + std::exp(-x)); }

float gelu_tanh(float x) {
  constexpr float kRootTwoOverPi = 0.7978845608028654f;
  return 0.5f * x * (1.0f + std::tanh(kRootTwoOverPi * (x + 0.044715f * x * x * x)));
}

// Large inputs are their own softplus, and their exponential would overflow.
float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

}  // namespace

CpuBackend::CpuBackend(std::uint32_t threads, const cpu::Kernels& kernels)
    : kernels_(kernels), team_(std::max(1u, threads)), scratch_(team_.size()) {}

PoolResult<void> CpuBackend::prepare(std::uint32_t max_rows, std::uint32_t max_cols) {
  max_rows_ = max_rows;
  max_cols_ = round_up(max_cols, 256u);
  const std::size_t all = std::size_t{max_rows_} * max_cols_;
  input_q_.resize(all);
  input_scales_.resize(all / 32);
  input_sums_.resize(all / 16);
  for (Scratch& scratch : scratch_) {
    scratch.q.resize(max_cols_);
    scratch.scales.resize(max_cols_ / 16);
    scratch.offsets.resize(max_cols_ / 16);
    scratch.row.resize(max_cols_);
  }
  return {};
}

// Items of very different cost (a long context beside a short one) go to whoever is free; who does which changes
// nothing.
template <typename Work>
void CpuBackend::for_each(std::uint32_t count, Work work) {
  if (count == 0) return;
  if (count == 1 || team_.size() == 1) {
    for (std::uint32_t i = 0; i < count; ++i) work(i);
    return;
  }
  std::atomic<std::uint32_t> next{0};
  team_.run([&](std::uint32_t, std::uint32_t) {
    for (std::uint32_t i = next.fetch_add(1, std::memory_order_relaxed); i < count;
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      work(i);
    }
  });
}

cpu::QuantInput CpuBackend::input(std::uint32_t row) {
  const std::size_t at = std::size_t{row} * max_cols_;
  return {input_q_.data() + at, input_scales_.data() + at / 32, input_sums_.data() + at / 16};
}

void CpuBackend::embed(Rows out, const Weight& table, float scale) {
  for_each(out.rows, [&](std::uint32_t i) {
    const std::byte* from = table.data + static_cast<std::uint64_t>(step_.tokens[i]) * table.row_bytes;
    const auto ok = gguf::dequantize(table.type, {from, table.row_bytes}, {out.row(i), out.cols});
    QUIRE_CHECK(ok.has_value(), "weights were checked when the model was bound");
    if (scale != 1.0f) kernels_.scale_by(out.row(i), scale, out.cols);
  });
}

void CpuBackend::rms_norm(Rows out, Rows x, const float* weight, float epsilon) {
  const auto one = [&](std::uint32_t i) {
    const float mean = kernels_.sum_of_squares(x.row(i), x.cols) / static_cast<float>(x.cols);
    kernels_.multiply(out.row(i), x.row(i), weight, 1.0f / std::sqrt(mean + epsilon), x.cols);
  };
  if (x.rows <= 8) {
    for (std::uint32_t i = 0; i < x.rows; ++i) one(i);  // less work than waking the team
  } else {
    for_each(x.rows, one);
  }
}

// A weight row is unpacked once and multiplied by all rows of x, so that one row, a few and many cost the weights once
// and give the same bits.
void CpuBackend::matmul(Rows out, const Weight& weight, Rows x, const float* bias) {
  QUIRE_CHECK(x.cols == weight.cols && out.cols == weight.rows && x.rows == out.rows, "shapes agree");
  QUIRE_CHECK(x.cols <= max_cols_ && x.rows <= max_rows_, "steps are as large as they were prepared for");
  const bool plain =
      weight.type == gguf::Type::F32 || weight.type == gguf::Type::F16 || weight.type == gguf::Type::BF16;
  if (!plain) {
    const auto quantize = [&](std::uint32_t i) { kernels_.quantize(x.row(i), x.cols, input(i)); };
    if (x.rows == 1) {
      quantize(0);
    } else {
      for_each(x.rows, quantize);
    }
  }
  // Rows of weights go in pieces to whoever is free, so that nobody waits long for one who lost its core.
  constexpr std::uint32_t kPieces = 8, kSmallestPiece = 16;
  const std::uint32_t piece = std::max(kSmallestPiece, divide_up(weight.rows, team_.size() * kPieces));
  std::atomic<std::uint32_t> next{0};
  const auto multiply_row = [&](std::uint32_t n, Scratch& scratch, cpu::QuantRow& row) {
    const std::byte* data = weight.data + n * weight.row_bytes;
    const float add = bias == nullptr ? 0.0f : bias[n];
    if (plain) {
      kernels_.unpack_float(weight.type, data, weight.cols, scratch.row.data());
      for (std::uint32_t i = 0; i < x.rows; ++i) {
        out.row(i)[n] = kernels_.dot(scratch.row.data(), x.row(i), x.cols) + add;
      }
    } else {
      kernels_.unpack_quant(weight.type, data, weight.cols, row);
      for (std::uint32_t i = 0; i < x.rows; ++i) out.row(i)[n] = kernels_.dot_quant(row, input(i), x.cols) + add;
    }
  };
  team_.run([&](std::uint32_t part, std::uint32_t) {
    Scratch& scratch = scratch_[part];
    cpu::QuantRow row{scratch.q.data(), scratch.scales.data(), scratch.offsets.data(), false};
    for (;;) {
      const std::uint32_t begin = next.fetch_add(piece, std::memory_order_relaxed);
      if (begin >= weight.rows) return;
      for (std::uint32_t n = begin; n < std::min(weight.rows, begin + piece); ++n) multiply_row(n, scratch, row);
    }
  });
}

void CpuBackend::gather(Rows out, Rows x, std::span<const std::uint32_t> indices) {
  for (std::uint32_t i = 0; i < out.rows; ++i) std::memcpy(out.row(i), x.row(indices[i]), out.cols * sizeof(float));
}

void CpuBackend::add(Rows x, Rows y, float scale) {
  for (std::uint32_t i = 0; i < x.rows; ++i) kernels_.add_scaled(x.row(i), y.row(i), scale, x.cols);
}

void CpuBackend::gate(Rows out, Rows gate, Rows up, Activation activation) {
  for_each(out.rows, [&](std::uint32_t i) {
    const float* g = gate.row(i);
    const float* u = up.row(i);
    float* o = out.row(i);
    if (activation == Activation::Silu) {
      for (std::uint32_t k = 0; k < out.cols; ++k) o[k] = silu(g[k]) * u[k];
    } else {
      for (std::uint32_t k = 0; k < out.cols; ++k) o[k] = gelu_tanh(g[k]) * u[k];
    }
  });
}

void CpuBackend::cap_and_scale(Rows x, float cap, float scale) {
  for_each(x.rows, [&](std::uint32_t i) {
    float* values = x.row(i);
    if (cap > 0) {
      for (std::uint32_t k = 0; k < x.cols; ++k) values[k] = cap * std::tanh(values[k] / cap);
    }
    if (scale != 1.0f) kernels_.scale_by(values, scale, x.cols);
  });
}

void CpuBackend::rope_angles(Rows cosines, Rows sines, std::span<const float> frequencies) {
  for_each(cosines.rows, [&](std::uint32_t i) {
    const auto position = static_cast<float>(step_.positions[i]);
    for (std::uint32_t k = 0; k < cosines.cols; ++k) {
      const float angle = position * frequencies[k];
      cosines.row(i)[k] = std::cos(angle);
      sines.row(i)[k] = std::sin(angle);
    }
  });
}

void CpuBackend::rope(Rows x, std::uint32_t heads, std::uint32_t head_dim, Rows cosines, Rows sines, RopePairs pairs) {
  for_each(x.rows, [&](std::uint32_t i) {
    const std::uint32_t half = cosines.cols;
    const std::uint32_t apart = pairs == RopePairs::Halves ? half : 1;
    const std::uint32_t step = pairs == RopePairs::Halves ? 1 : 2;
    for (std::uint32_t head = 0; head < heads; ++head) {
      float* values = x.row(i) + head * head_dim;
      for (std::uint32_t k = 0; k < half; ++k) {
        float& first = values[k * step];
        float& second = values[k * step + apart];
        const float c = cosines.row(i)[k], s = sines.row(i)[k];
        const float a = first, b = second;
        first = a * c - b * s;
        second = a * s + b * c;
      }
    }
  });
}

KvView CpuBackend::view(const AttentionShape& shape, std::uint32_t part) const {
  KvView view = step_.kv[shape.group * step_.parts.size() + part];
  const std::uint64_t offset = shape.layer * step_.layer_bytes[shape.group];
  view.k_offset += offset;
  view.v_offset += offset;
  return view;
}

void CpuBackend::store_kv(const AttentionShape& shape, Rows k, Rows v) {
  for_each(static_cast<std::uint32_t>(step_.parts.size()), [&](std::uint32_t p) {
    const Step::Part& part = step_.parts[p];
    const KvView kv = view(shape, p);
    for (std::uint32_t i = 0; i < part.rows; ++i) {
      for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
        const std::uint32_t at = head * shape.head_dim;
        kernels_.store_kv(kv.type, kv.k(head, part.position + i), k.row(part.first_row + i) + at, shape.head_dim);
        kernels_.store_kv(kv.type, kv.v(head, part.position + i), v.row(part.first_row + i) + at, shape.head_dim);
      }
    }
  });
}

// One item is one row and one head. The context is walked in tiles that begin at multiples of kTile, wherever the row,
// the window, the pages and the chunks begin, and each tile is merged into the sum before the next is looked at.
void CpuBackend::attention(Rows out, Rows q, const AttentionShape& shape) {
  constexpr std::uint32_t kTile = 64;
  const auto attend = [&](std::uint32_t p, std::uint32_t i, std::uint32_t head) {
    const Step::Part& part = step_.parts[p];
    const KvView kv = view(shape, p);
    const std::uint32_t kv_head = head / (shape.heads / shape.kv_heads);
    const std::uint32_t position = part.position + i;
    const std::uint32_t first = shape.window != 0 && position + 1 > shape.window ? position + 1 - shape.window : 0;
    const float* query = q.row(part.first_row + i) + head * shape.head_dim;
    float* sum = out.row(part.first_row + i) + head * shape.head_dim;
    std::fill_n(sum, shape.head_dim, 0.0f);
    float highest = -INFINITY, total = 0;
    float scores[kTile];
    for (std::uint32_t tile = first / kTile * kTile; tile <= position; tile += kTile) {
      const std::uint32_t begin = std::max(tile, first), end = std::min(tile + kTile, position + 1);
      float tile_highest = -INFINITY;
      for (std::uint32_t t = begin; t < end; ++t) {
        float score = kernels_.dot_kv(kv.type, query, kv.k(kv_head, t), shape.head_dim) * shape.scale;
        if (shape.soft_cap > 0) score = shape.soft_cap * std::tanh(score / shape.soft_cap);
        scores[t - begin] = score;
        tile_highest = std::max(tile_highest, score);
      }
      if (tile_highest > highest) {
        const float shrink = std::exp(highest - tile_highest);  // 0 for the first tile
        total *= shrink;
        kernels_.scale_by(sum, shrink, shape.head_dim);
        highest = tile_highest;
      }
      for (std::uint32_t t = begin; t < end; ++t) {
        const float weight = std::exp(scores[t - begin] - highest);
        total += weight;
        kernels_.add_kv(kv.type, sum, weight, kv.v(kv_head, t), shape.head_dim);
      }
    }
    kernels_.scale_by(sum, 1.0f / total, shape.head_dim);
  };
  for (std::uint32_t p = 0; p < step_.parts.size(); ++p) {
    if (step_.parts[p].rows == 1) continue;
    for_each(step_.parts[p].rows * shape.heads, [&](std::uint32_t n) { attend(p, n / shape.heads, n % shape.heads); });
  }
  // Sequences with one row are brought together into one round of work.
  for_each(static_cast<std::uint32_t>(step_.parts.size()) * shape.heads, [&](std::uint32_t n) {
    const std::uint32_t p = n / shape.heads;
    if (step_.parts[p].rows == 1) attend(p, 0, n % shape.heads);
  });
}

// The window holds the last conv_width - 1 inputs, oldest first: [conv_width - 1][channels].
void CpuBackend::mamba2_conv(Rows x, const float* weight, const float* bias, const Mamba2Shape& shape) {
  constexpr std::uint32_t kChunk = 64;
  const std::uint32_t channels = shape.conv_channels(), taps = shape.conv_width, keep = taps - 1;
  const std::uint32_t chunks = divide_up(channels, kChunk);
  for_each(static_cast<std::uint32_t>(step_.parts.size()) * chunks, [&](std::uint32_t n) {
    const Step::Part& part = step_.parts[n / chunks];
    auto* window = reinterpret_cast<float*>(step_.states[n / chunks].conv(shape.layer));
    const std::uint32_t begin = n % chunks * kChunk, end = std::min(channels, begin + kChunk);
    for (std::uint32_t i = 0; i < part.rows; ++i) {
      float* row = x.row(part.first_row + i);
      for (std::uint32_t c = begin; c < end; ++c) {
        const float now = row[c];
        float sum = bias == nullptr ? 0.0f : bias[c];
        for (std::uint32_t t = 0; t < keep; ++t) sum += weight[c * taps + t] * window[t * channels + c];
        sum += weight[c * taps + keep] * now;
        for (std::uint32_t t = 0; t + 1 < keep; ++t) window[t * channels + c] = window[(t + 1) * channels + c];
        if (keep > 0) window[(keep - 1) * channels + c] = now;
        row[c] = silu(sum);
      }
    }
  });
}

// The state of a head is [head_dim][state_dim].
void CpuBackend::mamba2_scan(Rows out, Rows x, Rows b, Rows c, Rows dt, const float* dt_bias, const float* a,
                             const float* d, const Mamba2Shape& shape) {
  const std::uint32_t per_group = shape.heads / shape.groups;
  for_each(static_cast<std::uint32_t>(step_.parts.size()) * shape.heads, [&](std::uint32_t n) {
    const Step::Part& part = step_.parts[n / shape.heads];
    const std::uint32_t head = n % shape.heads, group = head / per_group;
    auto* state = reinterpret_cast<float*>(step_.states[n / shape.heads].ssm(shape.layer)) +
                  std::size_t{head} * shape.head_dim * shape.state_dim;
    for (std::uint32_t i = 0; i < part.rows; ++i) {
      const std::uint32_t row = part.first_row + i;
      const float step = softplus(dt.row(row)[head] + dt_bias[head]);
      const float decay = std::exp(step * a[head]);
      const float* bs = b.row(row) + group * shape.state_dim;
      const float* cs = c.row(row) + group * shape.state_dim;
      for (std::uint32_t k = 0; k < shape.head_dim; ++k) {
        const float value = x.row(row)[head * shape.head_dim + k];
        const float read =
            kernels_.recur(state + std::size_t{k} * shape.state_dim, decay, step * value, bs, cs, shape.state_dim);
        out.row(row)[head * shape.head_dim + k] = read + d[head] * value;
      }
    }
  });
}

void CpuBackend::gated_norm(Rows out, Rows x, Rows gate, const float* weight, float epsilon, std::uint32_t groups) {
  for_each(x.rows, [&](std::uint32_t i) {
    float* o = out.row(i);
    for (std::uint32_t k = 0; k < x.cols; ++k) o[k] = x.row(i)[k] * silu(gate.row(i)[k]);
    const std::uint32_t part = x.cols / groups;
    for (std::uint32_t g = 0; g < groups; ++g) {
      const float mean = kernels_.sum_of_squares(o + g * part, part) / static_cast<float>(part);
      kernels_.multiply(o + g * part, o + g * part, weight + g * part, 1.0f / std::sqrt(mean + epsilon), part);
    }
  });
}

}  // namespace quire
