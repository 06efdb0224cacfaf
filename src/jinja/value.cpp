#include "quire/jinja/value.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <cstdint>
#include <limits>

#include "quire/jinja/unicode.h"

namespace quire::jinja {
namespace {

// The cost of an object besides its contents: the object itself, its reference counts, the allocator's overhead.
constexpr std::size_t kObjectBytes = 96;

int deepest(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth;
}

int one_deeper(int depth) {
  if (depth >= kMaxDepth) fail_limit("a value is nested too deeply");
  return depth + 1;
}

std::string_view sequence_type(SequenceKind kind) {
  switch (kind) {
    case SequenceKind::list: return "list";
    case SequenceKind::tuple: return "tuple";
    case SequenceKind::keys: return "dict_keys";
    case SequenceKind::values: return "dict_values";
    case SequenceKind::items: return "dict_items";
  }
  return "list";
}

enum class KeyRank { none, number, text, tuple, undefined, object };

KeyRank rank(const Value& key) {
  if (key.is_none()) return KeyRank::none;
  if (key.boolean() != nullptr || key.integer() != nullptr || key.real() != nullptr) return KeyRank::number;
  if (key.text() != nullptr) return KeyRank::text;
  if (key.sequence() != nullptr) return KeyRank::tuple;
  if (key.undefined() != nullptr) return KeyRank::undefined;
  return KeyRank::object;
}

std::weak_ordering compare_numbers(const Value& a, const Value& b) {
  const auto as_integer = [](const Value& value, Int& out) {
    if (const bool* flag = value.boolean()) out = *flag ? 1 : 0;
    if (const Int* integer = value.integer()) out = *integer;
    return value.real() == nullptr;
  };
  Int x = 0;
  Int y = 0;
  const bool exact_a = as_integer(a, x);
  const bool exact_b = as_integer(b, y);
  if (exact_a && exact_b) return x <=> y;
  const double left = exact_a ? static_cast<double>(x) : *a.real();
  const double right = exact_b ? static_cast<double>(y) : *b.real();
  // The index needs a total order, so NaN is above everything.
  if (std::isnan(left) || std::isnan(right)) return std::isnan(left) <=> std::isnan(right);
  return left < right ? std::weak_ordering::less
                      : (left > right ? std::weak_ordering::greater : std::weak_ordering::equivalent);
}

const void* address(const Value& value) {
  return std::visit(
      [](const auto& data) -> const void* {
        if constexpr (requires { data.get(); }) return data.get();
        return nullptr;
      },
      value.data());
}

std::weak_ordering compare_keys(const Value& a, const Value& b) {
  if (rank(a) != rank(b)) return rank(a) <=> rank(b);
  switch (rank(a)) {
    case KeyRank::none:
    case KeyRank::undefined: return std::weak_ordering::equivalent;
    case KeyRank::number: return compare_numbers(a, b);
    case KeyRank::text: return a.text()->bytes <=> b.text()->bytes;
    case KeyRank::tuple:
      return std::lexicographical_compare_three_way(a.sequence()->items.begin(), a.sequence()->items.end(),
                                                    b.sequence()->items.begin(), b.sequence()->items.end(),
                                                    compare_keys);
    case KeyRank::object: return std::compare_three_way{}(address(a), address(b));
  }
  return std::weak_ordering::equivalent;
}

}  // namespace

int Value::depth() const {
  if (const Sequence* object = sequence()) return object->depth;
  if (const Dict* object = dict()) return object->depth;
  if (const Iterator* object = iterator()) return object->items->depth + 1;
  if (const Function* object = function()) return object->self.depth() + 1;
  return 0;
}

std::string_view Value::type_name() const {
  struct Names {
    std::string_view operator()(const None&) const { return "NoneType"; }
    std::string_view operator()(const bool&) const { return "bool"; }
    std::string_view operator()(const Int&) const { return "int"; }
    std::string_view operator()(const double&) const { return "float"; }
    std::string_view operator()(const Ref<const Text>& text) const { return text->markup ? "Markup" : "str"; }
    std::string_view operator()(const Ref<const Sequence>& value) const { return sequence_type(value->kind); }
    std::string_view operator()(const Ref<const Dict>&) const { return "dict"; }
    std::string_view operator()(const Ref<const Range>&) const { return "range"; }
    std::string_view operator()(const Ref<Iterator>& value) const { return value->type; }
    std::string_view operator()(const Ref<Namespace>&) const { return "Namespace"; }
    std::string_view operator()(const Ref<Loop>&) const { return "LoopContext"; }
    std::string_view operator()(const Ref<const Macro>&) const { return "Macro"; }
    std::string_view operator()(const Ref<const Function>& value) const {
      return value->self.is_none() ? "function" : "builtin_function_or_method";
    }
    std::string_view operator()(const Ref<const Undefined>&) const { return "Undefined"; }
  };
  return std::visit(Names{}, data_);
}

bool KeyLess::operator()(const Value& a, const Value& b) const { return std::is_lt(compare_keys(a, b)); }

bool KeyLess::operator()(const Value& a, std::string_view b) const {
  return rank(a) != KeyRank::text ? rank(a) < KeyRank::text : a.text()->bytes < b;
}

bool KeyLess::operator()(std::string_view a, const Value& b) const {
  return rank(b) != KeyRank::text ? rank(b) > KeyRank::text : a < b.text()->bytes;
}

bool hashable(const Value& value) {
  if (value.dict() != nullptr) return false;
  const Sequence* sequence = value.sequence();
  return sequence == nullptr || (sequence->is_tuple() && std::ranges::all_of(sequence->items, hashable));
}

template <typename Key>
std::size_t Dict::position(const Key& key) const {
  constexpr KeyLess kLess;
  if (entries.size() > kUnindexed) {
    const auto found = index_.find(key);
    return found != index_.end() ? found->second : entries.size();
  }
  const auto same = [&](const auto& entry) { return !kLess(entry.first, key) && !kLess(key, entry.first); };
  return static_cast<std::size_t>(std::ranges::find_if(entries, same) - entries.begin());
}

const Value* Dict::find(const Value& key) const {
  const std::size_t at = position(key);
  return at < entries.size() ? &entries[at].second : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  const std::size_t at = position(key);
  return at < entries.size() ? &entries[at].second : nullptr;
}

void Dict::set(Value key, Value value) {
  depth = std::max({depth, one_deeper(key.depth()), one_deeper(value.depth())});
  const std::size_t at = position(key);
  if (at < entries.size()) {
    entries[at].second = std::move(value);
    return;
  }
  charge.add(2 * sizeof(Value) + (at >= kUnindexed ? kObjectBytes : 0));
  entries.emplace_back(std::move(key), std::move(value));
  if (entries.size() == kUnindexed + 1) {
    for (std::size_t i = 0; i < entries.size(); ++i) index_.emplace(entries[i].first, i);
  } else if (entries.size() > kUnindexed) {
    index_.emplace(entries.back().first, entries.size() - 1);
  }
}

Int Range::length() const {
  if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

Value make_text(Meter& meter, std::string bytes, Origin origin, bool markup) {
  meter.check_text_size(bytes.size());
  meter.copied(bytes.size() + origin.outside().size() * sizeof(TextRange));
  const std::size_t length = count_characters(bytes);
  Charge charge(meter, kObjectBytes + bytes.size() + origin.outside().size() * sizeof(TextRange));
  return std::make_shared<const Text>(Text{std::move(bytes), length, std::move(origin), markup, std::move(charge)});
}

Value make_text(Meter& meter, std::string bytes, Source source, bool markup) {
  const std::size_t size = bytes.size();
  return make_text(meter, std::move(bytes), Origin(source, size), markup);
}

Value make_constant_text(std::string bytes, Source source) {
  const std::size_t length = count_characters(bytes);
  Origin origin(source, bytes.size());
  return std::make_shared<const Text>(Text{std::move(bytes), length, std::move(origin), false, Charge()});
}

Value make_piece(Meter& meter, const Text& text, std::size_t begin, std::size_t size) {
  return make_text(meter, text.bytes.substr(begin, size), text.origin.piece(begin, size), text.markup);
}

Value make_character(Meter& meter, const Text& text, std::size_t begin) {
  static const auto kCharacters = [] {
    std::array<std::array<Value, 128>, 2> all;
    for (const Source source : {Source::own, Source::outside}) {
      for (std::size_t i = 0; i < 128; ++i) {
        all[static_cast<std::size_t>(source)][i] = make_constant_text(std::string(1, static_cast<char>(i)), source);
      }
    }
    return all;
  }();
  const auto byte = static_cast<unsigned char>(text.bytes[begin]);
  if (byte >= 128 || text.markup) return make_piece(meter, text, begin, character_bytes(text.bytes[begin]));
  return kCharacters[static_cast<std::size_t>(text.origin.at(begin))][byte];
}

void TextBuilder::append_origin(const Origin& origin, std::size_t begin, std::size_t size) {
  const std::size_t before = origin_.outside().size();
  origin_.append(origin, begin, size, out_.size());
  const std::size_t bytes = (origin_.outside().size() - before) * sizeof(TextRange);
  charge_.add(bytes);
  meter_->copied(bytes);
}

void TextBuilder::append_repeated(const Text& text, Int count) {
  if (count <= 0 || text.bytes.empty()) return;
  constexpr Int kTooMany = std::numeric_limits<std::int64_t>::max() / 2;
  const Int size = std::min(count, kTooMany) * static_cast<Int>(text.bytes.size());
  const std::size_t total = static_cast<std::size_t>(std::min(size, kTooMany));
  meter_->check_text_size(out_.size() + total);
  charge_.add(total);
  meter_->step(total / text.bytes.size() / 16);
  meter_->copied(total);
  out_.reserve(out_.size() + total);
  const bool all_own = text.origin.worst() == Source::own;
  for (Int i = 0; i < count; ++i) {
    if (!all_own) append_origin(text.origin, 0, text.bytes.size());
    out_.append(text.bytes);
  }
}

Value make_sequence(Meter& meter, SequenceKind kind, std::vector<Value> items) {
  Charge charge(meter, kObjectBytes + items.size() * sizeof(Value));
  const int depth = one_deeper(deepest(items));
  return std::make_shared<const Sequence>(Sequence{kind, std::move(items), depth, std::move(charge)});
}

Value make_dict(Dict dict) { return std::make_shared<const Dict>(std::move(dict)); }

Value make_iterator(Meter& meter, std::vector<Value> items, std::string_view type) {
  const Value sequence = make_list(meter, std::move(items));
  one_deeper(sequence.depth());
  return std::make_shared<Iterator>(Iterator{type, sequence.share<const Sequence>(), 0});
}

Value make_undefined(Meter& meter, std::string message) {
  Charge charge(meter, kObjectBytes + message.size());
  return std::make_shared<const Undefined>(Undefined{std::move(message), std::move(charge)});
}

Value make_function(Meter& meter, std::string_view name, Value self, Native native) {
  one_deeper(self.depth());
  return std::make_shared<const Function>(Function{name, std::move(self), native, Charge(meter, kObjectBytes)});
}

}  // namespace quire::jinja
