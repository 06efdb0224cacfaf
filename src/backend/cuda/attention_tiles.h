// How attention divides its work: where tiles and sections of the context begin, what an item of work is, and the
// arithmetic of the plan. Plain C++20, for host code and kernels.
//
//   tile      64 positions, at multiples of 64: keys and values that are loaded together
//   section   256 positions, at multiples of 256. Within a section tiles are done in order with a running maximum;
//             sections are joined in order. So the result of a query does not depend on who does which section.
//   item      up to 16 queries (narrow) or 128 (wide) that go over some sections together. A query is a row and a head.
//   run       neighbouring sections of a decode item. Each section's result is a part, in scratch memory; who
//             completes the last part of a query joins them.
//
// A chunk of a prompt, or a decode whose parts would not fit into the scratch memory, goes over its sections in order
// in one block, joins them there, and needs no parts.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define QUIRE_BOTH __host__ __device__
#else
#define QUIRE_BOTH
#endif

namespace quire::cuda {

inline constexpr std::uint32_t kTile = 64;
inline constexpr std::uint32_t kSection = 256;
inline constexpr std::uint32_t kSectionTiles = kSection / kTile;
inline constexpr std::uint32_t kNarrow = 16;         // queries of a narrow item
inline constexpr std::uint32_t kWide = 128;          // queries of a wide item, at most
inline constexpr std::uint32_t kMostRun = 8;         // sections
inline constexpr std::uint32_t kMostSharing = 4096;  // entries of a step among which shared pages are looked for
inline constexpr std::uint32_t kNone = 0xFFFFFFFF;

// Everything that a block needs is here or one load away: a decode step waits for little else.
struct AttentionItem {
  std::uint32_t table = 0;        // row of the page tables
  std::uint32_t member = kNone;   // the first of its members; kNone: rows of one entry, which need no parts
  std::uint32_t first_row = 0;    // of that entry
  std::uint32_t position = 0;     // of that row
  std::uint32_t first_query = 0;  // of the rows (or members) times the heads of a KV head
  std::uint32_t queries = 0;
  std::uint32_t section_begin = 0, section_end = 0;
  std::uint32_t begin = 0, end = 0;  // positions that are loaded
  std::uint32_t part_section = 0;    // the section of its members' parts
};
// A sequence with one row in an item that makes parts.
struct AttentionMember {
  std::uint32_t row = 0;
  std::uint32_t position = 0;
  std::uint32_t part = 0;                      // of the run's first section that it sees
  std::uint32_t first_part = 0, sections = 0;  // all parts of the row
};
struct AttentionCounts {
  std::uint32_t narrow = 0, wide = 0, members = 0;
  std::uint32_t parts = 0;
  std::uint32_t run = 1;   // sections of a run
  std::uint32_t runs = 0;  // that the longest sequence has
};

// The plan of a step for one group of layers, in device memory.
struct AttentionPlanView {
  AttentionCounts* counts = nullptr;
  AttentionItem* narrow = nullptr;
  AttentionItem* wide = nullptr;
  AttentionMember* members = nullptr;
  std::uint32_t* first_part = nullptr;  // [entries]; kNone: no parts
  std::uint32_t* done = nullptr;        // [rows][heads]: parts of a row and head that are written
};

// First position that a query sees.
QUIRE_BOTH constexpr std::uint32_t first_seen(std::uint32_t position, std::uint32_t window) {
  return window != 0 && position + 1 > window ? position + 1 - window : 0;
}
QUIRE_BOTH constexpr std::uint32_t sections_seen(std::uint32_t position, std::uint32_t window) {
  return position / kSection - first_seen(position, window) / kSection + 1;
}
QUIRE_BOTH constexpr std::uint32_t at_most(std::uint32_t a, std::uint32_t b) { return a < b ? a : b; }
QUIRE_BOTH constexpr std::uint32_t at_least(std::uint32_t a, std::uint32_t b) { return a > b ? a : b; }
QUIRE_BOTH constexpr std::uint32_t pieces_of(std::uint32_t count, std::uint32_t size) {
  return (count + size - 1) / size;
}

// An item for some rows of one entry that joins its sections itself.
QUIRE_BOTH constexpr AttentionItem rows_item(std::uint32_t table, std::uint32_t first_row, std::uint32_t position,
                                             std::uint32_t first_query, std::uint32_t queries, std::uint32_t per_head,
                                             std::uint32_t window) {
  const std::uint32_t begin = first_seen(position + first_query / per_head, window);
  const std::uint32_t end = position + (first_query + queries - 1) / per_head + 1;
  return {table, kNone, first_row,       position, first_query, queries, begin / kSection, (end - 1) / kSection + 1,
          begin, end,   begin / kSection};
}

// What a decode row sees of run `run`: sections [begin, end), empty if none.
struct SectionRange {
  std::uint32_t begin, end;
};
QUIRE_BOTH constexpr SectionRange sections_of_run(std::uint32_t position, std::uint32_t window, std::uint32_t run,
                                                  std::uint32_t run_sections) {
  return {at_least(run * run_sections, first_seen(position, window) / kSection),
          at_most((run + 1) * run_sections, position / kSection + 1)};
}
// Whether it sees all positions of that run. Only then can it share them.
QUIRE_BOTH constexpr bool sees_whole_run(std::uint32_t position, std::uint32_t window, std::uint32_t run,
                                         std::uint32_t run_sections) {
  const std::uint32_t begin = run * run_sections * kSection, end = begin + run_sections * kSection;
  return first_seen(position, window) <= begin && position + 1 >= end;
}

// Sections of a run: an item costs a block as much as a section or two before its first product, so there are no more
// items than `slots` blocks at once.
QUIRE_BOTH constexpr std::uint32_t run_length(std::uint32_t parts, std::uint32_t kv_heads, std::uint32_t slots) {
  const std::uint64_t blocks = at_least(slots, 1);
  const std::uint64_t sections = (std::uint64_t{parts} * kv_heads + blocks - 1) / blocks;
  return sections < 1 ? 1 : sections > kMostRun ? kMostRun : static_cast<std::uint32_t>(sections);
}
// Sections of an item for many queries that share a run, `pieces` of them for each section; `sections`: that the
// longest sequence has. There is one such block on a multiprocessor.
QUIRE_BOTH constexpr std::uint32_t shared_length(std::uint32_t sections, std::uint32_t pieces, std::uint32_t kv_heads,
                                                 std::uint32_t slots, std::uint32_t run) {
  const std::uint64_t length = std::uint64_t{sections} * pieces * kv_heads / at_least(slots / 2, 1);
  return length < 1 ? 1 : length > run ? run : static_cast<std::uint32_t>(length);
}

// The places of a plan for steps of `rows` rows with at most `heads` heads and `parts` parts.
struct PlanSizes {
  std::uint32_t rows = 0, parts = 0, heads = 0;

