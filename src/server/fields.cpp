#include "quire/server/fields.h"

#include <cmath>
#include <limits>

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

namespace quire::server {

namespace json = boost::json;

std::optional<std::int64_t> whole_number(const json::value& value) {
  if (value.is_int64()) return value.get_int64();
  if (value.is_double()) {
    const double number = value.get_double();
    if (std::abs(number) <= 9007199254740992.0 && number == std::trunc(number)) {
      return static_cast<std::int64_t>(number);
    }
  }
  return std::nullopt;
}

std::unexpected<ApiError> wrong(const std::string& path, std::string_view must) {
  return std::unexpected(invalid(fmt::format("'{}' {}", path, must), path));
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMost = 64;
  return text.size() <= kMost ? fmt::format("'{}'", text) : fmt::format("'{}...'", text.substr(0, kMost));
}

const json::value* Fields::any(std::string_view name) const {
  const json::value* const value = object_.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

void Fields::refuse(std::string_view name, std::string_view must) {
  if (error_) return;
  const std::string field = path(name);
  error_ = invalid(fmt::format("'{}' {}", field, must), field);
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const json::value* const value = any(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_bool()) return value->get_bool();
  refuse(name, "must be true or false");
  return std::nullopt;
}

std::optional<double> Fields::number(std::string_view name, double least, double most) {
  const json::value* const value = any(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    refuse(name, "must be a number");
    return std::nullopt;
  }
  const auto number = value->to_number<double>();
  if (number >= least && number <= most) return number;
  refuse(name, fmt::format("must be from {:g} to {:g}", least, most));
  return std::nullopt;
}

std::optional<std::int64_t> Fields::integer(std::string_view name, std::int64_t least, std::int64_t most) {
  const json::value* const value = any(name);
  if (value == nullptr) return std::nullopt;
  const auto number = whole_number(*value);
  if (!number) {
    refuse(name, value->is_number() ? "must be a whole number that fits 64 bits" : "must be a whole number");
    return std::nullopt;
  }
  if (*number >= least && *number <= most) return number;
  refuse(name, most == std::numeric_limits<std::int64_t>::max() ? fmt::format("must be at least {}", least)
                                                                : fmt::format("must be from {} to {}", least, most));
  return std::nullopt;
}

std::optional<std::string_view> Fields::string(std::string_view name) {
  const json::value* const value = any(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return std::string_view(value->get_string());
  refuse(name, "must be a string");
  return std::nullopt;
}

const json::object* Fields::object(std::string_view name) {
  const json::value* const value = any(name);
  if (value == nullptr) return nullptr;
  if (value->is_object()) return &value->get_object();
  refuse(name, "must be an object");
  return nullptr;
}

const json::array* Fields::array(std::string_view name) {
  const json::value* const value = any(name);
  if (value == nullptr) return nullptr;
  if (value->is_array()) return &value->get_array();
  refuse(name, "must be an array");
  return nullptr;
}

ApiError with_names(ApiError error, std::span<const OtherName> names) {
  for (const OtherName& name : names) {
    // A name ends where the field's name, or the way into it, does.
    const auto stands_at = [&](std::string_view text, std::size_t at) {
      if (!text.substr(at).starts_with(name.chat)) return false;
      const std::string_view rest = text.substr(at + name.chat.size());
      return rest.empty() || rest.front() == '\'' || rest.front() == '.' || rest.front() == '[';
    };
    if (!stands_at(error.param, 0)) continue;
    error.param.replace(0, name.chat.size(), name.here);
    for (std::size_t at = error.message.find('\''); at != std::string::npos; at = error.message.find('\'', at + 1)) {
      if (stands_at(error.message, at + 1)) error.message.replace(at + 1, name.chat.size(), name.here);
    }
    return error;
  }
  return error;
}

}  // namespace quire::server
