// The values of a template: those of Python, as far as templates use them.
//
// Who may call: values belong to one rendering and its thread. Constants of a template (made without a Meter) never
//   change, and all renderings share them.
//
// What holds:
// - Text is valid UTF-8. Everything except namespaces, loops and iterators is immutable, as in Jinja2's immutable
//   sandbox. So sharing by reference is safe.
// - No value is nested deeper than kMaxDepth, so that printing, comparing and destroying may recurse. Namespaces count
//   as depth 0 and may form cycles. The Runtime keeps them alive and breaks the cycles at the end.
// - A text knows which of its bytes came from outside. The code that makes a text must say so; there is no default.
// - The memory of a value is charged to its Meter until it is destroyed.
// How it fails: with a Fault (limits only).
#pragma once

#include <concepts>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "quire/jinja/meter.h"
#include "quire/jinja/origin.h"

namespace quire::jinja {

class Runtime;
class Value;
struct Arguments;
struct Dict;
struct Function;
struct Iterator;
struct Loop;
struct Macro;
struct Namespace;
struct Range;
struct Sequence;
struct Text;
struct Undefined;

// Python's integers are unlimited. These hold all integers of JSON (signed and unsigned 64 bits) and their products. An
// operation with a larger result fails; it does not wrap.
__extension__ typedef __int128 Int;

template <typename T>
using Ref = std::shared_ptr<T>;

struct None {};

class Value {
 public:
  using Data = std::variant<None, bool, Int, double, Ref<const Text>, Ref<const Sequence>, Ref<const Dict>,
                            Ref<const Range>, Ref<Iterator>, Ref<Namespace>, Ref<Loop>, Ref<const Macro>,
                            Ref<const Function>, Ref<const Undefined>>;

  Value() = default;  // None
  Value(std::same_as<bool> auto value) : data_(value) {}
  Value(std::same_as<double> auto value) : data_(value) {}
  template <typename T>
  requires(std::same_as<T, Int> || (std::integral<T> && !std::same_as<T, bool>)) Value(T value)
      : data_(static_cast<Int>(value)) {}
  template <typename T>
  Value(Ref<T> object) : data_(Data(std::move(object))) {}

  const Data& data() const { return data_; }

  bool is_none() const { return std::holds_alternative<None>(data_); }
  const bool* boolean() const { return std::get_if<bool>(&data_); }
  const Int* integer() const { return std::get_if<Int>(&data_); }
  const double* real() const { return std::get_if<double>(&data_); }
  const Text* text() const { return object<const Text>(); }
  const Sequence* sequence() const { return object<const Sequence>(); }
  const Dict* dict() const { return object<const Dict>(); }
  const Range* range() const { return object<const Range>(); }
  Iterator* iterator() const { return object<Iterator>(); }
  Namespace* name_space() const { return object<Namespace>(); }
  Loop* loop() const { return object<Loop>(); }
  const Macro* macro() const { return object<const Macro>(); }
  const Function* function() const { return object<const Function>(); }
  const Undefined* undefined() const { return object<const Undefined>(); }

  // A reference to the object, which may be kept. Null for another type.
  template <typename T>
  Ref<T> share() const {
    const auto* ref = std::get_if<Ref<T>>(&data_);
    return ref != nullptr ? *ref : nullptr;
  }

  int depth() const;

  // Python's name of the type ("str", "NoneType").
  std::string_view type_name() const;

 private:
  template <typename T>
  T* object() const {
    const auto* ref = std::get_if<Ref<T>>(&data_);
    return ref != nullptr ? ref->get() : nullptr;
  }

  Data data_;
};

inline constexpr int kMaxDepth = 100;

struct Text {
  std::string bytes;
  std::size_t length = 0;  // in characters
  Origin origin;
  bool markup = false;  // from the filters `safe` and `escape`: plain text that is joined with it is escaped
  Charge charge;

  bool ascii() const { return length == bytes.size(); }
  // Calls visit(bytes, source) for each run of bytes from one source, in order.
  template <typename Visit>
  void for_each_run(Visit visit) const;
};

enum class SequenceKind {
  list,
  tuple,
  keys,  // the views of dict methods: iterable and sized, not indexable
  values,
  items,
};

struct Sequence {
  SequenceKind kind = SequenceKind::list;
  std::vector<Value> items;
  int depth = 0;
  Charge charge;

  bool indexable() const { return kind <= SequenceKind::tuple; }
  bool is_tuple() const { return kind == SequenceKind::tuple; }
};

// The order of keys. Numbers are ordered by value, whatever their type: as in Python, 1, 1.0 and True are one key.
struct KeyLess {
  using is_transparent = void;
  bool operator()(const Value& a, const Value& b) const;
  bool operator()(const Value& a, std::string_view b) const;
  bool operator()(std::string_view a, const Value& b) const;
};

// Whether the value may be a key. Lists and dicts may not, nor tuples that contain them.
bool hashable(const Value& value);

// Keys keep the order of their first insertion.
struct Dict {
  Dict() = default;
  explicit Dict(Meter& meter) : charge(meter, 128) {}

