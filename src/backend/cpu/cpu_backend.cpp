#include "quire/backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "quire/backend/cpu/for_each.h"
#include "quire/backend/cpu/tiles.h"
#include "quire/backend/low_rank_tiles.h"
#include "quire/base/check.h"
#include "quire/base/machine.h"
#include "quire/base/numbers.h"

namespace quire {

using cpu::InputForms;
using cpu::kFewRows;
using cpu::row_of;
using cpu::vector_of;

namespace {

// Up to this many rows are multiplied with a tile while it is in the first-level cache.
constexpr std::uint32_t kRowsTogether = 32;

// The norm of each of the input's equal parts of a row.
void norm_parts(const cpu::Kernels& kernels, float* to, const float* x, const Input& input) {
  const std::uint32_t part = input.x.cols / input.groups;
  for (std::uint32_t at = 0; at < input.x.cols; at += part) {
    kernels.rms_norm(to + at, x + at, vector_of(input.weight) + at, input.epsilon, part);
  }
}

}  // namespace

CpuBackend::CpuBackend(std::uint32_t threads, const cpu::Kernels& kernels, Device* device)
    : CpuBackend(cpu::PlacedTeam{.team = {.threads = std::max(1u, threads), .crowded = threads > available_cores()}},
                 kernels, device) {}

CpuBackend::CpuBackend(const cpu::PlacedTeam& team, const cpu::Kernels& kernels, Device* device)
    : host_(team.memory_nodes),
      device_(device != nullptr ? device : &host_),
      kernels_(kernels),
      team_(team.team),
      share_nodes_(team.share_nodes),
      scratch_(team_.size()) {}

PoolResult<void> CpuBackend::prepare(const Sizes& sizes) {
  sizes_ = sizes;
  sizes_.cols = round_up(sizes.cols, 256u);
  const std::size_t all = std::size_t{sizes_.rows} * sizes_.cols;
  input_.resize(sizes_.rows, sizes_.cols);
  input_floats_.resize(all);
  input_bf16_ = std::make_unique_for_overwrite<std::uint16_t[]>(all);
  for (Scratch& scratch : scratch_) {
    scratch.quants.resize(std::size_t{cpu::kMostTiles} * cpu::kMostChunkCols * cpu::kTileRows);
    scratch.scales.resize(std::size_t{cpu::kMostChunkCols} / 16 * cpu::kMostTiles * cpu::kTileRows);
    scratch.offsets.resize(scratch.scales.size());
    scratch.sums.resize(std::size_t{sizes_.rows} * cpu::kMostTiles * cpu::kTileRows);
    scratch.row.resize(sizes_.cols);
  }
  prepare_attention();
  prepare_experts();
  prepare_sampling();
  prepare_low_rank();
  steps_.resize(std::size_t{sizes_.rows} * sizes_.recurrent_heads);
  decays_.resize(steps_.size());
  return {};
}

void CpuBackend::begin(const Batch& batch) {
  batch_ = &batch;
  adapted_.group(batch);
  ahead_.begin();
  for (cpu::AttentionPlan& plan : plans_) plan.forget();
}

HostRows CpuBackend::read(Tensor x) { return {row_of(x, 0), x.rows, x.cols, x.stride}; }

PoolResult<void> CpuBackend::finish() {
  batch_ = nullptr;
  return device_->fence();
}

// --- weights

// Matrices that are only looked up, and types without tiles, are used in place. Rows of tiles can be looked up too, so
// a matrix for both uses is one for products.
std::uint64_t CpuBackend::weight_bytes(const FileMatrix& matrix, WeightUse use) const {
  if (use == WeightUse::Lookup) return 0;
  if (use == WeightUse::LowRank) return low_rank_bytes(matrix);
  return divide_up(matrix.rows, cpu::kTileRows) * cpu::tile_bytes(matrix.type, matrix.cols);
}

PoolResult<Weight> CpuBackend::load(const FileMatrix& matrix, WeightUse use, std::byte* to) {
  Weight weight{matrix.type, matrix.rows, matrix.cols, matrix.data, matrix.row_bytes, false};
  if (weight_bytes(matrix, use) == 0) return weight;
  if (use == WeightUse::LowRank) {
    make_low_rank_tiles(matrix, to);
    return low_rank_weight(matrix, to);
  }
  const std::uint64_t tile_bytes = cpu::tile_bytes(matrix.type, matrix.cols);
  const std::uint32_t tiles = divide_up(matrix.rows, cpu::kTileRows);
  for (std::uint32_t i = 0; i < share_nodes_.size(); ++i) {
    const auto threads = static_cast<std::uint32_t>(share_nodes_.size());
    const std::uint64_t begin = cpu::Shares::begin(tiles, i, threads), end = cpu::Shares::begin(tiles, i + 1, threads);
    cpu::move_to_node(to + begin * tile_bytes, (end - begin) * tile_bytes, share_nodes_[i]);
  }
  cpu::for_each(team_, tiles, [&](std::uint32_t tile) {
    const std::uint32_t first = tile * cpu::kTileRows;
    cpu::make_tile(matrix.type, matrix.data + first * matrix.row_bytes, matrix.row_bytes,
                   std::min(cpu::kTileRows, matrix.rows - first), matrix.cols, kernels_.biased, to + tile * tile_bytes);
  });
  weight.data = to;
  weight.unit_bytes = tile_bytes;
  weight.arranged = true;
  return weight;
}

void CpuBackend::embed(Tensor out, const Weight& table, float scale) {
  const bool tiled = table.arranged;
  cpu::for_each(team_, out.rows, kFewRows, [&](std::uint32_t i) {
    const auto row = static_cast<std::uint32_t>(batch_->tokens()[i]);
    if (tiled) {
      const std::byte* tile = table.data + row / cpu::kTileRows * table.unit_bytes;
      cpu::read_tile_row(table.type, tile, row % cpu::kTileRows, table.cols, kernels_.biased, row_of(out, i));
    } else {
      const std::byte* from = table.data + row * table.unit_bytes;
      const auto ok = gguf::dequantize(table.type, {from, table.unit_bytes}, {row_of(out, i), out.cols});
      QUIRE_CHECK(ok.has_value(), "weights were checked when the model was bound");
    }
    if (scale != 1.0f) kernels_.scale_by(row_of(out, i), scale, out.cols);
  });
  if (adapted_.any() && table.adapters != nullptr) embed_low_rank(out, table, scale);
}

void CpuBackend::add_positions(Tensor x, const Weight& table) {
  cpu::for_each_by_thread(team_, x.rows, kFewRows, [&](std::uint32_t i, std::uint32_t thread) {
    const std::uint32_t position = batch_->positions()[i];
    QUIRE_CHECK(position < table.rows, "positions have rows in the table");
    float* row = scratch_[thread].row.data();
    const std::byte* from = table.data + position * table.unit_bytes;
    const auto ok = gguf::dequantize(table.type, {from, table.unit_bytes}, {row, x.cols});
    QUIRE_CHECK(ok.has_value(), "weights were checked when the model was bound");
    kernels_.add_scaled(row_of(x, i), row, 1, x.cols);
  });
}

// --- products

cpu::ProductScratch CpuBackend::scratch(std::uint32_t thread) {
  Scratch& own = scratch_[thread];
  return {own.quants.data(), own.scales.data(), own.offsets.data(), own.sums.data()};
}

void CpuBackend::activate(Activation activation, float* out, const float* gate, const float* up,
                          std::uint32_t n) const {
  switch (activation) {
    case Activation::Silu: return kernels_.gate_silu(out, gate, up, n);
    case Activation::GeluTanh: return kernels_.gate_gelu(out, gate, up, n);
    case Activation::ClampedSwiglu: return kernels_.gate_clamped(out, gate, up, n);
    case Activation::Sigmoid: return kernels_.gate_sigmoid(out, gate, up, n);
    case Activation::None: return kernels_.multiply(out, gate, up, n);
  }
}

void CpuBackend::make_input_row(const Input& input, std::uint32_t row, float* to) const {
  const float* x = row_of(input.x, row);
  const std::uint32_t cols = input.x.cols;
  switch (input.kind) {
    case Input::Kind::Plain: std::memcpy(to, x, cols * sizeof(float)); return;
    case Input::Kind::Normed: kernels_.rms_norm(to, x, vector_of(input.weight), input.epsilon, cols); return;
    case Input::Kind::Gated: activate(input.activation, to, row_of(input.gate, row), x, cols); return;
    case Input::Kind::LayerNormed:
      kernels_.layer_norm(to, x, vector_of(input.weight), vector_of(input.bias), input.epsilon, cols);
      return;
    case Input::Kind::Activated:
      QUIRE_CHECK(input.activation == Activation::Silu || input.activation == Activation::GeluTanh,
                  "an activation that no kernel has alone");
      (input.activation == Activation::Silu ? kernels_.activate_silu : kernels_.activate_gelu)(to, x, cols);
      return;
    case Input::Kind::GatedNormed:
      kernels_.gate_silu(to, row_of(input.gate, row), x, cols);
      norm_parts(kernels_, to, to, input);
      return;
    case Input::Kind::NormedGated:
      norm_parts(kernels_, to, x, input);
      kernels_.gate_silu(to, row_of(input.gate, row), to, cols);
      return;
  }
}

// Applies the norm or gate, and quantises or rounds, row by row, so that each row is in the L1 cache once.
void CpuBackend::prepare_input(const Input& input, InputForms forms) {
  const std::uint32_t cols = input.x.cols;
  cpu::for_each_by_thread(team_, input.x.rows, kFewRows, [&](std::uint32_t i, std::uint32_t thread) {
    const float* row = row_of(input.x, i);
    if (input.kind != Input::Kind::Plain) {
      float* transformed =
          forms.floats ? input_floats_.data() + std::size_t{i} * sizes_.cols : scratch_[thread].row.data();
      make_input_row(input, i, transformed);
      row = transformed;
    }
    if (forms.quants) kernels_.quantize(row, cols, input_.row(i));
    if (forms.bf16) kernels_.round_to_bf16(row, cols, bf16_row(i));
  });
}

// The prepared input.
CpuBackend::ProductRows CpuBackend::all_rows(const Input& input) {
  const bool transformed = input.kind != Input::Kind::Plain;
  return {.floats = transformed ? input_floats_.data() : row_of(input.x, 0),
          .stride = transformed ? sizes_.cols : input.x.stride,
          .bf16 = bf16_row(0),
          .bf16_stride = sizes_.cols,
          .quants = input_.row(0),
          .quant_stride = input_.stride(),
          .count = input.x.rows};
}

// Tiles [begin, end) of a matrix.
void CpuBackend::multiply(const Weight& weight, std::uint32_t begin, std::uint32_t end, const ProductRows& x,
                          const cpu::ProductOut& out, std::uint32_t thread) {
  cpu::WeightTiles matrix{.type = weight.type, .rows = weight.rows, .cols = weight.cols, .data = weight.data};
  if (weight.arranged) {
    matrix.tile_bytes = weight.unit_bytes;
  } else {
    const gguf::TypeInfo& info = gguf::type_info(weight.type);
    matrix.row_bytes = weight.unit_bytes;
    matrix.block_cols = info.block_size;
    matrix.block_bytes = info.block_bytes;
  }
  const InputForms form = InputForms::of(weight.type);
  if (form.floats) {
    kernels_.multiply_float(matrix, begin, end, x.floats, x.stride, x.count, out, scratch(thread));
  } else if (form.bf16) {
    kernels_.multiply_bf16(matrix, begin, end, x.bf16, x.bf16_stride, x.count, out, scratch(thread));
  } else {
    kernels_.multiply_quant(matrix, begin, end, x.quants, x.quant_stride, x.count, out, scratch(thread));
  }
}

void CpuBackend::matmul(std::span<const Product> products, const Input& input) {
  multiply_all(products, input);
  if (adapted_.any()) add_low_rank(products, input);
}

void CpuBackend::multiply_all(std::span<const Product> products, const Input& input) {
  InputForms forms;
  const std::uint32_t rows = input.x.rows;
  std::uint32_t tiles = 0;
  for (const Product& product : products) {
    const Weight& weight = *product.weight;
    QUIRE_CHECK(input.x.cols == weight.cols && product.out.cols == weight.rows && rows == product.out.rows,
                "shapes agree");
    forms.add(weight.type);
    tiles += divide_up(weight.rows, cpu::kTileRows);
  }
  QUIRE_CHECK(input.x.cols <= sizes_.cols && rows <= sizes_.rows, "steps are as large as they were prepared for");
  if (forms.converted() || input.kind != Input::Kind::Plain) prepare_input(input, forms);
  const ProductRows x = all_rows(input);

  const cpu::WeightsAhead::Call& next = ahead_.note(products);
  team_.while_waiting(cpu::WeightsAhead::prefetch_share, &next);
  // Tiles [begin, end) of all matrices, one after the other, and some rows of the input.
  const auto multiply_tiles = [&](std::uint32_t begin, std::uint32_t end, std::uint32_t first_row, std::uint32_t count,
                                  std::uint32_t thread) {
    const ProductRows some{.floats = x.floats + first_row * x.stride,
                           .stride = x.stride,
                           .bf16 = x.bf16 + first_row * x.bf16_stride,
                           .bf16_stride = x.bf16_stride,
                           .quants = input_.row(first_row),
                           .quant_stride = x.quant_stride,
                           .count = count};
    for (const Product& product : products) {
      const std::uint32_t all = divide_up(product.weight->rows, cpu::kTileRows);
      if (begin < all) {
        multiply(
            *product.weight, begin, std::min(all, end), some,
            {row_of(product.out, first_row), product.out.stride, vector_of(product.bias), product.add, product.scale},
            thread);
      }
      if (end <= all) return;
      begin = begin > all ? begin - all : 0;
      end -= all;
    }
  };
  if (rows <= kRowsTogether) {
    // Each thread has the same number of tiles, and takes a few at a time, so that others can help it.
    constexpr std::uint32_t kPieces = 8;
    const std::uint32_t most = rows > kFewRows ? cpu::kMostTiles : std::max(1u, tiles / (team_.size() * kPieces));
    return cpu::for_each_range(team_, tiles, most, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t thread) {
      multiply_tiles(begin, end, 0, rows, thread);
    });
  }
  // With many rows, as many tiles as a kernel multiplies at once are a piece. Each thread has the same number of
  // pieces. The pieces that are left over are divided along the rows, so that all threads end together.
  const std::uint32_t pieces = divide_up(tiles, cpu::kMostTiles), whole = pieces / team_.size() * team_.size();
  const std::uint32_t row_parts = std::clamp(rows / kRowsTogether, 1u, 4u);
  const std::uint32_t part = round_up(divide_up(rows, row_parts), kRowsTogether);
  const auto piece = [&](std::uint32_t n, std::uint32_t first_row, std::uint32_t count, std::uint32_t thread) {
    multiply_tiles(n * cpu::kMostTiles, std::min(tiles, (n + 1) * cpu::kMostTiles), first_row, count, thread);
  };
  cpu::for_each_then(
      team_, whole, [&](std::uint32_t n, std::uint32_t thread) { piece(n, 0, rows, thread); },
      (pieces - whole) * row_parts,
      [&](std::uint32_t n, std::uint32_t thread) {
        const std::uint32_t first = n % row_parts * part;
        if (first < rows) piece(whole + n / row_parts, first, std::min(part, rows - first), thread);
      });
}

