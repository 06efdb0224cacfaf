// The shared tier: objects in a Redis or Valkey server, a master with replicas, or a cluster. What one server computed
// is found by all that use the same store. docs/shared-tier.md has the keys, the options and what happens when it
// fails.
//
// It is a Tier (src/state/tier.h). One thread does all its input and output; done() is called there.
//
// How it fails: open_shared_tier() refuses a URL that is wrong, a file of certificates that cannot be read, and any URL
// if this build has no shared tier. A server that cannot be reached is no failure: the tier opens, answers Failed at
// once, and tries again by itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "quire/base/error.h"
#include "quire/state/tier.h"

namespace quire {

struct SharedTierOptions {
  std::string url;                                         // src/tiers/redis_url.h
  std::size_t queue_jobs = 4096;                           // that wait; more are refused
  std::size_t active_jobs = 256;                           // that are under way
  std::uint64_t in_flight_bytes = std::uint64_t{4} << 20;  // of a connection; an object may be larger
};

Result<std::unique_ptr<Tier>> open_shared_tier(const SharedTierOptions& options, TierListener& listener);

}  // namespace quire
