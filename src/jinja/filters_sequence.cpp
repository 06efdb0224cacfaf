// Filters that measure, order and regroup sequences.
#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "quire/jinja/access.h"
#include "quire/jinja/filters.h"
#include "quire/jinja/methods.h"
#include "quire/jinja/operators.h"
#include "quire/jinja/print.h"
#include "quire/jinja/unicode.h"

namespace quire::jinja {
namespace {

bool given_true(const Value* value) { return value != nullptr && truthy(*value); }

// The key to compare by. By default it ignores case.
Value folded(Runtime& runtime, Value value, bool case_sensitive) {
  const Text* text = value.text();
  if (case_sensitive || text == nullptr) return value;
  runtime.meter.scanned(text->bytes.size());
  return make_text(runtime.meter, lower(text->bytes), text->origin.worst());
}

struct Keyed {
  Value key;
  Value item;
};

std::vector<Keyed> with_keys(Runtime& runtime, std::vector<Value> items, const AttributePath& path,
                             bool case_sensitive) {
  std::vector<Keyed> keyed;
  for (Value& item : items) {
    Value key = folded(runtime, path.of(runtime, item), case_sensitive);
    keyed.push_back({std::move(key), std::move(item)});
  }
  return keyed;
}

void sort_by_key(Runtime& runtime, std::vector<Keyed>& keyed, bool reverse) {
  // Equal items keep their order even when reversed.
  std::ranges::stable_sort(keyed, [&](const Keyed& a, const Keyed& b) {
    return reverse ? less(runtime.meter, b.key, a.key) : less(runtime.meter, a.key, b.key);
  });
}

Value items_of(Runtime& runtime, std::vector<Keyed> keyed) {
  ListBuilder out(runtime.meter);
  for (Keyed& each : keyed) out.push(std::move(each.item));
  return out.finish();
}

Value length_of(Runtime&, const Value& self, const Arguments& arguments) {
  bind_nothing("length", arguments);
  return length(self);
}

Value first_item(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind_nothing("first", arguments);
  Cursor cursor(runtime, self);
  Value item;
  return cursor.next(item) ? item : runtime.undefined("No first item, sequence was empty.");
}

Value last_item(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind_nothing("last", arguments);
  if (!sized(self)) fail_operation(fmt::format("'{}' object is not reversible", self.type_name()));
  if (!truthy(self)) return runtime.undefined("No last item, sequence was empty.");
  if (const Dict* dict = self.dict()) return dict->entries.back().first;
  if (const Sequence* sequence = self.sequence()) return sequence->items.back();
  return get_item(runtime, self, Value(-1));
}

Value list_of(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind_nothing("list", arguments);
  return collect(runtime, self).finish();
}

Value reversed(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind_nothing("reverse", arguments);
  if (self.text() != nullptr) return get_slice(runtime, self, Value(), Value(), Value(-1));
  if (!iterable(self)) fail_operation("argument must be iterable");
  ListBuilder items = collect(runtime, self);
  std::ranges::reverse(items.items);
  if (self.iterator() != nullptr) return items.finish();
  return make_iterator(runtime.meter, std::move(items.items), "list_reverseiterator");
}

Value join(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [separator_given, attribute] = bind("join", arguments, {"d", "attribute"}, 0);
  const Value separator =
      separator_given != nullptr ? to_plain_text(runtime.meter, *separator_given) : runtime.text("", Source::own);
  const AttributePath path(runtime, attribute);
  TextBuilder out(runtime.meter);
  Cursor cursor(runtime, self);
  bool first = true;
  for (Value item; cursor.next(item); first = false) {
    if (!first) out.append(*separator.text());
    append_str(out, runtime.meter, path.of(runtime, item));
  }
  return out.finish();
}

Value sum(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [attribute, start] = bind("sum", arguments, {"attribute", "start"}, 0);
  const AttributePath path(runtime, attribute);
  Value total = start != nullptr ? *start : Value(0);
  if (total.text() != nullptr) fail_operation("sum() can't sum strings [use ''.join(seq) instead]");
  Cursor cursor(runtime, self);
  for (Value item; cursor.next(item);) total = calculate(runtime, Arithmetic::add, total, path.of(runtime, item));
  return total;
}

template <bool greatest>
Value extreme(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [case_given, attribute] = bind(greatest ? "max" : "min", arguments, {"case_sensitive", "attribute"}, 0);
  const AttributePath path(runtime, attribute);
  std::vector<Keyed> keyed = with_keys(runtime, collect(runtime, self).items, path, given_true(case_given));
  if (keyed.empty()) return runtime.undefined("No aggregated item, sequence was empty.");
  const Keyed* best = &keyed.front();
  for (const Keyed& each : std::span(keyed).subspan(1)) {
    if (greatest ? less(runtime.meter, best->key, each.key) : less(runtime.meter, each.key, best->key)) best = &each;
  }
  return best->item;
}

// Several attributes, separated by commas: sorts by the first, then by the next.
Value sorted(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [reverse, case_given, attribute] = bind("sort", arguments, {"reverse", "case_sensitive", "attribute"}, 0);
  std::vector<AttributePath> paths;
  if (attribute != nullptr && attribute->text() != nullptr) {
    std::string_view rest = attribute->text()->bytes;
    while (true) {
      const std::size_t comma = rest.find(',');
      const Value name = runtime.text(std::string(rest.substr(0, comma)), Source::own);
      paths.emplace_back(runtime, &name);
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  } else {
    paths.emplace_back(runtime, attribute);
  }
  const bool case_sensitive = given_true(case_given);
  std::vector<Keyed> keyed;
  for (Value& item : collect(runtime, self).items) {
    std::vector<Value> key;
    key.reserve(paths.size());
    for (const AttributePath& path : paths) key.push_back(folded(runtime, path.of(runtime, item), case_sensitive));
    keyed.push_back({make_list(runtime.meter, std::move(key)), std::move(item)});
  }
  sort_by_key(runtime, keyed, given_true(reverse));
  return items_of(runtime, std::move(keyed));
}

Value unique(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [case_given, attribute] = bind("unique", arguments, {"case_sensitive", "attribute"}, 0);
  const AttributePath path(runtime, attribute);
  const bool case_sensitive = given_true(case_given);
  std::set<Value, KeyLess> seen;
  ListBuilder out(runtime.meter);
  Cursor cursor(runtime, self);
  for (Value item; cursor.next(item);) {
    const Value key = folded(runtime, path.of(runtime, item), case_sensitive);
    runtime.meter.step(8);  // the cost of comparing it with earlier items
    if (seen.insert(require_hashable(key)).second) out.push(item);
  }
  return make_iterator(runtime.meter, std::move(out.items));
}

Value pair(Runtime& runtime, const std::pair<Value, Value>& entry) {
  return make_tuple(runtime.meter, {entry.first, entry.second});
}

Value dict_sorted(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [case_given, by, reverse] = bind("dictsort", arguments, {"case_sensitive", "by", "reverse"}, 0);
  require_defined(self);
  if (self.dict() == nullptr) fail_operation(fmt::format("'{}' object has no attribute 'items'", self.type_name()));
  const std::string order = by != nullptr ? require_text("dictsort", *by) : "key";
  if (order != "key" && order != "value") fail_operation("You can only sort by either \"key\" or \"value\"");
  std::vector<Keyed> keyed;
  for (const auto& entry : self.dict()->entries) {
    Value key = folded(runtime, order == "key" ? entry.first : entry.second, given_true(case_given));
    keyed.push_back({std::move(key), pair(runtime, entry)});
  }
  sort_by_key(runtime, keyed, given_true(reverse));
  return items_of(runtime, std::move(keyed));
}

Value dict_items(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind_nothing("items", arguments);
  ListBuilder out(runtime.meter);
  if (const Dict* dict = self.dict()) {
    runtime.meter.step(dict->entries.size());
    for (const auto& entry : dict->entries) out.push(pair(runtime, entry));
  } else if (self.undefined() == nullptr) {
    fail_operation("Can only get item pairs from a mapping.");
  }
  return make_iterator(runtime.meter, std::move(out.items));
}

constexpr Filter kFilters[] = {
    {"length", length_of},     {"count", length_of},   {"first", first_item}, {"last", last_item},
    {"list", list_of},         {"reverse", reversed},  {"join", join},        {"sum", sum},
    {"min", extreme<false>},   {"max", extreme<true>}, {"sort", sorted},      {"unique", unique},
    {"dictsort", dict_sorted}, {"items", dict_items}};

}  // namespace

std::span<const Filter> sequence_filters() { return kFilters; }

AttributePath::AttributePath(Runtime& runtime, const Value* attribute) {
  if (attribute == nullptr || attribute->is_none()) return;
  if (attribute->text() == nullptr) {
    parts_.push_back(*attribute);
    return;
  }
  std::string_view rest = attribute->text()->bytes;
  while (true) {
    const std::string_view part = rest.substr(0, rest.find('.'));
    const bool number =
        !part.empty() && part.size() < 18 && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    parts_.push_back(number ? Value(std::stoll(std::string(part))) : runtime.text(std::string(part), Source::own));
    if (part.size() == rest.size()) break;
    rest.remove_prefix(part.size() + 1);
  }
}

Value AttributePath::of(Runtime& runtime, Value item, const Value* otherwise) const {
  for (const Value& part : parts_) {
    item = get_item(runtime, item, part);
    if (otherwise != nullptr && !otherwise->is_none() && item.undefined() != nullptr) item = *otherwise;
  }
  return item;
}

}  // namespace quire::jinja