// --- rows

void CpuBackend::rms_norm(Tensor out, Tensor x, Tensor weight, float epsilon) {
  cpu::for_each(team_, x.rows, 2 * kFewRows, [&](std::uint32_t i) {
    kernels_.rms_norm(row_of(out, i), row_of(x, i), vector_of(weight), epsilon, x.cols);
  });
}

void CpuBackend::layer_norm(Tensor out, Tensor x, Tensor weight, Tensor bias, float epsilon) {
  cpu::for_each(team_, x.rows, 2 * kFewRows, [&](std::uint32_t i) {
    kernels_.layer_norm(row_of(out, i), row_of(x, i), vector_of(weight), vector_of(bias), epsilon, x.cols);
  });
}

void CpuBackend::gather_wanted(Tensor out, Tensor x) {
  for (std::uint32_t i = 0; i < out.rows; ++i) {
    std::memcpy(row_of(out, i), row_of(x, batch_->wanted()[i]), out.cols * sizeof(float));
  }
}

void CpuBackend::add(Tensor x, Tensor y, float scale) {
  for (std::uint32_t i = 0; i < x.rows; ++i) kernels_.add_scaled(row_of(x, i), row_of(y, i), scale, x.cols);
}

void CpuBackend::cap_and_scale(Tensor x, float cap, float scale) {
  if (cap <= 0 && scale == 1.0f) return;
  cpu::for_each(team_, x.rows, kFewRows, [&](std::uint32_t i) {
    if (cap > 0) kernels_.soft_cap(row_of(x, i), cap, x.cols);
    if (scale != 1.0f) kernels_.scale_by(row_of(x, i), scale, x.cols);
  });
}

void CpuBackend::rope_angles(Tensor cosines, Tensor sines, Tensor frequencies, float magnitude) {
  cpu::for_each(team_, cosines.rows, kFewRows, [&](std::uint32_t i) {
    const auto position = static_cast<float>(batch_->positions()[i]);
    for (std::uint32_t k = 0; k < cosines.cols; ++k) {
      const float angle = position * vector_of(frequencies)[k];
      row_of(cosines, i)[k] = std::cos(angle) * magnitude;
      row_of(sines, i)[k] = std::sin(angle) * magnitude;
    }
  });
}

}  // namespace quire
