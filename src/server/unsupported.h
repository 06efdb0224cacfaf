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
  // Endpoints, as bits. Conversations are the three that take one.
  enum In : unsigned { Completions = 1, Chats = 2, Responses = 4, Messages = 8, Conversations = 14, All = 15 };
  std::string_view name;
  std::string_view neutral = "[]";  // a JSON array: the values without an effect. null is always one.
  std::string_view instead = {};    // what a client can do, for the message
  unsigned in = All;                // the endpoints that refuse it; another entry may have others
  std::string_view only_with = {};  // it has an effect only beside this field
};

// docs/api.md has the same table.
std::span<const UnsupportedField> unsupported_fields();

// The error for the first field of the body that has an effect, or nothing. `endpoint` is one of them.
std::optional<ApiError> refuse_unsupported(const boost::json::object& body, UnsupportedField::In endpoint);

}  // namespace quire::server
