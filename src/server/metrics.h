// Counters of the server, in the text format of Prometheus.
//
// Who may call: the loop's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quire/engine/engine.h"
#include "quire/engine/service.h"
#include "quire/server/http_server.h"
#include "quire/server/response_store.h"
#include "quire/tiers/tiers.h"

namespace quire::server {

// How a completion ended for its client.
enum class Outcome : std::uint8_t {
  Finished,
  Invalid,      // refused: 400, 404
  QueueFull,    // refused: 429, or 503 because too many wait to be parsed
  Stopping,     // refused or cut off: the server shuts down
  Gone,         // the client went away
  TooSlow,      // the client did not read
  Deadline,     // its time was up
  Failed,       // the device failed, or all logits were NaN
  RateLimited,  // refused: 429, the tenant has used up its tokens
};
inline constexpr std::size_t kOutcomes = 9;
const char* name(Outcome outcome);

// What the tenants of one name used.
struct TenantCount {
  std::string name;
  engine::TenantUsage usage;
  std::uint64_t rate_limited = 0;  // requests that were refused
};

class Metrics {
 public:
  Metrics();
  ~Metrics();

  void completed(Outcome outcome) { ++outcomes_[static_cast<std::size_t>(outcome)]; }
  void answered(unsigned status) { ++statuses_[status]; }
  void rate_limited(Namespace tenant) { ++rate_limited_[tenant]; }
  void first_token(double seconds);
  void next_token(double seconds);

  // The usage by name, in the order of names. `names`: of the tenants to count. Several may have the same name: a name
  // may be given again after its key was revoked.
  std::vector<TenantCount> by_name(const std::map<Namespace, std::string>& names,
                                   std::span<const engine::TenantUsage> usage) const;
  // All metrics: those of the engine, the pool and HTTP, those counted here, and those of the tenants that may be
  // shown. `tiers`: null: there are none. `checkpoint_unit`: in tokens; 0: no recurrent layers. `has_keys`: see
  // miss_reason().
  std::string text(const engine::EngineStats& engine, const PoolStats& pool, const tiers::TiersStats* tiers,
                   std::uint32_t checkpoint_unit, const engine::Service::Integrity& integrity, const HttpCounts& http,
                   bool has_keys, std::span<const TenantCount> tenants, const ResponseStore::Count& kept) const;

 private:
  struct Histograms;
  std::array<std::uint64_t, kOutcomes> outcomes_{};
  std::map<unsigned, std::uint64_t> statuses_;
  std::map<Namespace, std::uint64_t> rate_limited_;
  std::unique_ptr<Histograms> histograms_;
};

}  // namespace quire::server
