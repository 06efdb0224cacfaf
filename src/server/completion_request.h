// Parses the JSON of /v1/completions and /v1/chat/completions into requests for the engine: fills in defaults, renders
// the chat template, tokenizes the texts.
//
// Who may call: any thread; there is no state.
// What holds: text from users cannot become a control token. In chats only the template writes control tokens, and of
// the
//   client's text only roles, which are checked, count as the template's. What a request costs is bounded: every list
//   has a limit, and all prompts share the options.
// How it fails: with the error for the client, which names the field.
#pragma once

#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/object.hpp>

#include "quire/engine/request.h"
#include "quire/server/api_error.h"
#include "quire/server/chat_answer.h"
#include "quire/server/text_model.h"

namespace quire::server {

// Limits of one call; docs/api.md has them.
inline constexpr std::size_t kMostPrompts = 1024;
inline constexpr std::size_t kMostChoicesInAll = 1024;  // prompts times n, or times best_of
inline constexpr std::size_t kMostStops = 16;
inline constexpr std::size_t kMostStopIds = 256;
inline constexpr std::size_t kMostEchoBytes = std::size_t{1} << 20;       // of all choices
inline constexpr std::size_t kMostPromptLogprobs = std::size_t{1} << 18;  // of all choices, alternatives included

class SessionTurn;

struct CompletionRequest {
  bool chat = false;
  std::vector<std::vector<Token>> prompts;  // each is a request to the engine
  std::vector<std::string> echoes;          // for each prompt, the text before its answers; empty: no echo
  engine::Request options;                  // everything but the prompt, the same for all prompts
  bool stream = false;
  bool include_usage = false;
  // Log-probabilities of the prompts' tokens. The engine is asked for the larger number.
  std::int32_t echo_logprobs = -1;    // before those of the answer, as many alternatives as there; negative: none
  std::int32_t prompt_logprobs = -1;  // in a field of their own; negative: none
  AnswerStyle style;                  // of a chat
  // The session that the answer becomes part of (session_store.h); it has one prompt and one choice then. Null: none.
  std::shared_ptr<SessionTurn> session;
  std::string session_id;
};

using CompletionResult = std::expected<CompletionRequest, ApiError>;

// They take the body apart.
CompletionResult parse_completion(boost::json::object&& body, const TextModel& model);
CompletionResult parse_chat(boost::json::object&& body, const TextModel& model);

class Fields;
// The number of the adapter that a request names as "model:NAME"; 0: none. The error if it names a model or an adapter
// that there is not.
std::expected<std::uint32_t, ApiError> check_model(Fields& fields, const TextModel& model);
ApiError no_model(std::string_view name, const TextModel& model);
// Parses a body, which must be a JSON object.
std::expected<boost::json::object, ApiError> parse_body(std::string_view body);

// The tokens of a text that the model is to continue.
std::expected<std::vector<Token>, ApiError> encode_prompt(std::string_view text, const TextModel& model,
                                                          const std::string& field);
// The error for a prompt that is too long for the context, whatever its answer.
ApiError too_long(const std::string& field, std::string_view has, const TextModel& model);
// Reads an array of token ids and checks that the model has them.
std::expected<std::vector<Token>, ApiError> token_ids(const boost::json::array& ids, const TextModel& model,
                                                      const std::string& field);

}  // namespace quire::server
