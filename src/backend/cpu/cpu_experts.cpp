// The CPU backend's experts. The choices of all rows are sorted by expert, so that each expert that was chosen is
// multiplied once, with all of its rows together. A thread takes some columns of an output for all of an expert's rows.
#include <algorithm>
#include <cstring>

#include "quire/backend/cpu/choose_experts.h"
#include "quire/backend/cpu/cpu_backend.h"
#include "quire/backend/cpu/for_each.h"
#include "quire/backend/cpu/tiles.h"
#include "quire/base/check.h"
#include "quire/base/numbers.h"

namespace quire {

using cpu::InputForms;
using cpu::kFewRows;
using cpu::row_of;
using cpu::vector_of;

namespace {

constexpr std::uint32_t kPieces = 8;  // for each thread, so that nobody waits long for a thread that lost its core

// The rows of a matrix from a tile on.
Weight rows_from(Weight weight, std::uint32_t tile) {
  const std::uint64_t row = std::uint64_t{tile} * cpu::kTileRows;
  weight.data += weight.unit_bytes * (weight.arranged ? tile : row);
  weight.rows -= static_cast<std::uint32_t>(row);
  return weight;
}

const float* bias_of(const Product& product, std::uint32_t expert) {
  const float* all = vector_of(product.bias);
  return all == nullptr ? nullptr : all + std::size_t{expert} * product.weight->rows;
}

}  // namespace

void CpuBackend::prepare_experts() {
  const std::size_t choices = std::size_t{sizes_.rows} * sizes_.experts_used;
  chosen_experts_.reserve(sizes_.experts);
  expert_ends_.resize(sizes_.experts);
  place_rows_.resize(choices);
  places_of_.resize(choices);
  expert_cols_ = round_up(std::max(sizes_.expert_inner, sizes_.expert_width), 256u);
  place_inputs_.resize(choices, expert_cols_);
  place_floats_ = std::make_unique_for_overwrite<float[]>(choices * expert_cols_);
  place_bf16_ = std::make_unique_for_overwrite<std::uint16_t[]>(choices * expert_cols_);
  expert_scores_.resize(std::size_t{team_.size()} * sizes_.experts);
  for (Scratch& scratch : scratch_) {
    scratch.chosen.resize(choices * cpu::kMostTiles * cpu::kTileRows);
    scratch.mixed.resize(expert_cols_);
  }
}

void CpuBackend::route(const Choices& choices, Tensor logits, Tensor selection_bias, const Router& router) {
  QUIRE_CHECK(router.experts <= sizes_.experts && router.used <= sizes_.experts_used, "experts were prepared for");
  cpu::for_each_by_thread(team_, logits.rows, 2 * kFewRows, [&](std::uint32_t i, std::uint32_t thread) {
    cpu::choose_experts(router, row_of(logits, i), vector_of(selection_bias),
                        expert_scores_.data() + std::size_t{thread} * sizes_.experts, row_of(choices.numbers, i),
                        row_of(choices.weights, i));
  });
}

void CpuBackend::experts(const ExpertLayer& layer, const Input& input, const Choices& choices) {
  const Weight &gate = *layer.gate.weight, &up = *layer.up.weight, &down = *layer.down.weight;
  const std::uint32_t rows = input.x.rows, used = choices.numbers.cols;
  QUIRE_CHECK(rows <= sizes_.rows && used <= sizes_.experts_used && gate.count <= sizes_.experts &&
                  down.cols <= sizes_.expert_inner && std::max(gate.cols, down.rows) <= sizes_.expert_width,
              "steps are as large as they were prepared for");
  QUIRE_CHECK(input.x.cols == gate.cols && gate.cols == up.cols && gate.rows == up.rows && gate.rows == down.cols &&
                  layer.down.out.cols == down.rows && gate.count == up.count && gate.count == down.count &&
                  layer.gate.out.rows == rows * used && layer.gate.out.stride == gate.rows,
              "shapes agree");
  if (rows == 0) return;
  sort_choices(choices, gate.count);
  InputForms forms = InputForms::of(gate.type);
  forms.add(up.type);
  multiply_chosen(layer, gather_rows(input, forms));
  if (adapted_.any()) add_low_rank_to_chosen(layer, input);
  activate_chosen(layer);
  sum_chosen(layer, choices);
}

// A counting sort by expert. The rows of an expert stay in order.
void CpuBackend::sort_choices(const Choices& choices, std::uint32_t experts) {
  const std::uint32_t rows = choices.numbers.rows, used = choices.numbers.cols;
  const auto number = [&](std::uint32_t row, std::uint32_t rank) {
    return static_cast<std::uint32_t>(row_of(choices.numbers, row)[rank]);
  };
  std::fill_n(expert_ends_.begin(), experts, 0u);
  for (std::uint32_t i = 0; i < rows; ++i) {
    for (std::uint32_t k = 0; k < used; ++k) ++expert_ends_[number(i, k)];
  }
  chosen_experts_.clear();
  std::uint32_t begin = 0;
  for (std::uint32_t e = 0; e < experts; ++e) {
    const std::uint32_t end = begin + expert_ends_[e];
    if (end > begin) chosen_experts_.push_back({e, begin, end});
    expert_ends_[e] = begin;
    begin = end;
  }
  for (std::uint32_t i = 0; i < rows; ++i) {
    for (std::uint32_t k = 0; k < used; ++k) {
      const std::uint32_t place = expert_ends_[number(i, k)]++;
      place_rows_[place] = i;
      places_of_[i * used + k] = place;
    }
  }
}

// Prepares the input, and copies the rows of experts that have several, so that they lie together.
CpuBackend::ProductRows CpuBackend::gather_rows(const Input& input, InputForms forms) {
  if (forms.converted() || input.kind != Input::Kind::Plain) prepare_input(input, forms);
  const ProductRows rows = all_rows(input);
  const std::uint32_t cols = input.x.cols;
  const auto count = static_cast<std::uint32_t>(chosen_experts_.size());
  const bool alone = chosen_experts_.back().end == count;  // each has one row
  cpu::for_each(team_, alone ? 0 : count, [&](std::uint32_t n) {
    const ExpertRange& range = chosen_experts_[n];
    if (range.end - range.begin == 1) return;
    for (std::uint32_t place = range.begin; place < range.end; ++place) {
      const std::uint32_t row = place_rows_[place];
      if (forms.floats) {
        std::memcpy(place_floats_.get() + std::size_t{place} * expert_cols_, rows.floats + row * rows.stride,
                    cols * sizeof(float));
      }
      if (forms.bf16) {
        std::memcpy(place_bf16_.get() + std::size_t{place} * expert_cols_, bf16_row(row),
                    round_up(cols, 2u) * sizeof(std::uint16_t));
      }
      if (!forms.quants) continue;
      const cpu::QuantInput from = input_.row(row), to = place_inputs_.row(place);
      std::memcpy(to.q, from.q, cols);
      std::memcpy(to.scales, from.scales, cols / 32 * sizeof(float));
      std::memcpy(to.starts, from.starts, cols / 32 * sizeof(std::int32_t));
      std::memcpy(to.sums, from.sums, cols / 32 * sizeof(float));
      std::memcpy(to.half_starts, from.half_starts, cols / 16 * sizeof(std::int32_t));
      std::memcpy(to.half_sums, from.half_sums, cols / 16 * sizeof(float));
    }
  });
  return rows;
}

// The input rows of the choices at places [begin, end), which are of one expert.
CpuBackend::ProductRows CpuBackend::rows_of_expert(const ProductRows& all, std::uint32_t begin, std::uint32_t end) {
  if (end - begin == 1) {
    const std::uint32_t row = place_rows_[begin];
    return {.floats = all.floats + row * all.stride,
            .stride = all.stride,
            .bf16 = all.bf16 + row * all.bf16_stride,
            .bf16_stride = all.bf16_stride,
            .quants = input_.row(row),
            .quant_stride = input_.stride(),
            .count = 1};
  }
  return {.floats = place_floats_.get() + std::size_t{begin} * expert_cols_,
          .stride = expert_cols_,
          .bf16 = place_bf16_.get() + std::size_t{begin} * expert_cols_,
          .bf16_stride = expert_cols_,
          .quants = place_inputs_.row(begin),
          .quant_stride = place_inputs_.stride(),
          .count = end - begin};
}

void CpuBackend::multiply_chosen(const ExpertLayer& layer, const ProductRows& rows) {
  const Product* const products[] = {&layer.gate, &layer.up};
  const std::uint32_t tiles = divide_up(layer.gate.weight->rows, cpu::kTileRows);
  const auto count = static_cast<std::uint32_t>(chosen_experts_.size());
  const std::uint32_t piece =
      rows.count > kFewRows ? cpu::kMostTiles : std::clamp(2 * count * tiles / (team_.size() * kPieces), 1u, tiles);
  const std::uint32_t pieces = divide_up(tiles, piece);
  cpu::for_each_by_thread(team_, count * 2 * pieces, 0, [&](std::uint32_t n, std::uint32_t thread) {
    const ExpertRange& range = chosen_experts_[n / (2 * pieces)];
    const Product& product = *products[n / pieces % 2];
    const std::uint32_t begin = n % pieces * piece;
    multiply(product.weight->at(range.expert), begin, std::min(tiles, begin + piece),
             rows_of_expert(rows, range.begin, range.end),
             {row_of(product.out, range.begin), product.out.stride, bias_of(product, range.expert), false, 1}, thread);
  });
}

// The inputs of down(): floats take the place of the gates, others are rounded to BF16 or quantised.
void CpuBackend::activate_chosen(const ExpertLayer& layer) {
  const InputForms form = InputForms::of(layer.down.weight->type);
  const std::uint32_t cols = layer.down.weight->cols;
  cpu::for_each_by_thread(team_, layer.gate.out.rows, kFewRows, [&](std::uint32_t place, std::uint32_t thread) {
    float* const gate = row_of(layer.gate.out, place);
    float* const to = form.floats ? gate : scratch_[thread].row.data();
    activate(layer.activation, to, gate, row_of(layer.up.out, place), cols);
    if (low_rank_of_place(*layer.down.weight, place) != nullptr) {
      const auto range = std::ranges::upper_bound(chosen_experts_, place, {}, &ExpertRange::begin) - 1;
      low_rank_a_of_place(*layer.down.weight, place, range->expert, to);
    }
    if (form.quants) kernels_.quantize(to, cols, place_inputs_.row(place));
    if (form.bf16) kernels_.round_to_bf16(to, cols, place_bf16_.get() + std::size_t{place} * expert_cols_);
  });
}

// A thread takes some columns of the output: first of every chosen expert, then it adds up the experts of each row.
void CpuBackend::sum_chosen(const ExpertLayer& layer, const Choices& choices) {
  const Product& down = layer.down;
  const std::uint32_t rows = choices.numbers.rows, used = choices.numbers.cols;
  const std::uint32_t tiles = divide_up(down.weight->rows, cpu::kTileRows);
  const std::size_t places = std::max<std::size_t>(1, std::size_t{rows} * used);
  const auto room = static_cast<std::uint32_t>(scratch_[0].chosen.size() / (places * cpu::kTileRows));
  const std::uint32_t piece =
      rows > kFewRows ? cpu::kMostTiles : std::min(room, std::max(1u, tiles / (team_.size() * kPieces)));
  cpu::for_each_by_thread(team_, divide_up(tiles, piece), 0, [&](std::uint32_t n, std::uint32_t thread) {
    const std::uint32_t first = n * piece * cpu::kTileRows, count = std::min(tiles - n * piece, piece);
    const std::uint32_t cols = std::min(count * cpu::kTileRows, down.weight->rows - first);
    float* const chosen = scratch_[thread].chosen.data();
    for (const ExpertRange& range : chosen_experts_) {
      const ProductRows x{.floats = row_of(layer.gate.out, range.begin),
                          .stride = layer.gate.out.stride,
                          .bf16 = place_bf16_.get() + std::size_t{range.begin} * expert_cols_,
                          .bf16_stride = expert_cols_,
                          .quants = place_inputs_.row(range.begin),
                          .quant_stride = place_inputs_.stride(),
                          .count = range.end - range.begin};
      const float* bias = bias_of(down, range.expert);
      multiply(rows_from(down.weight->at(range.expert), n * piece), 0, count, x,
               {chosen + std::size_t{range.begin} * cols, cols, bias == nullptr ? nullptr : bias + first, false, 1},
               thread);
      if (!adapted_.any() || down.weight->adapters == nullptr) continue;
      for (std::uint32_t place = range.begin; place < range.end; ++place) {
        low_rank_b_of_place(*down.weight, place, range.expert, n * piece, count, chosen + std::size_t{place} * cols);
      }
    }
    float* const mixed = scratch_[thread].mixed.data();
    for (std::uint32_t i = 0; i < rows; ++i) {
      std::fill_n(mixed, cols, 0.0f);
      for (std::uint32_t k = 0; k < used; ++k) {
        kernels_.add_scaled(mixed, chosen + std::size_t{places_of_[i * used + k]} * cols, row_of(choices.weights, i)[k],
                            cols);
      }
      float* const out = row_of(down.out, i) + first;
      if (down.add) {
        kernels_.add_scaled(out, mixed, down.scale, cols);
      } else {
        std::copy_n(mixed, cols, out);
      }
    }
  });
}

}  // namespace quire
