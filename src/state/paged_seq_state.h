// The pages of one sequence in one layer group: the table on the host, which is the truth, its mirror on the device,
// and the length. Creating one touches no page; memory for the longest sequence is taken then and kept.
//
// Pages are references into a BlockPool. A page that somebody else can see (another holder, or the prefix index) is
// never written: ensure_capacity() gives the sequence a copy of its half-full last page first.
//
// Mirror: locations of pages stand in a row of PageTables, a row of its own or one of a matrix that many sequences
// share. Changes are noted there; ensure_capacity() and sync() upload what changed and nothing more.
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
  // The same with a row of a matrix that others share. The matrix must outlive the state and not move.
  PagedSeqState(BlockPool& pool, PageTables& tables, std::uint32_t row);
  PagedSeqState(PagedSeqState&& other) noexcept;
  PagedSeqState& operator=(PagedSeqState&&) = delete;
  ~PagedSeqState() { release(); }

  // Makes positions [length, target_len) writable: takes the missing pages, copies a shared half-full one, mirrors what
  // changed. All or nothing; does nothing, and uploads nothing, where all of that is there already.
  PoolResult<void> ensure_capacity(std::uint32_t target_len);
  // Sets the length and mirrors it. Not beyond the capacity.
  PoolResult<void> sync_context_len(std::uint32_t length);
  // Gives every page back; keeps the buffers; the length is 0.
  void release();

  std::uint32_t length() const { return length_; }
  std::uint32_t capacity() const { return table_.size() * table_.block_size(); }
  const BlockTable& table() const { return table_; }
  BlockPool& pool() const { return *pool_; }
  std::span<const std::uint32_t> locations() const { return {tables_->host_row(row_), table_.size()}; }
  const std::uint32_t* device_table() const { return tables_->device_row(row_); }
  const std::uint32_t* device_length() const { return tables_->device_length(row_); }
  KvView view(std::uint32_t layer) const;  // of a mirror that is in step

  // --- for those who plan (SequencePool)

  // Pages that ensure_capacity(target_len) would take: those beyond the table, and one if it must copy.
  std::uint32_t pages_missing(std::uint32_t target_len) const;
  std::uint32_t pages_needed(std::uint32_t target_len) const {
    return pages_missing(target_len) + (target_len > length_ && must_copy() ? 1 : 0);
  }
  // ensure_capacity in two halves: grow() takes and copies pages and keeps the one it replaced; finish() lets go of
  // that page; undo() puts everything back. The mirror is not brought up to date: sync() does that.
  struct Growth {
    std::uint32_t old_blocks = 0;
    PageId replaced;  // of block `replaced_block`, if valid
    std::uint32_t replaced_block = 0;
  };
  PoolResult<Growth> grow(std::uint32_t target_len);
  void finish(const Growth& growth);
  void undo(const Growth& growth);
  void undo_finished(const Growth& growth);  // also after finish(), as long as nobody else has changed anything

  // Sets the length without telling the device: kernels that get lengths with their batch do not need it there.
  void set_length(std::uint32_t length) { length_ = length; }
  // Keeps the pages of the first `length` positions and gives the others back, the last first.
  void truncate(std::uint32_t length);
  // Appends a page that the caller has acquired for this sequence, or a block that was given back.
  void adopt(PageId page);
  void adopt_given_back();
  // Lets a block's entry name another page. References are the caller's business.
  void replace(std::uint32_t block, PageId page);
  // Gives back pages at the front while they lie wholly before `position`.
  void give_back_before(std::uint32_t position);
  // The reverse, one block at a time: the block before table().first() gets a page that the caller has acquired.
  void take_back(PageId page);
  // Shares the pages of the first `length` positions of another sequence of the same pool. This one must be empty.
  void share(const PagedSeqState& other, std::uint32_t length);
  bool in_step() const { return tables_->in_step(row_); }
  PoolResult<void> sync() { return tables_->sync(); }
  // Whether position `length` falls into a half-full page that must be copied before it is written: one that another
  // sequence holds, or (`copy_kept`) that the index knows.
  bool must_copy(bool copy_kept = true) const;

 private:
  friend class KvCache;
  PageId take_page();
  void drop_pages_from(std::uint32_t blocks);

  BlockPool* pool_;
  BlockTable table_;
  std::unique_ptr<PageTables> own_tables_;  // of a state that stands alone
  PageTables* tables_;
  std::uint32_t row_ = 0;
  std::uint32_t length_ = 0;
  std::uint32_t generation_ = 0;        // lives ended: release() was called so often with something to give back
  std::vector<std::uint32_t> written_;  // by layer: how far KvCache wrote beyond `length`
};

}  // namespace quire
