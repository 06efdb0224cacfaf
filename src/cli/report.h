// What a generation cost, for people and as JSON.
#pragma once

#include <cstdint>
#include <string>

#include <boost/json/object.hpp>

#include "quire/cli/ask.h"
#include "quire/state/sequence_pool.h"

namespace quire::cli {

// What a pool held at most: of one sequence, where it has no more.
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
