#include "quire/cli/bench.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "quire/backend/cpu/topology.h"
#include "quire/bench/device_limits.h"
#include "quire/bench/host.h"
#include "quire/bench/limit.h"
#include "quire/bench/synthetic_model.h"
#include "quire/cli/printable.h"
#include "quire/cli/progress.h"
#include "quire/cli/report_page.h"

namespace quire::cli {
namespace {

namespace json = boost::json;
using bench::BenchRow;
using bench::Finding;
using bench::Limit;
using bench::MachineLimits;
using bench::Target;
using bench::WorkloadOptions;

// One model and what is measured of it.
struct Subject {
  const synth::Shape* shape = nullptr;  // null: the model of the options
  std::string type;
  std::vector<std::string> workloads;
  WorkloadOptions workload;

  std::string name() const { return shape == nullptr ? "" : fmt::format("{} {}", shape->name, type); }
};

// The columns of a table that compares numbers of threads.
std::string scaling_head() { return fmt::format("{:>7} {:>8} ", "threads", "speed-up"); }
std::string scaling(std::uint32_t threads, double speed_up) {
  return fmt::format("{:>7} {:>7.2f}x ", threads, speed_up);
}

std::string head() {
  return fmt::format("{:<24} {:>5} {:>8} {:>12} {:>12} {:>6} {:>5} {:>10} {:>9} {:>11} {:>9}\n", "workload", "batch",
                     "context", "tokens/s", "limit", "ratio", "bound", "TTFT ms", "hit rate", "suspensions",
                     "overhead");
}

std::string line(const BenchRow& row, const MachineLimits& machine) {
  std::string limit = "-", ratio = "-", bound = "-";
  if (row.work) {
    const Limit most = limit_of(*row.work, row.machine.value_or(machine));
    limit = fmt::format("{:.1f}", most.tokens_per_second);
    ratio = fmt::format("{:.2f}", row.tokens_per_second / most.tokens_per_second);
    bound = name(most.bound);
  }
  // Workloads that time steps of the model alone have no requests, so no TTFT and no hits.
  const std::string engine = row.ttft_ms > 0 ? fmt::format("{:>10.2f} {:>8.1f}% {:>11} {:>8.2f}%", row.ttft_ms,
                                                           100 * row.hit_rate, row.suspensions, 100 * row.overhead)
                                             : fmt::format("{:>10} {:>9} {:>11} {:>9}", "-", "-", "-", "-");
  return fmt::format(
      "{:<24} {:>5} {:>8} {:>12.1f} {:>12} {:>6} {:>5} {}{}\n",
      row.phase.empty() ? row.workload : fmt::format("{} ({})", row.workload, row.phase), row.batch, row.context,
      row.tokens_per_second, limit, ratio, bound, engine,
      row.speedup ? fmt::format("  {:.2f} x {}", *row.speedup, row.workload == "speculation" ? "off" : "unshared")
                  : "");
}

// What clients of `serve` saw, on two lines of its own below its row.
std::string serve_lines(const bench::ServeTimes& serve) {
  const auto& [costs, target, measured, ideal] = serve;
  const auto ratio = [](double time, double best) { return fmt::format("{:.2f} x ideal {:.2f} s", time / best, best); };
  return fmt::format(
      "  total {:.2f} s ({})   first token 50% {:.2f} s, 95% {:.2f} s ({})\n"
      "  between tokens 50% {:.0f} ms, 99% {:.0f} ms, target {:.0f} ms ({:.2f} of it)\n",
      measured.total, ratio(measured.total, ideal.total), measured.first_token.p50, measured.first_token.p95,
      ratio(measured.first_token.p95, ideal.first_token.p95), 1e3 * measured.between_tokens.p50,
      1e3 * measured.between_tokens.p99, 1e3 * target, measured.between_tokens.p99 / target);
}

json::object to_json(const Percentiles& times) { return {{"p50", times.p50}, {"p95", times.p95}, {"p99", times.p99}}; }
json::object to_json(const bench::LoadTimes& times) {
  return {{"total_seconds", times.total},
          {"first_token_seconds", to_json(times.first_token)},
          {"between_tokens_seconds", to_json(times.between_tokens)}};
}
json::object to_json(const engine::StepCosts& costs) {
  return {{"base", costs.base},
          {"decode_row", costs.decode_row},
          {"prefill_row", costs.prefill_row},
          {"decode_context", costs.decode_context},
          {"prefill_context", costs.prefill_context}};
}

json::object to_json(const BenchRow& row, const Subject& subject, const MachineLimits& machine) {
  json::object object{{"workload", row.workload},       {"batch", row.batch},
                      {"context", row.context},         {"tokens_per_second", row.tokens_per_second},
                      {"ttft_ms", row.ttft_ms},         {"hit_rate", row.hit_rate},
                      {"suspensions", row.suspensions}, {"overhead", row.overhead}};
  if (!row.phase.empty()) object["phase"] = row.phase;
  if (subject.shape != nullptr) {
    object["shape"] = subject.shape->name;
    object["type"] = subject.type;
  }
  if (row.speedup) object["speedup"] = *row.speedup;
  if (row.serve) {
    object["measured"] = to_json(row.serve->measured);
    object["ideal"] = to_json(row.serve->ideal);
    object["target_itl_seconds"] = row.serve->target;
    object["costs"] = to_json(row.serve->costs);
  }
  if (!row.work) return object;
  const Limit most = limit_of(*row.work, row.machine.value_or(machine));
  object["limit"] = most.tokens_per_second;
  object["ratio"] = row.tokens_per_second / most.tokens_per_second;
  object["bound"] = std::string(name(most.bound));
  object["ratio_read"] = row.tokens_per_second / most.read;
  // Without multiplications there is no compute limit.
  if (std::isfinite(most.compute)) object["ratio_compute"] = row.tokens_per_second / most.compute;
  return object;
}

// Lengths and batch sizes that matter for real models.
WorkloadOptions for_shapes(WorkloadOptions workload) {
  if (workload.lengths.empty()) workload.lengths = {512};
  if (workload.batches.empty()) workload.batches = {1, 8, 32};
  return workload;
}

// The models to measure. A synthetic model is written once and removed before the next one.
std::vector<Subject> subjects_of(const BenchOptions& options) {
  if (options.shapes.empty()) {
    std::vector<std::string> names = options.workloads;
    if (names.empty()) names = {"prefill", "decode", "shared-prefix", "chat", "mixed"};
    return {{.workloads = std::move(names), .workload = options.workload}};
  }
  std::vector<Subject> subjects;
  if (options.targets.empty()) {
    std::vector<std::string> names = options.workloads, types = options.types;
    // With several numbers of threads: prefill, one sequence and many.
    const bool scaling = options.threads.size() > 1;
    WorkloadOptions workload = options.workload;
    if (scaling && workload.batches.empty()) workload.batches = {1, 32};
    if (names.empty() && scaling) names = {"prefill", "decode"};
    if (names.empty()) names = {"prefill", "decode", "long-decode", "shared-decode"};
    if (types.empty()) types = {"Q8_0"};
    for (const synth::Shape& shape : options.shapes) {
      for (const std::string& type : types) subjects.push_back({&shape, type, names, for_shapes(workload)});
    }
    return subjects;
  }
  for (const Target& target : options.targets) {
    const auto shape = std::ranges::find(options.shapes, target.shape, &synth::Shape::name);
    if (shape == options.shapes.end()) continue;
    auto subject = std::ranges::find_if(
        subjects, [&](const Subject& one) { return one.shape == &*shape && one.type == target.type; });
    if (subject == subjects.end()) {
      subjects.push_back({&*shape, target.type, {}, options.workload});
      subject = subjects.end() - 1;
      subject->workload.batches.clear();
    }
    const auto add = [](auto& list, const auto& item) {
      if (std::ranges::find(list, item) == list.end()) list.push_back(item);
    };
    add(subject->workloads, target.workload);
    if (target.workload == "decode") add(subject->workload.batches, target.batch);
    if (target.workload == "shared-decode") subject->workload.shared = target.batch;
  }
  for (Subject& subject : subjects) subject.workload = for_shapes(subject.workload);
  return subjects;
}

class Bench {
 public:
  // `device`: with memory of its own, or none.
  Bench(const BenchOptions& options, const Console& console, Device* device)
      : options_(options), console_(console), device_(device) {
    limit_options_ = options.limits;
    limit_options_.variant = options.model.variant;
    thread_counts_ = options.threads;
    if (thread_counts_.empty()) thread_counts_.push_back(options.model.threads);
    for (std::uint32_t& count : thread_counts_) {
      if (count == 0) count = cpu::Topology::of_this_machine().default_threads();
    }
    for (const Target& target : options.targets) findings_.push_back({.target = target});
  }

