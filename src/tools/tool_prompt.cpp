#include "quire/tools/tool_prompt.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "quire/tools/pythonic.h"

namespace quire::tools {
namespace {

namespace json = boost::json;

constexpr std::string_view kResultBegin = "<tool_response>\n", kResultEnd = "\n</tool_response>";

std::string plain(const json::value& value) {
  return value.is_string() ? std::string(value.get_string()) : json::serialize(value);
}

std::string as_object(const Keys& keys, std::string_view name, const json::object& arguments) {
  const std::string inner = json::serialize(arguments);
  if (keys.name_is_key) return fmt::format("{{{}: {}}}", json_string(name), inner);
  return fmt::format("{{{}: {}, {}: {}}}", json_string(keys.name), json_string(name), json_string(keys.arguments),
                     inner);
}

std::string tagged(const Tags& tags, const json::object& arguments) {
  const std::string_view line = tags.trims_line ? "\n" : "";
  std::string out;
  for (const auto& [key, value] : arguments) {
    out += fmt::format("{}{}{}{}{}{}{}\n", tags.open, std::string_view(key), tags.middle, line, plain(value), line,
                       tags.close);
  }
  return out;
}

std::string keywords(const json::object& arguments) {
  std::string out;
  for (const auto& [key, value] : arguments) {
    if (!out.empty()) out += ", ";
    const std::string text = value.is_bool()   ? (value.get_bool() ? "True" : "False")
                             : value.is_null() ? "None"
                                               : json::serialize(value);
    out += fmt::format("{}={}", std::string_view(key), text);
  }
  return out;
}

void write(std::string& out, std::span<const Part> parts, const Shape& shape, std::string_view name,
           const json::object& arguments, std::size_t number) {
  for (const Part& part : parts) {
    switch (part.kind) {
      case Part::Kind::Mark:
      case Part::Kind::Skip: out += part.text; break;
      case Part::Kind::Space: out += '\n'; break;
      case Part::Kind::Maybe:
        if (part.text == shape.numbered) out += part.text;  // it belongs to the id
        break;
      case Part::Kind::MaybeId: break;
      case Part::Kind::Name:
        out += name;
        if (!shape.numbered.empty()) out += fmt::format(":{}", number);
        break;
      case Part::Kind::Object: out += as_object(shape.keys, name, arguments); break;
      case Part::Kind::Json: out += json::serialize(arguments); break;
      case Part::Kind::Tagged: out += tagged(shape.tags, arguments); break;
      case Part::Kind::Keywords: out += keywords(arguments); break;
    }
  }
}

std::string instructions(const json::array& tools, const Detected& style) {
  std::string out =
      "You can call functions. These are the functions, each with its name, what it does, and the JSON Schema of its "
      "arguments:\n";
  for (const json::value& tool : tools) {
    json::object function = tool.at("function").as_object();
    function.erase("strict");
    out += json::serialize(function) + '\n';
  }
  out += fmt::format(
      "\nTo call a function, write its name and its arguments in this form and nothing else:\n{}\nTo call several, "
      "write one such call after another. Then wait: the results come in the next message{}. If you need no function, "
      "answer without a call.",
      write_call(*style.shape, "FUNCTION", {{"ARGUMENT", "VALUE"}}),
      style.writes_results ? "" : ", between <tool_response> and </tool_response>");
  return out;
}

bool is_from(const json::value& message, std::string_view role) { return message.at("role").as_string() == role; }

void add_paragraph(json::value& content, std::string_view text, bool before = false) {
  const std::string old = plain(content.is_null() ? json::value("") : content);
  const std::string_view gap = old.empty() ? "" : "\n\n";
  content = before ? fmt::format("{}{}{}", text, gap, old) : fmt::format("{}{}{}", old, gap, text);
}

void add_instructions(json::array& messages, std::string_view text, bool takes_system) {
  if (takes_system) {
    if (messages.empty() || !is_from(messages.front(), "system")) {
      messages.insert(messages.begin(), json::object{{"role", "system"}, {"content", ""}});
    }
    return add_paragraph(messages.front().at("content"), text);
  }
  const auto user = std::ranges::find_if(messages, [](const json::value& each) { return is_from(each, "user"); });
  if (user != messages.end()) return add_paragraph(user->at("content"), text, true);
  messages.insert(messages.begin(), json::object{{"role", "user"}, {"content", text}});
}

// --- calls of earlier messages

// Nothing: it is not as OpenAI's API has it.
json::object* function_of(json::value& call) {
  json::value* const function = call.is_object() ? call.get_object().if_contains("function") : nullptr;
  return function != nullptr ? function->if_object() : nullptr;
}

std::string_view text_of(const json::object& object, std::string_view key) {
  const json::value* const value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
}

// The number in an id that numbered_id() could have made.
std::optional<std::size_t> number_of(std::string_view numbered, std::string_view id, std::string_view name) {
  constexpr std::size_t kMostDigits = 9;
  for (const std::string_view part : {numbered, name, std::string_view(":")}) {
    if (!id.starts_with(part)) return std::nullopt;
    id.remove_prefix(part.size());
  }
  if (id.size() > kMostDigits) return std::nullopt;
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), number);
  return error == std::errc() && end == id.data() + id.size() ? std::optional(number) : std::nullopt;
}

