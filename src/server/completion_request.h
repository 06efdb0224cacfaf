// Parses the JSON of /v1/completions and /v1/chat/completions into requests for the engine: fills in defaults, renders
// the chat template, tokenizes the texts.
//
// Who may call: any thread; there is no state.
// What holds: text from users cannot become a control token. In chats only the template writes control tokens. Unknown
//   roles are refused, and so are names, tools and other values that spell a control token.
// How it fails: with the error for the client, which names the field.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/object.hpp>

#include "quire/engine/request.h"
#include "quire/server/api_error.h"
#include "quire/server/text_model.h"

namespace quire::server {

struct CompletionRequest {
  bool chat = false;
  std::vector<std::vector<Token>> prompts;  // each is a request to the engine
  std::vector<std::string> echoes;          // for each prompt, the text before its answers; empty: no echo
  engine::Request options;                  // everything but the prompt, the same for all prompts
  bool stream = false;
  bool include_usage = false;
};

using CompletionResult = std::expected<CompletionRequest, ApiError>;

CompletionResult parse_completion(const boost::json::object& body, const TextModel& model);
CompletionResult parse_chat(const boost::json::object& body, const TextModel& model);

// Parses a body, which must be a JSON object.
std::expected<boost::json::object, ApiError> parse_body(std::string_view body);

// The tokens of a text that the model is to continue.
std::expected<std::vector<Token>, ApiError> encode_prompt(std::string_view text, const TextModel& model,
                                                          const std::string& field);
// Reads an array of token ids and checks that the model has them.
std::expected<std::vector<Token>, ApiError> token_ids(const boost::json::array& ids, const TextModel& model,
                                                      const std::string& field);

}  // namespace quire::server
