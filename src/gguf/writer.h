// Writes GGUF files (version 3, little-endian), for tests and tools.
//
//   gguf::Writer writer;
//   writer.add("general.architecture", "llama");
//   writer.add("llama.block_count", std::uint32_t{8});
//   writer.add_array<std::string_view>("tokenizer.ggml.tokens", tokens);
//   writer.add_tensor("output.weight", Type::Q8_0, {256, 1536}, bytes);
//   auto done = writer.write("model.gguf");
//
// Who may call: one thread at a time.
// What holds:
// - Entries and tensors are in the file in the order in which they were added. File can read whatever is written.
// - Metadata are copied when they are added. Tensor data are not: a span must stay valid until the file is written, and
//   a function is called when the file is written. So a file can be much larger than memory.
// - Tensors are aligned to 32 bytes, or to the added "general.alignment". Writing does not change the Writer.
// How it fails:
// - A mistake in what is added is kept, and write() returns it; later additions are ignored. Mistakes are a name that
//   is empty, too long or already there, a shape that the type cannot have, and data of the wrong size.
// - write(path) writes to path + ".partial" first, and renames it when all of it is on disk. After a failure (say, a
//   full disk) there is no such file, and the old file at `path` is untouched. Two writers must not write to one path
//   at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "quire/base/error.h"
#include "quire/gguf/types.h"
#include "quire/gguf/value.h"

namespace quire::gguf {

// Receives bytes, in order.
class Sink {
 public:
  Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  virtual ~Sink() = default;
  virtual Result<void> write(std::span<const std::byte> bytes) = 0;
};

class Writer {
 public:
  // Writes all of a tensor's data, in any number of pieces.
  using Fill = std::function<Result<void>(Sink&)>;

  // Metadata. The type in the file is that of T: add("k", std::uint16_t{1}) is a u16.
  template <Number T>
  void add(std::string_view key, T value) {
    begin_entry(key, type_of<T>());
    append(value);
    end_entry();
  }
  void add(std::string_view key, std::string_view value);

  template <Readable T>
  void add_array(std::string_view key, std::span<const T> values) {
    begin_entry(key, ValueType::array);
    append(static_cast<std::uint32_t>(type_of<T>()));
    append(static_cast<std::uint64_t>(values.size()));
    for (const T& value : values) append(value);
    end_entry();
  }

  // Copies a value of another file as it is, arrays of arrays included.
  void add_value(std::string_view key, const Value& value);

  // shape[0] is the length of a row. `data` must be exactly as long as type and shape say.
  void add_tensor(std::string_view name, Type type, std::vector<std::uint64_t> shape, std::span<const std::byte> data);
  void add_tensor(std::string_view name, Type type, std::vector<std::uint64_t> shape, Fill fill);

  Result<void> write(const std::string& path) const;
  Result<void> write(Sink& sink) const;
  Result<std::vector<std::byte>> to_memory() const;

 private:
  struct PendingTensor {
    std::string name;
    Type type;
    std::vector<std::uint64_t> shape;
    std::uint64_t bytes;
    Fill fill;
  };

  template <Readable T>
  static constexpr ValueType type_of() {
    if constexpr (std::same_as<T, std::string_view>) return ValueType::string;
    if constexpr (std::same_as<T, bool>) return ValueType::boolean;
    if constexpr (std::same_as<T, float>) return ValueType::f32;
    if constexpr (std::same_as<T, double>) return ValueType::f64;
    constexpr bool is_signed = std::is_signed_v<T>;
    if constexpr (sizeof(T) == 1) return is_signed ? ValueType::i8 : ValueType::u8;
    if constexpr (sizeof(T) == 2) return is_signed ? ValueType::i16 : ValueType::u16;
    if constexpr (sizeof(T) == 4) return is_signed ? ValueType::i32 : ValueType::u32;
    return is_signed ? ValueType::i64 : ValueType::u64;
  }

  void append(std::span<const std::byte> bytes);
  void append(std::string_view value);
  template <Number T>
  void append(T value) {
    append(std::as_bytes(std::span(&value, 1)));
  }
  void begin_entry(std::string_view key, ValueType type);
  void end_entry();
  void mistake(std::string message);
  std::string directory() const;

  std::string entries_;  // as in the file
  std::uint64_t entry_count_ = 0;
  std::size_t entry_begin_ = 0;  // start of the current entry in entries_
  std::vector<PendingTensor> tensors_;
  std::uint64_t total_bytes_ = 0;  // of the tensors, without padding
  std::unordered_set<std::string> keys_, names_;
  std::uint64_t alignment_ = 32;
  std::optional<Error> mistake_;  // the first
};

}  // namespace quire::gguf
