#include "quire/jinja/access.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "quire/jinja/left_out.h"
#include "quire/jinja/methods.h"
#include "quire/jinja/operators.h"
#include "quire/jinja/print.h"
#include "quire/jinja/scope.h"
#include "quire/jinja/unicode.h"

namespace quire::jinja {
namespace {

std::string described(const Value& object) {
  if (object.is_none()) return "None";
  if (object.name_space() != nullptr) return "jinja2.utils.Namespace object";
  if (object.loop() != nullptr) return "jinja2.runtime.LoopContext object";
  if (object.macro() != nullptr) return "jinja2.runtime.Macro object";
  return fmt::format("{} object", object.type_name());
}

Value missing(Runtime& runtime, const Value& object, const Value& key) {
  if (const Text* name = key.text()) {
    return runtime.undefined(fmt::format("'{}' has no attribute {}", described(object), quoted(name->bytes)));
  }
  return runtime.undefined(fmt::format("{} has no element {}", described(object), repr(runtime.meter, key)));
}

Value missing_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  return runtime.undefined(fmt::format("'{}' has no attribute {}", described(object), quoted(name)));
}

Value forbidden(Runtime& runtime, const Value& object, std::string_view name) {
  return runtime.undefined(
      fmt::format("access to attribute {} of '{}' object is unsafe.", quoted(name), object.type_name()));
}

bool is_internal(std::string_view name) { return name.size() > 4 && name.starts_with("__") && name.ends_with("__"); }

// The position of an index in `size` items; a negative index counts from the end.
std::optional<std::size_t> position(Int index, Int size) {
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  return static_cast<std::size_t>(index);
}

Value character_at(Runtime& runtime, const Text& text, std::size_t index) {
  if (!text.ascii()) runtime.meter.scanned(text.bytes.size());
  return make_character(runtime.meter, text, text.ascii() ? index : byte_of_character(text.bytes, index));
}

// An item of a sequence by its index, or of a dict by its key. Empty if Python would raise a LookupError or TypeError.
std::optional<Value> own_item(Runtime& runtime, const Value& object, const Value& key) {
  if (const Dict* dict = object.dict()) {
    if (!hashable(key)) return std::nullopt;
    const Value* found = dict->find(key);
    return found != nullptr ? std::optional(*found) : std::nullopt;
  }
  const std::optional<Int> index = as_index(key);
  if (!index) return std::nullopt;
  if (const Sequence* sequence = object.sequence(); sequence != nullptr && sequence->indexable()) {
    const auto at = position(*index, static_cast<Int>(sequence->items.size()));
    return at ? std::optional(sequence->items[*at]) : std::nullopt;
  }
  if (const Text* text = object.text()) {
    const auto at = position(*index, static_cast<Int>(text->length));
    return at ? std::optional(character_at(runtime, *text, *at)) : std::nullopt;
  }
  if (const Range* range = object.range()) {
    const auto at = position(*index, range->length());
    return at ? std::optional(Value(range->at(static_cast<Int>(*at)))) : std::nullopt;
  }
  return std::nullopt;
}

struct Slice {
  Int first = 0;
  Int step = 1;
  std::size_t count = 0;
};

Int slice_index(const Value& value) {
  require_defined(value);
  const std::optional<Int> index = as_index(value);
  if (!index) fail_operation("slice indices must be integers or None or have an __index__ method");
  // An index beyond any length may be clamped.
  constexpr Int kFar = std::numeric_limits<std::int64_t>::max();
  return std::clamp(*index, -kFar, kFar);
}

Slice resolve(const Value& start, const Value& stop, const Value& step, std::size_t size) {
  const Int length = static_cast<Int>(size);
  Slice slice;
  if (!step.is_none()) slice.step = slice_index(step);
  if (slice.step == 0) fail_operation("slice step cannot be zero");
  const bool forward = slice.step > 0;
  const Int low = forward ? 0 : -1;
  const Int high = forward ? length : length - 1;
  const auto bound = [&](const Value& value, Int otherwise) {
    if (value.is_none()) return otherwise;
    const Int index = slice_index(value);
    return std::clamp(index < 0 ? index + length : index, low, high);
  };
  slice.first = bound(start, forward ? low : high);
  const Int last = bound(stop, forward ? high : low);
  const Int distance = forward ? last - slice.first : slice.first - last;
  const Int stride = forward ? slice.step : -slice.step;
  slice.count = distance > 0 ? static_cast<std::size_t>((distance - 1) / stride + 1) : 0;
  return slice;
}

Value slice_text(Runtime& runtime, const Text& text, const Slice& slice) {
  const std::string_view bytes = text.bytes;
  if (slice.count == 0) return make_piece(runtime.meter, text, 0, 0);
  if (slice.step == 1) {
    const auto first = static_cast<std::size_t>(slice.first);
    if (text.ascii()) return make_piece(runtime.meter, text, first, slice.count);
    runtime.meter.scanned(text.bytes.size());
    const std::size_t begin = byte_of_character(bytes, first);
    const std::size_t size = byte_of_character(bytes.substr(begin), slice.count);
    return make_piece(runtime.meter, text, begin, size);
  }
  runtime.meter.scanned(text.bytes.size());
  const Charge charge(runtime.meter, text.length * sizeof(std::size_t));
  std::vector<std::size_t> starts;
  for (std::size_t at = 0; at < bytes.size(); at += character_bytes(bytes[at])) starts.push_back(at);
  TextBuilder out(runtime.meter);
  for (std::size_t i = 0; i < slice.count; ++i) {
    const auto index = static_cast<std::size_t>(slice.first + static_cast<Int>(i) * slice.step);
    out.append(text, starts[index], character_bytes(bytes[starts[index]]));
  }
  return out.finish(text.markup);
}

}  // namespace

