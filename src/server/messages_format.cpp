// Answers of Anthropic's API.
#include <utility>

#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include "quire/base/utf8.h"
#include "quire/server/messages.h"

namespace quire::server {
namespace {

namespace json = boost::json;
using Kind = tools::Delta::Kind;

std::string_view error_type(const ApiError& error) {
  switch (error.status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    case 504: return "timeout_error";
    default: return error.status < 500 ? "invalid_request_error" : "api_error";
  }
}

// Arguments that are not a whole object (an answer that was cut) are passed on as text under a key of their own.
json::value input_of(const std::string& arguments) {
  json::error_code error;
  json::value parsed = json::parse(arguments.empty() ? std::string_view("{}") : std::string_view(arguments), error);
  if (!error && parsed.is_object()) return parsed;
  return json::object{{"arguments", arguments}};
}

json::object content_of(const AnswerBlock& block) {
  switch (block.kind) {
    case Kind::Reasoning: return {{"type", "thinking"}, {"thinking", block.text}, {"signature", ""}};
    case Kind::Call:
      return {{"type", "tool_use"}, {"id", block.id}, {"name", block.name}, {"input", input_of(block.text)}};
    default: return {{"type", "text"}, {"text", block.text}};
  }
}

json::object usage_of(const UsageSum& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.completion_tokens},
          {"quire",
           {{"accepted_prediction_tokens", usage.accepted_tokens},
            {"rejected_prediction_tokens", usage.rejected_tokens()}}}};
}

void append_typed(std::string& out, std::string_view type, const json::object& data) {
  json::object event{{"type", type}};
  for (const auto& [key, value] : data) event[key] = value;
  append_event(out, type, json::serialize(event));
}

// Why it ended, and the stop string.
std::pair<std::string_view, json::value> reason_of(const AnswerEnd& end, const std::vector<AnswerBlock>& blocks) {
  if (end.cut) return {"max_tokens", nullptr};
  if (!end.stop.empty()) return {"stop_sequence", json::value(end.stop)};
  for (const AnswerBlock& block : blocks) {
    if (block.kind == Kind::Call) return {"tool_use", nullptr};
  }
  return {"end_turn", nullptr};
}

}  // namespace

std::string messages_error_json(const ApiError& error) {
  std::string message;
  append_repaired(message, error.message);
  return json::serialize(
      json::object{{"type", "error"}, {"error", {{"type", error_type(error)}, {"message", message}}}});
}

HttpResponse messages_error(const ApiError& error) {
  HttpResponse response = to_response(error);
  response.body = messages_error_json(error);
  return response;
}

void MessagesShape::open(std::string id, std::uint64_t prompt_tokens) {
  id_ = std::move(id);
  prompt_tokens_ = prompt_tokens;
}

json::object MessagesShape::message(json::array content) const {
  return {{"id", "msg_" + id_},
          {"type", "message"},
          {"role", "assistant"},
          {"model", model_.name_of(adapter_)},
          {"content", std::move(content)},
          {"stop_reason", nullptr},
          {"stop_sequence", nullptr}};
}

void MessagesShape::begin(std::string& out) {
  json::object begun = message({});
  // How much of the prompt is reused shows later.
  begun["usage"] = {{"input_tokens", prompt_tokens_}, {"output_tokens", 0}};
  append_typed(out, "message_start", {{"message", std::move(begun)}});
}

void MessagesShape::block_begins(std::string& out) {
  const AnswerBlock& block = blocks().back();
  append_typed(out, "content_block_start", {{"index", blocks().size() - 1}, {"content_block", content_of(block)}});
}

void MessagesShape::block_grows(std::string_view text, std::string& out) {
  json::object delta;
  switch (blocks().back().kind) {
    case Kind::Reasoning: delta = {{"type", "thinking_delta"}, {"thinking", text}}; break;
    case Kind::Call: delta = {{"type", "input_json_delta"}, {"partial_json", text}}; break;
    default: delta = {{"type", "text_delta"}, {"text", text}};
  }
  append_typed(out, "content_block_delta", {{"index", blocks().size() - 1}, {"delta", std::move(delta)}});
}

void MessagesShape::block_ends(std::string& out) {
  append_typed(out, "content_block_stop", {{"index", blocks().size() - 1}});
}

void MessagesShape::end(const AnswerEnd& end, const UsageSum& usage, std::string& out) {
  close_block(out);
  auto [reason, stop] = reason_of(end, blocks());
  append_typed(out, "message_delta",
               {{"delta", {{"stop_reason", reason}, {"stop_sequence", std::move(stop)}}}, {"usage", usage_of(usage)}});
  append_typed(out, "message_stop", {});
}

std::string MessagesShape::whole(const AnswerEnd& end, const UsageSum& usage) {
  json::array content;
  for (const AnswerBlock& block : blocks()) content.push_back(content_of(block));
  json::object out = message(std::move(content));
  auto [reason, stop] = reason_of(end, blocks());
  out["stop_reason"] = reason;
  out["stop_sequence"] = std::move(stop);
  out["usage"] = usage_of(usage);
  return json::serialize(out);
}

void MessagesShape::fail(const ApiError& error, std::string& out) {
  append_event(out, "error", messages_error_json(error));
}

}  // namespace quire::server
