#include "quire/backend/cuda/cuda_low_rank.h"

#include <algorithm>

#include "quire/backend/cuda/cuda_products.h"
#include "quire/backend/cuda/lookup_kernels.h"
#include "quire/backend/low_rank_tiles.h"
#include "quire/base/check.h"
#include "quire/base/numbers.h"

namespace quire::cuda {
namespace {

constexpr std::uint32_t kMostProducts = 4;  // of one operation

const float* floats_of(const Weight& weight) { return reinterpret_cast<const float*>(weight.data); }
const LowRank* pair_of(const Weight& weight, std::uint32_t adapter) {
  if (weight.adapters == nullptr || !weight.adapters[adapter - 1].valid()) return nullptr;
  return &weight.adapters[adapter - 1];
}

std::uint32_t stride_of(const Backend::Sizes& sizes) { return round_up(sizes.rank, kLowRankLanes); }
std::uint64_t places_of(const Backend::Sizes& sizes) {
  return std::uint64_t{sizes.rows} * std::max(kMostProducts, sizes.experts_used);
}

}  // namespace

std::uint64_t CudaLowRank::scratch_bytes(const Backend::Sizes& sizes) {
  return places_of(sizes) * stride_of(sizes) * sizeof(float);
}

void CudaLowRank::prepare(const Backend::Sizes& sizes, std::byte* scratch) {
  t_ = reinterpret_cast<float*>(scratch);
  t_stride_ = stride_of(sizes);
  max_rows_ = sizes.rows;
  rows_.reserve(sizes.rows);
}

bool CudaLowRank::adapts(std::span<const Product> products) const {
  return rows_.any() &&
         std::ranges::any_of(products, [](const Product& product) { return product.weight->adapters != nullptr; });
}

// The pairs of all products and groups, some at a time. What is multiplied is filled in by `use`.
template <typename Use>
void CudaLowRank::for_each_set(std::span<const Product> products, std::uint32_t rows, Use use) const {
  const AdaptedRows::Rows& own = rows_.of(rows);
  LowRankSet set;
  for (std::size_t p = 0; p < products.size(); ++p) {
    const Product& product = products[p];
    for (const AdaptedRows::Group& group : own.groups) {
      const LowRank* const pair = pair_of(*product.weight, group.adapter);
      if (pair == nullptr) continue;
      set.add({.a = floats_of(pair->a),
               .b = floats_of(pair->b),
               .rank = pair->b.cols,
               .cols = pair->a.cols,
               .outs = pair->b.rows,
               .factor = pair->scale * (product.add ? product.scale : 1.0f),
               .t = t_ + p * max_rows_ * t_stride_,
               .t_stride = t_stride_,
               .out = reinterpret_cast<float*>(product.out.data),
               .out_stride = product.out.stride,
               .rows = list_of(own) + group.first,
               .count = group.count});
      if (set.count < kMostLowRanks) continue;
      use(set);
      set = {};
    }
  }
  if (set.count > 0) use(set);
}

void CudaLowRank::before(cudaStream_t stream, std::span<const Product> products, const Input& input,
                         const PreparedInput& prepared) const {
  QUIRE_CHECK(products.size() <= kMostProducts, "operations have as many products as were prepared for");
  InputForms forms;
  forms.floats = true;
  launch_prepare(stream, CudaProducts::args_of(input), prepared, forms);
  for_each_set(products, input.x.rows, [&](LowRankSet& set) {
    for (std::uint32_t i = 0; i < set.count; ++i) {
      set.item[i].x = prepared.floats;
      set.item[i].x_stride = std::uint64_t{pieces_of(input.x.cols)} * kPieceCols;
    }
    launch_low_rank_a(stream, set);
  });
}

void CudaLowRank::after(cudaStream_t stream, std::span<const Product> products, std::uint32_t rows) const {
  for_each_set(products, rows, [&](LowRankSet& set) { launch_low_rank_b(stream, set); });
}

// The rows of A are looked up as those of the table are, for one adapter after the other.
void CudaLowRank::embed(cudaStream_t stream, Tensor out, const Weight& table, float scale,
                        const DeviceBatch& batch) const {
  if (!rows_.any() || table.adapters == nullptr) return;
  const AdaptedRows::Rows& own = rows_.of(out.rows);
  for (const AdaptedRows::Group& group : own.groups) {
    const LowRank* const pair = pair_of(table, group.adapter);
    if (pair == nullptr) continue;
    const Tensor t{reinterpret_cast<std::byte*>(t_), out.rows, pair->a.cols, t_stride_, ElementType::F32};
    launch_embed(stream, t, {pair->a.type, pair->a.data, pair->a.unit_bytes}, 1, batch);
    LowRankSet set;
    set.add({.b = floats_of(pair->b),
             .rank = pair->b.cols,
             .outs = pair->b.rows,
             .factor = pair->scale * scale,
             .t = t_,
             .t_stride = t_stride_,
             .out = reinterpret_cast<float*>(out.data),
             .out_stride = out.stride,
             .rows = list_of(own) + group.first,
             .count = group.count});
    launch_low_rank_b(stream, set);
  }
}

void CudaLowRank::add_to_chosen(cudaStream_t stream, const Product& product, const float* x, std::uint64_t x_stride,
                                bool x_by_place, const Choices& choices) const {
  if (!rows_.any() || product.weight->adapters == nullptr) return;
  const AdaptedRows::Rows& own = rows_.of(choices.numbers.rows);
  for (const AdaptedRows::Group& group : own.groups) {
    const LowRank* const pair = pair_of(*product.weight, group.adapter);
    if (pair == nullptr) continue;
    LowRankSet set;
    set.add({.a = floats_of(pair->a),
             .b = floats_of(pair->b),
             .rank = pair->b.cols,
             .cols = pair->a.cols,
             .outs = pair->b.rows,
             .factor = pair->scale,
             .x = x,
             .x_stride = x_stride,
             .x_by_place = x_by_place,
             .t = t_,
             .t_stride = t_stride_,
             .out = reinterpret_cast<float*>(product.out.data),
             .out_stride = product.out.stride,
             .rows = list_of(own) + group.first,
             .count = group.count,
             .used = choices.numbers.cols,
             .numbers = reinterpret_cast<const float*>(choices.numbers.data),
             .numbers_stride = choices.numbers.stride,
             .a_stride = pair->a.stride / sizeof(float),
             .b_stride = pair->b.stride / sizeof(float)});
    launch_low_rank_a(stream, set);
    launch_low_rank_b(stream, set);
  }
}

}  // namespace quire::cuda
