// Fields of a JSON object, taken out by name and type. A field that is null counts as one that is not there; fields
// nobody asks for are ignored.
//
//   Fields fields(object);
//   options.temperature = fields.number("temperature", 0, 100).value_or(1);
//   if (fields.error()) return std::unexpected(*fields.error());
//
// How it fails: the first field that has another type, or is out of its range, is remembered and named.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <boost/json/object.hpp>

#include "quire/server/api_error.h"

namespace quire::server {

class Fields {
 public:
  // `where` stands before the names in messages: "messages[2]."
  explicit Fields(const boost::json::object& object, std::string where = {})
      : object_(object), where_(std::move(where)) {}

  std::optional<bool> boolean(std::string_view name);
  std::optional<double> number(std::string_view name, double least, double most);
  // 5.0 is one too.
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t least, std::int64_t most);
  std::optional<std::string_view> string(std::string_view name);
  const boost::json::object* object(std::string_view name);
  const boost::json::array* array(std::string_view name);
  const boost::json::value* any(std::string_view name) const;

  // Remembers that this field is wrong: "'name' must be ..."
  void refuse(std::string_view name, std::string_view must);
  const std::optional<ApiError>& error() const { return error_; }
  std::string path(std::string_view name) const { return where_ + std::string(name); }

 private:
  const boost::json::object& object_;
  std::string where_;
  std::optional<ApiError> error_;
};

// The whole number that a value is, if it is one.
std::optional<std::int64_t> whole_number(const boost::json::value& value);

}  // namespace quire::server
