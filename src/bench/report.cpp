#include "quire/bench/report.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <optional>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "quire/backend/cpu/kernels.h"
#include "quire/base/machine.h"
#include "quire/base/readable.h"
#include "quire/text/printable.h"

namespace quire::bench {

const std::vector<Target>& all_targets() {
  using Of = Target::Of;
  constexpr const char* kLlama = "llama-1.1b";
  constexpr const char* kQwen = "qwen3-0.6b";
  constexpr const char* kMamba = "mamba2-370m";
  constexpr const char* kHybrid = "granite-h-350m";
  static const std::vector<Target> all = {
      {kLlama, "Q8_0", "decode", "", 1, Of::read, 0.85},
      {kLlama, "F16", "decode", "", 1, Of::read, 0.85},
      {kLlama, "Q4_0", "decode", "", 1, Of::read, 0.80},
      {kLlama, "Q4_K", "decode", "", 1, Of::read, 0.80},
      {kLlama, "Q6_K", "decode", "", 1, Of::read, 0.80},
      {kLlama, "Q4_K_M", "decode", "", 1, Of::read},
      {kLlama, "Q8_0", "prefill", "", 1, Of::compute, 0.45},
      {kLlama, "Q4_0", "prefill", "", 1, Of::compute, 0.45},
      {kLlama, "Q4_K_M", "prefill", "", 1, Of::compute, 0.40},
      {kLlama, "Q4_K", "prefill", "", 1, Of::compute},
      {kLlama, "Q6_K", "prefill", "", 1, Of::compute},
      {kLlama, "F16", "prefill", "", 1, Of::compute, 0.70},
      {kLlama, "BF16", "prefill", "", 1, Of::compute, 0.75},
      {kLlama, "F32", "prefill", "", 1, Of::compute, 0.70},
      {kLlama, "Q8_0", "decode", "", 8},
      {kLlama, "Q8_0", "decode", "", 32, Of::compute, 0.35},
      {kQwen, "Q8_0", "long-decode", "attention", 1, Of::read, 0.75},
      {kQwen, "Q8_0", "long-decode", "", 1, Of::read},
      {kQwen, "Q8_0", "shared-decode", "shared", 32, Of::unshared, 4},
      {kMamba, "Q8_0", "prefill", "", 1, Of::compute, 0.30},
      {kMamba, "Q8_0", "decode", "", 1, Of::read, 0.75},
      {kHybrid, "Q8_0", "prefill", "", 1, Of::compute},
      {kHybrid, "Q8_0", "decode", "", 1, Of::read},
      {kLlama, "Q8_0", "serve", "cold", 8, Of::total, 0.80},
      {kLlama, "Q8_0", "serve", "cold", 8, Of::first_token, 0.50},
      {kLlama, "Q8_0", "serve", "cold", 8, Of::between_tokens, 1},
      {kLlama, "Q8_0", "serve", "warm", 8, Of::total, 0.80},
      {kLlama, "Q8_0", "serve", "warm", 8, Of::first_token, 0.50},
      {kLlama, "Q8_0", "serve", "warm", 8, Of::between_tokens, 1},
      {kLlama, "Q8_0", "serve", "mix", 16, Of::total, 0.80},
      {kLlama, "Q8_0", "serve", "mix", 16, Of::first_token, 0.50},
      {kLlama, "Q8_0", "serve", "mix", 16, Of::between_tokens, 1},
  };
  return all;
}

bool speaks_of(const Target& target, const BenchRow& row) {
  // A machine with little memory measures fewer sequences. The report says so.
  const bool fewer = target.of == Target::Of::unshared && row.batch <= target.batch;
  return target.workload == row.workload && target.phase == row.phase && (target.batch == row.batch || fewer);
}

Setting this_machine() {
  Setting setting{.processor = processor_name(), .variant = cpu::best_kernels().name};
  setting.cores = available_cores();
  setting.memory = machine_memory().total;
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm local = {};
  if (::localtime_r(&now, &local) != nullptr) setting.date = fmt::format("{:%Y-%m-%d}", local);
  return setting;
}

namespace {

// Describes the measurement.
std::string phase_of(const Finding& finding) {
  const Target& target = finding.target;
  const std::uint32_t batch = finding.row ? finding.row->batch : target.batch;
  const std::string context = finding.row ? grouped(finding.row->context) : "";
  const std::string at = context.empty() ? "" : fmt::format(" at {} tokens", context);
  if (target.workload == "prefill") return fmt::format("prefill{}{}", context.empty() ? "" : " ", context);
  if (target.workload == "decode") return fmt::format("decode, batch {}", batch);
  if (target.workload == "long-decode") {
    return fmt::format("decode{}{}", at, target.phase.empty() ? "" : fmt::format(", {} part", target.phase));
  }
  if (target.workload == "serve") {
    return fmt::format("serve, {}: {}", target.phase,
                       target.of == Target::Of::total         ? "all requests"
                       : target.of == Target::Of::first_token ? "first token, 95%"
                                                              : "between tokens, 99%");
  }
  return fmt::format("decode, {} sequences that share {} tokens", batch, context);
}

// Two times of serve: the measured one, and the one that it is compared with.
struct Compared {
  double measured = 0, wanted = 0;
};
std::optional<Compared> compared(Target::Of of, const ServeTimes& serve) {
  using Of = Target::Of;
  switch (of) {
    case Of::total: return Compared{serve.measured.total, serve.ideal.total};
    case Of::first_token: return Compared{serve.measured.first_token.p95, serve.ideal.first_token.p95};
    case Of::between_tokens: return Compared{serve.measured.between_tokens.p99, serve.target};
    default: return std::nullopt;
  }
}

using Cells = std::array<std::string, 8>;

Cells cells_of(const Finding& finding, const MachineLimits& best) {
  const MachineLimits machine = finding.row ? finding.row->machine.value_or(best) : best;
  const Target& target = finding.target;
  Cells cells = {target.shape, target.type, phase_of(finding), "", "", "", "", ""};
  auto& [shape, type, phase, reached, limit, ratio, wanted, verdict] = cells;
  if (target.target > 0) wanted = fmt::format("{:.2f}", target.target);
  if (!finding.row) {
    verdict = finding.why.empty() ? "not measured" : "not measured: " + text::printable(finding.why);
    std::ranges::replace(verdict, '|', '/');  // '|' would begin another cell of the table
    return cells;
  }
  const BenchRow& row = *finding.row;
  reached = fmt::format("{:.1f}", row.tokens_per_second);
  double share = 0;
  if (const auto times = row.serve ? compared(target.of, *row.serve) : std::nullopt) {
    share = times->wanted / times->measured;
    const bool between = target.of == Target::Of::between_tokens;
    const auto shown = [&](double time) {
      return between ? fmt::format("{:.0f} ms", 1e3 * time) : fmt::format("{:.2f} s", time);
    };
    reached = shown(times->measured);
    limit = fmt::format("{} {}", shown(times->wanted), between ? "target" : "ideal");
  } else if (target.of == Target::Of::unshared) {
    share = row.speedup.value_or(0);
    limit = share > 0 ? fmt::format("{:.1f} unshared", row.tokens_per_second / share) : "";
  } else if (row.work) {
    const Limit most = limit_of(*row.work, machine);
    const bool read = target.of == Target::Of::read || (target.of == Target::Of::least && most.bound == Bound::read);
    const double rate = read ? most.read : most.compute;
    share = row.tokens_per_second / rate;
    // If memory is the limit, name the kind of multiplication that comes second.
    limit = fmt::format("{:.1f} {}", rate, name(read ? Bound::read : longest(*row.work, machine)));
  }
  ratio = fmt::format("{:.2f}", share);
  if (target.target > 0) verdict = share >= target.target ? "met" : "missed";
  return cells;
}

}  // namespace

std::string report(std::span<const Finding> findings, const Setting& setting) {
  constexpr bool kToTheRight[] = {false, false, false, true, true, true, true, false};
  std::vector<Cells> table = {{"model", "type", "phase", "tokens/s", "limit", "ratio", "target", ""}};
  for (const Finding& finding : findings) table.push_back(cells_of(finding, setting.limits));
  std::array<std::size_t, std::tuple_size_v<Cells>> widths = {};
  for (const Cells& cells : table) {
    for (std::size_t i = 0; i < cells.size(); ++i) widths[i] = std::max({widths[i], cells[i].size(), std::size_t{2}});
  }
  std::string text = fmt::format(
      "{}: {}, {} core{}, {} of memory; {} thread{}, {} kernels; the best of {}. The best limits measured in the same "
      "run: "
      "{:.1f} GB/s read, {:.0f} G int8, {:.0f} G bf16 and {:.0f} G f32 operations a second.\n\n",
      setting.date, text::printable(setting.processor), setting.cores, setting.cores == 1 ? "" : "s",
      in_units(setting.memory), setting.threads, setting.threads == 1 ? "" : "s", setting.variant, setting.repeat,
      setting.limits.read / 1e9, setting.limits.int8 / 1e9, setting.limits.bf16 / 1e9, setting.limits.f32 / 1e9);
  for (std::size_t line = 0; line < table.size(); ++line) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      text += kToTheRight[i] ? fmt::format("| {:>{}} ", table[line][i], widths[i])
                             : fmt::format("| {:<{}} ", table[line][i], widths[i]);
    }
    text += "|\n";
    if (line > 0) continue;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      text += fmt::format("|{:-<{}}{}", "", widths[i] + 1, kToTheRight[i] ? ":" : "-");
    }
    text += "|\n";
  }
  return text;
}

Result<std::string> with_report(std::string_view page, std::string_view report) {
  const auto only = [&](std::string_view line) -> Result<std::size_t> {
    const std::size_t at = page.find(line);
    if (at == std::string_view::npos) return fail(fmt::format("there is no line '{}'", line));
    if (page.find(line, at + 1) != std::string_view::npos) return fail(fmt::format("there are two lines '{}'", line));
    return at;
  };
  const auto begin = only(kReportBegin);
  if (!begin) return std::unexpected(begin.error());
  const auto end = only(kReportEnd);
  if (!end) return std::unexpected(end.error());
  if (*end < *begin) return fail(fmt::format("'{}' comes before '{}'", kReportEnd, kReportBegin));
  return fmt::format("{}\n\n{}\n{}", page.substr(0, *begin + kReportBegin.size()), report, page.substr(*end));
}

}  // namespace quire::bench
