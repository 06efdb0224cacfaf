// What decides the order of eviction: the policy, the costs that the engine has measured, and what something cached is
// worth. Plain values, no state.
#pragma once

#include <cstdint>

namespace quire {

enum class Eviction : std::uint8_t {
  Lru,    // the least recently used first
  Value,  // the least value per byte first
};

// What it costs to compute a token again. The engine measures it; only the ratio of the two matters.
struct RecomputeCosts {
  double token = 1.0 / 1024;                    // seconds
  double token_per_context = 1.0 / (1u << 25);  // seconds more for each token before it: attention
  friend bool operator==(const RecomputeCosts&, const RecomputeCosts&) = default;
};

// Seconds to compute the tokens [begin, end) of a sequence.
double cost_of(const RecomputeCosts& costs, std::uint64_t begin, std::uint64_t end);

// Seconds saved per byte and tick, for something that is wanted `rate` times per tick.
double value_per_byte(double rate, double cost, std::uint64_t bytes);

// A block without a recurrent state is of one of these kinds: how often sequences came back to its path, and whether it
// was itself used again.
inline constexpr std::uint32_t kMostTurns = 2;
inline constexpr std::uint32_t kBlockKinds = 2 * (kMostTurns + 1);
constexpr std::uint8_t block_kind(std::uint32_t turn, bool reused) {
  return static_cast<std::uint8_t>(2 * turn + (reused ? 1 : 0));
}
// The turn of a new block below its parent: a block that continues a path that was used again is one turn later.
constexpr std::uint32_t turn_below(std::uint32_t turn, bool reused) {
  return reused && turn < kMostTurns ? turn + 1 : turn;
}

// A checkpoint is of one of these kinds: `covered`: another one was kept after it on its path; `asked`: the engine
// asked for it there; `resumed`: a sequence has started from it.
inline constexpr std::uint32_t kCheckpointKinds = 8;
constexpr std::uint8_t checkpoint_kind(bool covered, bool asked, bool resumed) {
  return static_cast<std::uint8_t>((covered ? 4 : 0) + (asked ? 2 : 0) + (resumed ? 1 : 0));
}

}  // namespace quire
