// Tools in words, for chat templates that do not write them into the prompt: the functions of the request, how to call
// one, and the calls and results of earlier messages. And the ids of those calls, for models whose ids are numbered.
//
// Who may call: any thread; there is no state.
// What holds: the parser (answer_parser.h) reads what write_call() writes. What a template writes by itself (Detected
//   says so) is not written again.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "quire/tools/detect.h"
#include "quire/tools/format.h"

namespace quire::tools {

// A section with one call, as the shape has it. `number`: where the shape is numbered.
std::string write_call(const Shape& shape, std::string_view name, const boost::json::object& arguments,
                       std::size_t number = 0);

// Rewrites the messages of a chat: functions and instructions go into the system message, or into the first message of
// the user where the template takes no system message; calls into the content of their message; results become messages
// of the user. If the calls of the style are numbered, ids become those that the model writes (numbered_id()): numbers
// go on through the conversation, and results have the id of their call. `tools` as in OpenAI's API, and well-formed;
// empty: there are none. Messages have a role and content.
void tell_tools(boost::json::array& messages, const boost::json::array& tools, const Detected& style);

}  // namespace quire::tools
