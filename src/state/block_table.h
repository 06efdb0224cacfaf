// Logical block -> physical page of one sequence. One table serves all layers of a group. Token t is in the page of
// block t / block_size, at slot t % block_size. Memory for the longest sequence is taken at construction.
//
// Blocks at the front may have been given back (sliding windows): they count, but have no page.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/check.h"
#include "quire/state/ids.h"

namespace quire {

class BlockTable {
 public:
  BlockTable(std::uint32_t block_size, std::uint32_t max_blocks) : block_size_(block_size), pages_(max_blocks) {}

  struct Place {
    PageId page;
    std::uint32_t slot;
  };
  // Where a token is. It must be in a block of the table.
  Place place(std::uint32_t token) const { return {pages_[token / block_size_], token % block_size_}; }

  std::uint32_t block_size() const { return block_size_; }
  std::uint32_t size() const { return size_; }
  std::uint32_t first() const { return first_; }  // blocks before it were given back
  std::uint32_t max_blocks() const { return static_cast<std::uint32_t>(pages_.size()); }
  PageId page(std::uint32_t block) const { return pages_[block]; }
  std::span<const PageId> pages() const { return {pages_.data(), size_}; }
  // Another number whenever the table was changed, so that an observer need not compare all pages.
  std::uint64_t version() const { return version_; }

  void push(PageId page) {
    QUIRE_CHECK(size_ < pages_.size(), "a table does not outgrow its room");
    pages_[size_++] = page;
    ++version_;
  }
  // Appends a block whose page was given back before this sequence came to it.
  void push_given_back() {
    QUIRE_CHECK(first_ == size_, "only blocks at the front are given back");
    push(PageId{});
    first_ = size_;
  }
  PageId pop() {
    QUIRE_CHECK(size_ > 0, "an empty table has nothing to give");
    --size_;
    ++version_;
    if (first_ > size_) first_ = size_;
    return pages_[size_];
  }
  void set(std::uint32_t block, PageId page) {
    pages_[block] = page;
    ++version_;
  }
  // The reverse of give_back_first: the block before first() has a page again.
  void take_back(PageId page) {
    QUIRE_CHECK(first_ > 0, "only a block that was given back is taken back");
    set(--first_, page);
  }
  PageId give_back_first() {
    QUIRE_CHECK(first_ < size_, "an empty table has nothing to give");
    const PageId page = pages_[first_];
    set(first_, PageId{});
    ++first_;
    return page;
  }

 private:
  std::uint32_t block_size_;
  std::uint32_t size_ = 0;
  std::uint32_t first_ = 0;
  std::uint64_t version_ = 0;
  std::vector<PageId> pages_;
};

}  // namespace quire
