// How tests open a disk tier on a disk of their own.
#pragma once

#include <memory>

#include "quire/tiers/disk_tier.h"

namespace rocksdb {
class Env;
}

namespace quire::tiers {

// `env` must live as long as the tier.
Result<std::unique_ptr<Tier>> open_disk_tier_on(rocksdb::Env* env, DiskTierOptions options, TierListener& listener);

}  // namespace quire::tiers