std::optional<Int> as_index(const Value& value) {
  if (const Int* integer = value.integer()) return *integer;
  if (const bool* flag = value.boolean()) return *flag ? 1 : 0;
  return std::nullopt;
}

Int require_index(const Value& value) {
  require_defined(value);
  const std::optional<Int> index = as_index(value);
  if (!index) fail_operation(fmt::format("'{}' object cannot be interpreted as an integer", value.type_name()));
  return *index;
}

const Value& require_hashable(const Value& key) {
  if (!hashable(key)) fail_operation(fmt::format("unhashable type: '{}'", key.type_name()));
  return key;
}

bool iterable(const Value& value) { return sized(value) || value.iterator() != nullptr; }

bool sized(const Value& value) {
  return value.text() != nullptr || value.sequence() != nullptr || value.dict() != nullptr ||
         value.range() != nullptr || value.undefined() != nullptr;
}

Int length(const Value& value) {
  if (const Text* text = value.text()) return static_cast<Int>(text->length);
  if (const Sequence* sequence = value.sequence()) return static_cast<Int>(sequence->items.size());
  if (const Dict* dict = value.dict()) return static_cast<Int>(dict->entries.size());
  if (const Range* range = value.range()) return range->length();
  if (Loop* loop = value.loop()) return loop->length();
  if (value.undefined() != nullptr) return 0;
  fail_operation(fmt::format("object of type '{}' has no len()", value.type_name()));
}

std::optional<Value> own_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  require_defined(object);
  if (const Namespace* space = object.name_space()) {
    const Value* found = space->attributes.find(name);
    if (found == nullptr) return std::nullopt;
    return name.starts_with('_') ? forbidden(runtime, object, name) : *found;
  }
  if (is_internal(name)) return forbidden(runtime, object, name);
  if (object.loop() != nullptr) return loop_attribute(runtime, object, name);
  if (const Macro* macro = object.macro(); macro != nullptr && name == "name") {
    return runtime.text(std::string(macro->name), Source::own);
  }
  const Method* method = find_method(object, name);
  if (method == nullptr && object.text() != nullptr && is_left_out(kLeftOutTextMethods, name)) {
    return runtime.undefined(left_out_message("the method of str", name));
  }
  if (method == nullptr) return std::nullopt;
  if (method->native == nullptr) return forbidden(runtime, object, name);
  return make_function(runtime.meter, method->name, object, method->native);
}

