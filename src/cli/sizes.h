// Amounts of memory as users write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace quire::cli {

// "512M", "2G", "1.5GiB", "100000": bytes, or with K, M, G or T (by 1024) behind the number; "iB" or "B" may follow.
// Empty for what is no such amount, is 0, or does not fit 64 bits.
std::optional<std::uint64_t> parse_bytes(std::string_view text);

}  // namespace quire::cli
