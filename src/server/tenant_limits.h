// The weights and limits of tenants, as the engine and the pool take them.
//
// Who may call: give_shares() on the engine's thread, the rest anywhere.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "quire/engine/tenants.h"
#include "quire/server/keys.h"

namespace quire::server {

// Tenants with the engine's default values are left out: the engine looks at each that it knows in every step.
std::vector<engine::TenantOptions> engine_options(std::span<const TenantRef> tenants);

// How much of the cache is a tenant's.
struct Share {
  Namespace id = 0;
  std::uint64_t floor = 0;
  std::uint64_t cap = UINT64_MAX;

  bool operator==(const Share&) const = default;
};
// Of tenants that have a floor or a cap.
std::vector<Share> shares_of(std::span<const TenantRef> tenants);

// Gives the pool the shares of now and takes back those of before. Returns what the operator should know; "" if all is
// well. The pool is a SequencePool, or a stand-in of a test.
template <typename Pool>
std::string give_shares(Pool& pool, std::span<const Share> before, std::span<const Share> now) {
  std::string problem;
  const auto set = [&](const Share& share) {
    if (const auto done = pool.set_share(share.id, share.floor, share.cap); !done && problem.empty()) {
      problem = "a floor or cap of a key is not in force: " + done.error().message();
    }
  };
  for (const Share& old : before) {
    if (std::ranges::find(now, old.id, &Share::id) == now.end()) set({.id = old.id});
  }
  for (const Share& share : now) set(share);
  return problem;
}

}  // namespace quire::server
