#include "quire/server/session_requests.h"

#include <algorithm>
#include <array>
#include <utility>

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "quire/server/chat_messages.h"
#include "quire/server/fields.h"
#include "quire/session/session_format.h"

namespace quire::server {
namespace {

namespace json = boost::json;

constexpr std::size_t kMostNameBytes = 128;

// Fields of one call, which are not kept for the answers after it.
constexpr std::array<std::string_view, 9> kOfOneCall = {
    "prompt", "messages", "stream", "stream_options", "max_tokens", "continue", "session", "model", "priority"};
constexpr std::array<std::string_view, 2> kInputs = {"prompt", "messages"};
// Fields that cannot be defaults.
constexpr std::array<std::string_view, 5> kNoDefaults = {"prompt", "messages", "continue", "session", "model"};
// Fields that make no sense for an answer in a session, or for its defaults: it has one answer, which follows all that
// is there.
constexpr std::array<std::string_view, 5> kNotInSessions = {"n", "best_of", "suffix", "echo", "prompt_logprobs"};

bool has(const json::object& body, std::string_view name) {
  const json::value* const value = body.if_contains(name);
  return value != nullptr && !value->is_null();
}

// The fields of `body`, and those of `defaults` that it does not have.
json::object with_defaults(json::object body, const json::object& defaults) {
  for (const auto& [name, value] : defaults) {
    if (!has(body, name)) body[name] = value;
  }
  return body;
}

json::object without(json::object body, std::span<const std::string_view> names) {
  for (const std::string_view name : names) body.erase(name);
  return body;
}

// The seed that the answer really has, so that it can go on with it.
void note_seed(json::object& options, const engine::Request& request) {
  options["seed"] = static_cast<std::int64_t>(request.sampling.seed);
}

std::expected<std::vector<Token>, ApiError> tokens_of(const json::value& prompt, const TextModel& model, bool first) {
  if (prompt.is_string()) {
    const std::string_view text = prompt.get_string();
    if (first) return encode_prompt(text, model, "prompt");
    if (text.size() > model.most_bytes()) {
      return std::unexpected(too_long("prompt", fmt::format("{} bytes", text.size()), model));
    }
    auto ids = model.tokenizer().encode(text, {.add_special = false});
    if (!ids) return std::unexpected(invalid(fmt::format("'prompt': {}", ids.error().message), "prompt"));
    return std::vector<Token>(ids->begin(), ids->end());
  }
  if (!prompt.is_array()) return wrong("prompt", "must be a string or an array of token ids");
  if (prompt.get_array().size() > model.context()) {
    return std::unexpected(too_long("prompt", fmt::format("{} tokens", prompt.get_array().size()), model));
  }
  return token_ids(prompt.get_array(), model, "prompt");
}

std::optional<ApiError> check_length(const SessionRecord& record, const TextModel& model) {
  if (record.tokens.size() <= model.context()) return std::nullopt;
  return ApiError{.message = fmt::format("the session would have {} tokens, too many for the context of {}",
                                         record.tokens.size(), model.context()),
                  .code = "context_length_exceeded"};
}

std::optional<ApiError> not_a_conversation(const SessionRecord& record) {
  if (record.messages || record.tokens.empty()) return std::nullopt;
  return invalid("the session is plain text: it can be continued with 'prompt' and /generate, not with 'messages'",
                 "messages");
}

// The tools of the body are those of the session from now on.
std::optional<ApiError> take_tools(SessionRecord& record, json::object& body) {
  if (!has(body, "tools")) {
    if (!record.tools.empty()) body["tools"] = record.tools;
    return std::nullopt;
  }
  if (!body["tools"].is_array()) return invalid("'tools' must be an array", "tools");
  record.tools = body["tools"].get_array();
  return std::nullopt;
}

// All messages of the conversation, with those of the body.
std::expected<json::array, ApiError> all_messages(const SessionRecord& record, json::object& body) {
  const json::value* const more = body.if_contains("messages");
  if (more == nullptr || !more->is_array() || more->get_array().empty()) {
    return std::unexpected(invalid("'messages' must be an array of messages, and not empty", "messages"));
  }
  json::array all = record.messages.value_or(json::array());
  all.insert(all.end(), more->get_array().begin(), more->get_array().end());
  body["messages"] = all;
  return all;
}

// A session keeps its adapter: what it remembers was computed with it. `asked` is that of a call that names a model.
std::optional<ApiError> settle_adapter(SessionRecord& record, bool named, std::uint32_t asked, const TextModel& model) {
  if (!named || asked == record.adapter.number) return std::nullopt;
  if (!record.tokens.empty()) {
    return invalid(fmt::format("'model' is '{}', and the session was begun with '{}'", model.name_of(asked),
                               model.name_of(record.adapter.number)),
                   "model");
  }
  record.adapter = {};
  if (asked == 0) return std::nullopt;
  const AdapterName& adapter = model.adapters()[asked - 1];
  record.adapter = {asked, adapter.name, session::short_name(adapter.fingerprint)};
  return std::nullopt;
}

std::expected<void, ApiError> add_messages(SessionRecord& record, json::object body, const TextModel& model) {
  if (auto error = not_a_conversation(record)) return std::unexpected(std::move(*error));
  auto all = all_messages(record, body);
  if (!all) return std::unexpected(all.error());
  if (auto error = take_tools(record, body)) return std::unexpected(std::move(*error));
  auto tokens = chat_prompt(std::move(body), model);
  if (!tokens) return std::unexpected(tokens.error());
  record.set_conversation(std::move(*all), std::move(*tokens));
  return {};
}

std::expected<void, ApiError> add_prompt(SessionRecord& record, const json::value& prompt, const TextModel& model) {
  if (record.messages && !record.messages->empty()) {
    return std::unexpected(
        invalid("the session is a conversation: it can be continued with 'messages', not with 'prompt'", "prompt"));
  }
  const auto tokens = tokens_of(prompt, model, record.tokens.empty());
  if (!tokens) return std::unexpected(tokens.error());
  record.messages.reset();
  record.tokens.insert(record.tokens.end(), tokens->begin(), tokens->end());
  if (!tokens->empty()) record.answer.reset();
  return {};
}

ApiError no_room() {
  return {.message = "the sessions have as many tokens as they may; delete or rewind one (see --session-tokens)",
          .code = "too_many_session_tokens"};
}

std::optional<ApiError> refuse_fields(const json::object& asked, std::span<const std::string_view> names) {
  const auto found = std::ranges::find_if(names, [&](std::string_view name) { return has(asked, name); });
  if (found == names.end()) return std::nullopt;
  return wrong(std::string(*found), "does not belong to an answer in a session").error();
}

// Not more tokens than the tenant's sessions may have.
std::optional<ApiError> limit_answer(CompletionRequest& request, std::uint64_t room) {
  if (room == 0 && request.options.max_tokens > 0) return no_room();
  request.options.max_tokens = static_cast<std::uint32_t>(std::min<std::uint64_t>(request.options.max_tokens, room));
  return std::nullopt;
}

}  // namespace

std::expected<void, ApiError> extend(SessionRecord& record, json::object body, const TextModel& model, bool fresh) {
  Fields fields(body);
  const auto adapter = check_model(fields, model);
  if (!adapter) return std::unexpected(adapter.error());
  if (auto error = settle_adapter(record, has(body, "model"), *adapter, model))
    return std::unexpected(std::move(*error));
  if (const json::object* const options = fields.object("options")) {
    for (const std::string_view name : kNotInSessions) {
      if (has(*options, name)) return wrong(fmt::format("options.{}", name), "cannot be a default of a session");
    }
    record.options = without(*options, kNoDefaults);
  }
  if (fields.error()) return std::unexpected(*fields.error());
  const bool prompt = has(body, "prompt"), messages = has(body, "messages");
  if (prompt && messages) {
    return std::unexpected(invalid("'prompt' and 'messages' cannot be used together", "messages"));
  }
  if (!prompt && !messages) {
    if (fresh) return {};
    return std::unexpected(invalid("'prompt' or 'messages' is missing", "prompt"));
  }
  body.erase("options");
  const auto added =
      prompt ? add_prompt(record, body.at("prompt"), model) : add_messages(record, std::move(body), model);
  if (!added) return added;
  if (auto error = check_length(record, model)) return std::unexpected(std::move(*error));
  return {};
}

CompletionResult parse_generate(std::shared_ptr<SessionTurn> turn, json::object body, const TextModel& model,
                                std::uint64_t room) {
  SessionRecord& record = turn->record;
  if (auto error = refuse_fields(body, kInputs)) return std::unexpected(std::move(*error));
  if (record.tokens.empty()) return std::unexpected(invalid("the session has no tokens; append some first"));
  Fields fields(body);
  const bool continues = fields.boolean("continue").value_or(false);
  if (fields.error()) return std::unexpected(*fields.error());
  if (continues && !record.answer) {
    return std::unexpected(
        invalid("there is nothing to continue: the last answer has ended, or something follows it", "continue"));
  }
  json::object asked;
  if (continues) {
    // Only what does not change the answer comes from this call.
    asked = record.answer->options;
    for (const std::string_view name : {"stream", "stream_options", "max_tokens", "logprobs", "priority", "model"}) {
      if (has(body, name)) asked[name] = body[name];
    }
  } else {
    asked = with_defaults(std::move(body), record.options);
  }
  // Those of a restored session come from its file.
  if (auto error = refuse_fields(asked, kNotInSessions)) return std::unexpected(std::move(*error));
  const bool named = has(asked, "model");
  json::object kept = without(asked, kOfOneCall);
  const std::size_t answered = continues ? record.tokens.size() - record.answer->begin : 0;
  std::uint32_t min_tokens = 0;
  if (answered > 0 && has(asked, "min_tokens")) {
    min_tokens = static_cast<std::uint32_t>(whole_number(asked["min_tokens"]).value_or(0));
    asked.erase("min_tokens");
  }
  // The prompt is put in below; it need not become JSON.
  asked["prompt"] = json::array{record.tokens.front()};
  auto request = parse_completion(std::move(asked), model);
  if (!request) return request;
  if (auto error = settle_adapter(record, named, request->options.adapter, model)) {
    return std::unexpected(std::move(*error));
  }
  request->options.adapter = record.adapter.number;
  if (auto error = limit_answer(*request, room)) return std::unexpected(std::move(*error));
  if (answered > 0) {
    request->options.min_tokens =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(min_tokens, request->options.max_tokens + answered));
  }
  note_seed(kept, request->options);
  request->options.answered = static_cast<std::uint32_t>(answered);
  request->prompts.front() = record.tokens;
  request->session_id = record.id;
  turn->begin_answer(record.tokens, false, std::move(kept), continues);
  request->session = std::move(turn);
  return request;
}

