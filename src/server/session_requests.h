// Reads the bodies of /v1/sessions, and of chats that continue a session.
//
// Who may call: any thread; there is no state. A turn belongs to the caller.
// How it fails: with the error for the client, which names the field.
#pragma once

#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <boost/json/object.hpp>

#include "quire/server/completion_request.h"
#include "quire/server/session_store.h"
#include "quire/server/text_model.h"

namespace quire::server {

// Adds what the body has to the record: "prompt" (a text or token ids), or "messages" and "tools", and "options".
// Nothing at all is right for a new session only.
std::expected<void, ApiError> extend(SessionRecord& record, boost::json::object body, const TextModel& model,
                                     bool fresh);

// An answer that continues the session, as of /v1/completions; "continue": the rest of its last answer, with the
// options that this was asked for with. `room`: tokens that the session may have more.
CompletionResult parse_generate(std::shared_ptr<SessionTurn> turn, boost::json::object body, const TextModel& model,
                                std::uint64_t room);
// A chat whose messages continue those of the session.
CompletionResult parse_session_chat(std::shared_ptr<SessionTurn> turn, boost::json::object body, const TextModel& model,
                                    std::uint64_t room);

// A name of a file: letters, digits, '.', '_' and '-', not '.' first.
std::expected<std::string, ApiError> file_name(const boost::json::object& body, const std::string& otherwise);

// For clients. `whole`: with messages, options and, if `ids`, the token ids.
boost::json::object session_json(const SessionRecord& record, bool busy);
boost::json::object whole_session_json(const SessionRecord& record, bool busy, bool ids);

}  // namespace quire::server
