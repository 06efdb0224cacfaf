// Reads the fields of a JSON object by name and type. A field that is null counts as missing. Unknown fields are
// ignored.
//
//   Fields fields(object);
//   options.temperature = fields.number("temperature", 0, 100).value_or(1);
//   if (fields.error()) return std::unexpected(*fields.error());
//
// How it fails: error() names the first field that has the wrong type or is out of range.
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <boost/json/object.hpp>

#include "quire/server/api_error.h"

namespace quire::server {

class Fields {
 public:
  // `where` is put before the names in messages: "messages[2]."
  explicit Fields(const boost::json::object& object, std::string where = {})
      : object_(object), where_(std::move(where)) {}

  std::optional<bool> boolean(std::string_view name);
  std::optional<double> number(std::string_view name, double least, double most);
  // 5.0 counts as an integer.
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t least, std::int64_t most);
  std::optional<std::string_view> string(std::string_view name);
  const boost::json::object* object(std::string_view name);
  const boost::json::array* array(std::string_view name);
  const boost::json::value* any(std::string_view name) const;

  // Records that this field is wrong: "'name' must be ..."
  void refuse(std::string_view name, std::string_view must);
  const std::optional<ApiError>& error() const { return error_; }
  std::string path(std::string_view name) const { return where_ + std::string(name); }

 private:
  const boost::json::object& object_;
  std::string where_;
  std::optional<ApiError> error_;
};

// The error that this field is wrong: "'messages[2].role' must be ..."
std::unexpected<ApiError> wrong(const std::string& path, std::string_view must);

// An error that was found in a field of a chat, for an API that has another name for it: "'stop' must ..." becomes
// "'stop_sequences' must ...". The first name that fits counts.
struct OtherName {
  std::string_view chat;
  std::string_view here;
};
ApiError with_names(ApiError error, std::span<const OtherName> names);

// A text of the client for an error message: cut if it is long.
std::string in_quotes(std::string_view text);

// The value as a whole number; empty if it is none.
std::optional<std::int64_t> whole_number(const boost::json::value& value);

}  // namespace quire::server
