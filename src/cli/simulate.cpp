#include "quire/cli/simulate.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "quire/base/percentiles.h"
#include "quire/base/readable.h"
#include "quire/bench/synth/shape_layout.h"
#include "quire/cli/plot.h"
#include "quire/cli/printable.h"
#include "quire/cli/progress.h"
#include "quire/gguf/gguf.h"
#include "quire/model/state_layout.h"

namespace quire::cli {
namespace {

namespace json = boost::json;
using simulate::SimulationResult;
using simulate::TraceFacts;

struct Row {
  std::uint64_t memory = 0;
  Eviction policy = Eviction::Lru;
  SimulationResult result;
};

Result<StateLayout> layout_of(const SimulateOptions& options) {
  if (options.model.empty()) return synth::layout_of(*synth::find_shape(options.shape));
  const auto file = gguf::File::open(options.model);
  if (!file) return std::unexpected(file.error());
  const auto model = model::read_hyperparameters(*file);
  if (!model) return std::unexpected(model.error());
  return model::state_layout(*model);
}

double per_second(std::uint64_t tokens, const SimulationResult& result) {
  return result.seconds > 0 ? static_cast<double>(tokens) / result.seconds : 0;
}

double share_of(std::uint64_t part, std::uint64_t all) {
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

json::object to_json(const Percentiles& times) { return {{"p50", times.p50}, {"p95", times.p95}, {"p99", times.p99}}; }

std::string json_row(const Row& row, const TraceFacts& facts, const SimulateOptions& options) {
  const SimulationResult& result = row.result;
  const json::object object{
      {"memory", row.memory},
      {"policy", std::string(simulate::name(row.policy))},
      {"rate", options.engine.rate},
      {"requests", result.finished + result.refused},
      {"refused", result.refused},
      {"prompt_tokens", result.prompt_tokens},
      {"refused_tokens", result.refused_tokens},
      {"hit_tokens", result.hit_tokens},
      {"hit_share", result.hit_share()},
      {"most_hit_share", share_of(facts.repeated_tokens, facts.prompt_tokens)},
      {"output_tokens", result.output_tokens},
      {"first_token_seconds", to_json(result.first_token)},
      {"between_tokens_seconds", to_json(result.between_tokens)},
      {"suspensions", result.suspensions},
      {"steps", result.steps},
      {"seconds", result.seconds},
      {"busy_seconds", result.busy_seconds},
      {"prompt_tokens_per_second", per_second(result.prompt_tokens, result)},
      {"output_tokens_per_second", per_second(result.output_tokens, result)},
  };
  return json::serialize(object) + "\n";
}

std::string head(const TraceFacts& facts, std::size_t requests, const StateLayout& layout, double rate) {
  const double repeated = 100 * share_of(facts.repeated_tokens, facts.prompt_tokens);
  const double seconds = facts.seconds / rate;
  std::uint64_t token = 0;
  for (const PageShape& group : layout.groups) token += group.bytes_per_token();
  std::string text = fmt::format(
      "{} requests in {:.0f} s: {} prompt tokens, {} output tokens\n"
      "{:.1f}% of the prompt tokens repeat an earlier prompt: the most that a pool can find\n"
      "a token takes {} bytes in the pool",
      grouped(requests), seconds, grouped(facts.prompt_tokens), grouped(facts.output_tokens), repeated, grouped(token));
  if (layout.has_recurrent()) text += fmt::format(", a recurrent state {} bytes", grouped(layout.recurrent.bytes()));
  return text + "\n\n";
}

std::string table(std::span<const Row> rows) {
  std::string text =
      fmt::format("{:>10} {:<6} {:>21} {:>26} {:>23} {:>9} {:>8} {:>6} {:>18}\n", "", "", "found in the pool",
                  "first token, s", "between tokens, ms", "sus-", "", "", "tokens/s");
  text += fmt::format("{:>10} {:<6} {:>13} {:>7} {:>8} {:>8} {:>8} {:>7} {:>7} {:>7} {:>9} {:>8} {:>6} {:>9} {:>8}\n",
                      "pool", "policy", "tokens", "share", "50%", "95%", "99%", "50%", "95%", "99%", "pensions",
                      "refused", "busy", "prompts", "answers");
  for (const Row& row : rows) {
    const SimulationResult& r = row.result;
    const auto time = [](double seconds) { return fmt::format("{:.{}f}", seconds, seconds < 100 ? 2 : 0); };
    fmt::format_to(
        std::back_inserter(text),
        "{:>10} {:<6} {:>13} {:>6.1f}% {:>8} {:>8} {:>8} {:>7.1f} {:>7.1f} {:>7.1f} {:>9} {:>8} {:>5.0f}% {:>9.0f} "
        "{:>8.0f}\n",
        in_units(row.memory), simulate::name(row.policy), grouped(r.hit_tokens), 100 * r.hit_share(),
        time(r.first_token.p50), time(r.first_token.p95), time(r.first_token.p99), 1e3 * r.between_tokens.p50,
        1e3 * r.between_tokens.p95, 1e3 * r.between_tokens.p99, grouped(r.suspensions), grouped(r.refused),
        r.seconds > 0 ? 100 * r.busy_seconds / r.seconds : 0, per_second(r.prompt_tokens, r),
        per_second(r.output_tokens, r));
  }
  return text;
}

// The share of found tokens over the size of the pool, and the most that can be found.
std::string drawing(std::span<const Row> rows, const TraceFacts& facts, const Style& style) {
  std::vector<Mark> marks;
  std::vector<Curve> curves;
  double top = share_of(facts.repeated_tokens, facts.prompt_tokens);
  const double most = top;
  for (const Row& row : rows) {
    const double x = std::log2(static_cast<double>(row.memory));
    if (std::ranges::find(marks, x, &Mark::x) == marks.end()) marks.push_back({x, in_units(row.memory)});
    auto curve = std::ranges::find(curves, simulate::name(row.policy), &Curve::name);
    if (curve == curves.end()) curve = curves.insert(curves.end(), {std::string(simulate::name(row.policy)), {}});
    curve->points.emplace_back(x, row.result.hit_share());
    top = std::max(top, row.result.hit_share());
  }
  std::ranges::sort(marks, {}, &Mark::x);
  if (marks.size() < 2 || top == 0) return "";
  for (Curve& curve : curves) std::ranges::sort(curve.points);
  curves.push_back({"the most that can be found", {{marks.front().x, most}, {marks.back().x, most}}});
  return "\nPrompt tokens found in the pool, by its size\n" + plot(curves, marks, top, style);
}

}  // namespace

Result<std::string> simulate(const SimulateOptions& options, const Console& console) {
  simulate::SimulationOptions run = options.engine;
  const auto layout = layout_of(options);
  if (!layout) return std::unexpected(layout.error());
  run.layout = *layout;
  run.checkpoint_unit = model::checkpoint_unit_for(layout->block_size);
  run.costs = costs_of(options.rates);
  if (!options.costs.empty()) {
    const auto costs = simulate::read_costs(options.costs);
    if (!costs) return std::unexpected(costs.error());
    run.costs = *costs;
  }
  const auto trace = simulate::read_trace(options.traces, options.limit);
  if (!trace) return std::unexpected(trace.error());
  const TraceFacts facts = facts_of(*trace);
  if (options.target_itl >= 0) run.target_itl = std::chrono::milliseconds(options.target_itl);
  std::vector<Row> rows;
  for (const std::uint64_t memory : options.memory) {
    for (const Eviction policy : options.policies) {
      run.memory = memory;
      run.policy = policy;
      Progress progress(console.err, console.err_style, fmt::format("{} {}", in_units(memory), simulate::name(policy)));
      auto result = simulate::simulate(*trace, run, [&](auto done, auto all) { progress.update(done, all); });
      if (!result) return fail(fmt::format("{}: {}", in_units(memory), result.error().message));
      rows.push_back({memory, policy, *result});
    }
  }
  std::string text;
  if (options.json) {
    for (const Row& row : rows) text += json_row(row, facts, options);
    return text;
  }
  return head(facts, trace->requests.size(), *layout, run.rate) + table(rows) + drawing(rows, facts, console.out_style);
}

}  // namespace quire::cli