  std::vector<std::pair<Value, Value>> entries;
  int depth = 1;
  Charge charge;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Value key, Value value);  // the key must be hashable

 private:
  template <typename Key>
  std::size_t position(const Key& key) const;  // the number of entries if it is absent

  // Small dicts are searched linearly. The index is ordered, because chosen keys could make a hash index slow.
  static constexpr std::size_t kUnindexed = 8;
  std::map<Value, std::size_t, KeyLess> index_;
};

struct Range {
  Int start = 0;
  Int stop = 0;
  Int step = 1;

  Int length() const;
  Int at(Int index) const { return start + index * step; }
};

// A lazy sequence of Python (generator, reversed()): it can be iterated once, has no length and no index.
struct Iterator {
  std::string_view type;  // "generator"
  Ref<const Sequence> items;
  std::size_t next = 0;
};

struct Namespace {
  Dict attributes;
};

struct Undefined {
  std::string message;  // the error when it is used: "'x' is undefined"
  Charge charge;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  Source names = Source::own;  // outside: some names are keys of a dict from outside
};

using Native = Value (*)(Runtime& runtime, const Value& self, const Arguments& arguments);

// A global function, or a method bound to its object.
struct Function {
  std::string_view name;
  Value self;
  Native native = nullptr;
  Charge charge;
};

Value make_text(Meter& meter, std::string bytes, Origin origin, bool markup = false);
// A text from one source.
Value make_text(Meter& meter, std::string bytes, Source source, bool markup = false);
Value make_constant_text(std::string bytes, Source source);
// A part of a text, with its origin.
Value make_piece(Meter& meter, const Text& text, std::size_t begin, std::size_t size);
// The character that begins at a byte. ASCII characters are cached.
Value make_character(Meter& meter, const Text& text, std::size_t begin);
Value make_sequence(Meter& meter, SequenceKind kind, std::vector<Value> items);
Value make_dict(Dict dict);
Value make_iterator(Meter& meter, std::vector<Value> items, std::string_view type = "generator");
Value make_undefined(Meter& meter, std::string message);
Value make_function(Meter& meter, std::string_view name, Value self, Native native);

inline Value make_list(Meter& meter, std::vector<Value> items) {
  return make_sequence(meter, SequenceKind::list, std::move(items));
}
inline Value make_tuple(Meter& meter, std::vector<Value> items) {
  return make_sequence(meter, SequenceKind::tuple, std::move(items));
}

// Builds a text and charges its bytes as it grows.
class TextBuilder {
 public:
  explicit TextBuilder(Meter& meter) : meter_(&meter), charge_(meter, 0) {}

  // The caller says where the bytes came from. Literals in this code are the interpreter's own.
  template <std::size_t N>
  void append(const char (&literal)[N]) {
    append_bytes({literal, N - 1});
  }
  void append(std::string_view bytes, Source source) {
    if (source == Source::outside) append_origin(Origin(source, bytes.size()), 0, bytes.size());
    append_bytes(bytes);
  }
  void append(const Text& text) { append(text, 0, text.bytes.size()); }
  void append(const Text& text, std::size_t begin, std::size_t size) {
    if (text.origin.worst() == Source::outside) append_origin(text.origin, begin, size);
    append_bytes(std::string_view(text.bytes).substr(begin, size));
  }
  // Appends it `count` times; nothing if negative.
  void append_repeated(const Text& text, Int count);
  // A hint of the expected size, to save allocations.
  void reserve(std::size_t bytes) { out_.reserve(bytes); }
  std::string take() { return std::move(out_); }
  Origin take_origin() { return std::move(origin_); }
  Value finish(bool markup = false) { return make_text(*meter_, take(), take_origin(), markup); }

 private:
  void append_bytes(std::string_view bytes) {
    meter_->check_text_size(out_.size() + bytes.size());
    charge_.add(bytes.size());
    meter_->copied(bytes.size());
    out_.append(bytes);
  }
  // The source of the next bytes.
  void append_origin(const Origin& origin, std::size_t begin, std::size_t size);

  Meter* meter_;
  Charge charge_;
  std::string out_;
  Origin origin_;
};

template <typename Visit>
void Text::for_each_run(Visit visit) const {
  const std::string_view all = bytes;
  std::size_t done = 0;
  for (const TextRange& range : origin.outside()) {
    if (done < range.begin) visit(all.substr(done, range.begin - done), Source::own);
    visit(all.substr(range.begin, range.end - range.begin), Source::outside);
    done = range.end;
  }
  if (done < all.size()) visit(all.substr(done), Source::own);
}

// Builds a list and charges its items as it grows.
class ListBuilder {
 public:
  explicit ListBuilder(Meter& meter) : meter_(&meter), charge_(meter, 0) {}

  void push(Value value) {
    charge_.add(sizeof(Value));
    items.push_back(std::move(value));
  }
  Value finish(SequenceKind kind = SequenceKind::list) { return make_sequence(*meter_, kind, std::move(items)); }

  std::vector<Value> items;

 private:
  Meter* meter_;
  Charge charge_;
};

}  // namespace quire::jinja
