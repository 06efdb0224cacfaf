// Endpoints that need the text side of the model alone: tokens, templates, and what the model is.
//
// Who may call: any thread; there is no state.
// How they fail: with the error for the client, which names the field.
#pragma once

#include <cstdint>
#include <expected>
#include <string>

#include <boost/json/object.hpp>

#include "quire/server/api_error.h"
#include "quire/server/text_model.h"
#include "quire/state/ids.h"

namespace quire::server {

std::expected<std::string, ApiError> tokenized(const boost::json::object& body, const TextModel& model);
std::expected<std::string, ApiError> detokenized(const boost::json::object& body, const TextModel& model);
// The text that a conversation becomes, before it is tokenized.
std::expected<std::string, ApiError> templated(const boost::json::object& body, const TextModel& model);

// A key for whoever chooses among servers: prompts of one tenant that begin with the same blocks have the same key, on
// every server with this tokenizer, this template and these keys. `block_size`: tokens of a block.
std::expected<std::string, ApiError> routed(const boost::json::object& body, const TextModel& model, Namespace tenant,
                                            std::uint32_t block_size);

// An entry of /v1/models.
boost::json::object model_object(const TextModel& model, std::uint32_t adapter = 0);
// As llama.cpp's server tells it, as far as there is something to tell. `slots`: sequences that can run at once.
// `speculative`: further tokens are guessed.
boost::json::object props(const TextModel& model, std::uint32_t slots, bool speculative);

}  // namespace quire::server
