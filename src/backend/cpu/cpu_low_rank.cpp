// The CPU backend's adapters. A step's rows are grouped by adapter; an item of work is some rows of a group (A x), or
// some columns of the output for all rows of a group (B t). An element is computed by the same operations in the same
// order however they are divided.
#include <algorithm>

#include "quire/backend/cpu/cpu_backend.h"
#include "quire/backend/cpu/for_each.h"
#include "quire/backend/low_rank_tiles.h"
#include "quire/base/check.h"
#include "quire/base/numbers.h"

namespace quire {

using cpu::kFewRows;
using cpu::row_of;

namespace {

constexpr std::uint32_t kMostProducts = 8;                // of one input; more are added in turn
constexpr std::uint32_t kItemRows = 16;                   // of an item of A x
constexpr std::uint32_t kItemsOfProduct = 16;             // of B t, for a group
constexpr std::uint64_t kAlone = std::uint64_t{1} << 17;  // multiplications that are not worth waking others

const float* floats_of(const Weight& weight) { return reinterpret_cast<const float*>(weight.data); }
const LowRank& pair_of(const Weight& weight, std::uint32_t adapter) { return weight.adapters[adapter - 1]; }

}  // namespace

void CpuBackend::prepare_low_rank() {
  adapted_.reserve(sizes_.rows);
  low_rank_cols_ = round_up(sizes_.rank, kLowRankLanes);
  if (sizes_.rank == 0) return;
  low_rank_x_.resize(std::size_t{sizes_.rows} * sizes_.cols);
  const std::size_t slots = std::max<std::size_t>(kMostProducts, sizes_.experts_used);
  low_rank_t_.resize(slots * sizes_.rows * low_rank_cols_);
  low_rank_items_.reserve(std::size_t{kMostProducts} * kItemsOfProduct * sizes_.rows);
}

// The input as W sees it, before it is quantised, at the rows that have an adapter.
CpuBackend::LowRankInput CpuBackend::make_low_rank_input(const Input& input, const AdaptedRows::Rows& rows) {
  if (input.kind == Input::Kind::Plain) return {row_of(input.x, 0), input.x.stride};
  cpu::for_each(team_, static_cast<std::uint32_t>(rows.list.size()), kFewRows, [&](std::uint32_t i) {
    make_input_row(input, rows.list[i], low_rank_x_.data() + std::size_t{rows.list[i]} * sizes_.cols);
  });
  return {low_rank_x_.data(), sizes_.cols};
}

void CpuBackend::add_low_rank(std::span<const Product> products, const Input& input) {
  const auto adapts = [](const Product& product) { return product.weight->adapters != nullptr; };
  if (std::ranges::none_of(products, adapts)) return;
  if (products.size() > kMostProducts) {
    add_low_rank(products.first(kMostProducts), input);
    return add_low_rank(products.subspan(kMostProducts), input);
  }
  const AdaptedRows::Rows& rows = adapted_.of(input.x.rows);
  if (rows.list.empty()) return;
  const LowRankInput x = make_low_rank_input(input, rows);
  const auto pair = [&](std::uint32_t product, std::uint32_t group) -> const LowRank* {
    const Weight& weight = *products[product].weight;
    if (weight.adapters == nullptr) return nullptr;
    const LowRank& found = pair_of(weight, rows.groups[group].adapter);
    return found.valid() ? &found : nullptr;
  };
  // Where the file has one matrix for several products, they have the same A.
  const auto slot = [&](std::uint32_t product, std::uint32_t group) {
    const std::byte* const a = pair(product, group)->a.data;
    for (std::uint32_t i = 0; i < product; ++i) {
      if (const LowRank* const other = pair(i, group); other != nullptr && other->a.data == a) return i;
    }
    return product;
  };
  const auto rows_of = [&](std::uint32_t product, const AdaptedRows::Group& group, std::uint32_t first,
                           std::uint32_t count) {
    const std::uint32_t at = slot(product, static_cast<std::uint32_t>(&group - rows.groups.data()));
    return cpu::LowRankRows{.x = x.x,
                            .x_stride = x.stride,
                            .t = low_rank_t_.data() + std::size_t{at} * sizes_.rows * low_rank_cols_,
                            .t_stride = low_rank_cols_,
                            .rows = rows.list.data() + group.first + first,
                            .count = count};
  };
  const auto for_all_items = [&](std::uint64_t work, auto compute) {
    const auto count = static_cast<std::uint32_t>(low_rank_items_.size());
    cpu::for_each(team_, count, work < kAlone ? count : 0, [&](std::uint32_t n) { compute(low_rank_items_[n]); });
  };
  const auto count = static_cast<std::uint32_t>(products.size());
  const auto group_count = static_cast<std::uint32_t>(rows.groups.size());

  std::uint64_t work = 0;  // multiplications
  low_rank_items_.clear();
  for (std::uint32_t p = 0; p < count; ++p) {
    for (std::uint32_t g = 0; g < group_count; ++g) {
      const LowRank* const low = pair(p, g);
      if (low == nullptr || slot(p, g) != p) continue;
      QUIRE_CHECK(low->a.rows <= sizes_.rank, "adapters were prepared for");
      const std::uint32_t all = rows.groups[g].count;
      work += std::uint64_t{all} * low->a.rows * low->a.cols;
      for (std::uint32_t first = 0; first < all; first += kItemRows) {
        low_rank_items_.push_back({p, g, first, std::min(kItemRows, all - first)});
      }
    }
  }
  for_all_items(work, [&](const LowRankItem& item) {
    const LowRank& low = *pair(item.product, item.group);
    kernels_.low_rank_a(floats_of(low.a), low.a.rows, low.a.cols,
                        rows_of(item.product, rows.groups[item.group], item.first, item.count));
  });

  work = 0;
  low_rank_items_.clear();
  for (std::uint32_t p = 0; p < count; ++p) {
    for (std::uint32_t g = 0; g < group_count; ++g) {
      const LowRank* const low = pair(p, g);
      if (low == nullptr) continue;
      work += std::uint64_t{rows.groups[g].count} * low->b.rows * low->b.cols;
      const std::uint32_t tiles = divide_up(low->b.rows, kLowRankLanes), piece = divide_up(tiles, kItemsOfProduct);
      for (std::uint32_t first = 0; first < tiles; first += piece) {
        low_rank_items_.push_back({p, g, first, std::min(piece, tiles - first)});
      }
    }
  }
  for_all_items(work, [&](const LowRankItem& item) {
    const LowRank& low = *pair(item.product, item.group);
    const Product& product = products[item.product];
    const AdaptedRows::Group& group = rows.groups[item.group];
    kernels_.low_rank_b(floats_of(low.b), low.b.cols, low.b.rows, item.first, item.first + item.count,
                        rows_of(item.product, group, 0, group.count), row_of(product.out, 0), product.out.stride,
                        low.scale * (product.add ? product.scale : 1.0f));
  });
}

void CpuBackend::embed_low_rank(Tensor out, const Weight& table, float scale) {
  const AdaptedRows::Rows& rows = adapted_.of(out.rows);
  cpu::for_each(team_, static_cast<std::uint32_t>(rows.list.size()), kFewRows, [&](std::uint32_t i) {
    const std::uint32_t row = rows.list[i];
    const LowRank& low = pair_of(table, adapted_.adapter_of(row));
    if (!low.valid()) return;
    float* const t = low_rank_t_.data() + std::size_t{row} * low_rank_cols_;
    const std::byte* const from = low.a.data + static_cast<std::uint32_t>(batch_->tokens()[row]) * low.a.unit_bytes;
    const auto ok = gguf::dequantize(low.a.type, {from, low.a.unit_bytes}, {t, low.a.cols});
    QUIRE_CHECK(ok.has_value(), "the types of adapters are checked when they are read");
    const std::uint32_t first = 0;
    kernels_.low_rank_b(floats_of(low.b), low.b.cols, low.b.rows, 0, divide_up(low.b.rows, kLowRankLanes),
                        {.x = nullptr, .x_stride = 0, .t = t, .t_stride = 0, .rows = &first, .count = 1},
                        row_of(out, row), 0, low.scale * scale);
  });
}

// --- experts

// What the adapter of a choice's row adds to a matrix of its expert. Null: nothing.
const LowRank* CpuBackend::low_rank_of_place(const Weight& weight, std::uint32_t place) const {
  if (!adapted_.any() || weight.adapters == nullptr) return nullptr;
  const std::uint32_t adapter = adapted_.adapter_of(place_rows_[place]);
  return adapter == 0 || !pair_of(weight, adapter).valid() ? nullptr : &pair_of(weight, adapter);
}

void CpuBackend::low_rank_a_of_place(const Weight& weight, std::uint32_t place, std::uint32_t expert, const float* x) {
  const LowRank* const low = low_rank_of_place(weight, place);
  if (low == nullptr) return;
  const Weight a = low->a.at(expert);
  const std::uint32_t first = 0;
  kernels_.low_rank_a(floats_of(a), a.rows, a.cols,
                      {.x = x,
                       .x_stride = 0,
                       .t = low_rank_t_.data() + std::size_t{place} * low_rank_cols_,
                       .t_stride = 0,
                       .rows = &first,
                       .count = 1});
}

// Columns of the output from a tile on; `out` is where the first of them is.
void CpuBackend::low_rank_b_of_place(const Weight& weight, std::uint32_t place, std::uint32_t expert,
                                     std::uint32_t first_tile, std::uint32_t tiles, float* out) {
  const LowRank* const low = low_rank_of_place(weight, place);
  if (low == nullptr) return;
  const Weight b = low->b.at(expert);
  const std::uint32_t first = 0;
  kernels_.low_rank_b(floats_of(b) + std::size_t{first_tile} * kLowRankLanes * b.cols, b.cols,
                      b.rows - first_tile * kLowRankLanes, 0, tiles,
                      {.x = nullptr,
                       .x_stride = 0,
                       .t = low_rank_t_.data() + std::size_t{place} * low_rank_cols_,
                       .t_stride = 0,
                       .rows = &first,
                       .count = 1},
                      out, 0, low->scale);
}

// Gate and up. Each choice goes alone: few rows of a step have the same adapter and the same expert.
void CpuBackend::add_low_rank_to_chosen(const ExpertLayer& layer, const Input& input) {
  if (layer.gate.weight->adapters == nullptr && layer.up.weight->adapters == nullptr) return;
  const LowRankInput x = make_low_rank_input(input, adapted_.of(input.x.rows));
  const auto count = static_cast<std::uint32_t>(chosen_experts_.size());
  cpu::for_each(team_, count, [&](std::uint32_t n) {
    const ExpertRange& range = chosen_experts_[n];
    for (std::uint32_t place = range.begin; place < range.end; ++place) {
      for (const Product* const product : {&layer.gate, &layer.up}) {
        const Weight& weight = *product->weight;
        low_rank_a_of_place(weight, place, range.expert, x.x + place_rows_[place] * x.stride);
        low_rank_b_of_place(weight, place, range.expert, 0, divide_up(weight.rows, kLowRankLanes),
                            row_of(product->out, place));
      }
    }
  });
}

}  // namespace quire
