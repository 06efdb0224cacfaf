// A GGUF model file (versions 2 and 3, little-endian), opened for reading: its metadata and its directory of tensors.
//
//   auto file = gguf::File::open("model.gguf");
//   if (!file) return fail(file.error().message);
//   auto layers = file->get<std::uint32_t>("llama.block_count");          // any integer type that fits
//   auto base = file->get_or<float>("llama.rope.freq_base", 10000.0f);    // absent: the fallback; wrong type: an error
//   auto tokens = file->get_array<std::string_view>("tokenizer.ggml.tokens");
//   auto weights = file->tensor("output.weight");                         // name, shape, type, data
//
// A model in several files (model-00001-of-00003.gguf) is opened through any of them and looks like one file: it has
// the metadata of the first part and the tensors of all parts.
//
// Who may call: any number of threads may read a File, since it does not change after it is opened.
// What holds:
// - The file is memory-mapped and nothing is copied. Strings, arrays and tensor data are views into the mapping (or
//   into the caller's memory for from_memory). They are valid until the File is destroyed; moving it keeps them valid.
// - When open() has succeeded, all counts, lengths, offsets, types and alignments in the file have been checked. Keys
//   and tensor names are unique. Tensors lie within the file and do not overlap. The rows of a tensor are whole blocks.
// - A File takes less memory than the size of the file plus a few KB, whatever the file says. Nothing is allocated for
//   a count before the file is known to be large enough for it.
// How it fails: with one line that names the file, the key or tensor, and the byte offset. open() refuses what is not a
//   regular file, and does not wait for it.
// What the caller must guarantee: nobody writes to the file or truncates it while it is open. A read behind the end of
//   the file raises SIGBUS, which is not caught. Lengths are checked once and not again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/gguf/types.h"
#include "quire/gguf/value.h"

namespace quire::gguf {

constexpr std::uint32_t kMaxDims = 4;

// A tensor of a file; a view, valid as long as the File.
struct Tensor {
  std::string_view name;
  Type type = Type::F32;
  std::uint32_t n_dims = 0;  // as in the file; 0 for a scalar
  // shape[0] is the length of a row, whose elements are contiguous. Dimensions beyond n_dims are 1.
  std::array<std::uint64_t, kMaxDims> shape = {1, 1, 1, 1};
  std::span<const std::byte> data;  // aligned to the file's alignment, if the image itself is
  std::uint32_t part = 0;           // index into File::parts()
  std::uint64_t offset = 0;         // of the data, from the start of that part

  std::uint64_t elements() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
  std::uint64_t rows() const { return shape[1] * shape[2] * shape[3]; }
  std::uint64_t row_bytes() const { return data.size() / rows(); }
};

// A metadata entry; a view, valid as long as the File.
struct Entry {
  std::string_view key;
  Value value;
  std::uint64_t offset = 0;  // of the entry, from the start of the first part
};

class File {
 public:
  // Opens the file, and all other parts if it is a part of a split model.
  static Result<File> open(const std::string& path);

  // Reads an image of one whole file. The caller keeps it in memory. `name` stands for the path in messages.
  static Result<File> from_memory(std::span<const std::byte> image, std::string name);

  File(File&&) noexcept;
  File& operator=(File&&) noexcept;
  ~File();

  struct Part {
    std::string path;
    std::uint64_t bytes = 0;       // of the file
    std::uint64_t data_begin = 0;  // where tensor data start
    std::uint64_t tensors = 0;     // the number of tensors in it
  };

  const std::string& path() const;  // of the first part
  std::uint32_t version() const;
  std::uint64_t alignment() const;
  std::span<const Part> parts() const;  // one, unless the model is split

  // Metadata, in the file's order.
  std::size_t entry_count() const;
  Entry entry(std::size_t index) const;  // index < entry_count()
  std::optional<Entry> find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key).has_value(); }

  // The value of a key as T: any integer type, float, double, bool or std::string_view (value.h says what converts).
  template <Readable T>
  Result<T> get(std::string_view key) const {
    const std::optional<Entry> entry = find(key);
    if (!entry) return missing(key);
    if (const std::optional<T> value = entry->value.as<T>()) return *value;
    return mismatch(*entry, wanted<T>());
  }

  // The same for a key that may be absent. A key of the wrong type is an error even so.
  template <Readable T>
  Result<T> get_or(std::string_view key, T fallback) const {
    return has(key) ? get<T>(key) : Result<T>(fallback);
  }

  template <Readable T>
  Result<Array<T>> get_array(std::string_view key) const {
    const std::optional<Entry> entry = find(key);
    if (!entry) return missing(key);
    if (const std::optional<Array<T>> array = entry->value.as_array<T>()) return *array;
    return mismatch(*entry, std::string("array of ").append(wanted<T>()));
  }

  // Tensors, in the order of the directories, part after part.
  std::size_t tensor_count() const;
  Tensor tensor(std::size_t index) const;  // index < tensor_count()
  std::optional<Tensor> find_tensor(std::string_view name) const;
  Result<Tensor> tensor(std::string_view name) const;  // fails with the name if it is absent

  // Tells the system that these bytes of tensors are not needed soon. Their memory is released, and they are read from
  // the file again on the next access. An image that the caller keeps is left alone.
  void forget(std::span<const std::byte> data) const;

 private:
  struct Impl;
  explicit File(std::unique_ptr<Impl> impl);

  template <Readable T>
  static std::string_view wanted() {
    if constexpr (std::same_as<T, std::string_view>) return name_of(ValueType::string);
    if constexpr (std::same_as<T, bool>) return name_of(ValueType::boolean);
    if constexpr (std::same_as<T, float>) return name_of(ValueType::f32);
    if constexpr (std::same_as<T, double>) return name_of(ValueType::f64);
    if constexpr (std::signed_integral<T>) {
      return sizeof(T) == 1 ? "i8" : sizeof(T) == 2 ? "i16" : sizeof(T) == 4 ? "i32" : "i64";
    }
    return sizeof(T) == 1 ? "u8" : sizeof(T) == 2 ? "u16" : sizeof(T) == 4 ? "u32" : "u64";
  }

  std::unexpected<Error> missing(std::string_view key) const;
  std::unexpected<Error> mismatch(const Entry& entry, std::string_view wanted) const;

  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::gguf
