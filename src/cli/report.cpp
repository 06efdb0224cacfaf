#include "quire/cli/report.h"

#include <fmt/format.h>

#include "quire/base/readable.h"

namespace quire::cli {

namespace {

std::string counted(std::uint64_t count, std::string_view what) {
  return fmt::format("{} {}{}", grouped(count), what, count == 1 ? "" : "s");
}

}  // namespace

PoolUse pool_use(const SequencePool& pool) {
  const PoolStats stats = pool.stats();
  PoolUse use{.pool_bytes = stats.arena_bytes};
  for (const ObjectCounts& pages : stats.pages) {
    use.pages += pages.high_water;
    use.bytes += pages.high_water * pages.object_bytes;
  }
  use.states = stats.states.high_water;
  use.bytes += stats.states.high_water * stats.states.object_bytes;
  return use;
}

std::string describe(const PoolUse& use) {
  std::string held;
  if (use.pages > 0) held = counted(use.pages, "page");
  if (use.states > 0) held += fmt::format("{}{}", held.empty() ? "" : " and ", counted(use.states, "state"));
  if (held.empty()) held = "nothing";
  return fmt::format("{} held, {} of {}", held, in_units(use.bytes), in_units(use.pool_bytes));
}

std::string describe(const Timing& timing) {
  return fmt::format("{} in {:.2f} s, {:.1f} a second", counted(timing.tokens, "token"), timing.seconds,
                     timing.per_second());
}

boost::json::object to_json(const PoolUse& use) {
  return {{"pages", use.pages}, {"states", use.states}, {"bytes", use.bytes}, {"pool_bytes", use.pool_bytes}};
}

boost::json::object to_json(const Timing& timing) {
  return {{"tokens", timing.tokens}, {"seconds", timing.seconds}, {"tokens_per_second", timing.per_second()}};
}

}  // namespace quire::cli
