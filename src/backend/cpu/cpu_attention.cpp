// The CPU backend's keys, values and attention.
#include <algorithm>
#include <cmath>

#include "quire/backend/cpu/cpu_backend.h"
#include "quire/backend/cpu/for_each.h"
#include "quire/base/numbers.h"

namespace quire {

using cpu::kFewRows;
using cpu::row_of;
using cpu::vector_of;

namespace {

// Queries that are spread over threads section by section need a place for each section: there is room for this many
// pairs of a row and a section, or for a step's rows if those are more.
constexpr std::uint32_t kParts = 512;

// Of the queries that a KV head serves.
const float* sinks_of(const AttentionShape& shape, std::uint32_t first_head) {
  return shape.sinks.valid() ? vector_of(shape.sinks) + first_head : nullptr;
}

}  // namespace

// What the threads share while they compute the attention of one layer.
struct CpuBackend::AttentionCall {
  Tensor out, q;
  const AttentionShape& shape;
  const cpu::AttentionPlan& plan;
  cpu::Heads heads;
  std::uint32_t head_parts;  // which threads take; a KV head has one or more
  std::uint32_t sharing;     // parts of one KV head
  std::uint32_t per_head;    // queries of a row for one part
  std::uint32_t rows;        // of the step
};

// A place for the queries of some rows: [heads][rows][per_head].
struct CpuBackend::QueryPlace {
  cpu::Query* queries;
  float* sums;  // [queries][value length]
  std::uint32_t first_row, rows;

  std::size_t index(std::uint32_t head, std::uint32_t row, std::uint32_t per_head) const {
    return (std::size_t{head} * rows + row - first_row) * per_head;
  }
};

void CpuBackend::prepare_attention() {
  const std::size_t parts = std::max(sizes_.rows, kParts);
  queries_.resize(std::size_t{sizes_.rows} * sizes_.heads);
  parts_.resize(parts * sizes_.heads);
  part_sums_.resize(parts * sizes_.attention_cols);
  plans_.resize(sizes_.groups);
  for (cpu::AttentionPlan& plan : plans_) plan.prepare(sizes_.rows, static_cast<std::uint32_t>(parts));
}

KvView CpuBackend::view(const AttentionShape& shape, std::uint32_t entry) const {
  return batch_->kv()[shape.group].sequence(batch_->entries()[entry].table, shape.layer);
}

void CpuBackend::store_kv(const AttentionShape& shape, Tensor q, Tensor k, Tensor v, const HeadChanges& changes) {
  const std::uint32_t dim = shape.head_dim, per_head = shape.heads / shape.kv_heads;
  const bool in_8_bits = batch_->kv()[shape.group].type == ElementType::Q8_0;
  const float* balance = in_8_bits ? vector_of(changes.key_balance) : nullptr;
  const auto change = [&](float* head, std::uint32_t row, const float* norm) {
    if (norm != nullptr) kernels_.rms_norm(head, head, norm, changes.epsilon, dim);
    if (changes.cosines.cols == 0) return;
    kernels_.rotate(head + changes.rotated_from, row_of(changes.cosines, row), row_of(changes.sines, row),
                    changes.cosines.cols, changes.pairs == RopePairs::Neighbours);
  };
  // Applies a norm over all heads of a row. Returns the weights of a norm that is applied head by head.
  const auto norm_row = [&](const Tensor& x, std::uint32_t row, const Tensor& weight) -> const float* {
    if (weight.cols == dim) return vector_of(weight);
    if (weight.valid()) kernels_.rms_norm(row_of(x, row), row_of(x, row), vector_of(weight), changes.epsilon, x.cols);
    return nullptr;
  };
  const std::span<const BatchEntry> entries = batch_->entries();
  // Rows of a step are in the order of its entries.
  cpu::for_each(team_, q.rows, kFewRows, [&](std::uint32_t row) {
    const auto entry = static_cast<std::uint32_t>(
        std::upper_bound(entries.begin(), entries.end(), row,
                         [](std::uint32_t r, const BatchEntry& e) { return r < e.first_row; }) -
        entries.begin() - 1);
    const KvView kv = view(shape, entry);
    const std::uint32_t position = entries[entry].position + row - entries[entry].first_row;
    const float* q_norm = norm_row(q, row, changes.q_norm);
    const float* k_norm = norm_row(k, row, changes.k_norm);
    for (std::uint32_t head = 0; head < shape.heads; ++head) {
      float* query = row_of(q, row) + head * dim;
      change(query, row, q_norm);
      if (balance == nullptr) continue;
      for (std::uint32_t d = 0; d < dim; ++d) query[d] *= balance[head / per_head * dim + d];
    }
    for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
      float* key = row_of(k, row) + head * dim;
      change(key, row, k_norm);
      for (std::uint32_t d = 0; balance != nullptr && d < dim; ++d) key[d] /= balance[head * dim + d];
      kernels_.store_kv(kv.type, kv.k(head, position), key, dim);
      if (v.valid()) kernels_.store_kv(kv.type, kv.v(head, position), row_of(v, row) + head * dim, dim);
    }
  });
}

