#include "quire/jinja/methods.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "quire/jinja/access.h"
#include "quire/jinja/operators.h"
#include "quire/jinja/print.h"

namespace quire::jinja {
namespace {

const Method* find(std::span<const Method> methods, std::string_view name) {
  const auto found = std::ranges::find(methods, name, &Method::name);
  return found != methods.end() ? &*found : nullptr;
}

Value count_items(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [wanted] = bind("count", arguments, {""}, 1);
  const auto same = [&, item = wanted](const Value& value) { return equal(runtime.meter, value, *item); };
  return std::ranges::count_if(self.sequence()->items, same);
}

Value index_of_item(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [wanted, start, stop] = bind("index", arguments, {"", "", ""}, 1);
  const std::vector<Value>& items = self.sequence()->items;
  const auto size = static_cast<Int>(items.size());
  const auto bound = [size](const Value* value, Int otherwise) {
    const Int index = value != nullptr ? require_index(*value) : otherwise;
    return std::clamp<Int>(index < 0 ? index + size : index, 0, size);
  };
  const Int end = bound(stop, size);
  for (Int i = bound(start, 0); i < end; ++i) {
    if (equal(runtime.meter, items[static_cast<std::size_t>(i)], *wanted)) return i;
  }
  fail_operation(fmt::format("{} is not in {}", repr(runtime.meter, *wanted), self.type_name()));
}

Value itself(Runtime&, const Value& self, const Arguments& arguments) {
  bind_nothing("copy", arguments);
  return self;  // lists and dicts are immutable, so no copy is needed
}

Value dict_get(Runtime&, const Value& self, const Arguments& arguments) {
  const auto [key, otherwise] = bind("get", arguments, {"", ""}, 1);
  const Value* found = self.dict()->find(require_hashable(*key));
  if (found != nullptr) return *found;
  return otherwise != nullptr ? *otherwise : Value();
}

template <typename Pick>
Value view(Runtime& runtime, const Value& self, SequenceKind kind, Pick pick) {
  const auto& entries = self.dict()->entries;
  runtime.meter.step(entries.size());
  ListBuilder out(runtime.meter);
  for (const auto& entry : entries) out.push(pick(entry));
  return out.finish(kind);
}

Value dict_keys(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind_nothing("keys", arguments);
  return view(runtime, self, SequenceKind::keys, [](const auto& entry) { return entry.first; });
}

Value dict_values(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind_nothing("values", arguments);
  return view(runtime, self, SequenceKind::values, [](const auto& entry) { return entry.second; });
}

Value dict_items(Runtime& runtime, const Value& self, const Arguments& arguments) {
  bind_nothing("items", arguments);
  return view(runtime, self, SequenceKind::items, [&runtime](const auto& entry) {
    return make_tuple(runtime.meter, {entry.first, entry.second});
  });
}

Value is_integer(Runtime&, const Value& self, const Arguments& arguments) {
  bind_nothing("is_integer", arguments);
  return std::isfinite(*self.real()) && *self.real() == std::floor(*self.real());
}

constexpr Method kList[] = {{"count", count_items}, {"index", index_of_item}, {"copy", itself},    {"append", nullptr},
                            {"clear", nullptr},     {"extend", nullptr},      {"insert", nullptr}, {"pop", nullptr},
                            {"remove", nullptr},    {"reverse", nullptr},     {"sort", nullptr}};
constexpr Method kTuple[] = {{"count", count_items}, {"index", index_of_item}};
constexpr Method kDict[] = {
    {"get", dict_get},  {"items", dict_items}, {"keys", dict_keys},  {"values", dict_values}, {"copy", itself},
    {"clear", nullptr}, {"pop", nullptr},      {"popitem", nullptr}, {"setdefault", nullptr}, {"update", nullptr}};
constexpr Method kFloat[] = {{"is_integer", is_integer}};

}  // namespace

const Method* find_method(const Value& object, std::string_view name) {
  if (object.dict() != nullptr) return find(kDict, name);
  if (object.text() != nullptr) {
    const Method* method = find(text_methods(), name);
    return method != nullptr ? method : find(text_shape_methods(), name);
  }
  if (const Sequence* sequence = object.sequence()) {
    if (sequence->kind == SequenceKind::list) return find(kList, name);
    if (sequence->is_tuple()) return find(kTuple, name);
  }
  if (object.real() != nullptr) return find(kFloat, name);
  return nullptr;
}

void bind_arguments(std::string_view function, const Arguments& arguments, std::span<const std::string_view> parameters,
                    std::size_t required, std::span<const Value*> bound) {
  if (arguments.positional.size() > parameters.size()) {
    fail_operation(fmt::format("{}() takes at most {} argument{} ({} given)", function, parameters.size(),
                               parameters.size() == 1 ? "" : "s", arguments.positional.size()));
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::ranges::find(parameters, name);
    if (name.empty() || found == parameters.end()) {
      fail_operation(fmt::format("{}() got an unexpected keyword argument '{}'", function, name));
    }
    const Value*& place = bound[static_cast<std::size_t>(found - parameters.begin())];
    if (place != nullptr) fail_operation(fmt::format("{}() got multiple values for argument '{}'", function, name));
    place = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (bound[i] != nullptr) continue;
    if (parameters[i].empty()) {
      fail_operation(fmt::format("{}() takes at least {} argument{} ({} given)", function, required,
                                 required == 1 ? "" : "s", arguments.positional.size()));
    }
    fail_operation(fmt::format("{}() missing required argument: '{}'", function, parameters[i]));
  }
}

void bind_nothing(std::string_view function, const Arguments& arguments) {
  if (!arguments.positional.empty() || !arguments.named.empty()) {
    fail_operation(fmt::format("{}() takes no arguments ({} given)", function,
                               arguments.positional.size() + arguments.named.size()));
  }
}

const std::string& require_text(std::string_view function, const Value& value) {
  const Text* text = value.text();
  if (text == nullptr) fail_operation(fmt::format("{}() argument must be str, not {}", function, value.type_name()));
  return text->bytes;
}

}  // namespace quire::jinja