  // Returns the text to print after the rows.
  Result<std::string> run() {
    if (thread_counts_.size() == 1) {
      if (auto ok = use_threads(thread_counts_.front()); !ok) return std::unexpected(ok.error());
    }
    for (const Subject& subject : subjects_of(options_)) {
      if (auto ok = run(subject); !ok) return std::unexpected(ok.error());
      if (error_) return "";  // the caller meets the same error
    }
    if (options_.targets.empty()) return options_.json || !limits_told_ ? "" : "\n" + limits_text();
    return finish_report();
  }

 private:
  std::string limits_text() const {
    if (device_ != nullptr) {
      return fmt::format("The limit of {}: {:.0f} GB/s, read and written by a copy within its memory\n",
                         device_->name(), machine_.read / 1e9);
    }
    std::string text;
    for (const auto& [threads, limits] : limits_) {
      text += fmt::format(
          "The machine's limits, {} thread{}: {:.1f} GB/s read, {:.0f} G int8, {:.0f} G bf16 and {:.0f} G f32 "
          "operations a second\n",
          threads, threads == 1 ? "" : "s", limits.read / 1e9, limits.int8 / 1e9, limits.bf16 / 1e9, limits.f32 / 1e9);
    }
    return text;
  }

  // Everything is measured with this number of threads from now on.
  Result<void> use_threads(std::uint32_t threads) {
    if (limit_options_.threads == threads && meter_) return {};
    limit_options_.threads = threads;
    machine_ = last_ = around_ = {};
    if (auto ok = measure_limits(); !ok) return ok;
    if (device_ != nullptr) return {};
    bench::LimitOptions looks = limit_options_;
    looks.buffer_bytes = std::min(looks.buffer_bytes, kLookBytes);
    meter_.reset();
    auto meter = bench::ReadMeter::create(looks);
    if (!meter) return std::unexpected(meter.error());
    meter_.emplace(std::move(*meter));
    return {};
  }

