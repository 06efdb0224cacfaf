#include "quire/bench/best_moment.h"

#include <algorithm>

namespace quire::bench {

bool BestMoment::count(double before, double rate, double behind) {
  // If the two speeds differ by more, the memory changed its state during the moment.
  constexpr double kSame = 0.9;
  const double most = std::max(before, behind);
  const bool steady = most > 0 && std::min(before, behind) >= kSame * most;
  const bool better = !rate_ || (steady != read_.has_value() ? steady : rate > *rate_);
  if (!better) return false;
  rate_ = rate;
  read_ = steady ? std::optional(most) : std::nullopt;
  return true;
}

}  // namespace quire::bench
