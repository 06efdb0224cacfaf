// For tests of gguf: images of GGUF files, built byte by byte, so that a test can make any part of them wrong.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "quire/gguf/gguf.h"

namespace quire::gguf::testing {

class Image {
 public:
  template <typename T>
  Image& put(T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Image& u8(std::uint8_t value) { return put(value); }
  Image& u32(std::uint32_t value) { return put(value); }
  Image& u64(std::uint64_t value) { return put(value); }
  Image& raw(std::string_view text) {
    bytes += text;
    return *this;
  }
  Image& string(std::string_view text) { return u64(text.size()).raw(text); }
  Image& type(ValueType type) { return u32(static_cast<std::uint32_t>(type)); }

  Image& header(std::uint64_t tensors, std::uint64_t entries, std::uint32_t version = 3) {
    return raw("GGUF").u32(version).u64(tensors).u64(entries);
  }
  Image& entry_u32(std::string_view key, std::uint32_t value) { return string(key).type(ValueType::u32).u32(value); }
  Image& array(std::string_view key, ValueType element, std::uint64_t count) {
    return string(key).type(ValueType::array).type(element).u64(count);
  }
  Image& tensor(std::string_view name, std::vector<std::uint64_t> shape, Type type, std::uint64_t offset) {
    string(name).u32(static_cast<std::uint32_t>(shape.size()));
    for (const std::uint64_t length : shape) u64(length);
    return u32(static_cast<std::uint32_t>(type)).u64(offset);
  }
  // Zeros up to a multiple of the alignment, then `count` bytes of data.
  Image& data(std::size_t count, std::size_t alignment = 32) {
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment + count);
    return *this;
  }
  Image& patch(std::size_t offset, std::uint64_t value, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) bytes.at(offset + i) = static_cast<char>(value >> (8 * i));
    return *this;
  }

  Result<File> read() const { return File::from_memory(std::as_bytes(std::span(bytes)), "test.gguf"); }

  std::string bytes;
};

// Reads all entries and tensors of a file, down to the last element. The result only keeps the compiler from removing
// the reads.
inline std::uint64_t walk(const Value& value) {
  std::uint64_t sum = value.encoded().size() + value.describe().size();
  if (!value.is_array()) return sum;
  if (const auto strings = value.as_array<std::string_view>()) {
    for (const std::string_view string : *strings)
      sum += string.empty() ? 0 : static_cast<unsigned char>(string.back());
  }
  if (const auto numbers = value.as_array<std::int32_t>()) {
    for (const std::int32_t number : *numbers) sum += static_cast<std::uint64_t>(number);
  }
  if (value.element_type() == ValueType::array) {
    for (const Value element : value.elements()) sum += walk(element);
  }
  return sum;
}

inline std::uint64_t walk(const File& file) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < file.entry_count(); ++i) sum += walk(file.entry(i).value);
  for (std::size_t i = 0; i < file.tensor_count(); ++i) {
    const Tensor tensor = file.tensor(i);
    sum += std::to_integer<std::uint64_t>(tensor.data.front()) + std::to_integer<std::uint64_t>(tensor.data.back());
  }
  return sum;
}

inline std::vector<std::byte> read_whole(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline void write_whole(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

// A folder that is removed at the end of the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "quire-gguf-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(std::string_view name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::vector<std::filesystem::path> files_with_extension(const std::filesystem::path& folder,
                                                               std::string_view ext) {
  std::vector<std::filesystem::path> found;
  if (!std::filesystem::is_directory(folder)) return found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ext) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace quire::gguf::testing
