// import_json(): variables on their way in.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include "quire/base/utf8.h"
#include "quire/jinja/interpreter.h"

namespace quire::jinja {
namespace {

Value import_at(const boost::json::value& value, int depth) {
  if (depth > kMaxDepth) fail_limit("a variable is nested too deeply");
  switch (value.kind()) {
    case boost::json::kind::null: return {};
    case boost::json::kind::bool_: return value.get_bool();
    case boost::json::kind::int64: return value.get_int64();
    case boost::json::kind::uint64: return value.get_uint64();
    case boost::json::kind::double_: return value.get_double();
    case boost::json::kind::string: {
      std::string text;
      append_repaired(text, value.get_string());
      return make_constant_text(std::move(text));
    }
    case boost::json::kind::array: {
      Sequence list;
      list.depth = 1;
      for (const boost::json::value& item : value.get_array()) {
        list.items.push_back(import_at(item, depth + 1));
        list.depth = std::max(list.depth, list.items.back().depth() + 1);
      }
      return std::make_shared<const Sequence>(std::move(list));
    }
    case boost::json::kind::object: {
      Dict dict;
      for (const auto& [key, item] : value.get_object()) {
        std::string name;
        append_repaired(name, key);
        dict.set(make_constant_text(std::move(name)), import_at(item, depth + 1));
      }
      return make_dict(std::move(dict));
    }
  }
  return {};
}

}  // namespace

Value import_json(const boost::json::value& value) { return import_at(value, 1); }

}  // namespace quire::jinja
