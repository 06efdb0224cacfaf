#include "quire/server/chat_messages.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/string.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "quire/server/completion_request.h"
#include "quire/server/fields.h"
#include "quire/server/tool_choice.h"
#include "quire/tools/tool_prompt.h"

namespace quire::server {
namespace {

namespace json = boost::json;

using Checked = std::expected<void, ApiError>;

// Objects, arrays, strings and so on, counted against kMostChatValues. The depth is that of the body.
std::size_t count_values(const json::value& value) {
  std::size_t count = 1;
  if (value.is_array()) {
    for (const json::value& each : value.get_array()) count += count_values(each);
  } else if (value.is_object()) {
    for (const auto& [key, each] : value.get_object()) count += count_values(each);
  }
  return count;
}

Checked check_count(std::size_t values) {
  if (values <= kMostChatValues) return {};
  return std::unexpected(invalid(
      fmt::format("'messages', 'tools' and 'chat_template_kwargs' have {} JSON values together, and {} is the most",
                  values, kMostChatValues),
      "messages"));
}

// The text of a message: a string, or an array of text parts. Parts become one string: every template accepts a string,
// but not every template knows parts.
Checked join_parts(json::value& content, const std::string& path) {
  if (content.is_string()) return {};
  if (!content.is_array())
    return std::unexpected(invalid(fmt::format("'{}' must be a string or an array of parts", path), path));
  json::string text;
  const json::array& parts = content.get_array();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", path, i);
    if (!parts[i].is_object()) return std::unexpected(invalid(fmt::format("'{}' must be an object", at), at));
    Fields fields(parts[i].get_object(), at + ".");
    const auto type = fields.string("type");
    const auto part = fields.string("text");
    if (fields.error()) return std::unexpected(*fields.error());
    if (type && *type != "text" && *type != "input_text" && *type != "output_text") {
      return std::unexpected(
          invalid(fmt::format("'{}' is of type {}, and this server takes text only", at, in_quotes(*type)), at));
    }
    if (!part) return std::unexpected(invalid(fmt::format("'{}.text' is missing", at), at));
    text += *part;
  }
  content = std::move(text);
  return {};
}

// Clients send the arguments of a call as a string of JSON. Most templates expect an object, some that string. Returns
// how many values an object adds.
std::size_t open_arguments(json::value& calls, bool as_text) {
  if (!calls.is_array()) return 0;
  std::size_t added = 0;
  for (json::value& call : calls.get_array()) {
    json::value* const function = call.is_object() ? call.get_object().if_contains("function") : nullptr;
    json::value* const arguments =
        function != nullptr && function->is_object() ? function->get_object().if_contains("arguments") : nullptr;
    if (arguments == nullptr) continue;
    if (as_text && arguments->is_object()) *arguments = json::serialize(*arguments);
    if (as_text || !arguments->is_string()) continue;
    json::error_code error;
    json::value opened = json::parse(arguments->get_string(), error);
    if (error || !opened.is_object()) continue;
    added += count_values(opened);
    *arguments = std::move(opened);
  }
  return added;
}

// Removes all null fields in one pass. Erasing them one by one would move all later fields each time.
void drop_nulls(json::object& object) {
  if (std::ranges::none_of(object, [](const auto& field) { return field.value().is_null(); })) return;
  json::object kept;
  kept.reserve(object.size());
  for (auto& field : object) {
    if (!field.value().is_null()) kept.emplace(field.key(), std::move(field.value()));
  }
  object = std::move(kept);
}

// Checks a message and turns it into what templates expect. `values` counts what that adds.
Checked prepare_message(json::value& message, const std::string& path, const tools::Detected& style,
                        std::size_t& values) {
  static constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                             "assistant", "tool",      "function"};
  if (!message.is_object()) return std::unexpected(invalid(fmt::format("'{}' must be an object", path), path));
  json::object& object = message.get_object();
  Fields fields(object, path + ".");
  const auto role = fields.string("role");
  if (!role && !fields.error()) fields.refuse("role", "is missing");
  // Templates build control tokens from roles, so a role is one of these and nothing else.
  if (role && std::ranges::find(kRoles, *role) == kRoles.end()) {
    fields.refuse("role", "must be one of system, developer, user, assistant, tool, function");
  }
  if (fields.error()) return std::unexpected(*fields.error());
  // The role's text moves when the object grows.
  const bool developer = *role == "developer", assistant = *role == "assistant";
  const bool calls = fields.any("tool_calls") != nullptr || fields.any("function_call") != nullptr;
  if (fields.any("content") != nullptr) {
    if (auto ok = join_parts(object.at("content"), path + ".content"); !ok) return ok;
  } else if (assistant && calls) {
    object["content"] = "";
  } else {
    return std::unexpected(invalid(fmt::format("'{}.content' is missing", path), path + ".content"));
  }
  // "developer" is OpenAI's newer name for "system". Templates know only the older name.
  if (developer) object["role"] = "system";
  drop_nulls(object);
  if (json::value* const tool_calls = object.if_contains("tool_calls")) {
    values += open_arguments(*tool_calls, style.arguments_as_text);
    if (style.null_content && object.at("content") == "") object["content"] = nullptr;
  }
  // The reasoning of an earlier answer, under the name that the template knows.
  if (!style.reasoning_key.empty() && !object.contains(style.reasoning_key)) {
    if (const json::value* const reasoning = object.if_contains("reasoning_content")) {
      object[style.reasoning_key] = json::value(*reasoning);
    }
  }
  return check_count(values);
}

