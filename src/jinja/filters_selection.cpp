// Filters that apply a filter, a test or an attribute to every item.
#include <string>
#include <utility>

#include <fmt/format.h>

#include "quire/jinja/access.h"
#include "quire/jinja/filters.h"
#include "quire/jinja/methods.h"
#include "quire/jinja/operators.h"
#include "quire/jinja/predicates.h"
#include "quire/jinja/print.h"

namespace quire::jinja {
namespace {

Value map_attribute(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [attribute, otherwise] = bind("map", arguments, {"attribute", "default"}, 1);
  const AttributePath path(runtime, attribute);
  ListBuilder out(runtime.meter);
  Cursor cursor(runtime, self);
  for (Value item; cursor.next(item);) out.push(path.of(runtime, item, otherwise));
  return make_iterator(runtime.meter, std::move(out.items));
}

Value map_items(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Deeper deeper(runtime);  // map('map', 'map', ...)
  runtime.meter.step(arguments.positional.size());
  if (!truthy(self)) return make_iterator(runtime.meter, {});
  if (arguments.positional.empty()) {
    if (arguments.named.empty()) fail_operation("map requires a filter argument");
    return map_attribute(runtime, self, arguments);
  }
  const std::string& name = require_text("map", arguments.positional.front());
  const Filter* filter = find_filter(name);
  if (filter == nullptr) fail_no_filter(name);
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  ListBuilder out(runtime.meter);
  Cursor cursor(runtime, self);
  for (Value item; cursor.next(item);) out.push(filter->apply(runtime, item, rest));
  return make_iterator(runtime.meter, std::move(out.items));
}

// Keeps the items that pass a test, or those that fail it. The test applies to the item or to its attribute. Without a
// test, items that are true pass.
template <bool wanted, bool of_attribute>
Value select_items(Runtime& runtime, const Value& self, const Arguments& arguments) {
  if (!truthy(self)) return make_iterator(runtime.meter, {});
  Arguments rest = arguments;
  const auto take_first = [&rest] {
    Value first = std::move(rest.positional.front());
    rest.positional.erase(rest.positional.begin());
    return first;
  };
  if (of_attribute && rest.positional.empty()) fail_operation("Missing parameter for attribute name");
  Value attribute;
  if (of_attribute) attribute = take_first();
  const AttributePath path(runtime, &attribute);
  const Test* test = nullptr;
  if (!rest.positional.empty()) {
    const std::string name = require_text("select", take_first());
    test = find_test(name);
    if (test == nullptr) fail_operation(fmt::format("No test named {}.", quoted(name)));
  }
  ListBuilder out(runtime.meter);
  Cursor cursor(runtime, self);
  for (Value item; cursor.next(item);) {
    const Value subject = path.of(runtime, item);
    if ((test != nullptr ? test->holds(runtime, subject, rest) : truthy(subject)) == wanted) out.push(item);
  }
  return make_iterator(runtime.meter, std::move(out.items));
}

Value attribute_of(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [name] = bind("attr", arguments, {"name"}, 1);
  const std::string& wanted = require_text("attr", *name);
  if (auto found = own_attribute(runtime, self, wanted)) return *std::move(found);
  return runtime.undefined(fmt::format("'{} object' has no attribute {}", self.type_name(), quoted(wanted)));
}

constexpr Filter kFilters[] = {{"map", map_items},
                               {"select", select_items<true, false>},
                               {"reject", select_items<false, false>},
                               {"selectattr", select_items<true, true>},
                               {"rejectattr", select_items<false, true>},
                               {"attr", attribute_of}};

}  // namespace

std::span<const Filter> selection_filters() { return kFilters; }

}  // namespace quire::jinja
