// The one place where the bytes of a file are not yet trusted: reads an image from its first byte to its last tensor
// and checks all of it, or says what is wrong and where. Internal to gguf; see gguf.h for what holds afterwards.
//
// What is kept is where each entry and each tensor begins, 8 bytes for one, whatever it contains; it is decoded anew
// when it is asked for. A file can claim as many entries as it has room for (14 bytes each at least), so that a table
// of decoded entries could be several times the size of the file; this one is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/gguf/gguf.h"

namespace quire::gguf {

// One file, checked, except that tensor names may occur twice: they must be unique among all parts of a model.
struct Index {
  std::span<const std::byte> image;
  std::uint32_t version = 0;
  std::uint64_t alignment = 0;
  std::uint64_t data_begin = 0;        // tensor offsets count from here
  std::vector<std::uint64_t> entries;  // where each metadata entry begins
  std::vector<std::uint64_t> tensors;  // where each tensor's description begins
  std::vector<std::uint32_t> by_key;   // numbers of the entries, sorted by key

  Entry entry(std::size_t i) const;
  std::string_view key(std::size_t i) const;
  std::optional<Entry> find(std::string_view key) const;
  Tensor tensor(std::size_t i) const;  // with part = 0
  std::string_view tensor_name(std::size_t i) const;
};

// `name` is the path as it stands in messages.
Result<Index> parse(std::span<const std::byte> image, const std::string& name);

// 0 to count - 1, sorted by name_of(i) and then by i.
std::vector<std::uint32_t> sorted_by_name(std::size_t count,
                                          const std::function<std::string_view(std::size_t)>& name_of);

// The number of the thing called so among those, if there is one.
std::optional<std::uint32_t> find_by_name(std::span<const std::uint32_t> sorted, std::string_view name,
                                          const std::function<std::string_view(std::size_t)>& name_of);

// Whether a file may say so in general.alignment.
bool valid_alignment(std::uint64_t alignment);

constexpr std::string_view kMagic = "GGUF";
constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr std::uint64_t kDefaultAlignment = 32;
// The format's limit for keys, and ours for tensor names, which the format leaves to the reader.
constexpr std::uint64_t kMaxNameBytes = 65535;
// Published files nest no arrays at all; the limit keeps the walk's stack flat.
constexpr int kMaxArrayDepth = 8;

}  // namespace quire::gguf