Value get_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (auto found = own_attribute(runtime, object, name)) return *std::move(found);
  if (const Dict* dict = object.dict()) {
    if (const Value* found = dict->find(name)) return *found;
  }
  return missing_attribute(runtime, object, name);
}

Value get_item(Runtime& runtime, const Value& object, const Value& key) {
  require_defined(object);
  if (auto found = own_item(runtime, object, key)) return *std::move(found);
  if (const Text* name = key.text()) {
    if (auto found = own_attribute(runtime, object, name->bytes)) return *std::move(found);
  }
  return missing(runtime, object, key);
}

Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step) {
  require_defined(object);
  if (const Text* text = object.text()) {
    return slice_text(runtime, *text, resolve(start, stop, step, text->length));
  }
  if (const Sequence* sequence = object.sequence(); sequence != nullptr && sequence->indexable()) {
    const Slice slice = resolve(start, stop, step, sequence->items.size());
    runtime.meter.step(slice.count);
    ListBuilder out(runtime.meter);
    for (std::size_t i = 0; i < slice.count; ++i) {
      out.push(sequence->items[static_cast<std::size_t>(slice.first + static_cast<Int>(i) * slice.step)]);
    }
    return out.finish(sequence->is_tuple() ? SequenceKind::tuple : SequenceKind::list);
  }
  if (const Range* range = object.range()) {
    const Slice slice = resolve(start, stop, step, static_cast<std::size_t>(range->length()));
    const Int first = range->at(slice.first);
    // A range of one item has no stride. If it kept one, slices of slices would let it grow without limit.
    const Int stride = slice.count > 1 ? range->step * slice.step : 1;
    return std::make_shared<const Range>(Range{first, first + static_cast<Int>(slice.count) * stride, stride});
  }
  if (object.dict() != nullptr) fail_operation("unhashable type: 'slice'");
  fail_operation(fmt::format("'{}' object is not subscriptable", object.type_name()));
}

Cursor::Cursor(Runtime& runtime, Value value) : runtime_(&runtime), value_(std::move(value)) {
  if (!iterable(value_)) fail_operation(fmt::format("'{}' object is not iterable", value_.type_name()));
}

bool Cursor::next(Value& item) {
  runtime_->meter.step();
  if (const Sequence* sequence = value_.sequence()) {
    if (at_ == sequence->items.size()) return false;
    item = sequence->items[at_++];
    return true;
  }
  if (const Dict* dict = value_.dict()) {
    if (at_ == dict->entries.size()) return false;
    item = dict->entries[at_++].first;
    return true;
  }
  if (const Text* text = value_.text()) {
    if (at_ == text->bytes.size()) return false;
    item = make_character(runtime_->meter, *text, at_);
    at_ += character_bytes(text->bytes[at_]);
    return true;
  }
  if (const Range* range = value_.range()) {
    if (static_cast<Int>(at_) >= range->length()) return false;
    item = range->at(static_cast<Int>(at_++));
    return true;
  }
  if (Iterator* iterator = value_.iterator()) {
    if (iterator->next == iterator->items->items.size()) return false;
    item = iterator->items->items[iterator->next++];
    return true;
  }
  return false;
}

ListBuilder collect(Runtime& runtime, const Value& value) {
  ListBuilder out(runtime.meter);
  Cursor cursor(runtime, value);
  for (Value item; cursor.next(item);) out.push(item);
  return out;
}

}  // namespace quire::jinja
