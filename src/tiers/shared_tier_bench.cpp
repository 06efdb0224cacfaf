// Speed of the shared tier against a Redis server, compared with what redis-benchmark reports for SET and GET of the
// same size on the same server: tests/redis/bench starts a server, and runs both. usage: shared_tier_bench URL BYTES
// [OBJECTS]
//
// Prints MB/s of put (new objects), put again (they are there), get, and find (in thousands a second).
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>

#include "quire/tiers/shared_tier.h"
#include "quire/tiers/shared_tier_testing.h"

using namespace quire;
using namespace quire::tiers;
using Clock = std::chrono::steady_clock;

namespace {

struct Bench {
  Tier& tier;
  Outcomes& outcomes;
  std::vector<std::vector<std::byte>> memory;
  std::size_t submitted = 0;

  // Jobs with these keys, in rounds of the memory that there is. Returns seconds.
  double run(TierJob::Kind kind, std::size_t first, std::size_t count) {
    const auto begin = Clock::now();
    for (std::size_t done = 0; done < count; done += memory.size()) {
      std::vector<TierJob> jobs;
      for (std::size_t i = 0; i < std::min(memory.size(), count - done); ++i) {
        jobs.push_back({kind, test_key(first + done + i), memory[i].data(), memory[i].size(), submitted + i});
      }
      submitted += tier.submit(jobs);
      outcomes.wait(submitted);
    }
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: shared_tier_bench URL BYTES [OBJECTS]\n");
    return 2;
  }
  const std::size_t bytes = std::strtoull(argv[2], nullptr, 10);
  const std::size_t objects = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : (std::size_t{512} << 20) / bytes;
  Outcomes outcomes;
  auto tier = open_shared_tier({.url = argv[1]}, outcomes);
  if (!tier) {
    fmt::print(stderr, "{}\n", tier.error().message);
    return 1;
  }
  Bench bench{**tier, outcomes, {}};
  for (std::size_t i = 0; i < 64; ++i) bench.memory.push_back(test_bytes(i, bytes));
  bench.run(TierJob::Kind::Find, 0, 1);  // connects
  const double total = static_cast<double>(objects) * static_cast<double>(bytes) / 1e6;
  const double put = bench.run(TierJob::Kind::Put, 0, objects);
  const double again = bench.run(TierJob::Kind::Put, 0, objects);
  const double get = bench.run(TierJob::Kind::Get, 0, objects);
  const double find = bench.run(TierJob::Kind::Find, 0, objects);
  const TierUsage usage = (*tier)->usage();
  if (usage.failed > 0 || usage.hits != objects) {
    fmt::print(stderr, "{} jobs failed, {} of {} found: {}\n", usage.failed, usage.hits, objects, usage.problem);
    return 1;
  }
  fmt::print("{:.0f} {:.0f} {:.0f} {:.1f}\n", total / put, total / again, total / get,
             static_cast<double>(objects) / find / 1000);
  return 0;
}
