// The field `tool_choice`, and what follows from it and from `strict`.
//
// Who may call: any thread; there is no state.
// How it fails: with the error for the client.
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <string>

#include <boost/json/object.hpp>

#include "quire/server/api_error.h"
#include "quire/tools/tool_list.h"

namespace quire::server {

struct ToolChoice {
  enum class Kind : std::uint8_t { Auto, None, Required, Named };
  Kind kind = Kind::Auto;
  std::string name;  // Named
};
// "auto", "none", "required", or {"type": "function", "function": {"name": ...}}. Missing: auto.
std::expected<ToolChoice, ApiError> read_tool_choice(const boost::json::object& body);

// The error if the choice does not fit the tools.
std::optional<ApiError> check_choice(const ToolChoice& choice, const tools::ToolList& tools);

}  // namespace quire::server
