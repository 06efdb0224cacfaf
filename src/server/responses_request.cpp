// Requests of OpenAI's Responses API.
#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "quire/server/chat_builder.h"
#include "quire/server/fields.h"
#include "quire/server/responses.h"
#include "quire/server/unsupported.h"

namespace quire::server {
namespace {

namespace json = boost::json;

using Checked = std::expected<void, ApiError>;

// A text, or an array of parts with text.
constexpr std::string_view kTextTypes[] = {"input_text",     "output_text",  "text",
                                           "reasoning_text", "summary_text", "refusal"};
constexpr TextParts kParts = {.name = "parts", .types = kTextTypes};

// What chats call the fields of this API.
constexpr OtherName kNames[] = {{"response_format.json_schema", "text.format"},
                                {"response_format", "text.format"},
                                {"reasoning_effort", "reasoning.effort"},
                                {"max_tokens", "max_output_tokens"},
                                {"messages", "input"}};

Checked add_message(ChatBuilder& chat, Fields& fields, const std::string& at) {
  const auto role = fields.string("role");
  const json::value* const content = fields.any("content");
  if (fields.error()) return std::unexpected(*fields.error());
  static constexpr std::array<std::string_view, 4> kRoles = {"user", "assistant", "system", "developer"};
  if (!role || std::ranges::find(kRoles, *role) == kRoles.end()) {
    return wrong(at + ".role", "must be one of user, assistant, system, developer");
  }
  if (content == nullptr) return wrong(at + ".content", "is missing");
  auto text = joined_text(*content, at + ".content", kParts);
  if (!text) return std::unexpected(text.error());
  // Messages of a client stay messages; only what an assistant does in a row is one.
  if (*role != "assistant") chat.end_message();
  chat.add_text(*role == "developer" ? "system" : *role, *text);
  if (*role != "assistant") chat.end_message();
  return {};
}

Checked add_item(ChatBuilder& chat, const json::value& item, const std::string& at) {
  if (!item.is_object()) return wrong(at, "must be an object");
  Fields fields(item.get_object(), at + ".");
  const std::string_view type = fields.string("type").value_or("message");
  if (fields.error()) return std::unexpected(*fields.error());
  const auto needed = [&](std::string_view name) -> std::string_view {
    const auto value = fields.string(name);
    if (!value && !fields.error()) fields.refuse(name, "is missing");
    return value.value_or(std::string_view());
  };
  if (type == "message") return add_message(chat, fields, at);
  if (type == "function_call") {
    const std::string_view id = needed("call_id"), name = needed("name"), arguments = needed("arguments");
    if (!fields.error())
      chat.add_call(id, name, arguments.empty() ? json::value(json::object()) : json::value(arguments));
  } else if (type == "function_call_output") {
    const std::string_view id = needed("call_id");
    const json::value* const output = fields.any("output");
    if (output == nullptr) return wrong(at + ".output", "is missing");
    auto text = joined_text(*output, at + ".output", kParts);
    if (!text) return std::unexpected(text.error());
    if (!fields.error()) chat.add_result(id, *text);
  } else if (type == "reasoning") {
    for (const char* const where : {"content", "summary"}) {
      const json::value* const parts = fields.any(where);
      if (parts == nullptr || (parts->is_array() && parts->get_array().empty())) continue;
      auto text = joined_text(*parts, fmt::format("{}.{}", at, where), kParts);
      if (!text) return std::unexpected(text.error());
      chat.add_reasoning(*text);
      break;
    }
  } else {
    return wrong(at, fmt::format("is of type {}, which this server does not take", in_quotes(type)));
  }
  if (fields.error()) return std::unexpected(*fields.error());
  return {};
}

// The item with this id: of a response that this one continues, or of one that is kept. The server's ids name their
// response: msg_RESPONSE_2 is item 2 of its output, resp_RESPONSE_in_0 item 0 of its input. Null: there is none.
const json::value* find_item(std::string_view id, const StoredResponse* previous, const StoredResponseRef& named) {
  const auto in = [&](const StoredResponse& response) -> const json::value* {
    for (const json::value& item : response.output) {
      if (item.at("id").as_string() == id) return &item;
    }
    for (std::size_t i = 0; i < response.input.size(); ++i) {
      if (is_input_item(response, i, id)) return &response.input[i];
    }
    return nullptr;
  };
  for (; previous != nullptr; previous = previous->previous.get()) {
    if (const json::value* const found = in(*previous)) return found;
  }
  return named ? in(*named) : nullptr;
}

// References are short, and what they refer to may be long.
constexpr std::size_t kMostReferences = 1024;
constexpr std::size_t kMostReferredBytes = std::size_t{8} << 20;

// Puts items in the place of references to them.
Checked replace_references(json::array& items, const StoredResponse* previous, ResponseStore& store, Namespace tenant) {
  std::size_t count = 0, bytes = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const json::object* const item = items[i].if_object();
    const json::value* const type = item != nullptr ? item->if_contains("type") : nullptr;
    // The type may be left out.
    const bool untyped = type == nullptr || type->is_null();
    const bool reference =
        untyped ? item != nullptr && item->size() - (type != nullptr ? 1 : 0) == 1 && item->contains("id")
                : *type == "item_reference";
    if (!reference) continue;
    const std::string at = fmt::format("input[{}]", i);
    Fields fields(*item, at + ".");
    const auto id = fields.string("id");
    if (fields.error()) return std::unexpected(*fields.error());
    if (!id) return wrong(at + ".id", "is missing");
    if (++count > kMostReferences) {
      return wrong(at, fmt::format("is one reference too many: there may be {}", kMostReferences));
    }
    const std::size_t begin = id->find('_') + 1;
    const std::string_view response = id->substr(begin, id->find('_', begin) - begin);
    const StoredResponseRef named = store.find(tenant, fmt::format("resp_{}", response));
    const json::value* const found = find_item(*id, previous, named);
    if (found == nullptr) {
      return wrong(
          at, fmt::format("refers to the item {}, and no response that is kept has one of this id", in_quotes(*id)));
    }
    bytes += json::serialize(*found).size();
    if (bytes > kMostReferredBytes) {
      return wrong(at, fmt::format("is too much: references may put in {} bytes together", kMostReferredBytes));
    }
    items[i] = json::value(*found);
  }
  return {};
}

std::expected<json::array, ApiError> tools_of(const json::array& tools) {
  json::array out;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const std::string at = fmt::format("tools[{}]", i);
    if (!tools[i].is_object()) return wrong(at, "must be an object");
    Fields fields(tools[i].get_object(), at + ".");
    const std::string_view type = fields.string("type").value_or("");
    const auto name = fields.string("name");
    if (fields.error()) return std::unexpected(*fields.error());
    if (type != "function") {
      return wrong(at, fmt::format("is of type {}, and this server has only functions", in_quotes(type)));
    }
    if (!name) return wrong(at + ".name", "is missing");
    out.push_back(chat_tool(*name, fields.any("description"), fields.any("parameters"), fields.any("strict")));
  }
  return out;
}

