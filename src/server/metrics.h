// Counters of the server, in the text format of Prometheus.
//
// Who may call: the loop's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "quire/engine/engine.h"
#include "quire/engine/service.h"
#include "quire/server/http_server.h"

namespace quire::server {

// How a completion ended for its client.
enum class Outcome : std::uint8_t {
  Finished,
  Invalid,    // refused: 400, 404
  QueueFull,  // refused: 429, or 503 because too many wait to be parsed
  Stopping,   // refused or cut off: the server shuts down
  Gone,       // the client went away
  TooSlow,    // the client did not read
  Deadline,   // its time was up
  Failed,     // the device failed, or all logits were NaN
};
inline constexpr std::size_t kOutcomes = 8;
const char* name(Outcome outcome);

class Metrics {
 public:
  Metrics();
  ~Metrics();

  void completed(Outcome outcome) { ++outcomes_[static_cast<std::size_t>(outcome)]; }
  void answered(unsigned status) { ++statuses_[status]; }
  void first_token(double seconds);
  void next_token(double seconds);

  // All metrics: those of the engine, the pool and HTTP, and those counted here. `has_keys`: see miss_reason().
  std::string text(const engine::EngineStats& engine, const PoolStats& pool,
                   const engine::Service::Integrity& integrity, const HttpCounts& http, bool has_keys) const;

 private:
  struct Histograms;
  std::array<std::uint64_t, kOutcomes> outcomes_{};
  std::map<unsigned, std::uint64_t> statuses_;
  std::unique_ptr<Histograms> histograms_;
};

}  // namespace quire::server
