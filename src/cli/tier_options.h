// The options of `quire serve` that say where state lies besides the pool, and what they open.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "quire/base/error.h"
#include "quire/tiers/tiers.h"

namespace CLI {
class App;
}

namespace quire::cli {

struct TierOptions {
  std::uint64_t host = 0;  // bytes; 0: none
  std::string disk;        // DIR:SIZE; empty: none
  std::string shared;      // URL; empty: none
  bool write_back = false;
  std::uint64_t staging = tiers::TiersOptions{}.staging_bytes;

  bool any() const { return host > 0 || !disk.empty() || !shared.empty(); }
};

void add_tier_options(CLI::App& command, TierOptions& options);

// Null: none is asked for. `log` gets one line at a time, on any thread, as long as the tiers live.
Result<std::shared_ptr<tiers::Tiers>> open_tiers(const TierOptions& options,
                                                 const std::function<void(const std::string&)>& log);

}  // namespace quire::cli
