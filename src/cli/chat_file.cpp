#include "quire/cli/chat_file.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "quire/cli/input.h"

namespace quire::cli {

namespace {

namespace json = boost::json;

constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
constexpr std::array<std::string_view, 4> kRoles = {"system", "user", "assistant", "tool"};

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

Result<json::array> load_messages(const std::string& path) {
  const auto text = read_input(path, kMaxBytes);
  if (!text) return std::unexpected(text.error());
  const auto wrong = [&](const std::string& what) { return fail(fmt::format("{}: {}", input_name(path), what)); };
  boost::system::error_code error;
  json::value data = json::parse(*text, error);
  if (error) return wrong("is not JSON");
  if (data.is_object() && data.as_object().contains("messages")) data = json::value(data.at("messages"));
  if (!data.is_array()) return wrong("has no array \"messages\"");
  json::array out;
  for (std::size_t i = 0; i < data.as_array().size(); ++i) {
    const json::value& each = data.as_array()[i];
    const auto field = [&](std::string_view name) -> const json::string* {
      const json::value* value = each.is_object() ? each.as_object().if_contains(name) : nullptr;
      return value != nullptr ? value->if_string() : nullptr;
    };
    const json::string *role = field("role"), *content = field("content");
    if (role == nullptr || std::ranges::find(kRoles, std::string_view(*role)) == kRoles.end()) {
      return wrong(fmt::format("messages[{}].role is not one of system, user, assistant, tool", i));
    }
    if (content == nullptr) return wrong(fmt::format("messages[{}].content is not a text", i));
    json::object kept{{"role", *role}, {"content", *content}};
    if (const json::string* const reasoning = field("reasoning_content")) kept["reasoning_content"] = *reasoning;
    out.push_back(std::move(kept));
  }
  return out;
}

}  // namespace quire::cli
