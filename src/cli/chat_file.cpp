#include "quire/cli/chat_file.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include <boost/json/serialize.hpp>
#include <boost/json/stream_parser.hpp>
#include <boost/json/value.hpp>
#include <boost/system/error_code.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "quire/cli/input.h"

namespace quire::cli {

namespace {

namespace json = boost::json;

// Those that the server takes.
constexpr std::array<std::string_view, 6> kRoles = {"system", "developer", "user", "assistant", "tool", "function"};

std::string place_in(std::string_view text, std::size_t at) {
  const std::string_view before = text.substr(0, at);
  const auto line = 1 + std::ranges::count(before, '\n');
  const std::size_t break_at = before.rfind('\n');
  const std::size_t column = at - (break_at == std::string_view::npos ? 0 : break_at + 1) + 1;
  return fmt::format("line {}, column {}", line, column);
}

Result<json::value> parse_json(std::string_view text, const std::string& name) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  json::parse_options options;
  options.max_depth = 128;  // schemas of tools are nested
  json::stream_parser parser({}, options);
  boost::system::error_code error;
  const std::size_t parsed = parser.write_some(text, error);
  if (!error && parsed < text.size()) {
    return fail(fmt::format("{}: {}: something follows the JSON value", name, place_in(text, parsed)));
  }
  if (!error) parser.finish(error);
  if (error) return fail(fmt::format("{}: {}: not JSON: {}", name, place_in(text, parsed), error.message()));
  return parser.release();
}

}  // namespace

Result<void> save_messages(const std::string& path, const json::array& messages) {
  std::string text = "{\"messages\": [\n";
  for (std::size_t i = 0; i < messages.size(); ++i) {
    text += fmt::format("  {}{}\n", json::serialize(messages[i]), i + 1 < messages.size() ? "," : "");
  }
  text += "]}\n";
  const std::string partial = path + ".part";
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(partial, path, error);
  if (file && !error) return {};
  std::remove(partial.c_str());
  return fail(fmt::format("{}: cannot be written{}", path, error ? ": " + error.message() : ""));
}

Result<json::object> read_variables(const std::string& path) {
  const auto text = read_input(path, kMaxMessagesBytes);
  if (!text) return std::unexpected(text.error());
  const std::string name = input_name(path);
  auto value = parse_json(*text, name);
  if (!value) return std::unexpected(value.error());
  json::object variables;
  if (value->is_object()) {
    variables = std::move(value->as_object());
  } else if (value->is_array()) {
    variables["messages"] = std::move(*value);
  } else {
    return fail(fmt::format("{}: is neither an object with \"messages\" nor an array of messages", name));
  }
  const json::value* messages = variables.if_contains("messages");
  if (messages == nullptr) return fail(fmt::format("{}: has no \"messages\"", name));
  if (!messages->is_array()) return fail(fmt::format("{}: \"messages\" is not an array", name));
  return variables;
}

Result<json::array> load_messages(const std::string& path) {
  auto variables = read_variables(path);
  if (!variables) return std::unexpected(variables.error());
  json::array& messages = variables->at("messages").as_array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const json::object* const message = messages[i].if_object();
    const json::value* const role = message != nullptr ? message->if_contains("role") : nullptr;
    const json::string* const text = role != nullptr ? role->if_string() : nullptr;
    if (text == nullptr || std::ranges::find(kRoles, std::string_view(*text)) == kRoles.end()) {
      return fail(fmt::format("{}: messages[{}].role is not one of {}", input_name(path), i, fmt::join(kRoles, ", ")));
    }
  }
  return std::move(messages);
}

std::string message_text(const json::object& message) {
  const json::value* const content = message.if_contains("content");
  if (content == nullptr) return "";
  if (const json::string* const text = content->if_string()) return std::string(*text);
  std::string text;
  if (const json::array* const parts = content->if_array()) {
    for (const json::value& part : *parts) {
      const json::value* const each = part.is_object() ? part.as_object().if_contains("text") : nullptr;
      if (each != nullptr && each->is_string()) text += std::string_view(each->as_string());
    }
  }
  return text;
}

}  // namespace quire::cli
