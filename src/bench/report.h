// What the engine is meant to reach, as data, and the table that says whether it does: for the screen, and for a page
// of docs/ that has room for it between two lines.
//
// Who may call: anyone, from any thread; there is no state. What holds: the same report twice leaves the same page.
// How it fails: with_report() with one line: the page has not both lines once and in their order.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/bench/workloads.h"

namespace quire::bench {

struct Target {
  // Of what a rate is the share: of what the memory allows, of what the multipliers allow, or of whichever is less; or
  // it is how many times as fast as sequences that do not share their beginning.
  enum class Of : std::uint8_t { least, read, compute, unshared };
  std::string shape, type;      // of a synthetic model
  std::string workload, phase;  // of the row
  std::uint32_t batch = 1;
  Of of = Of::least;
  double target = 0;  // 0: none; the row is told all the same
};
const std::vector<Target>& all_targets();
// Whether the row is the one that the target speaks of.
bool speaks_of(const Target& target, const BenchRow& row);

// A target and what came of it.
struct Finding {
  Target target;
  std::optional<BenchRow> row;
  std::string why;  // there is no row
};

// Where and how it was measured.
struct Setting {
  std::string processor, variant, date;
  std::uint32_t cores = 1, threads = 1;
  std::uint64_t memory = 0;
  std::uint32_t repeat = 1;
  MachineLimits limits;
};
Setting this_machine();  // all that is not the caller's choice; the date is today's

// Markdown that can be read as it is.
std::string report(std::span<const Finding> findings, const Setting& setting);

inline constexpr std::string_view kReportBegin = "<!-- bench: begin (make bench writes what follows) -->";
inline constexpr std::string_view kReportEnd = "<!-- bench: end -->";
// The page with the report between the two lines.
Result<std::string> with_report(std::string_view page, std::string_view report);

}  // namespace quire::bench