Checked read_tool_choice(const json::value& choice, json::object& chat) {
  if (choice.is_string()) {
    chat["tool_choice"] = choice;
    return {};
  }
  const json::object* const object = choice.if_object();
  const json::value* const name = object != nullptr ? object->if_contains("name") : nullptr;
  if (name == nullptr || !name->is_string()) {
    return wrong("tool_choice", "must be \"auto\", \"none\", \"required\", or of type function with a name");
  }
  chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", *name}}}};
  return {};
}

// text.format: as response_format of a chat.
Checked read_format(const json::object& text, json::object& chat) {
  Fields fields(text, "text.");
  const json::object* const format = fields.object("format");
  if (fields.error()) return std::unexpected(*fields.error());
  if (format == nullptr) return {};
  const json::value* const type = format->if_contains("type");
  if (type == nullptr || !type->is_string()) return wrong("text.format.type", "is missing");
  if (*type == "text") return {};
  if (*type != "json_schema") return set_response_format(chat, *format, "text.format");
  json::object schema;
  for (const char* const key : {"name", "schema", "strict", "description"}) {
    if (const json::value* const value = format->if_contains(key)) schema[key] = *value;
  }
  return set_response_format(chat, {{"type", "json_schema"}, {"json_schema", std::move(schema)}}, "text.format");
}

// What would change the answer, and is not there.
Checked refuse_missing(Fields& fields) {
  if (fields.boolean("background").value_or(false)) return wrong("background", "is not supported");
  for (const char* const name : {"conversation", "prompt", "max_tool_calls"}) {
    if (fields.any(name) != nullptr) return wrong(name, "is not supported");
  }
  if (fields.string("truncation").value_or("disabled") != "disabled") {
    return wrong("truncation", "is not supported, except as \"disabled\"");
  }
  if (fields.integer("top_logprobs", 0, 20).value_or(0) != 0)
    return wrong("top_logprobs", "is not supported, except as 0");
  if (fields.error()) return std::unexpected(*fields.error());
  return {};
}

