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

// Whether the choice can be kept: "required", a name and `strict` need answers that follow a grammar.
std::optional<ApiError> check_enforceable(const ToolChoice& choice, const tools::ToolList& tools);

}  // namespace quire::server
