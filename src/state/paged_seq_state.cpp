#include "quire/state/paged_seq_state.h"

#include <algorithm>

#include "quire/base/check.h"
#include "quire/state/out_of_memory.h"

namespace quire {

PagedSeqState::PagedSeqState(BlockPool& pool, PageTables& tables, std::uint32_t row)
    : pool_(&pool),
      table_(pool.shape().block_size, tables.blocks()),
      tables_(&tables),
      row_(row),
      written_(pool.shape().num_layers, 0) {}

PagedSeqState::PagedSeqState(PagedSeqState&& other) noexcept
    : pool_(other.pool_),
      table_(std::move(other.table_)),
      own_tables_(std::move(other.own_tables_)),
      tables_(std::exchange(other.tables_, nullptr)),
      row_(other.row_),
      length_(std::exchange(other.length_, 0)),
      written_(std::move(other.written_)) {
  other.table_ = BlockTable(table_.block_size(), 0);
}

PoolResult<PagedSeqState> PagedSeqState::create(BlockPool& pool, std::uint32_t max_blocks_per_seq) {
  return or_out_of_memory("the table of a sequence", [&]() -> PoolResult<PagedSeqState> {
    auto tables = PageTables::create(pool.device(), 1, max_blocks_per_seq);
    if (!tables) return std::unexpected(tables.error());
    auto own = std::make_unique<PageTables>(std::move(*tables));
    PagedSeqState state(pool, *own, 0);
    state.own_tables_ = std::move(own);
    return state;
  });
}

bool PagedSeqState::must_copy(bool copy_kept) const {
  const std::uint32_t block = length_ / table_.block_size();
  if (length_ % table_.block_size() == 0 || block >= table_.size()) return false;
  const std::uint32_t index = table_.page(block).index;
  const BlockAllocator& allocator = pool_->allocator();
  return allocator.references_at(index) > 1 || (copy_kept && allocator.is_kept(index));
}

std::uint32_t PagedSeqState::pages_missing(std::uint32_t target_len) const {
  const std::uint32_t blocks = divide_up(target_len, table_.block_size());
  return blocks > table_.size() ? blocks - table_.size() : 0;
}

PageId PagedSeqState::take_page() {
  const auto page = pool_->allocate();
  QUIRE_CHECK(page.has_value(), "free pages were counted");
  return *page;
}

PoolResult<PagedSeqState::Growth> PagedSeqState::grow(std::uint32_t target_len) {
  const std::uint32_t blocks = divide_up(target_len, table_.block_size());
  if (blocks > table_.max_blocks()) return std::unexpected(PoolError::too_long("blocks", blocks, table_.max_blocks()));
  const std::uint32_t needed = pages_needed(target_len);
  if (needed > pool_->free_count()) return std::unexpected(PoolError::exhausted("pages", needed, pool_->free_count()));

  Growth growth{.old_blocks = table_.size()};
  if (target_len > length_ && must_copy()) {
    growth.replaced_block = length_ / table_.block_size();
    growth.replaced = table_.page(growth.replaced_block);
    const PageId copy = take_page();
    if (auto ok = pool_->copy_page(copy.index, growth.replaced.index); !ok) {
      (void)pool_->free(copy);
      return std::unexpected(ok.error());
    }
    replace(growth.replaced_block, copy);
  }
  while (table_.size() < blocks) adopt(take_page());
  return growth;
}

void PagedSeqState::finish(const Growth& growth) {
  if (growth.replaced.valid()) (void)pool_->free(growth.replaced);
}

void PagedSeqState::undo(const Growth& growth) {
  drop_pages_from(growth.old_blocks);
  if (growth.replaced.valid()) {
    const PageId copy = table_.page(growth.replaced_block);
    replace(growth.replaced_block, growth.replaced);
    (void)pool_->free(copy);
  }
}

void PagedSeqState::undo_finished(const Growth& growth) {
  if (growth.replaced.valid()) {
    const auto ok = pool_->acquire(growth.replaced);
    QUIRE_CHECK(ok.has_value(), "a copied page has another holder or is kept, so it is still live");
  }
  undo(growth);
}

PoolResult<void> PagedSeqState::ensure_capacity(std::uint32_t target_len) {
  auto growth = grow(target_len);
  if (!growth) return std::unexpected(growth.error());
  if (auto ok = sync(); !ok) {
    undo(*growth);
    return std::unexpected(ok.error());
  }
  finish(*growth);
  return {};
}

PoolResult<void> PagedSeqState::sync_context_len(std::uint32_t length) {
  if (length > capacity()) return std::unexpected(PoolError::not_reserved(length, capacity()));
  if (auto ok = pool_->upload_copy(tables_->device_length(row_), &length, sizeof length); !ok) return ok;
  length_ = length;
  return {};
}

void PagedSeqState::release() {
  if (tables_ == nullptr) return;  // this object was moved from
  ++generation_;
  drop_pages_from(0);
  length_ = 0;
  std::fill(written_.begin(), written_.end(), 0);
}

// The last page first: the prefix index relies on children being cached before their parents.
void PagedSeqState::drop_pages_from(std::uint32_t blocks) {
  while (table_.size() > blocks) {
    const PageId page = table_.pop();
    if (page.valid()) (void)pool_->free(page);
  }
  tables_->cut(row_, table_.size());
}

void PagedSeqState::truncate(std::uint32_t length) {
  drop_pages_from(divide_up(length, table_.block_size()));
  length_ = std::min(length_, length);
  for (std::uint32_t& written : written_) written = std::min(written, length);
}

void PagedSeqState::adopt(PageId page) {
  tables_->set(row_, table_.size(), pool_->location(page.index));
  table_.push(page);
}

void PagedSeqState::adopt_given_back() { table_.push_given_back(); }

void PagedSeqState::replace(std::uint32_t block, PageId page) {
  table_.set(block, page);
  tables_->set(row_, block, pool_->location(page.index));
}

void PagedSeqState::give_back_before(std::uint32_t position) {
  while (table_.first() < table_.size() && (table_.first() + 1) * std::uint64_t{table_.block_size()} <= position) {
    (void)pool_->free(table_.give_back_first());
  }
}

void PagedSeqState::take_back(PageId page) {
  table_.take_back(page);
  tables_->set(row_, table_.first(), pool_->location(page.index));
}

void PagedSeqState::share(const PagedSeqState& other, std::uint32_t length) {
  QUIRE_CHECK(table_.size() == 0 && pool_ == other.pool_, "only an empty sequence of the same pool can share");
  const std::uint32_t blocks = divide_up(length, table_.block_size());
  for (std::uint32_t block = 0; block < blocks; ++block) {
    const PageId page = other.table_.page(block);
    if (!page.valid()) {
      table_.push_given_back();
      continue;
    }
    const auto ok = pool_->acquire(page);
    QUIRE_CHECK(ok.has_value(), "a table names live pages");
    adopt(page);
  }
  length_ = length;
}

KvView PagedSeqState::view(std::uint32_t layer) const {
  const PageShape& shape = pool_->shape();
  KvView view;
  view.base = pool_->base();
  view.table = device_table();
  view.page_unit = pool_->unit();
  view.k_offset = layer * shape.layer_bytes();
  view.v_offset = view.k_offset + shape.value_offset();
  view.head_stride = shape.head_bytes();
  view.token_stride = shape.row_bytes();
  view.block_size = shape.block_size;
  view.num_kv_heads = shape.num_kv_heads;
  view.head_dim = shape.head_dim;
  view.type = shape.type;
  view.first = table_.first() * shape.block_size;
  view.length = length_;
  view.capacity = capacity();
  return view;
}

}  // namespace quire
