// import_variable(): converts the caller's variables to values.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include "quire/base/utf8.h"
#include "quire/jinja/interpreter.h"

namespace quire::jinja {
namespace {

// The members of an object whose text counts as the template's own.
using Members = std::vector<std::string_view>;

Value import_at(const boost::json::value& value, int depth, Source source, const Members& items_own = {},
                const Members& own = {}) {
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
      return make_constant_text(std::move(text), source);
    }
    case boost::json::kind::array: {
      Sequence list;
      list.depth = 1;
      for (const boost::json::value& item : value.get_array()) {
        list.items.push_back(import_at(item, depth + 1, source, {}, items_own));
        list.depth = std::max(list.depth, list.items.back().depth() + 1);
      }
      return std::make_shared<const Sequence>(std::move(list));
    }
    case boost::json::kind::object: {
      Dict dict;
      for (const auto& [key, item] : value.get_object()) {
        std::string name;
        append_repaired(name, key);
        const bool is_own = std::ranges::find(own, std::string_view(key)) != own.end();
        Value member = import_at(item, depth + 1, is_own ? Source::own : source);
        dict.set(make_constant_text(std::move(name), source), std::move(member));
      }
      return make_dict(std::move(dict));
    }
  }
  return {};
}

}  // namespace

Value import_variable(std::string_view name, const boost::json::value& value, std::span<const std::string_view> own) {
  constexpr std::string_view kEach = "[].";
  Members members;
  for (const std::string_view path : own) {
    if (path == name) return import_at(value, 1, Source::own);
    if (path.starts_with(name) && path.substr(name.size()).starts_with(kEach)) {
      members.push_back(path.substr(name.size() + kEach.size()));
    }
  }
  return import_at(value, 1, Source::outside, members);
}

}  // namespace quire::jinja
