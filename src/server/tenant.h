// What a key stands for: a tenant, with a name, rights and limits.
#pragma once

#include <cstdint>
#include <string>

#include "quire/state/ids.h"

namespace quire::server {

struct Tenant {
  // Its namespace for prefix reuse, and its id in the engine. Never given to another.
  Namespace id = 0;
  std::string name;  // in logs, metrics and `quire keys`
  double weight = 1;
  std::uint32_t max_sequences = 0;      // at once; 0: no limit of its own
  std::uint32_t tokens_per_minute = 0;  // 0: no limit
  std::int32_t max_priority = 0;        // requests with a higher priority are refused
  std::uint64_t floor_bytes = 0;        // of the cache: not evicted for others
  std::uint64_t cap_bytes = 0;          // of the cache: the most it may have; 0: no limit
  bool admin = false;                   // sees the sequences of all tenants
  // Of its session files, in --session-dir; Keys fills it in. Empty: the server has no keys, and one tenant.
  std::string folder;

  bool operator==(const Tenant&) const = default;
};

}  // namespace quire::server