CompletionResult parse_session_chat(std::shared_ptr<SessionTurn> turn, json::object body, const TextModel& model,
                                    std::uint64_t room) {
  SessionRecord& record = turn->record;
  const std::uint64_t cost = record.cost();
  if (auto error = not_a_conversation(record)) return std::unexpected(std::move(*error));
  auto all = all_messages(record, body);
  if (!all) return std::unexpected(all.error());
  if (auto error = take_tools(record, body)) return std::unexpected(std::move(*error));
  const bool named = has(body, "model");
  json::object asked = with_defaults(std::move(body), record.options);
  for (const char* const name : {"n", "best_of"}) {
    if (has(asked, name) && whole_number(asked[name]) != 1) return wrong(name, "must be 1 in a session");
  }
  auto request = parse_chat(std::move(asked), model);
  if (!request) return request;
  if (auto error = settle_adapter(record, named, request->options.adapter, model)) {
    return std::unexpected(std::move(*error));
  }
  request->options.adapter = record.adapter.number;
  request->session_id = record.id;
  record.set_conversation(std::move(*all), request->prompts.front());
  // The messages count whether or not anything is answered to them.
  const std::uint64_t added = record.cost() - std::min(cost, record.cost());
  if (added > room) return std::unexpected(no_room());
  if (auto error = limit_answer(*request, room - added)) return std::unexpected(std::move(*error));
  turn->begin_answer(request->prompts.front(), true, {}, false);
  request->session = std::move(turn);
  return request;
}

