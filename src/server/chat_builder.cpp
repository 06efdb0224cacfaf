#include "quire/server/chat_builder.h"

#include <algorithm>
#include <utility>

#include <boost/json/string.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "quire/server/constraint_fields.h"
#include "quire/server/fields.h"

namespace quire::server {
namespace {

namespace json = boost::json;

void append(json::object& message, std::string_view key, std::string_view text) {
  json::value& value = message[key];
  if (!value.is_string()) value.emplace_string();
  json::string& whole = value.get_string();
  // Parts of one message are paragraphs.
  if (!whole.empty() && !whole.ends_with('\n')) whole += "\n";
  whole += text;
}

}  // namespace

json::object& ChatBuilder::message(std::string_view role) {
  if (open_ && messages_.back().at("role").as_string() == role) return messages_.back().get_object();
  messages_.push_back(json::object{{"role", role}});
  open_ = true;
  return messages_.back().get_object();
}

void ChatBuilder::add_text(std::string_view role, std::string_view text) { append(message(role), "content", text); }

void ChatBuilder::add_reasoning(std::string_view text) { append(message("assistant"), "reasoning_content", text); }

void ChatBuilder::add_call(std::string_view id, std::string_view name, json::value arguments) {
  names_[std::string(id)] = name;
  json::object& to = message("assistant");
  if (!to.contains("content")) to["content"] = "";
  json::value& calls = to["tool_calls"];
  if (!calls.is_array()) calls.emplace_array();
  calls.get_array().push_back(json::object{
      {"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", std::move(arguments)}}}});
}

void ChatBuilder::add_result(std::string_view id, std::string_view text) {
  end_message();
  json::object& to = message("tool");
  to["tool_call_id"] = id;
  if (const auto name = names_.find(id); name != names_.end()) to["name"] = name->second;
  to["content"] = text;
  end_message();
}

bool ChatBuilder::ends_with_text() const {
  if (messages_.empty()) return false;
  const json::object& last = messages_.back().get_object();
  return last.at("role").as_string() == "assistant" && !last.contains("tool_calls") && last.contains("content");
}

json::array ChatBuilder::take() {
  // An assistant may have reasoned and said nothing.
  for (json::value& each : messages_) each.get_object().emplace("content", "");
  return std::move(messages_);
}

std::expected<std::string, ApiError> joined_text(const json::value& value, const std::string& path,
                                                 const TextParts& parts) {
  if (value.is_string()) return std::string(value.get_string());
  if (!value.is_array()) return wrong(path, fmt::format("must be a string or an array of {}", parts.name));
  std::string out;
  for (std::size_t i = 0; i < value.get_array().size(); ++i) {
    const std::string at = fmt::format("{}[{}]", path, i);
    const json::value& part = value.get_array()[i];
    if (!part.is_object()) return wrong(at, "must be an object");
    Fields fields(part.get_object(), at + ".");
    const std::string_view type = fields.string("type").value_or(parts.types.front());
    const auto text = fields.string(type == "refusal" ? "refusal" : "text");
    if (fields.error()) return std::unexpected(*fields.error());
    if (std::ranges::find(parts.types, type) == parts.types.end()) {
      return wrong(at, fmt::format("is of type {}, and this server takes text only", in_quotes(type)));
    }
    if (!text) return wrong(at + ".text", "is missing");
    if (!out.empty()) out += parts.between;
    out += *text;
  }
  return out;
}

void copy_chat_fields(const json::object& body, json::object& chat) {
  const auto copy = [&](std::string_view name) {
    if (const json::value* const value = body.if_contains(name)) chat[name] = *value;
  };
  for (const char* const name :
       {"model", "temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty",
        "repetition_penalty", "logit_bias", "min_tokens", "stop_token_ids", "ignore_eos", "skip_special_tokens",
        "stream", "priority", "cache_prompt", "chat_template_kwargs"}) {
    copy(name);
  }
  for (const std::string_view name : constraint_fields()) copy(name);
}

std::expected<void, ApiError> set_response_format(json::object& chat, json::object format, std::string_view field) {
  const auto other = read_constraint(chat);
  if (!other) return std::unexpected(other.error());
  if (*other) return wrong((*other)->field, fmt::format("cannot be used together with '{}'", field));
  chat["response_format"] = std::move(format);
  return {};
}

json::object chat_tool(std::string_view name, const json::value* description, const json::value* parameters,
                       const json::value* strict) {
  json::object function{{"name", name}};
  if (description != nullptr) function["description"] = *description;
  function["parameters"] = parameters != nullptr ? *parameters : json::value(json::object{{"type", "object"}});
  if (strict != nullptr) function["strict"] = *strict;
  return {{"type", "function"}, {"function", std::move(function)}};
}

}  // namespace quire::server