// The template's variables, taken out of the body.
std::expected<json::object, ApiError> take_variables(json::object& body, const tools::Detected& style) {
  Fields fields(body);
  const json::array* const messages = fields.array("messages");
  if (messages == nullptr && !fields.error()) fields.refuse("messages", "is missing");
  if (messages != nullptr && messages->empty()) fields.refuse("messages", "must have at least one message");
  const json::array* const tools = fields.array("tools");
  const json::object* const extra = fields.object("chat_template_kwargs");
  const auto effort = fields.string("reasoning_effort");
  if (fields.error()) return std::unexpected(*fields.error());
  const auto choice = read_tool_choice(body);
  if (!choice) return std::unexpected(choice.error());
  const bool with_tools = tools != nullptr && !tools->empty() && choice->kind != ToolChoice::Kind::None;
  std::size_t values = count_values(body.at("messages"));
  for (const char* const name : {"tools", "chat_template_kwargs"}) {
    if (const json::value* const value = body.if_contains(name)) values += count_values(*value);
  }
  if (auto ok = check_count(values); !ok) return std::unexpected(ok.error());
  if (with_tools && !style.tells_tools) {
    if (const auto read = tools::ToolList::parse(*tools); !read) {
      return std::unexpected(invalid(read.error().message, "tools"));
    }
  }

  json::object variables;
  if (extra != nullptr) variables = std::move(body.at("chat_template_kwargs").get_object());
  if (effort) {
    variables.emplace("reasoning_effort", *effort);
    if (*effort == "none") variables.emplace("enable_thinking", false);
  }
  json::array& taken = (variables["messages"] = std::move(body.at("messages"))).get_array();
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const auto ok = prepare_message(taken[i], fmt::format("messages[{}]", i), style, values);
    if (!ok) return std::unexpected(ok.error());
  }
  tools::tell_tools(taken, with_tools ? body.at("tools").get_array() : json::array(), style);
  // The spellings of control tokens are the model's, not the client's.
  for (const char* const special : {"bos_token", "eos_token", "unk_token", "pad_token", "tools"})
    variables.erase(special);
  if (with_tools && style.tells_tools) variables["tools"] = std::move(body.at("tools"));
  return variables;
}

// Cuts the rendered conversation after the text of its last message.
bool cut_behind_last(text::ChatPrompt::Rendered& rendered, std::string_view content) {
  constexpr std::string_view kSpace = " \t\n\r\f\v";
  const std::size_t begin = content.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return false;
  const std::string_view core = content.substr(begin, content.find_last_not_of(kSpace) + 1 - begin);
  // Find the last literal range that ends with the message. Templates trim messages, and may print other literal text
  // after them.
  for (std::size_t i = rendered.literal.size(); i-- > 0;) {
    const TextRange range = rendered.literal[i];
    const std::string_view text = std::string_view(rendered.text).substr(range.begin, range.end - range.begin);
    const std::string_view trimmed = text.substr(0, text.find_last_not_of(kSpace) + 1);
    if (!trimmed.ends_with(core)) continue;
    rendered.text.resize(range.begin + trimmed.size());
    rendered.literal.resize(i + 1);
    rendered.literal.back().end = rendered.text.size();
    return true;
  }
  return false;
}

}  // namespace

std::expected<text::ChatPrompt::Rendered, ApiError> rendered_chat(json::object body, const TextModel& model) {
  if (model.chat() == nullptr) {
    return std::unexpected(invalid(
        fmt::format("this model cannot chat: {}; use /v1/completions to continue a text", model.why_no_chat())));
  }
  Fields fields(body);
  const bool continues = fields.boolean("continue_final_message").value_or(false);
  const bool generates = fields.boolean("add_generation_prompt").value_or(!continues);
  if (continues && generates)
    fields.refuse("continue_final_message", "cannot be used together with 'add_generation_prompt'");
  if (fields.error()) return std::unexpected(*fields.error());
  auto variables = take_variables(body, model.style());
  if (!variables) return std::unexpected(variables.error());
  (*variables)["add_generation_prompt"] = generates;
  std::string last;
  if (continues) {
    // A message with calls alone may have null there.
    const json::value& content = variables->at("messages").get_array().back().at("content");
    if (content.is_string()) last = content.get_string();
  }

  auto rendered = model.chat()->render(std::move(*variables), jinja::local_now());
  if (!rendered) return std::unexpected(invalid(rendered.error().message, "messages"));
  if (continues && !cut_behind_last(*rendered, last)) {
    return std::unexpected(invalid("the last message cannot be continued: the chat template changes it, or it is empty",
                                   "continue_final_message"));
  }
  return std::move(*rendered);
}

std::expected<void, ApiError> prepare_messages(json::array& messages, const tools::Detected& style) {
  std::size_t values = 0;
  for (const json::value& message : messages) values += count_values(message);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (auto ok = prepare_message(messages[i], fmt::format("messages[{}]", i), style, values); !ok) return ok;
  }
  tools::tell_tools(messages, {}, style);
  return {};
}

std::expected<std::vector<Token>, ApiError> chat_prompt(json::object body, const TextModel& model) {
  const auto rendered = rendered_chat(std::move(body), model);
  return rendered ? chat_tokens(*rendered, model) : std::unexpected(rendered.error());
}

std::expected<std::vector<Token>, ApiError> chat_tokens(const text::ChatPrompt::Rendered& rendered,
                                                        const TextModel& model) {
  if (rendered.text.size() > model.most_bytes()) {
    return std::unexpected(too_long("messages", fmt::format("{} bytes", rendered.text.size()), model));
  }
  // The template writes BOS itself if the model needs it.
  auto ids = model.tokenizer().encode(rendered.text,
                                      {.add_special = false, .parse_special = true, .literal = rendered.literal});
  if (!ids) return std::unexpected(invalid(ids.error().message, "messages"));
  return std::move(*ids);
}

}  // namespace quire::server
