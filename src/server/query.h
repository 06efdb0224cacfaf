// The query of a request's path: name=value&name=value.
//
// Who may call: any thread; there is no state.
// How it fails: with the error for the client, which names the field.
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>

#include "quire/server/api_error.h"

namespace quire::server {

// The value of `name`, without escapes. Empty: it is not there.
std::optional<std::string> text_in_query(std::string_view query, std::string_view name);
// The same as a whole number.
std::expected<std::optional<std::uint64_t>, ApiError> number_in_query(std::string_view query, std::string_view name);

}  // namespace quire::server
