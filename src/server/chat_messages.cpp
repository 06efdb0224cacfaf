#include "quire/server/chat_messages.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "quire/server/fields.h"

namespace quire::server {
namespace {

namespace json = boost::json;

using Checked = std::expected<json::value, ApiError>;

// If a value other than a message's text spells a control token, a template would print that token. Returns the path of
// the first such value, or nothing.
std::optional<std::string> control_token_in(const json::value& value, const TextModel& model, const std::string& path) {
  if (value.is_string()) {
    if (model.spells_control_token(std::string_view(value.get_string()))) return path;
  } else if (value.is_array()) {
    const json::array& array = value.get_array();
    for (std::size_t i = 0; i < array.size(); ++i) {
      if (auto found = control_token_in(array[i], model, fmt::format("{}[{}]", path, i))) return found;
    }
  } else if (value.is_object()) {
    for (const auto& [key, inner] : value.get_object()) {
      const std::string at = fmt::format("{}.{}", path, std::string_view(key));
      if (model.spells_control_token(std::string_view(key))) return at;
      if (auto found = control_token_in(inner, model, at)) return found;
    }
  }
  return std::nullopt;
}

std::optional<ApiError> refuse_control_tokens(const json::value& value, const TextModel& model,
                                              const std::string& path) {
  const auto found = control_token_in(value, model, path);
  if (!found) return std::nullopt;
  return invalid(fmt::format("'{}' spells a control token of the model", *found), *found);
}

// The text of a message: a string, or an array of text parts.
Checked checked_content(const json::value& content, const std::string& path) {
  if (content.is_string()) return content;
  if (!content.is_array())
    return std::unexpected(invalid(fmt::format("'{}' must be a string or an array of parts", path), path));
  // Every template accepts a string; not every template knows parts.
  std::string text;
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
          invalid(fmt::format("'{}' is of type '{}', and this server takes text only", at, *type), at));
    }
    if (!part) return std::unexpected(invalid(fmt::format("'{}.text' is missing", at), at));
    text += *part;
  }
  return json::value(text);
}

// Templates expect the arguments of a call as an object. Clients send them as a string of JSON.
void open_arguments(json::value& calls) {
  if (!calls.is_array()) return;
  for (json::value& call : calls.get_array()) {
    json::value* const function = call.is_object() ? call.get_object().if_contains("function") : nullptr;
    json::value* const arguments =
        function != nullptr && function->is_object() ? function->get_object().if_contains("arguments") : nullptr;
    if (arguments == nullptr || !arguments->is_string()) continue;
    json::error_code error;
    json::value opened = json::parse(arguments->get_string(), error);
    if (!error && opened.is_object()) *arguments = std::move(opened);
  }
}

Checked checked_message(const json::value& message, const TextModel& model, const std::string& path) {
  static constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                             "assistant", "tool",      "function"};
  if (!message.is_object()) return std::unexpected(invalid(fmt::format("'{}' must be an object", path), path));
  Fields fields(message.get_object(), path + ".");
  const auto role = fields.string("role");
  if (!role && !fields.error()) fields.refuse("role", "is missing");
  if (role && std::ranges::find(kRoles, *role) == kRoles.end()) {
    fields.refuse("role", "must be one of system, developer, user, assistant, tool");
  }
  if (fields.error()) return std::unexpected(*fields.error());

  json::object out;
  // "developer" is OpenAI's newer name for "system". Templates know only the older name.
  out["role"] = *role == "developer" ? std::string_view("system") : *role;
  const bool calls = fields.any("tool_calls") != nullptr || fields.any("function_call") != nullptr;
  if (const json::value* const content = fields.any("content")) {
    auto checked = checked_content(*content, path + ".content");
    if (!checked) return checked;
    out["content"] = std::move(*checked);
  } else if (*role == "assistant" && calls) {
    out["content"] = "";
  } else {
    return std::unexpected(invalid(fmt::format("'{}.content' is missing", path), path + ".content"));
  }
  for (const auto& [key, value] : message.get_object()) {
    if (key == "role" || key == "content" || value.is_null()) continue;
    if (auto error = refuse_control_tokens(value, model, fmt::format("{}.{}", path, std::string_view(key)))) {
      return std::unexpected(std::move(*error));
    }
    json::value& copy = out[key] = value;
    if (key == "tool_calls") {
      open_arguments(copy);
      // The strings inside the parsed arguments are checked too.
      if (auto error = refuse_control_tokens(copy, model, path + ".tool_calls"))
        return std::unexpected(std::move(*error));
    }
  }
  return json::value(std::move(out));
}

