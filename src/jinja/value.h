// The values a template computes with: Python's, as far as templates reach them.
//
// Who may call: values belong to one rendering and its thread; constants of a template (made without a Meter) are
// shared by all renderings and never change.
//
// What holds:
// - Text is well-formed UTF-8. Everything is immutable but namespaces, loops and iterators, as in Jinja2's immutable
//   sandbox, which is what makes sharing by reference safe.
// - No value is nested deeper than kMaxDepth, so that walking one (printing, comparing, destroying) may recurse.
//   Namespaces count as depth 0 and may form cycles; the Runtime keeps each alive and takes the cycles apart at the
//   end.
// - A text knows which of its bytes came from outside. Whoever makes one says so; there is no default.
// - What a value holds is charged to its Meter until it is gone.
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

// Python's integers have no end. These hold all that JSON has (signed and unsigned 64 bits) and the products of those;
// beyond that an operation fails rather than wraps.
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

  // The object itself, to be kept; null for another type.
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
  bool markup = false;  // of the filters `safe` and `escape`: added to plain text, it escapes that text
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

// Orders whatever may be a key, numbers by value whatever their type, so that 1, 1.0 and True are one key as in Python.
struct KeyLess {
  using is_transparent = void;
  bool operator()(const Value& a, const Value& b) const;
  bool operator()(const Value& a, std::string_view b) const;
  bool operator()(std::string_view a, const Value& b) const;
};

// May it be a key? Lists and dicts may not, nor tuples of them.
bool hashable(const Value& value);

// Keys keep the order in which they were first set.
struct Dict {
  Dict() = default;
  explicit Dict(Meter& meter) : charge(meter, 128) {}

  std::vector<std::pair<Value, Value>> entries;
  int depth = 1;
  Charge charge;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Value key, Value value);  // the key is hashable

 private:
  template <typename Key>
  std::size_t position(const Key& key) const;  // the number of entries where it is absent

  // Small dicts are searched as they are; an index of hashes could be made slow by whoever chooses the keys.
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

// What Python would compute lazily (generators, reversed()): can be walked once, has no length, cannot be indexed.
struct Iterator {
  std::string_view type;  // "generator"
  Ref<const Sequence> items;
  std::size_t next = 0;
};

struct Namespace {
  Dict attributes;
};

struct Undefined {
  std::string message;  // what is raised where it is used: "'x' is undefined"
  Charge charge;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  Source names = Source::own;  // outside: some of the names are keys of a dict from there
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
// All of it from one source.
Value make_text(Meter& meter, std::string bytes, Source source, bool markup = false);
Value make_constant_text(std::string bytes, Source source);
// A part of a text, with what is known of it.
Value make_piece(Meter& meter, const Text& text, std::size_t begin, std::size_t size);
// The character that begins at a byte. Those of ASCII are made once.
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

// A text that grows, counted as it does.
class TextBuilder {
 public:
  explicit TextBuilder(Meter& meter) : meter_(&meter), charge_(meter, 0) {}

  // Whoever appends bytes says where they came from; a literal of this source is the interpreter's own.
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
  // `count` times; a negative count is none.
  void append_repeated(const Text& text, Int count);
  // So much will come: one allocation instead of several. Promises nothing.
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
  // Of the bytes that are appended next.
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

// A list that grows, counted as it does.
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
