// Views of GGUF metadata values. A Value is one value of any type; an Array<T> is the elements of an array. They point
// into the file's image and own nothing. A File checks every value completely before it hands one out, so reading one
// cannot fail. An element is decoded on access.
//
// Who may call: anyone, from any thread, as long as the File (and for File::from_memory its memory) lives.
// What holds: nothing is allocated, except by to_vector(). Numbers are converted only where no information is lost: any
//   integer type that fits; f32 to double; f64 to float, rounded, if it stays in range. A bool is not a number.
// How it fails: as<T>() and as_array<T>() are empty if the value has another type or does not fit.
#pragma once

#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace quire::gguf {

// Files are read in place: little-endian, with 64-bit lengths.
static_assert(std::endian::native == std::endian::little && sizeof(std::size_t) == 8);

// The values are those in the files.
enum class ValueType : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

// "u8", "string", ...; "unknown" if it is no type.
std::string_view name_of(ValueType type);

// Bytes of a value of this type in a file; 0 for strings, arrays and unknown types, whose size is not fixed.
constexpr std::size_t fixed_size(ValueType type) {
  switch (type) {
    case ValueType::u8:
    case ValueType::i8:
    case ValueType::boolean: return 1;
    case ValueType::u16:
    case ValueType::i16: return 2;
    case ValueType::u32:
    case ValueType::i32:
    case ValueType::f32: return 4;
    case ValueType::u64:
    case ValueType::i64:
    case ValueType::f64: return 8;
    case ValueType::string:
    case ValueType::array: break;
  }
  return 0;
}

// The C++ types that a value can be read as.
template <typename T>
concept Number = std::integral<T> || std::same_as<T, float> || std::same_as<T, double>;
template <typename T>
concept Readable = Number<T> || std::same_as<T, std::string_view>;

namespace detail {

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Reads a length and the bytes after it. The File has checked the length.
inline std::string_view load_string(const std::byte* at) {
  return {reinterpret_cast<const char*>(at + 8), load<std::uint64_t>(at)};
}

template <Number T, typename From>
std::optional<T> convert(From from) {
  if constexpr (std::same_as<T, From>) {
    return from;
  } else if constexpr (std::same_as<T, bool> || std::same_as<From, bool>) {
    return std::nullopt;
  } else if constexpr (std::integral<T> && std::integral<From>) {
    if (!std::in_range<T>(from)) return std::nullopt;
    return static_cast<T>(from);
  } else if constexpr (std::floating_point<T> && std::floating_point<From>) {
    if (std::isfinite(from) && std::abs(from) > std::numeric_limits<T>::max()) return std::nullopt;
    return static_cast<T>(from);
  } else {
    return std::nullopt;
  }
}

template <Number T>
std::optional<T> load_number(ValueType type, const std::byte* at) {
  switch (type) {
    case ValueType::u8: return convert<T>(load<std::uint8_t>(at));
    case ValueType::i8: return convert<T>(load<std::int8_t>(at));
    case ValueType::u16: return convert<T>(load<std::uint16_t>(at));
    case ValueType::i16: return convert<T>(load<std::int16_t>(at));
    case ValueType::u32: return convert<T>(load<std::uint32_t>(at));
    case ValueType::i32: return convert<T>(load<std::int32_t>(at));
    case ValueType::f32: return convert<T>(load<float>(at));
    case ValueType::boolean: return convert<T>(load<std::uint8_t>(at) != 0);
    case ValueType::u64: return convert<T>(load<std::uint64_t>(at));
    case ValueType::i64: return convert<T>(load<std::int64_t>(at));
    case ValueType::f64: return convert<T>(load<double>(at));
    case ValueType::string:
    case ValueType::array: break;
  }
  return std::nullopt;
}

}  // namespace detail

// The numbers of an array as T, whatever type they have in the file. Value::as_array<T>() creates it, and has checked
// that each element is a T.
template <Readable T>
class Array {
 public:
  class Iterator {
   public:
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using reference = T;
    using pointer = void;
    using iterator_category = std::input_iterator_tag;

    Iterator() = default;
    Iterator(ValueType type, const std::byte* at) : type_(type), at_(at) {}
    T operator*() const { return *detail::load_number<T>(type_, at_); }
    Iterator& operator++() {
      at_ += fixed_size(type_);
      return *this;
    }
    Iterator operator++(int) {
      Iterator old = *this;
      ++*this;
      return old;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.at_ == b.at_; }

   private:
    ValueType type_ = ValueType::u8;
    const std::byte* at_ = nullptr;
  };

  Array() = default;
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // O(1); index < size().
  T operator[](std::size_t index) const { return *detail::load_number<T>(type_, data_ + index * fixed_size(type_)); }
  Iterator begin() const { return {type_, data_}; }
  Iterator end() const { return {type_, data_ + size_ * fixed_size(type_)}; }
  std::vector<T> to_vector() const {
    std::vector<T> numbers;
    numbers.reserve(size_);
    for (T number : *this) numbers.push_back(number);
    return numbers;
  }

