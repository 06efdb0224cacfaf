// The cost of a generation, as text and as JSON.
#pragma once

#include <cstdint>
#include <string>

#include <boost/json/object.hpp>

#include "quire/cli/ask.h"
#include "quire/state/sequence_pool.h"

namespace quire::cli {

// The most that the pool held. (With one sequence: what that sequence needed.)
struct PoolUse {
  std::uint64_t pages = 0, states = 0, bytes = 0;
  std::uint64_t pool_bytes = 0;
};
PoolUse pool_use(const SequencePool& pool);

// "12 pages and 1 state held, 1.4 MiB of 12.0 MiB"
std::string describe(const PoolUse& use);
// "7 tokens in 0.01 s, 812.3 a second"
std::string describe(const Timing& timing);
boost::json::object to_json(const PoolUse& use);
boost::json::object to_json(const Timing& timing);

}  // namespace quire::cli
