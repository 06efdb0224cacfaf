// Dates as users write them: 2024-07-26, or 2024-07-26T09:30, 2024-07-26 09:30:15, with a fraction or a time zone
// behind them if they have to be there. It is what a clock on the wall shows: a fraction or a zone changes nothing.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

namespace quire::cli {

// Midnight, if there is no time of day. Empty for what is no date, or a day or time that does not exist.
std::optional<std::chrono::local_seconds> parse_date(std::string_view text);

}  // namespace quire::cli