  constexpr std::uint64_t items() const {
    // A row is in one item of its own, or in one for every part; heads of one KV head beyond 64 need more items.
    return (std::uint64_t{rows} + parts) * pieces_of(at_least(heads, 1), 64);
  }
  constexpr std::uint64_t wide_at() const { return narrow_at() + round(items() * sizeof(AttentionItem)); }
  constexpr std::uint64_t narrow_at() const { return round(sizeof(AttentionCounts)); }
  constexpr std::uint64_t members_at() const { return wide_at() + round(items() * sizeof(AttentionItem)); }
  constexpr std::uint64_t first_part_at() const { return members_at() + round(parts * sizeof(AttentionMember)); }
  constexpr std::uint64_t done_at() const { return first_part_at() + round(rows * sizeof(std::uint32_t)); }
  constexpr std::uint64_t bytes() const {
    return done_at() + round(std::uint64_t{rows} * heads * sizeof(std::uint32_t));
  }

  template <typename Byte>
  AttentionPlanView view(Byte* at) const {
    return {reinterpret_cast<AttentionCounts*>(at),
            reinterpret_cast<AttentionItem*>(at + narrow_at()),
            reinterpret_cast<AttentionItem*>(at + wide_at()),
            reinterpret_cast<AttentionMember*>(at + members_at()),
            reinterpret_cast<std::uint32_t*>(at + first_part_at()),
            reinterpret_cast<std::uint32_t*>(at + done_at())};
  }

 private:
  static constexpr std::uint64_t round(std::uint64_t bytes) { return (bytes + 255) / 256 * 256; }
};

}  // namespace quire::cuda
