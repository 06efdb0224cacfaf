#include <fmt/format.h>

#include "quire/base/readable.h"
#include "quire/tiers/disk_tier.h"

namespace quire::tiers {

Result<DiskTierOptions> parse_disk_tier(std::string_view text,
                                        std::optional<std::uint64_t> (*parse_bytes)(std::string_view)) {
  // The directory's name may have colons.
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) {
    return fail(fmt::format("'{}' has no size; write DIR:SIZE, for instance /var/cache/quire:100G", text));
  }
  if (colon == 0) return fail(fmt::format("'{}' has no directory; write DIR:SIZE", text));
  const auto limit = parse_bytes(text.substr(colon + 1));
  if (!limit) {
    return fail(fmt::format("'{}' is not a size (in '{}'); write a number with M, G or T, for instance 100G",
                            text.substr(colon + 1), text));
  }
  if (*limit < kSmallestDiskLimit) {
    return fail(fmt::format("{} are too few for the disk cache {}: it needs at least {}", in_units(*limit),
                            text.substr(0, colon), in_units(kSmallestDiskLimit)));
  }
  DiskTierOptions options;
  options.path = text.substr(0, colon);
  options.limit_bytes = *limit;
  return options;
}

#if !QUIRE_DISK_TIER
Result<std::unique_ptr<Tier>> open_disk_tier(DiskTierOptions options, TierListener&) {
  return fail(fmt::format("{}: this build has no disk cache (RocksDB was not found)", options.path.string()));
}
#endif

}  // namespace quire::tiers
