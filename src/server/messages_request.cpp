// Requests of Anthropic's API.
#include <string>
#include <utility>

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "quire/server/chat_builder.h"
#include "quire/server/chat_messages.h"
#include "quire/server/fields.h"
#include "quire/server/messages.h"

namespace quire::server {
namespace {

namespace json = boost::json;

using Checked = std::expected<void, ApiError>;

// A text, or an array of blocks of type text.
constexpr std::string_view kTextTypes[] = {"text"};
// What chats call the fields of this API.
constexpr OtherName kNames[] = {{"stop", "stop_sequences"}};

constexpr TextParts kBlocks = {.name = "blocks", .types = kTextTypes, .between = "\n"};

Checked add_block(ChatBuilder& chat, const json::value& block, bool user, const std::string& at) {
  if (!block.is_object()) return wrong(at, "must be an object");
  Fields fields(block.get_object(), at + ".");
  const auto type = fields.string("type");
  if (fields.error()) return std::unexpected(*fields.error());
  if (!type) return wrong(at + ".type", "is missing");
  const auto needed = [&](std::string_view name) -> std::string_view {
    const auto value = fields.string(name);
    if (!value && !fields.error()) fields.refuse(name, "is missing");
    return value.value_or(std::string_view());
  };
  if (*type == "text") {
    chat.add_text(user ? "user" : "assistant", needed("text"));
  } else if (*type == "tool_result" && user) {
    const std::string_view id = needed("tool_use_id");
    std::string text;
    if (const json::value* const content = fields.any("content")) {
      auto read = joined_text(*content, at + ".content", kBlocks);
      if (!read) return std::unexpected(read.error());
      text = std::move(*read);
    }
    if (fields.boolean("is_error").value_or(false)) text = "Error: " + text;
    chat.add_result(id, text);
  } else if (*type == "tool_use" && !user) {
    const std::string_view id = needed("id"), name = needed("name");
    const json::object* const input = fields.object("input");
    chat.add_call(id, name, input == nullptr ? json::value(json::object()) : json::value(*input));
  } else if (*type == "thinking" && !user) {
    chat.add_reasoning(needed("thinking"));
  } else if (*type == "redacted_thinking" && !user) {
    // Nobody can read it.
  } else if (*type == "tool_use" || *type == "tool_result" || *type == "thinking") {
    return wrong(
        at, fmt::format("of type {} cannot be in a message of the {}", in_quotes(*type), user ? "user" : "assistant"));
  } else {
    return wrong(at, fmt::format("is of type {}, and this server takes text only", in_quotes(*type)));
  }
  if (fields.error()) return std::unexpected(*fields.error());
  return {};
}

Checked add_message(ChatBuilder& chat, const json::value& message, const std::string& at) {
  if (!message.is_object()) return wrong(at, "must be an object");
  Fields fields(message.get_object(), at + ".");
  const auto role = fields.string("role");
  const json::value* const content = fields.any("content");
  if (fields.error()) return std::unexpected(*fields.error());
  if (!role || (*role != "user" && *role != "assistant")) return wrong(at + ".role", "must be user or assistant");
  if (content == nullptr) return wrong(at + ".content", "is missing");
  if (content->is_string()) {
    chat.add_text(*role, std::string_view(content->get_string()));
    return {};
  }
  if (!content->is_array()) return wrong(at + ".content", "must be a string or an array of blocks");
  for (std::size_t i = 0; i < content->get_array().size(); ++i) {
    auto ok = add_block(chat, content->get_array()[i], *role == "user", fmt::format("{}.content[{}]", at, i));
    if (!ok) return ok;
  }
  return {};
}

std::expected<json::array, ApiError> tools_of(const json::array& tools) {
  json::array out;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const std::string at = fmt::format("tools[{}]", i);
    if (!tools[i].is_object()) return wrong(at, "must be an object");
    Fields fields(tools[i].get_object(), at + ".");
    const std::string_view type = fields.string("type").value_or("custom");
    const auto name = fields.string("name");
    if (fields.error()) return std::unexpected(*fields.error());
    if (type != "custom")
      return wrong(at, fmt::format("is of type {}, which this server does not have", in_quotes(type)));
    if (!name) return wrong(at + ".name", "is missing");
    out.push_back(chat_tool(*name, fields.any("description"), fields.any("input_schema"), fields.any("strict")));
  }
  return out;
}

Checked read_tool_choice(const json::object& choice, json::object& chat) {
  Fields fields(choice, "tool_choice.");
  const std::string_view type = fields.string("type").value_or("");
  const auto name = fields.string("name");
  if (fields.boolean("disable_parallel_tool_use").value_or(false)) chat["parallel_tool_calls"] = false;
  if (fields.error()) return std::unexpected(*fields.error());
  if (type == "auto" || type == "none") {
    chat["tool_choice"] = type;
  } else if (type == "any") {
    chat["tool_choice"] = "required";
  } else if (type == "tool" && name) {
    chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", *name}}}};
  } else {
    return wrong("tool_choice", "must be of type auto, any, none, or tool with a name");
  }
  return {};
}

// Whether templates are told to think. Without a word of the client, the template decides.
Checked read_thinking(const json::object& thinking, json::object& chat) {
  Fields fields(thinking, "thinking.");
  const std::string_view type = fields.string("type").value_or("");
  if (fields.error()) return std::unexpected(*fields.error());
  if (type == "adaptive") return {};
  if (type != "enabled" && type != "disabled") {
    return wrong("thinking.type", "must be enabled, adaptive or disabled");
  }
  json::value& kwargs = chat["chat_template_kwargs"];
  if (!kwargs.is_object()) kwargs.emplace_object();
  kwargs.get_object().emplace("enable_thinking", type == "enabled");
  return {};
}

}  // namespace