namespace {

// Finds the keys and values of a tile. A position that must not be seen gets the address of the nearest one that may
// be: it is loaded but not used.
void find_tile(const KvView& kv, std::uint32_t head, std::uint32_t tile, std::uint32_t first, std::uint32_t last,
               cpu::ContextTile& to) {
  to.position = tile * cpu::kContextTile;
  const std::uint32_t begin = std::max(first, to.position), end = std::min(last + 1, to.position + cpu::kContextTile);
  std::uint32_t i = 0;
  for (; i < begin - to.position; ++i) {
    to.keys[i] = kv.k(head, begin);
    to.values[i] = kv.v(head, begin);
  }
  // The positions of a page are contiguous.
  for (std::uint32_t position = begin; position < end;) {
    const std::uint32_t page_end = kv.block_size == 0 ? end : (position / kv.block_size + 1) * kv.block_size;
    const std::byte* key = kv.k(head, position);
    const std::byte* value = kv.v(head, position);
    for (; position < std::min(page_end, end); ++position, ++i) {
      to.keys[i] = key;
      to.values[i] = value;
      key += kv.token_stride;
      value += kv.token_stride;
    }
  }
  for (; i < cpu::kContextTile; ++i) {
    to.keys[i] = to.keys[i - 1];
    to.values[i] = to.values[i - 1];
  }
}

}  // namespace

// In latent attention all heads have the same keys. Threads divide the heads, as long as each part has enough of them
// to make up for loading keys again.
std::uint32_t CpuBackend::parts_of_a_kv_head(const AttentionShape& shape) const {
  constexpr std::uint32_t kFewHeads = 8;
  std::uint32_t parts = 1;
  if (!shape.latent()) return parts;
  const std::uint32_t heads = shape.heads / shape.kv_heads;
  while (parts < team_.size() && heads % (2 * parts) == 0 && heads / (2 * parts) >= kFewHeads) parts *= 2;
  return parts;
}

void CpuBackend::attention(Tensor out, Tensor q, const AttentionShape& shape) {
  const std::uint32_t sharing = parts_of_a_kv_head(shape), kv_heads = shape.kv_heads * sharing;
  const std::uint32_t per_head = shape.heads / kv_heads;
  cpu::AttentionPlan& plan = plans_[shape.group];
  if (!plan.made()) {
    plan.make(*batch_, shape.group, shape.window, per_head, divide_up(2 * team_.size(), kv_heads));
  }
  const auto rows = static_cast<std::uint32_t>(plan.rows().size());
  const auto items = static_cast<std::uint32_t>(plan.items().size());
  const cpu::Heads heads{shape.head_dim, shape.value_length(), shape.latent(), shape.scale, shape.soft_cap};
  const AttentionCall call{out, q, shape, plan, heads, kv_heads, sharing, per_head, rows};
  // Prefill is bound by arithmetic, so each head is an item of its own.
  if (rows != batch_->entries().size()) return attend_in_order(call, 1);
  // Decode waits for memory, where all heads of a page are contiguous. So a thread takes all heads together and threads
  // divide the context, if there are too few sequences for all of them.
  if (items < 4 * team_.size() && plan.pieces().size() > items) return attend_spread(call);
  attend_in_order(call, std::clamp(items * kv_heads / (2 * team_.size()), 1u, kv_heads));
}

