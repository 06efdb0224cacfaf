#include "quire/tiers/shared_tier.h"

#if QUIRE_SHARED_TIER
#include "quire/tiers/redis_tier.h"
#endif

namespace quire {

Result<std::unique_ptr<Tier>> open_shared_tier(const SharedTierOptions& options, TierListener& listener) {
#if QUIRE_SHARED_TIER
  return tiers::open_redis_tier(options, listener);
#else
  (void)options, (void)listener;
  return fail("shared store: this build has none (it was configured without hiredis or Boost)");
#endif
}

}  // namespace quire
