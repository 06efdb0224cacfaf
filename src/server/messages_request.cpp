// Requests of Anthropic's API.
#include <algorithm>
#include <string>
#include <utility>

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "quire/server/chat_builder.h"
#include "quire/server/chat_messages.h"
#include "quire/server/fields.h"
#include "quire/server/messages.h"
#include "quire/server/unsupported.h"

namespace quire::server {
namespace {

namespace json = boost::json;

using Checked = std::expected<void, ApiError>;

// A text, or an array of blocks of type text.
constexpr std::string_view kTextTypes[] = {"text"};
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
  if (!role || (*role != "user" && *role != "assistant")) {
    return wrong(at + ".role", "must be user, assistant or system");
  }
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

bool is_system(const json::value& message) {
  const json::object* const object = message.if_object();
  const json::value* const role = object != nullptr ? object->if_contains("role") : nullptr;
  return role != nullptr && *role == "system";
}

// The field `system`, and behind it what messages of the role say: programs send those between others, and most
// templates know only one, at the beginning.
std::expected<std::string, ApiError> system_of(const json::value* field, const json::array& messages) {
  std::string all;
  if (field != nullptr) {
    auto text = joined_text(*field, "system", kBlocks);
    if (!text) return text;
    all = std::move(*text);
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (!is_system(messages[i])) continue;
    const std::string at = fmt::format("messages[{}].content", i);
    const json::value* const content = messages[i].get_object().if_contains("content");
    if (content == nullptr) return wrong(at, "is missing");
    const auto text = joined_text(*content, at, kBlocks);
    if (!text) return text;
    if (!all.empty() && !text->empty()) all += "\n\n";
    all += *text;
  }
  return all;
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

// JSON for a schema, as Anthropic's API asks for it.
struct OutputFormat {
  const json::object* format = nullptr;  // null: it does not
  std::string_view field = {};           // where that is
};

std::expected<OutputFormat, ApiError> output_format_of(const json::object& body) {
  Fields fields(body);
  const json::object* const config = fields.object("output_config");
  // What it was called at first.
  const json::object* const older = fields.object("output_format");
  if (fields.error()) return std::unexpected(*fields.error());
  if (config != nullptr) {
    Fields inner(*config, "output_config.");
    const json::object* const format = inner.object("format");
    if (inner.error()) return std::unexpected(*inner.error());
    if (format != nullptr && older != nullptr) {
      return wrong("output_format", "cannot be used together with 'output_config.format'");
    }
    if (format != nullptr) return OutputFormat{format, "output_config.format"};
  }
  return older != nullptr ? OutputFormat{older, "output_format"} : OutputFormat{};
}

Checked read_output_format(const OutputFormat& output, json::object& chat) {
  Fields fields(*output.format, std::string(output.field) + ".");
  const std::string_view type = fields.string("type").value_or("");
  const json::value* const schema = fields.any("schema");
  if (fields.error()) return std::unexpected(*fields.error());
  if (type != "json_schema") return wrong(fields.path("type"), "must be json_schema");
  if (schema == nullptr) return wrong(fields.path("schema"), "is missing");
  json::object inner{{"name", "output"}, {"schema", *schema}, {"strict", true}};
  return set_response_format(chat, {{"type", "json_schema"}, {"json_schema", std::move(inner)}}, output.field);
}

}  // namespace

std::expected<json::object, ApiError> chat_of_messages(const json::object& body) {
  if (auto error = refuse_unsupported(body, UnsupportedField::Messages)) return std::unexpected(std::move(*error));
  Fields fields(body);
  const json::array* const messages = fields.array("messages");
  const json::array* const tools = fields.array("tools");
  const json::object* const choice = fields.object("tool_choice");
  const json::object* const thinking = fields.object("thinking");
  if (fields.error()) return std::unexpected(*fields.error());
  if (messages == nullptr) return wrong("messages", "is missing");
  if (messages->empty()) return wrong("messages", "must have at least one message");
  const auto output = output_format_of(body);
  if (!output) return std::unexpected(output.error());
  json::object chat;
  // The same in both, and what this server takes beside Anthropic's fields.
  copy_chat_fields(body, chat);
  for (const char* const same : {"max_tokens", "reasoning_effort"}) {
    if (const json::value* const value = body.if_contains(same)) chat[same] = *value;
  }
  if (output->format != nullptr) {
    if (auto ok = read_output_format(*output, chat); !ok) return std::unexpected(ok.error());
  }
  if (const json::value* const stops = fields.any("stop_sequences")) {
    if (!stops->is_array()) return wrong("stop_sequences", "must be an array");
    chat["stop"] = *stops;
  }
  ChatBuilder builder;
  if (std::ranges::all_of(*messages, is_system)) return wrong("messages", "must have one of the user or the assistant");
  const auto system = system_of(fields.any("system"), *messages);
  if (!system) return std::unexpected(system.error());
  if (!system->empty()) builder.add_text("system", *system);
  for (std::size_t i = 0; i < messages->size(); ++i) {
    if (is_system((*messages)[i])) continue;
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
  if (!request) {
    const auto output = output_format_of(body);
    const bool own = output && output->format != nullptr;
    // What chats call the fields of this API.
    const OtherName names[] = {{"stop", "stop_sequences"},
                               {"response_format.json_schema", own ? output->field : "response_format.json_schema"}};
    return std::unexpected(with_names(request.error(), names));
  }
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