// A thread takes an item and some heads, and goes along the context.
void CpuBackend::attend_in_order(const AttentionCall& call, std::uint32_t heads_at_once) {
  const std::uint32_t dim = call.heads.value_dim, per_head = call.per_head;
  const auto items = static_cast<std::uint32_t>(call.plan.items().size());
  const std::uint32_t groups = divide_up(call.head_parts, heads_at_once);
  const QueryPlace all{queries_.data(), nullptr, 0, call.rows}, parts{parts_.data(), part_sums_.data(), 0, call.rows};
  cpu::for_each_in_order(team_, items * groups, [&](std::uint32_t n) {
    const cpu::AttentionPlan::Item& item = call.plan.items()[n / groups];
    const std::uint32_t first_head = n % groups * heads_at_once;
    const std::uint32_t last_head = std::min(first_head + heads_at_once, call.head_parts);
    for (std::uint32_t section = item.section_begin; section < item.section_end; ++section) {
      attend_section(call, item, section, first_head, last_head, parts, true);
      for (std::uint32_t head = first_head; head < last_head; ++head) {
        for (std::uint32_t r = item.row_begin; r < item.row_end; ++r) {
          const cpu::AttentionPlan::Row& row = call.plan.rows()[r];
          if (section < row.begin / cpu::kSection || section > row.position / cpu::kSection) continue;
          const bool first = section == row.begin / cpu::kSection;
          cpu::Query* into = all.queries + all.index(head, r, per_head);
          const cpu::Query* part = parts.queries + parts.index(head, r, per_head);
          for (std::uint32_t i = 0; i < per_head; ++i) {
            if (first) {
              into[i] = part[i];
            } else {
              kernels_.merge(into[i], part[i], dim);
            }
          }
        }
      }
    }
    for (std::uint32_t head = first_head; head < last_head; ++head) {
      kernels_.end_attention(all.queries + all.index(head, item.row_begin, per_head),
                             (item.row_end - item.row_begin) * per_head, dim, sinks_of(call.shape, head * per_head),
                             per_head);
    }
  });
}

// A thread takes a section of an item and some heads. When all are done, the sections are merged in order.
void CpuBackend::attend_spread(const AttentionCall& call) {
  const std::uint32_t dim = call.heads.value_dim, per_head = call.per_head, kv_heads = call.head_parts;
  const auto place = [&](const cpu::AttentionPlan::Item& item, std::uint32_t section) {
    const std::uint32_t rows = item.row_end - item.row_begin;
    const std::size_t first =
        (std::size_t{item.first_part} + std::size_t{section - item.section_begin} * rows) * call.shape.heads;
    return QueryPlace{parts_.data() + first, part_sums_.data() + first * dim, item.row_begin, rows};
  };
  const auto pieces = static_cast<std::uint32_t>(call.plan.pieces().size());
  const std::uint32_t together = divide_up(kv_heads, std::clamp(divide_up(4 * team_.size(), pieces), 1u, kv_heads));
  const std::uint32_t groups = divide_up(kv_heads, together);
  cpu::for_each_in_order(team_, pieces * groups, [&](std::uint32_t n) {
    const cpu::AttentionPlan::Piece& piece = call.plan.pieces()[n / groups];
    const cpu::AttentionPlan::Item& item = call.plan.items()[piece.item];
    const std::uint32_t first_head = n % groups * together;
    const std::uint32_t last_head = std::min(first_head + together, kv_heads);
    attend_section(call, item, piece.section, first_head, last_head, place(item, piece.section), false);
  });
  const auto items = static_cast<std::uint32_t>(call.plan.items().size());
  cpu::for_each(team_, items * kv_heads, [&](std::uint32_t n) {
    const cpu::AttentionPlan::Item& item = call.plan.items()[n / kv_heads];
    const std::uint32_t head = n % kv_heads;
    for (std::uint32_t r = item.row_begin; r < item.row_end; ++r) {
      const cpu::AttentionPlan::Row& row = call.plan.rows()[r];
      const std::uint32_t first = row.begin / cpu::kSection, last = row.position / cpu::kSection;
      const std::size_t index = place(item, first).index(head, r, per_head);
      cpu::Query* const into = place(item, first).queries + index;
      for (std::uint32_t section = first + 1; section <= last; ++section) {
        for (std::uint32_t i = 0; i < per_head; ++i) {
          kernels_.merge(into[i], place(item, section).queries[index + i], dim);
        }
      }
      kernels_.end_attention(into, per_head, dim, sinks_of(call.shape, head * per_head), per_head);
    }
  });
}