// The template's variables that come from the body.
std::expected<json::object, ApiError> variables_of(const json::object& body, const TextModel& model) {
  Fields fields(body);
  const json::array* const messages = fields.array("messages");
  if (messages == nullptr && !fields.error()) fields.refuse("messages", "is missing");
  if (messages != nullptr && messages->empty()) fields.refuse("messages", "must have at least one message");
  const json::array* const tools = fields.array("tools");
  const json::object* const extra = fields.object("chat_template_kwargs");
  bool with_tools = tools != nullptr && !tools->empty();
  if (const json::value* const choice = fields.any("tool_choice")) {
    if (*choice == "none") {
      with_tools = false;
    } else if (*choice != "auto") {
      fields.refuse("tool_choice", "can only be \"auto\" or \"none\" here");
    }
  }
  if (fields.error()) return std::unexpected(*fields.error());

  json::object variables;
  if (extra != nullptr) {
    if (auto error = refuse_control_tokens(*extra, model, "chat_template_kwargs"))
      return std::unexpected(std::move(*error));
    variables = *extra;
  }
  json::array checked;
  for (std::size_t i = 0; i < messages->size(); ++i) {
    auto message = checked_message((*messages)[i], model, fmt::format("messages[{}]", i));
    if (!message) return std::unexpected(message.error());
    checked.push_back(std::move(*message));
  }
  variables["messages"] = std::move(checked);
  for (const char* const special : {"bos_token", "eos_token", "unk_token", "pad_token", "tools"})
    variables.erase(special);
  if (with_tools) {
    if (auto error = refuse_control_tokens(*tools, model, "tools")) return std::unexpected(std::move(*error));
    variables["tools"] = *tools;
  }
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

std::expected<std::vector<Token>, ApiError> chat_prompt(const json::object& body, const TextModel& model) {
  if (model.chat() == nullptr) {
    return std::unexpected(invalid(
        fmt::format("this model cannot chat: {}; use /v1/completions to continue a text", model.why_no_chat())));
  }
  auto variables = variables_of(body, model);
  if (!variables) return std::unexpected(variables.error());
  Fields fields(body);
  const bool continues = fields.boolean("continue_final_message").value_or(false);
  const bool generates = fields.boolean("add_generation_prompt").value_or(!continues);
  if (continues && generates)
    fields.refuse("continue_final_message", "cannot be used together with 'add_generation_prompt'");
  if (fields.error()) return std::unexpected(*fields.error());
  (*variables)["add_generation_prompt"] = generates;

  auto rendered = model.chat()->render(*variables, jinja::local_now());
  if (!rendered) return std::unexpected(invalid(rendered.error().message, "messages"));
  if (continues) {
    const json::value& last = variables->at("messages").as_array().back();
    if (!cut_behind_last(*rendered, std::string_view(last.at("content").as_string()))) {
      return std::unexpected(
          invalid("the last message cannot be continued: the chat template changes it, or it is empty",
                  "continue_final_message"));
    }
  }
  // The template writes BOS itself if the model needs it.
  auto ids = model.tokenizer().encode(rendered->text,
                                      {.add_special = false, .parse_special = true, .literal = rendered->literal});
  if (!ids) return std::unexpected(invalid(ids.error().message, "messages"));
  return std::move(*ids);
}

}  // namespace quire::server
