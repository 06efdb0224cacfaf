#include "quire/jinja/scope.h"

#include "quire/jinja/left_out.h"
#include "quire/jinja/runtime.h"

namespace quire::jinja {
namespace {

Value cycle(Runtime&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty()) fail_operation("no items for cycling given");
  const auto turn = static_cast<std::size_t>(self.loop()->index0 < 0 ? 0 : self.loop()->index0);
  return arguments.positional[turn % arguments.positional.size()];
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
  previous = current = Value();
  ahead.clear();
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
  if (name == "previtem") return loop.index0 > 0 ? loop.previous : runtime.undefined("there is no previous item");
  if (name == "nextitem") return loop.peek() ? loop.ahead.front() : runtime.undefined("there is no next item");
  if (name == "cycle") return make_function(runtime.meter, "cycle", value, cycle);
  // Recursive loops are not supported.
  if (name == "depth") return 1;
  if (name == "depth0") return 0;
  if (is_left_out(kLeftOutLoopAttributes, name)) return runtime.undefined(left_out_message("loop attribute", name));
  return std::nullopt;
}

}  // namespace quire::jinja