  Result<void> measure_limits() {
    if (device_ != nullptr && machine_.read > 0) return {};  // it does not change
    const auto measured = device_ != nullptr ? bench::measure_device(*device_) : bench::measure_limits(limit_options_);
    if (!measured) return std::unexpected(measured.error());
    around_ = bench::best_of(last_, *measured);
    last_ = *measured;
    machine_ = bench::best_of(machine_, *measured);
    MachineLimits& best = limits_[limit_options_.threads];
    best = bench::best_of(best, machine_);
    return {};
  }

  Result<void> run(const Subject& subject) {
    ModelOptions model = options_.model;
    std::optional<bench::SyntheticModel> synthetic;
    if (subject.shape != nullptr) {
      auto made = make_synthetic(subject);
      if (!made) return leave_out(subject, "", made.error());
      synthetic.emplace(std::move(*made));
      model.model = synthetic->path();
    }
    first_rates_.clear();
    for (const std::uint32_t threads : thread_counts_) {
      if (auto ok = use_threads(threads); !ok) return ok;
      model.threads = threads;
      if (auto ok = run(subject, model); !ok) return ok;
      if (error_) break;
    }
    return {};
  }

  Result<void> run(const Subject& subject, const ModelOptions& model) {
    const auto make = [&](const bench::HostNeeds& needs) { return make_host(model, subject.workload, needs); };
    for (const std::string& name : subject.workloads) {
      std::vector<BenchRow> rows;
      Progress progress(console_.err, console_.err_style, "prefill");
      const bench::Told tell{
          .row = [&](const BenchRow& row) { rows.push_back(row); },
          .note = [&](const std::string& note) { tell_note(subject, name, note); },
          .prefill = [&](std::uint64_t done, std::uint64_t all) { progress.update(done, all); },
          .read_rate = [&](ThreadTeam& team) { return meter_ ? meter_->look(team) : machine_.read; }};
      if (auto ok = bench::run_workload(name, subject.workload, make, tell); !ok) {
        if (auto fatal = leave_out(subject, name, ok.error()); !fatal) return fatal;
      }
      const bool limited = std::ranges::any_of(rows, [](const BenchRow& row) { return row.work.has_value(); });
      if (limited) {
        if (auto ok = measure_limits(); !ok) return ok;
        limits_told_ = true;
        for (BenchRow& row : rows) {
          row.machine = around_;
          if (row.read) row.machine->read = *row.read;
        }
      }
      for (const BenchRow& row : rows) tell_row(row, subject);
      if (error_) break;
    }
    return {};
  }

  Result<bench::SyntheticModel> make_synthetic(const Subject& subject) const {
    Progress progress(console_.err, console_.err_style, "writing " + subject.name());
    return bench::SyntheticModel::create(*subject.shape, subject.type,
                                         [&](std::uint64_t done, std::uint64_t all) { progress.update(done, all); });
  }

  // Loads the model again, on a host for this workload.
  Result<bench::BenchHost> make_host(const ModelOptions& options, const WorkloadOptions& workload,
                                     const bench::HostNeeds& needs) const {
    auto model = load_model(options, console_);
    if (!model) return std::unexpected(model.error());
    return bench::make_host(std::move(*model),
                            {.device = options.device,
                             .threads = options.threads,
                             .placement = options.placement,
                             .variant = options.variant,
                             .context = options.context,
                             .memory = options.memory,
                             .kv_type = options.kv_type,
                             .state_type = options.state_type,
                             .block_size = options.block_size},
                            workload, needs);
  }

