#include "quire/jinja/scope.h"

#include "quire/jinja/operators.h"
#include "quire/jinja/runtime.h"

namespace quire::jinja {
namespace {

Value cycle(Runtime&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty()) fail_operation("no items for cycling given");
  const auto turn = static_cast<std::size_t>(self.loop()->index0 < 0 ? 0 : self.loop()->index0);
  return arguments.positional[turn % arguments.positional.size()];
}

Value changed(Runtime& runtime, const Value& self, const Arguments& arguments) {
  Loop& loop = *self.loop();
  const Value given = make_tuple(runtime.meter, arguments.positional);
  if (loop.last_given && equal(runtime.meter, *loop.last_given, given)) return false;
  // After its end a loop must refer to nothing, or it might refer to itself.
  if (loop.source != nullptr) loop.last_given = given;
  return true;
}

}  // namespace

bool Loop::advance() {
  previous = std::move(current);
  if (!ahead.empty()) {
    current = std::move(ahead.front());
    ahead.pop_front();
  } else if (source == nullptr || !source->next(current)) {
    return false;
  }
  ++index0;
  return true;
}

bool Loop::peek() {
  if (!ahead.empty()) return true;
  Value item;
  if (source == nullptr || !source->next(item)) return false;
  ahead.push_back(std::move(item));
  return true;
}

std::int64_t Loop::length() {
  if (!known_length) {
    Value item;
    while (source != nullptr && source->next(item)) ahead.push_back(std::move(item));
    known_length = index0 + 1 + static_cast<std::int64_t>(ahead.size());
  }
  return *known_length;
}

void Loop::end() {
  source = nullptr;
  outer.reset();
  previous = current = Value();
  ahead.clear();
  last_given.reset();
}

std::optional<Value> loop_attribute(Runtime& runtime, const Value& value, std::string_view name) {
  Loop& loop = *value.loop();
  if (name == "index") return loop.index0 + 1;
  if (name == "index0") return loop.index0;
  if (name == "first") return loop.index0 == 0;
  if (name == "last") return !loop.peek();
  if (name == "length") return loop.length();
  if (name == "revindex") return loop.length() - loop.index0;
  if (name == "revindex0") return loop.length() - loop.index0 - 1;
  if (name == "depth") return loop.depth0 + 1;
  if (name == "depth0") return loop.depth0;
  if (name == "previtem") return loop.index0 > 0 ? loop.previous : runtime.undefined("there is no previous item");
  if (name == "nextitem") return loop.peek() ? loop.ahead.front() : runtime.undefined("there is no next item");
  if (name == "cycle") return make_function(runtime.meter, "cycle", value, cycle);
  if (name == "changed") return make_function(runtime.meter, "changed", value, changed);
  return std::nullopt;
}

}  // namespace quire::jinja
