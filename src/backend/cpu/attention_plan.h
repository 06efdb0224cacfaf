// How the rows of a step attend, worked out once for all layers of a group: which rows go over which part of the
// context together, because it lies in the same pages. Sequences that share a prefix read it once, whoever else is in
// the step; rows of one chunk of a prompt read their context together too.
//
//   rows       of the step, those that share beside each other
//   runs       some neighbouring rows go over some tiles of the context, which they find through the table of `entry`
//   items      runs that one thread does, in order; each row is in one item, and its runs cover its context in order
#pragma once

#include <cstdint>
#include <vector>

#include "quire/backend/backend.h"

namespace quire::cpu {

class AttentionPlan {
 public:
  struct Row {
    std::uint32_t row;       // of the step
    std::uint32_t begin;     // of the context it sees
    std::uint32_t position;  // its own
  };
  struct Run {
    std::uint32_t first, last;           // rows
    std::uint32_t tile_begin, tile_end;  // of the context
    std::uint32_t entry;
  };
  struct Item {
    std::uint32_t run_begin, run_end;
    std::uint32_t row_begin, row_end;
  };

  void prepare(std::uint32_t max_rows);
  void forget() { made_ = false; }
  bool made() const { return made_; }
  // Items are for one head of keys each. `wanted_items`: so many at least, if there are as many rows.
  void make(const Batch& batch, std::uint32_t group, std::uint32_t window, std::uint32_t queries_per_row,
            std::uint32_t wanted_items);

  const std::vector<Row>& rows() const { return rows_; }
  const std::vector<Run>& runs() const { return runs_; }
  const std::vector<Item>& items() const { return items_; }

 private:
  void add_chunk(const Batch& batch, std::uint32_t entry, std::uint32_t window, std::uint32_t rows_at_once);
  void add_sharing(std::uint32_t begin, std::uint32_t end, std::uint32_t tile);

  struct Single {  // a sequence with one row
    std::uint32_t entry, row, position;
    const std::uint32_t* table;
    std::uint32_t pages;
    std::uint32_t shared;  // tiles, with the one before
  };
  std::vector<Row> rows_;
  std::vector<Run> runs_;
  std::vector<Item> items_;
  std::vector<Single> singles_;
  std::uint32_t first_single_ = 0;  // row
  bool made_ = false;
};

}  // namespace quire::cpu