  void tell_row(const BenchRow& row, const Subject& subject) {
    for (Finding& finding : findings_) {
      if (belongs(finding, subject) && bench::speaks_of(finding.target, row)) finding.row = row;
    }
    std::string text;
    const bool several = thread_counts_.size() > 1;
    const double first =
        first_rates_.try_emplace({row.workload, row.phase, row.batch, row.context}, row.tokens_per_second)
            .first->second;
    const double speed_up = first > 0 ? row.tokens_per_second / first : 0;
    if (options_.json) {
      json::object object = to_json(row, subject, machine_);
      object["threads"] = limit_options_.threads;
      if (several) object["scaling"] = speed_up;
      text = json::serialize(object) + "\n";
    } else {
      if (!head_told_) text = (several ? scaling_head() : "") + head();
      if (subject.name() != named_) text += subject.name() + "\n";
      named_ = subject.name();
      head_told_ = true;
      text += (several ? scaling(limit_options_.threads, speed_up) : "") + line(row, machine_);
      if (row.serve) text += serve_lines(*row.serve);
    }
    if (!error_) error_ = console_.out.write(text);
  }

  // Prints why something is not measured, or not all of it, and keeps it for the report. An empty workload means all.
  void tell_note(const Subject& subject, std::string_view workload, const std::string& note) {
    // If standard error is broken, the missing rows still show it.
    (void)console_.err.write(
        fmt::format("quire: {}{}{}\n", subject.name(), subject.shape != nullptr ? ": " : "", printable(note)));
    for (Finding& finding : findings_) {
      if (belongs(finding, subject) && (workload.empty() || finding.target.workload == workload)) finding.why = note;
    }
  }

  // With targets, a workload that cannot be measured is noted in the report. Without targets, it is the error.
  Result<void> leave_out(const Subject& subject, std::string_view workload, const Error& why) {
    if (findings_.empty()) return std::unexpected(why);
    tell_note(subject, workload, why.message);
    return {};
  }
  static bool belongs(const Finding& finding, const Subject& subject) {
    return subject.shape != nullptr && finding.target.shape == subject.shape->name &&
           finding.target.type == subject.type;
  }

  Result<std::string> finish_report() {
    bench::Setting setting = bench::this_machine();
    if (!options_.model.variant.empty()) setting.variant = options_.model.variant;
    setting.threads = limit_options_.threads;
    setting.repeat = options_.workload.repeat;
    setting.limits = machine_;
    const std::string text = bench::report(findings_, setting);
    if (!options_.report.empty()) {
      if (auto ok = write_report_page(options_.report, text); !ok) return std::unexpected(ok.error());
    }
    return options_.json ? "" : "\n" + text;
  }

  // For the memory probes between two moments of a measurement: read in a few milliseconds, far larger than a cache.
  static constexpr std::uint64_t kLookBytes = std::uint64_t{256} << 20;

  const BenchOptions& options_;
  const Console& console_;
  Device* device_;
  std::optional<bench::ReadMeter> meter_;
  bench::LimitOptions limit_options_;
  MachineLimits last_, around_;  // the last measurement; the best of the last two
  MachineLimits machine_;
  std::vector<std::uint32_t> thread_counts_;       // at least one
  std::map<std::uint32_t, MachineLimits> limits_;  // the best, by the number of threads
  std::map<std::tuple<std::string, std::string, std::uint32_t, std::uint32_t>, double> first_rates_;  // of a subject
  std::vector<Finding> findings_;
  std::string named_;  // the model whose rows are being written
  bool head_told_ = false;
  bool limits_told_ = false;
  std::error_code error_;
};

}  // namespace

Result<std::string> bench(const BenchOptions& options, const Console& console) {
  // Checked now, because measuring takes up to an hour.
  if (!options.report.empty()) {
    if (auto ok = check_report_page(options.report); !ok) return std::unexpected(ok.error());
  }
  // An unknown device or variant is refused before anything is measured.
  const auto backend = make_backend({.device = options.model.device, .threads = 1, .variant = options.model.variant});
  if (!backend) return std::unexpected(backend.error());
  Device& device = (*backend)->device();
  if (device.has_own_memory() && !options.targets.empty()) {
    return fail("the targets are those of a CPU: measure them with --device cpu");
  }
  return Bench(options, console, device.has_own_memory() ? &device : nullptr).run();
}

}  // namespace quire::cli
