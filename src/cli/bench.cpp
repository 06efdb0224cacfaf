#include "quire/cli/bench.h"

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

namespace quire::cli {
namespace {

namespace json = boost::json;

std::string head() {
  return fmt::format("{:<22} {:>5} {:>8} {:>12} {:>10} {:>9} {:>11} {:>9}\n", "workload", "batch", "context",
                     "tokens/s", "TTFT ms", "hit rate", "suspensions", "overhead");
}

std::string line(const BenchRow& row) {
  return fmt::format("{:<22} {:>5} {:>8} {:>12.1f} {:>10.2f} {:>8.1f}% {:>11} {:>8.2f}%\n",
                     row.phase.empty() ? row.workload : fmt::format("{} ({})", row.workload, row.phase), row.batch,
                     row.context, row.tokens_per_second, row.ttft_ms, 100 * row.hit_rate, row.suspensions,
                     100 * row.overhead);
}

json::object to_json(const BenchRow& row) {
  json::object object{{"workload", row.workload},       {"batch", row.batch},
                      {"context", row.context},         {"tokens_per_second", row.tokens_per_second},
                      {"ttft_ms", row.ttft_ms},         {"hit_rate", row.hit_rate},
                      {"suspensions", row.suspensions}, {"overhead", row.overhead}};
  if (!row.phase.empty()) object["phase"] = row.phase;
  return object;
}

}  // namespace

Result<std::string> bench(const BenchOptions& options, const Console& console) {
  const auto kernels = kernels_of(options.model);
  if (!kernels) return std::unexpected(kernels.error());
  const auto make = [&](const HostNeeds& needs) -> Result<std::unique_ptr<engine::HostedModel>> {
    auto model = load_model(options.model, console);
    if (!model) return std::unexpected(model.error());
    engine::HostOptions host{.threads = options.model.threads,
                             .context = options.model.context,
                             .memory = options.model.memory != 0 ? options.model.memory : needs.memory,
                             .kv_type = options.model.kv_type,
                             .max_sequences = needs.sequences,
                             .kernels = *kernels};
    // The longest prompt of a workload; contexts of millions are not what is measured.
    constexpr std::uint32_t kEnough = 4096;
    const std::uint32_t wanted = options.workload.context + options.workload.tokens + 1024;
    if (host.context == 0) host.context = std::min((*model)->numbers().context_length, std::max(kEnough, wanted));
    host.engine.queue_limit = 1024;
    return engine::HostedModel::create(std::move(*model), std::move(host));
  };
  bool first = true;
  std::error_code error;
  const auto tell = [&](const BenchRow& row) {
    std::string text = options.json ? json::serialize(to_json(row)) + "\n" : line(row);
    if (first && !options.json) text = head() + text;
    first = false;
    if (!error) error = console.out.write(text);
  };
  const std::vector<std::string>& names = options.workloads.empty() ? workload_names() : options.workloads;
  for (const std::string& name : names) {
    if (auto ok = run_workload(name, options.workload, make, tell); !ok) return std::unexpected(ok.error());
    if (error) break;  // the caller meets the same error
  }
  return "";
}

}  // namespace quire::cli
