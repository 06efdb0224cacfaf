// Fields of other servers that would change the answer and that this server does not have. A client that sends one with
// an effect must hear of it; many clients send them with the value that has none ("mirostat": 0), and that is taken.
//
// Who may call: any thread; the table does not change.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include <boost/json/object.hpp>

#include "quire/server/api_error.h"

namespace quire::server {

struct UnsupportedField {
  enum class In { Both, Chats, Completions };
  std::string_view name;
  std::string_view neutral = "[]";  // a JSON array: the values without an effect. null is always one.
  std::string_view instead = {};    // what a client can do, for the message
  In in = In::Both;                 // add_special_tokens has two entries: its neutral values differ
  std::string_view only_with = {};  // it has an effect only beside this field
};

// docs/api.md has the same table.
std::span<const UnsupportedField> unsupported_fields();

// The error for the first field of the body that has an effect, or nothing.
std::optional<ApiError> refuse_unsupported(const boost::json::object& body, bool chat);

}  // namespace quire::server