std::expected<json::object, ApiError> chat_of_messages(const json::object& body) {
  Fields fields(body);
  const json::array* const messages = fields.array("messages");
  const json::array* const tools = fields.array("tools");
  const json::object* const choice = fields.object("tool_choice");
  const json::object* const thinking = fields.object("thinking");
  if (fields.error()) return std::unexpected(*fields.error());
  if (messages == nullptr) return wrong("messages", "is missing");
  if (messages->empty()) return wrong("messages", "must have at least one message");
  json::object chat;
  // The same in both, and what this server takes beside Anthropic's fields.
  for (const char* const same :
       {"model", "temperature", "top_p", "top_k", "stream", "min_p", "seed", "presence_penalty", "frequency_penalty",
        "repetition_penalty", "logit_bias", "min_tokens", "max_tokens", "priority", "cache_prompt",
        "chat_template_kwargs", "response_format", "grammar"}) {
    if (const json::value* const value = body.if_contains(same)) chat[same] = *value;
  }
  if (const json::value* const stops = fields.any("stop_sequences")) {
    if (!stops->is_array()) return wrong("stop_sequences", "must be an array");
    chat["stop"] = *stops;
  }
  ChatBuilder builder;
  if (const json::value* const system = fields.any("system")) {
    auto text = joined_text(*system, "system", kBlocks);
    if (!text) return std::unexpected(text.error());
    if (!text->empty()) builder.add_text("system", *text);
  }
  for (std::size_t i = 0; i < messages->size(); ++i) {
    if (auto ok = add_message(builder, (*messages)[i], fmt::format("messages[{}]", i)); !ok) {
      return std::unexpected(ok.error());
    }
  }
  if (builder.empty()) return wrong("messages", "have no text");
  if (builder.ends_with_text()) chat["continue_final_message"] = true;
  if (tools != nullptr && !tools->empty()) {
    auto read = tools_of(*tools);
    if (!read) return std::unexpected(read.error());
    chat["tools"] = std::move(*read);
  }
  if (choice != nullptr) {
    if (auto ok = read_tool_choice(*choice, chat); !ok) return std::unexpected(ok.error());
  }
  if (thinking != nullptr) {
    if (auto ok = read_thinking(*thinking, chat); !ok) return std::unexpected(ok.error());
  }
  chat["messages"] = builder.take();
  return chat;
}

std::expected<AnswerRequest, ApiError> parse_messages(json::object&& body, const TextModel& model) {
  auto chat = chat_of_messages(body);
  if (!chat) return std::unexpected(chat.error());
  auto request = parse_chat(std::move(*chat), model);
  if (!request) return std::unexpected(with_names(request.error(), kNames));
  auto shape = std::make_shared<MessagesShape>(model, request->options.adapter);
  return AnswerRequest{.chat = std::move(*request), .shape = std::move(shape)};
}

std::expected<std::string, ApiError> counted_messages(const json::object& body, const TextModel& model) {
  auto chat = chat_of_messages(body);
  if (!chat) return std::unexpected(chat.error());
  Fields fields(*chat);
  if (auto adapter = check_model(fields, model); !adapter) return std::unexpected(adapter.error());
  const auto tokens = chat_prompt(std::move(*chat), model);
  if (!tokens) return std::unexpected(tokens.error());
  return fmt::format(R"({{"input_tokens":{}}})", tokens->size());
}

}  // namespace quire::server