// The fields of a chat, and what the response repeats of the request.
Checked read_options(const json::object& body, Fields& fields, json::object& chat, json::object& frame) {
  copy_chat_fields(body, chat);
  for (const char* const same : {"parallel_tool_calls", "stop"}) {
    if (const json::value* const value = body.if_contains(same)) chat[same] = *value;
  }
  const auto most = fields.integer("max_output_tokens", 0, std::numeric_limits<std::int32_t>::max());
  const json::array* const tools = fields.array("tools");
  const json::object* const text = fields.object("text");
  const json::object* const reasoning = fields.object("reasoning");
  const json::object* const metadata = fields.object("metadata");
  const auto instructions = fields.string("instructions");
  const double temperature = fields.number("temperature", 0, 100).value_or(1);
  const double top_p = fields.number("top_p", 0, 1).value_or(1);
  const bool parallel = fields.boolean("parallel_tool_calls").value_or(true);
  if (fields.error()) return std::unexpected(*fields.error());
  if (most) chat["max_tokens"] = *most;
  if (tools != nullptr && !tools->empty()) {
    auto read = tools_of(*tools);
    if (!read) return std::unexpected(read.error());
    chat["tools"] = std::move(*read);
  } else {
    chat.erase("parallel_tool_calls");
  }
  const json::value* const choice = fields.any("tool_choice");
  if (choice != nullptr) {
    if (auto ok = read_tool_choice(*choice, chat); !ok) return ok;
  }
  if (text != nullptr) {
    if (auto ok = read_format(*text, chat); !ok) return ok;
  }
  if (reasoning != nullptr) {
    if (const json::value* const effort = reasoning->if_contains("effort"); effort != nullptr && !effort->is_null()) {
      chat["reasoning_effort"] = *effort;
    }
  }
  frame = {{"instructions", instructions ? json::value(*instructions) : json::value()},
           {"max_output_tokens", most ? json::value(*most) : json::value()},
           {"metadata", metadata != nullptr ? *metadata : json::object()},
           {"parallel_tool_calls", parallel},
           {"reasoning", reasoning != nullptr ? *reasoning : json::object{{"effort", nullptr}, {"summary", nullptr}}},
           {"temperature", temperature},
           {"text", text != nullptr ? *text : json::object{{"format", {{"type", "text"}}}}},
           {"tool_choice", choice != nullptr ? *choice : json::value("auto")},
           {"tools", tools != nullptr ? *tools : json::array()},
           {"top_p", top_p},
           {"truncation", "disabled"}};
  return {};
}

}  // namespace

std::expected<json::array, ApiError> items_of(const json::value& input) {
  json::array items;
  if (input.is_string()) {
    items.push_back(
        json::object{{"type", "message"},
                     {"role", "user"},
                     {"content", json::array{json::object{{"type", "input_text"}, {"text", input.get_string()}}}}});
  } else if (input.is_array() && !input.get_array().empty()) {
    items = input.get_array();
  } else {
    return wrong("input", "must be a string or an array of items");
  }
  return items;
}

std::expected<AnswerRequest, ApiError> parse_response(json::object&& body, const TextModel& model, ResponseStore& store,
                                                      Namespace tenant) {
  Fields fields(body);
  const auto adapter = check_model(fields, model);
  if (!adapter) return std::unexpected(adapter.error());
  if (auto error = refuse_unsupported(body, UnsupportedField::Responses)) return std::unexpected(std::move(*error));
  if (auto ok = refuse_missing(fields); !ok) return std::unexpected(ok.error());
  const bool keep = fields.boolean("store").value_or(true);
  const auto previous = fields.string("previous_response_id");
  const json::value* const input = fields.any("input");
  if (fields.error()) return std::unexpected(*fields.error());
  if (input == nullptr) return wrong("input", "is missing");
  auto items = items_of(*input);
  if (!items) return std::unexpected(items.error());

  ResponseFrame frame{.store = keep ? &store : nullptr, .tenant = tenant, .adapter = *adapter};
  json::object chat;
  if (auto ok = read_options(body, fields, chat, frame.fields); !ok) return std::unexpected(ok.error());
  frame.fields["previous_response_id"] = previous ? json::value(*previous) : json::value();
  frame.fields["store"] = keep;
  if (previous) {
    frame.previous = store.find(tenant, *previous);
    if (!frame.previous) {
      return std::unexpected(ApiError{
          .status = 404,
          .message =
              fmt::format("there is no response {}; it may be too old (--responses-age) or there was no room for "
                          "it (--responses-bytes)",
                          in_quotes(*previous)),
          .param = "previous_response_id",
          .code = "previous_response_not_found"});
    }
  }

  if (auto ok = replace_references(*items, frame.previous.get(), store, tenant); !ok)
    return std::unexpected(ok.error());

  // Instructions are those of this request alone. Items of earlier responses come before its own.
  ChatBuilder builder;
  if (const json::value& instructions = frame.fields.at("instructions"); instructions.is_string()) {
    builder.add_text("system", std::string_view(instructions.get_string()));
    builder.end_message();
  }
  std::vector<const StoredResponse*> before;
  for (const StoredResponse* each = frame.previous.get(); each != nullptr; each = each->previous.get()) {
    before.push_back(each);
  }
  const auto add_all = [&](const json::array& list, std::string_view name) -> Checked {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (auto ok = add_item(builder, list[i], fmt::format("{}[{}]", name, i)); !ok) return ok;
    }
    return {};
  };
  for (std::size_t i = before.size(); i-- > 0;) {
    if (auto ok = add_all(before[i]->input, "input"); !ok) return std::unexpected(ok.error());
    if (auto ok = add_all(before[i]->output, "output"); !ok) return std::unexpected(ok.error());
  }
  if (auto ok = add_all(*items, "input"); !ok) return std::unexpected(ok.error());
  chat["messages"] = builder.take();
  frame.input = std::move(*items);
  auto request = parse_chat(std::move(chat), model);
  if (!request) return std::unexpected(with_names(request.error(), kNames));
  request->options.adapter = *adapter;
  return AnswerRequest{.chat = std::move(*request), .shape = std::make_shared<ResponsesShape>(model, std::move(frame))};
}

}  // namespace quire::server