std::expected<std::string, ApiError> file_name(const json::object& body, const std::string& otherwise) {
  Fields fields(body);
  const std::string name(fields.string("name").value_or(otherwise));
  if (fields.error()) return std::unexpected(*fields.error());
  if (name.empty()) return wrong("name", "is missing");
  const bool plain = std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  });
  if (!plain || name.front() == '.' || name.size() > kMostNameBytes) {
    return wrong("name", fmt::format("must have letters, digits, '.', '_' and '-' only, no '.' first, and at most {} "
                                     "characters",
                                     kMostNameBytes));
  }
  return name;
}

json::object session_json(const SessionRecord& record, bool busy) {
  json::object out{{"id", record.id},
                   {"object", "session"},
                   {"created", record.created},
                   {"tokens", record.tokens.size()},
                   {"message_count", record.messages ? json::value(record.messages->size()) : json::value()},
                   {"unfinished_answer", record.answer.has_value()},
                   {"adapter", record.adapter.name.empty() ? json::value() : json::value(record.adapter.name)},
                   {"busy", busy}};
  return out;
}

json::object whole_session_json(const SessionRecord& record, bool busy, bool ids) {
  json::object out = session_json(record, busy);
  if (record.messages) out["messages"] = *record.messages;
  if (!record.tools.empty()) out["tools"] = record.tools;
  out["options"] = record.options;
  if (ids) out["token_ids"] = json::array(record.tokens.begin(), record.tokens.end());
  return out;
}

}  // namespace quire::server
