#include "quire/server/tenant_limits.h"

namespace quire::server {

std::vector<engine::TenantOptions> engine_options(std::span<const TenantRef> tenants) {
  std::vector<engine::TenantOptions> all;
  for (const TenantRef& tenant : tenants) {
    if (tenant->weight == 1 && tenant->max_sequences == 0 && tenant->tokens_per_minute == 0) continue;
    all.push_back({.id = tenant->id,
                   .weight = tenant->weight,
                   .max_sequences = tenant->max_sequences,
                   .tokens_per_minute = tenant->tokens_per_minute});
  }
  return all;
}

std::vector<Share> shares_of(std::span<const TenantRef> tenants) {
  std::vector<Share> all;
  for (const TenantRef& tenant : tenants) {
    if (tenant->floor_bytes == 0 && tenant->cap_bytes == 0) continue;
    all.push_back({.id = tenant->id,
                   .floor = tenant->floor_bytes,
                   .cap = tenant->cap_bytes == 0 ? UINT64_MAX : tenant->cap_bytes});
  }
  return all;
}

}  // namespace quire::server
