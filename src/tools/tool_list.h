// The tools of a request: their names, and of each parameter whether its schema says string. Made from the array
// `tools` of OpenAI's API.
//
// Who may call: any number of threads; it does not change after it is made.
// How it fails: parse() with one line that names the tool and the field.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "quire/base/error.h"

namespace quire::tools {

struct Tool {
  std::string name;
  boost::json::object parameters;  // the schema of its arguments; empty: any object
  bool strict = false;
  // For each property of the schema, see top_of(): whether all its values are strings.
  std::map<std::string, bool, std::less<>> strings;
};

// Where the schema of a tool has its properties: itself, or the definition that a "$ref" at its top names
// ("#/$defs/A"), if nothing but annotations stands beside that.
const boost::json::object& top_of(const boost::json::object& parameters);

class ToolList {
 public:
  static Result<ToolList> parse(const boost::json::array& tools);

  const Tool* find(std::string_view name) const;
  const std::vector<Tool>& all() const { return tools_; }
  bool empty() const { return tools_.empty(); }

 private:
  std::vector<Tool> tools_;
};

}  // namespace quire::tools
