// The attention plan of a step, computed once for all layers of a group. It says which rows go over which part of the
// context together, because that part is in the same pages. Sequences that share a prefix load it once, whatever else
// is in the step. Rows of one prefill chunk load their context together too.
//
//   rows       the rows of the step; rows that share context are neighbours
//   runs       neighbouring rows that go over some tiles of the context, through the page table of `entry`
//   items      runs of the same rows, and those rows; a row is in one item, whose runs cover its context in order
//   pieces     sections of items, for threads that divide the context; only if there are not too many
#pragma once

#include <cstdint>
#include <vector>

#include "quire/backend/backend.h"

namespace quire::cpu {

class AttentionPlan {
 public:
  struct Row {
    std::uint32_t row;       // of the step
    std::uint32_t begin;     // first position that it sees
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
    std::uint32_t section_begin, section_end;  // of the context
    std::uint32_t first_part;                  // pairs of a row and a section in the items before
  };
  struct Piece {
    std::uint32_t item, section;
  };

  // Pieces are listed if there are at most `max_parts` pairs of a row and a section.
  void prepare(std::uint32_t max_rows, std::uint32_t max_parts);
  void forget() { made_ = false; }
  bool made() const { return made_; }
  // Each item is done once per KV head. There are at least `wanted_items` items, if there are as many rows.
  void make(const Batch& batch, std::uint32_t group, std::uint32_t window, std::uint32_t queries_per_row,
            std::uint32_t wanted_items);

  const std::vector<Row>& rows() const { return rows_; }
  const std::vector<Run>& runs() const { return runs_; }
  const std::vector<Item>& items() const { return items_; }
  const std::vector<Piece>& pieces() const { return pieces_; }

 private:
  void add_chunk(const Batch& batch, std::uint32_t entry, std::uint32_t window, std::uint32_t rows_at_once);
  void add_item(std::uint32_t first_run, std::uint32_t row_begin, std::uint32_t row_end);
  void list_pieces();
  void add_sharing(std::uint32_t begin, std::uint32_t end, std::uint32_t tile);

  struct Single {  // a sequence with one row
    std::uint32_t entry, row, position;
    const std::uint32_t* table;
    std::uint32_t pages;
    std::uint32_t shared;  // tiles in common with the one before
  };
  std::vector<Row> rows_;
  std::vector<Run> runs_;
  std::vector<Item> items_;
  std::vector<Piece> pieces_;
  std::uint32_t max_parts_ = 0;
  std::vector<Single> singles_;
  std::uint32_t first_single_ = 0;  // the first row of the singles
  bool made_ = false;
};

}  // namespace quire::cpu
