// What a generation cost, for people and as JSON.
#pragma once

#include <cstdint>
#include <string>

#include <boost/json/object.hpp>

#include "quire/cli/generate.h"
#include "quire/state/sequence_pool.h"

namespace quire::cli {

struct Timing {
  std::uint32_t tokens = 0;
  double seconds = 0;
  double per_second() const { return seconds > 0 ? tokens / seconds : 0; }
};

// What one sequence holds of a pool.
struct PoolUse {
  std::uint64_t pages = 0, states = 0, bytes = 0;
  std::uint64_t pool_bytes = 0;
};
PoolUse pool_use(const SequencePool& pool);

// "12 pages and 1 state, 1.4 MiB of 12.0 MiB"
std::string describe(const PoolUse& use);
// "7 tokens, 812.3 a second, 0.01 s"
std::string describe(const Timing& timing);
boost::json::object to_json(const PoolUse& use);
boost::json::object to_json(const Timing& timing);

}  // namespace quire::cli