// What the rows of an item see of one section, for some heads. `continues`: this thread goes on with the next section,
// so its first tile is prefetched.
void CpuBackend::attend_section(const AttentionCall& call, const cpu::AttentionPlan::Item& item, std::uint32_t section,
                                std::uint32_t first_head, std::uint32_t last_head, const QueryPlace& place,
                                bool continues) {
  const AttentionShape& shape = call.shape;
  const std::uint32_t per_head = call.per_head;
  for (std::uint32_t head = first_head; head < last_head; ++head) {
    for (std::uint32_t r = item.row_begin; r < item.row_end; ++r) {
      const cpu::AttentionPlan::Row& row = call.plan.rows()[r];
      const std::size_t index = place.index(head, r, per_head);
      for (std::uint32_t i = 0; i < per_head; ++i) {
        const std::uint32_t query = head * per_head + i, length = call.heads.value_dim;
        // The first section's sums are where the result will be.
        const bool first = section == row.begin / cpu::kSection;
        float* const sum = first ? row_of(call.out, row.row) + query * length : place.sums + (index + i) * length;
        place.queries[index + i] = {
            row_of(call.q, row.row) + query * shape.head_dim, sum, row.begin, row.position + 1, -INFINITY, {}};
        std::fill_n(sum, length, 0.0f);
      }
    }
  }
  // Tile by tile, and head by head in each tile. `next` is prefetched while `now` is used.
  cpu::ContextTile tiles[2];
  cpu::ContextTile *now = &tiles[0], *next = &tiles[1];
  for (std::uint32_t r = item.run_begin; r < item.run_end; ++r) {
    const cpu::AttentionPlan::Run& run = call.plan.runs()[r];
    const std::uint32_t tile_begin = std::max(run.tile_begin, section * cpu::kSectionTiles);
    const std::uint32_t tile_end = std::min(run.tile_end, (section + 1) * cpu::kSectionTiles);
    if (tile_begin >= tile_end) continue;
    const KvView kv = view(shape, run.entry);
    const std::uint32_t first = call.plan.rows()[run.first].begin;
    const std::uint32_t last = batch_->entries()[run.entry].position + batch_->entries()[run.entry].rows - 1;
    const std::uint32_t known_end = continues ? run.tile_end : tile_end;
    find_tile(kv, first_head / call.sharing, tile_begin, first, last, *next);
    for (std::uint32_t tile = tile_begin; tile < tile_end; ++tile) {
      for (std::uint32_t head = first_head; head < last_head; ++head) {
        std::swap(now, next);
        const bool more = head + 1 < last_head || tile + 1 < known_end;
        if (head + 1 < last_head) {
          find_tile(kv, (head + 1) / call.sharing, tile, first, last, *next);
        } else if (more) {
          find_tile(kv, first_head / call.sharing, tile + 1, first, last, *next);
        }
        kernels_.attend(*now, more ? next : nullptr, kv.type, place.queries + place.index(head, run.first, per_head),
                        (run.last - run.first) * per_head, call.heads);
      }
    }
  }
}

}  // namespace quire
