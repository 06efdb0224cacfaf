#include "quire/cli/tier_options.h"

#include <utility>

#include <CLI/CLI.hpp>

#include "quire/cli/options.h"
#include "quire/cli/sizes.h"
#include "quire/tiers/disk_tier.h"
#include "quire/tiers/shared_tier.h"

namespace quire::cli {

void add_tier_options(CLI::App& command, TierOptions& options) {
  add_bytes(command, "--host-cache", options.host,
            "With a GPU: keep what its pool evicts in so much pinned host memory,\ne.g. 8G (default: none)");
  command
      .add_option("--disk-cache", options.disk,
                  "Keep computed prefixes in this directory, at most SIZE bytes on the\ndisk. They outlive the server "
                  "(default: none)")
      ->type_name("DIR:SIZE");
  command
      .add_option("--shared-cache", options.shared,
                  "Keep them in a Redis or Valkey server or cluster, where other servers\nfind them: "
                  "redis://[USER:PASSWORD@]HOST[:PORT]; rediss://: TLS\n(default: none)")
      ->type_name("URL");
  command.add_flag(
      "--write-back", options.write_back,
      "Write to disk and shared cache only what the pool evicts, and at a\nnormal end what is cached (default: "
      "as it is computed, so that a\ncrash loses seconds)");
  add_bytes(command, "--cache-staging", options.staging,
            "Host memory for what is on its way to and from these caches\n(default: 256M)");
}

Result<std::shared_ptr<tiers::Tiers>> open_tiers(const TierOptions& options,
                                                 const std::function<void(const std::string&)>& log) {
  if (!options.any()) return nullptr;
  auto tiers = std::make_shared<tiers::Tiers>(
      tiers::TiersOptions{.staging_bytes = options.staging, .write_back = options.write_back});
  if (!options.disk.empty()) {
    auto disk = tiers::parse_disk_tier(options.disk, parse_bytes);
    if (!disk) return fail("--disk-cache: " + disk.error().message);
    disk->log = log;
    auto tier = tiers::open_disk_tier(std::move(*disk), *tiers);
    if (!tier) return fail("--disk-cache: " + tier.error().message);
    tiers->add(std::move(*tier));
  }
  if (!options.shared.empty()) {
    auto tier = open_shared_tier({.url = options.shared}, *tiers);
    if (!tier) return fail("--shared-cache: " + tier.error().message);
    tiers->add(std::move(*tier));
  }
  return tiers;
}

}  // namespace quire::cli
