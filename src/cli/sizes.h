// Amounts of memory as users write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace quire::cli {

// Parses "512M", "2G", "1.5GiB", "100000": bytes, or a number with K, M, G or T (powers of 1024); "iB" or "B" may
// follow. Empty if the text is not such an amount, is 0, or does not fit into 64 bits.
std::optional<std::uint64_t> parse_bytes(std::string_view text);

}  // namespace quire::cli
