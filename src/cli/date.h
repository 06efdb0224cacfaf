// Dates as users write them: 2024-07-26, 2024-07-26T09:30 or 2024-07-26 09:30:15. A fraction of a second or a time zone
// may follow; both are ignored. The result is local time.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

namespace quire::cli {

// Midnight if there is no time of day. Empty if the text is not a date, or the day or time does not exist.
std::optional<std::chrono::local_seconds> parse_date(std::string_view text);

}  // namespace quire::cli
