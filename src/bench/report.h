// The performance targets of the engine, and the table that shows which of them are met: for the screen, and for a page
// of docs/ between two marker lines.
//
// Who may call: anyone, from any thread; there is no state.
// What holds: writing the same report twice leaves the same page.
// How it fails: with_report() returns one line if the two marker lines are not there exactly once and in order.
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
  // What the rate is divided by: the limit of memory, the limit of multiplying, the smaller of both (`least`), or the
  // rate of sequences that do not share their prefix. Of serve: the ideal's time by the measured one, for all requests
  // (`total`) and for the 95th percentile of the time to the first token; and the target of the time between two tokens
  // by its 99th percentile. The larger the ratio, the better.
  enum class Of : std::uint8_t { least, read, compute, unshared, total, first_token, between_tokens };
  std::string shape, type;      // of a synthetic model
  std::string workload, phase;  // of the row
  std::uint32_t batch = 1;
  Of of = Of::least;
  double target = 0;  // 0: no target; the row is reported all the same
};
const std::vector<Target>& all_targets();
// Whether the target is about this row.
bool speaks_of(const Target& target, const BenchRow& row);

// A target and its measurement.
struct Finding {
  Target target;
  std::optional<BenchRow> row;
  std::string why;  // why there is no row
};

// Where and how it was measured.
struct Setting {
  std::string processor, variant, date;
  std::uint32_t cores = 1, threads = 1;
  std::uint64_t memory = 0;
  std::uint32_t repeat = 1;
  MachineLimits limits;
};
Setting this_machine();  // everything that the caller does not choose; the date is today

// Markdown that is readable as plain text.
std::string report(std::span<const Finding> findings, const Setting& setting);

inline constexpr std::string_view kReportBegin = "<!-- bench: begin (make bench writes what follows) -->";
inline constexpr std::string_view kReportEnd = "<!-- bench: end -->";
// The page with the report between the two marker lines.
Result<std::string> with_report(std::string_view page, std::string_view report);

}  // namespace quire::bench
