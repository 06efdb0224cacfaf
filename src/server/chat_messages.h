// Turns a conversation in the format of OpenAI's API into tokens. Checks messages and tools, renders the model's chat
// template, and tokenizes the result so that text from users never becomes a control token.
//
// Who may call: any thread; there is no state.
// How it fails: with the error for the client. It names the message and field, or is the template's own message.
#pragma once

#include <cstddef>
#include <expected>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "quire/server/api_error.h"
#include "quire/server/text_model.h"
#include "quire/tools/detect.h"

namespace quire::server {

// JSON values in messages, tools and chat_template_kwargs together. Each of them becomes a value of the template's
// interpreter, which takes far more memory than its text.
inline constexpr std::size_t kMostChatValues = std::size_t{1} << 18;

// Reads "messages", "tools", "tool_choice", "reasoning_effort", "chat_template_kwargs", "add_generation_prompt" and
// "continue_final_message" (the last message is the beginning of the answer, and the model continues it).
std::expected<std::vector<Token>, ApiError> chat_prompt(boost::json::object body, const TextModel& model);
// The same as text, with the ranges that came from the client.
std::expected<text::ChatPrompt::Rendered, ApiError> rendered_chat(boost::json::object body, const TextModel& model);
// That text as tokens.
std::expected<std::vector<Token>, ApiError> chat_tokens(const text::ChatPrompt::Rendered& rendered,
                                                        const TextModel& model);

// The messages of a conversation as chat_prompt() gives them to the template: texts of parts joined, arguments of calls
// as the template expects them, ids that the model would write. No tools.
std::expected<void, ApiError> prepare_messages(boost::json::array& messages, const tools::Detected& style);

}  // namespace quire::server
