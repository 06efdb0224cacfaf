#include "quire/gguf/value.h"

#include <fmt/format.h>

#include "quire/gguf/message.h"

namespace quire::gguf {

namespace {

// The end of the value at `at`. The recursion is as deep as arrays are nested, which the File has limited.
const std::byte* end_of(ValueType type, const std::byte* at) {
  if (type == ValueType::string) return at + kStringHeader + detail::load_string(at).size();
  if (type != ValueType::array) return at + fixed_size(type);
  const Value array(type, at);
  const ValueType element = array.element_type();
  at += kArrayHeader;
  if (const std::size_t size = fixed_size(element); size != 0) return at + array.size() * size;
  for (std::size_t i = 0; i < array.size(); ++i) at = end_of(element, at);
  return at;
}

}  // namespace

std::string_view name_of(ValueType type) {
  switch (type) {
    case ValueType::u8: return "u8";
    case ValueType::i8: return "i8";
    case ValueType::u16: return "u16";
    case ValueType::i16: return "i16";
    case ValueType::u32: return "u32";
    case ValueType::i32: return "i32";
    case ValueType::f32: return "f32";
    case ValueType::boolean: return "bool";
    case ValueType::string: return "string";
    case ValueType::array: return "array";
    case ValueType::u64: return "u64";
    case ValueType::i64: return "i64";
    case ValueType::f64: return "f64";
  }
  return "unknown";
}

Elements Value::elements() const {
  if (!is_array()) return {Value(), 0};
  return {Value(element_type(), data_ + kArrayHeader), size()};
}

std::span<const std::byte> Value::encoded() const {
  return {data_, static_cast<std::size_t>(end_of(type_, data_) - data_)};
}

std::string Value::describe() const {
  switch (type_) {
    case ValueType::u8:
    case ValueType::u16:
    case ValueType::u32:
    case ValueType::u64: return fmt::format("{} {}", name_of(type_), as<std::uint64_t>().value_or(0));
    case ValueType::i8:
    case ValueType::i16:
    case ValueType::i32:
    case ValueType::i64: return fmt::format("{} {}", name_of(type_), as<std::int64_t>().value_or(0));
    case ValueType::f32: return fmt::format("f32 {}", as<float>().value_or(0));
    case ValueType::f64: return fmt::format("f64 {}", as<double>().value_or(0));
    case ValueType::boolean: return fmt::format("bool {}", as<bool>().value_or(false));
    case ValueType::string: return fmt::format("string {}", quoted(detail::load_string(data_)));
    case ValueType::array: return fmt::format("array of {} {}", size(), name_of(element_type()));
  }
  return "unknown";
}

}  // namespace quire::gguf
