// What /v1/completions and /v1/chat/completions are asked for, taken from JSON and made ready for the engine: defaults
// filled in, templates rendered, texts tokenized.
//
// Who may call: any thread; there is no state.
// What holds: text that people wrote cannot become a control token. In chats that is the template's alone; roles are
//   those there are, and names, tools and the like that spell a control token are refused.
// How it fails: with the error to answer, which names the field.
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
  std::vector<std::string> echoes;          // with each prompt, what stands before its answers; empty: no echo
  engine::Request options;                  // of all of them: everything but the prompt
  bool stream = false;
  bool include_usage = false;
};

using CompletionResult = std::expected<CompletionRequest, ApiError>;

CompletionResult parse_completion(const boost::json::object& body, const TextModel& model);
CompletionResult parse_chat(const boost::json::object& body, const TextModel& model);

// The object that a body must be.
std::expected<boost::json::object, ApiError> parse_body(std::string_view body);

// The tokens of a text to be gone on with, or why there are none.
std::expected<std::vector<Token>, ApiError> encode_prompt(std::string_view text, const TextModel& model,
                                                          const std::string& field);
// An array of token ids of the model.
std::expected<std::vector<Token>, ApiError> token_ids(const boost::json::array& ids, const TextModel& model,
                                                      const std::string& field);

}  // namespace quire::server
