// The pages of one sequence in one layer group: the authoritative table on the host, its mirror on the device, and the
// length. Creating one takes no page. It takes the memory for the longest sequence's table and keeps it.
//
// Pages are references into a BlockPool. A page that another holder or the prefix index can see is never written:
// ensure_capacity() first gives the sequence its own copy of the half-full last page.
//
// The mirror is a row of PageTables: of a matrix of its own, or of one that many sequences share. Changes are recorded
// there. ensure_capacity() and sync() upload only what changed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quire/state/block_pool.h"
#include "quire/state/block_table.h"
#include "quire/state/page_tables.h"
#include "quire/state/views.h"

namespace quire {

class PagedSeqState {
 public:
  // The pool must outlive the state and not move. No page is taken.
  static PoolResult<PagedSeqState> create(BlockPool& pool, std::uint32_t max_blocks_per_seq);
  // The same with a row of a shared matrix. The matrix must outlive the state and not move.
  PagedSeqState(BlockPool& pool, PageTables& tables, std::uint32_t row);
  PagedSeqState(PagedSeqState&& other) noexcept;
  PagedSeqState& operator=(PagedSeqState&&) = delete;
  ~PagedSeqState() { release(); }

  // Makes positions [length, target_len) writable: takes the missing pages, copies a shared half-full page, uploads
  // what changed. All or nothing. If everything is there already, it does nothing and uploads nothing.
  PoolResult<void> ensure_capacity(std::uint32_t target_len);
  // Sets the length, on the device too. It must not exceed the capacity.
  PoolResult<void> sync_context_len(std::uint32_t length);
  // Gives every page back and sets the length to 0. Keeps the buffers.
  void release();

  std::uint32_t length() const { return length_; }
  std::uint32_t capacity() const { return table_.size() * table_.block_size(); }
  const BlockTable& table() const { return table_; }
  BlockPool& pool() const { return *pool_; }
  std::span<const std::uint32_t> locations() const { return {tables_->host_row(row_), table_.size()}; }
  const std::uint32_t* device_table() const { return tables_->device_row(row_); }
  const std::uint32_t* device_length() const { return tables_->device_length(row_); }
  KvView view(std::uint32_t layer) const;  // the mirror must be up to date

  // --- for SequencePool, which plans reservations

  // pages_needed(): how many pages ensure_capacity(target_len) would take. pages_missing():
  // the same without the copy of a shared page.
  std::uint32_t pages_missing(std::uint32_t target_len) const;
  std::uint32_t pages_needed(std::uint32_t target_len) const {
    return pages_missing(target_len) + (target_len > length_ && must_copy() ? 1 : 0);
  }
  // ensure_capacity() in parts. grow() takes and copies pages and keeps the page it replaced. finish() releases that
  // page. undo() restores the state before grow(). None of them updates the mirror: sync() does.
  struct Growth {
    std::uint32_t old_blocks = 0;
    PageId replaced;  // the former page of `replaced_block`; invalid if no page was copied
    std::uint32_t replaced_block = 0;
  };
  PoolResult<Growth> grow(std::uint32_t target_len);
  void finish(const Growth& growth);
  void undo(const Growth& growth);
  void undo_finished(const Growth& growth);  // the same after finish(), if nothing else has changed since

  // Sets the length on the host only: kernels that get lengths with their batch do not need it on the device.
  void set_length(std::uint32_t length) { length_ = length; }
  // Keeps the pages of the first `length` positions and gives the others back, the last first.
  void truncate(std::uint32_t length);
  // Appends a page that the caller has acquired for this sequence, or a block that was given back.
  void adopt(PageId page);
  void adopt_given_back();
  // Replaces the page of a block. The caller manages the references.
  void replace(std::uint32_t block, PageId page);
  // Gives back pages at the front that lie entirely before `position`.
  void give_back_before(std::uint32_t position);
  // The reverse, for one block: the block before table().first() gets a page that the caller has acquired.
  void take_back(PageId page);
  // Shares the pages of the first `length` positions of another sequence of the same pool. This sequence must be empty.
  void share(const PagedSeqState& other, std::uint32_t length);
  bool in_step() const { return tables_->in_step(row_); }
  PoolResult<void> sync() { return tables_->sync(); }
  // Whether position `length` is in a half-full page that must be copied before it is written: another sequence holds
  // it, or (with `copy_kept`) the prefix index knows it.
  bool must_copy(bool copy_kept = true) const;

 private:
  friend class KvCache;
  PageId take_page();
  void drop_pages_from(std::uint32_t blocks);

  BlockPool* pool_;
  BlockTable table_;
  std::unique_ptr<PageTables> own_tables_;  // of a state with a matrix of its own
  PageTables* tables_;
  std::uint32_t row_ = 0;
  std::uint32_t length_ = 0;
  std::uint32_t generation_ = 0;        // number of release() calls that had something to give back
  std::vector<std::uint32_t> written_;  // by layer: how far KvCache wrote beyond `length`
};

}  // namespace quire