// Gives all calls ids as the model writes them, with numbers that grow through the conversation, and their results the
// same ids. Where the client's ids are so already, they stay.
void number_calls(json::array& messages, std::string_view numbered) {
  struct Ids {
    std::size_t message = 0;       // the last that has calls with the client's id
    std::vector<std::string> now;  // what their ids have become
    std::size_t answered = 0;
  };
  std::map<std::string, Ids, std::less<>> known;  // by the client's ids; empty: it sent none
  std::size_t next = 0;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    json::object& message = messages[i].get_object();
    if (is_from(messages[i], "tool")) {
      const auto found = known.find(text_of(message, "tool_call_id"));
      if (found == known.end()) continue;
      Ids& ids = found->second;
      message["tool_call_id"] = ids.now[std::min(ids.answered++, ids.now.size() - 1)];
    }
    json::value* const calls = is_from(messages[i], "assistant") ? message.if_contains("tool_calls") : nullptr;
    if (calls == nullptr || !calls->is_array()) continue;
    for (json::value& call : calls->get_array()) {
      const json::object* const function = function_of(call);
      const std::string_view name = function != nullptr ? text_of(*function, "name") : std::string_view();
      if (name.empty()) continue;
      const std::string_view id = text_of(call.get_object(), "id");
      // The first number need not be 0, since messages may be missing, and the model may have begun again with 0.
      const std::size_t number = std::max(next, number_of(numbered, id, name).value_or(0));
      next = number + 1;
      Ids& ids = known[std::string(id)];
      if (ids.message != i) ids = {.message = i, .now = {}, .answered = 0};
      ids.now.push_back(numbered_id(numbered, name, number));
      call.get_object()["id"] = ids.now.back();
    }
  }
}

void write_calls(json::object& message, const Shape& shape) {
  json::value* const calls = message.if_contains("tool_calls");
  if (calls == nullptr || !calls->is_array()) return;
  std::string written;
  for (json::value& call : calls->get_array()) {
    const json::object* const function = function_of(call);
    if (function == nullptr) continue;
    const json::value* const name = function->if_contains("name");
    const json::value* const arguments = function->if_contains("arguments");
    if (name == nullptr || !name->is_string()) continue;
    const std::string_view called = name->get_string();
    if (!written.empty()) written += '\n';
    written += write_call(shape, called,
                          arguments != nullptr && arguments->is_object() ? arguments->get_object() : json::object(),
                          number_of(shape.numbered, text_of(call.get_object(), "id"), called).value_or(0));
  }
  message.erase("tool_calls");
  add_paragraph(message["content"], written);
}

}  // namespace

std::string write_call(const Shape& shape, std::string_view name, const json::object& arguments, std::size_t number) {
  std::string out;
  for (const std::span<const Part> parts : {shape.begin, shape.call, shape.end}) {
    write(out, parts, shape, name, arguments, number);
  }
  return out;
}

void tell_tools(json::array& messages, const json::array& tools, const Detected& style) {
  if (!style.shape->numbered.empty()) number_calls(messages, style.shape->numbered);
  json::array told;
  bool results = false;  // the last message has results
  for (json::value& message : messages) {
    if (!style.writes_calls && is_from(message, "assistant")) write_calls(message.get_object(), *style.shape);
    const bool result = !style.writes_results && (is_from(message, "tool") || is_from(message, "function"));
    if (result) {
      const std::string text = fmt::format("{}{}{}", kResultBegin, plain(message.at("content")), kResultEnd);
      if (!results) told.push_back(json::object{{"role", "user"}, {"content", ""}});
      add_paragraph(told.back().at("content"), text);
    } else {
      told.push_back(std::move(message));
    }
    results = result;
  }
  messages = std::move(told);
  if (!style.tells_tools && !tools.empty()) {
    add_instructions(messages, instructions(tools, style), style.takes_system);
  }
}

}  // namespace quire::tools