 private:
  friend class Value;
  Array(ValueType type, const std::byte* data, std::size_t size) : type_(type), data_(data), size_(size) {}

  ValueType type_ = ValueType::u8;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// The strings of an array. They lie one after the other without an index, so they can be iterated but not indexed. Code
// that needs the n-th one keeps the views (to_vector(), 16 bytes a string).
template <>
class Array<std::string_view> {
 public:
  class Iterator {
   public:
    using value_type = std::string_view;
    using difference_type = std::ptrdiff_t;
    using reference = std::string_view;
    using pointer = void;
    using iterator_category = std::input_iterator_tag;

    Iterator() = default;
    Iterator(const std::byte* at, std::size_t index) : at_(at), index_(index) {}
    std::string_view operator*() const { return detail::load_string(at_); }
    Iterator& operator++() {
      at_ += 8 + detail::load_string(at_).size();
      ++index_;
      return *this;
    }
    Iterator operator++(int) {
      Iterator old = *this;
      ++*this;
      return old;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.index_ == b.index_; }

   private:
    const std::byte* at_ = nullptr;
    std::size_t index_ = 0;
  };

  Array() = default;
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  Iterator begin() const { return {data_, 0}; }
  Iterator end() const { return {nullptr, size_}; }
  std::vector<std::string_view> to_vector() const {
    std::vector<std::string_view> strings;
    strings.reserve(size_);
    for (std::string_view string : *this) strings.push_back(string);
    return strings;
  }

 private:
  friend class Value;
  Array(const std::byte* data, std::size_t size) : data_(data), size_(size) {}

  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// In a file an array begins with the type (4 bytes) and the number (8 bytes) of its elements. A string begins with its
// length.
constexpr std::size_t kArrayHeader = 12;
constexpr std::size_t kStringHeader = 8;

class Elements;

// One metadata value of any type.
class Value {
 public:
  Value() = default;
  // `data` is a checked value of this type, as in a file after its type number.
  Value(ValueType type, const std::byte* data) : type_(type), data_(data) {}

  ValueType type() const { return type_; }
  bool is_array() const { return type_ == ValueType::array; }

  // As a T; empty if it is not one.
  template <Readable T>
  std::optional<T> as() const {
    if constexpr (std::same_as<T, std::string_view>) {
      if (type_ != ValueType::string) return std::nullopt;
      return detail::load_string(data_);
    } else {
      return detail::load_number<T>(type_, data_);
    }
  }

  // Only for an array: the type and the number of its elements.
  ValueType element_type() const { return static_cast<ValueType>(detail::load<std::uint32_t>(data_)); }
  std::size_t size() const { return detail::load<std::uint64_t>(data_ + 4); }

  // As an array of T; empty if it is not an array, or if one of its elements is not a T. An empty array is an array of
  // any type, since a writer with nothing to put there may not know the type. O(size) for numbers, O(1) for strings.
  template <Readable T>
  std::optional<Array<T>> as_array() const {
    if (!is_array()) return std::nullopt;
    if (size() == 0) return Array<T>();
    const ValueType element = element_type();
    const std::byte* first = data_ + kArrayHeader;
    if constexpr (std::same_as<T, std::string_view>) {
      if (element != ValueType::string) return std::nullopt;
      return Array<T>(first, size());
    } else {
      if (fixed_size(element) == 0) return std::nullopt;
      for (std::size_t i = 0; i < size(); ++i) {
        if (!detail::load_number<T>(element, first + i * fixed_size(element))) return std::nullopt;
      }
      return Array<T>(element, first, size());
    }
  }

  // Only for an array: its elements as values, one after the other, for code that does not know their type.
  Elements elements() const;

  // The bytes of the value in the file, without its type number.
  std::span<const std::byte> encoded() const;

  // One line for a person: "u32 17", "string 'llama'", "array of 128256 string". Long strings are cut, and bytes that
  // cannot be printed are escaped.
  std::string describe() const;

 private:
  ValueType type_ = ValueType::u8;
  const std::byte* data_ = nullptr;
};

// The elements of an array of any type, nested arrays included, as a range of Values.
class Elements {
 public:
  class Iterator {
   public:
    using value_type = Value;
    using difference_type = std::ptrdiff_t;
    using reference = Value;
    using pointer = void;
    using iterator_category = std::input_iterator_tag;

    Iterator() = default;
    Iterator(Value value, std::size_t index) : value_(value), index_(index) {}
    Value operator*() const { return value_; }
    Iterator& operator++() {
      const std::span<const std::byte> bytes = value_.encoded();
      value_ = Value(value_.type(), bytes.data() + bytes.size());
      ++index_;
      return *this;
    }
    Iterator operator++(int) {
      Iterator old = *this;
      ++*this;
      return old;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.index_ == b.index_; }

   private:
    Value value_;
    std::size_t index_ = 0;
  };

  Elements(Value first, std::size_t size) : first_(first), size_(size) {}
  std::size_t size() const { return size_; }
  Iterator begin() const { return {first_, 0}; }
  Iterator end() const { return {Value(), size_}; }

 private:
  Value first_;
  std::size_t size_;
};

}  // namespace quire::gguf
