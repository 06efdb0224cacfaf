// A conversation as clients of OpenAI's API send it, as tokens: messages and tools checked, put through the model's
// template, and tokenized so that what people wrote stays text.
//
// Who may call: any thread; there is no state.
// How it fails: with the error to answer, which names the message and field, or has the template's own words.
#pragma once

#include <expected>
#include <vector>

#include <boost/json/object.hpp>

#include "quire/server/api_error.h"
#include "quire/server/text_model.h"

namespace quire::server {

// Reads "messages", "tools", "tool_choice", "chat_template_kwargs", "add_generation_prompt" and
// "continue_final_message" (the last message is the beginning of the answer, which goes on where it ends).
std::expected<std::vector<Token>, ApiError> chat_prompt(const boost::json::object& body, const TextModel& model);

}  // namespace quire::server
