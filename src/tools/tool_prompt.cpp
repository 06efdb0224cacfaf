#include "quire/tools/tool_prompt.h"

#include <algorithm>
#include <span>
#include <utility>

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
           const json::object& arguments) {
  for (const Part& part : parts) {
    switch (part.kind) {
      case Part::Kind::Mark:
      case Part::Kind::Skip: out += part.text; break;
      case Part::Kind::Space: out += '\n'; break;
      case Part::Kind::Maybe:
      case Part::Kind::MaybeId: break;
      case Part::Kind::Name:
        out += name;
        if (!shape.numbered.empty()) out += ":0";
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

void write_calls(json::object& message, const Shape& shape) {
  const json::value* const calls = message.if_contains("tool_calls");
  if (calls == nullptr || !calls->is_array()) return;
  std::string written;
  for (const json::value& call : calls->get_array()) {
    const json::value* const function = call.is_object() ? call.get_object().if_contains("function") : nullptr;
    if (function == nullptr || !function->is_object()) continue;
    const json::value* const name = function->get_object().if_contains("name");
    const json::value* const arguments = function->get_object().if_contains("arguments");
    if (name == nullptr || !name->is_string()) continue;
    if (!written.empty()) written += '\n';
    written += write_call(shape, std::string_view(name->get_string()),
                          arguments != nullptr && arguments->is_object() ? arguments->get_object() : json::object());
  }
  message.erase("tool_calls");
  add_paragraph(message["content"], written);
}

}  // namespace

std::string write_call(const Shape& shape, std::string_view name, const json::object& arguments) {
  std::string out;
  for (const std::span<const Part> parts : {shape.begin, shape.call, shape.end}) {
    write(out, parts, shape, name, arguments);
  }
  return out;
}

void tell_tools(json::array& messages, const json::array& tools, const Detected& style) {
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
