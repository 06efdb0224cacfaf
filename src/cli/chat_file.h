// A conversation as a file: JSON with an array "messages".
//
// What holds: `quire render --messages` and `/load` read a file in the same way. No field of a message is dropped or
//   changed: what was loaded and is saved is the same conversation.
// How it fails: with one line that names the file and what is wrong in it, with line and column if it is not JSON. A
//   file that exists is replaced only when the new one is complete.
#pragma once

#include <cstddef>
#include <string>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "quire/base/error.h"

namespace quire::cli {

constexpr std::size_t kMaxMessagesBytes = std::size_t{64} << 20;

Result<void> save_messages(const std::string& path, const boost::json::array& messages);

// The variables of a chat template that a file has: an object with an array "messages" and any others, or that array
// alone. "-" is standard input.
Result<boost::json::object> read_variables(const std::string& path);

// The messages of such a file; its other variables are not read. Each message is an object, and its role is one that a
// template may make control tokens from (quire/text/chat_prompt.h). All else in it is for the template to judge.
Result<boost::json::array> load_messages(const std::string& path);

// The text of a message: its content, or the texts of its parts. Empty if it has none, as where a tool is only called.
std::string message_text(const boost::json::object& message);

}  // namespace quire::cli
