// Parses an image of a file. This is the one place where the bytes are not yet trusted: it reads the image from its
// first byte to its last tensor and checks all of it, or says what is wrong and where. Internal to gguf; see gguf.h for
// what holds afterwards.
//
// The index keeps only the offset of each entry and each tensor, 8 bytes each. They are decoded again on each access. A
// file can claim as many entries as it has room for (at least 14 bytes each), so a table of decoded entries could be
// several times the size of the file. The index cannot.
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

// One file, checked. Tensor names may still occur twice: they must be unique among all parts of a model.
struct Index {
  std::span<const std::byte> image;
  std::uint32_t version = 0;
  std::uint64_t alignment = 0;
  std::uint64_t data_begin = 0;        // tensor offsets are relative to this
  std::vector<std::uint64_t> entries;  // offset of each metadata entry
  std::vector<std::uint64_t> tensors;  // offset of each tensor description
  std::vector<std::uint32_t> by_key;   // indices of the entries, sorted by key

  Entry entry(std::size_t i) const;
  std::string_view key(std::size_t i) const;
  std::optional<Entry> find(std::string_view key) const;
  Tensor tensor(std::size_t i) const;  // with part = 0
  std::string_view tensor_name(std::size_t i) const;
};

// `name` is the path as it stands in messages.
Result<Index> parse(std::span<const std::byte> image, const std::string& name);

// The indices 0 to count - 1, sorted by name_of(i) and then by i.
std::vector<std::uint32_t> sorted_by_name(std::size_t count,
                                          const std::function<std::string_view(std::size_t)>& name_of);

// The index of this name among `sorted`, if it is there.
std::optional<std::uint32_t> find_by_name(std::span<const std::uint32_t> sorted, std::string_view name,
                                          const std::function<std::string_view(std::size_t)>& name_of);

// Whether this is a valid general.alignment.
bool valid_alignment(std::uint64_t alignment);

constexpr std::string_view kMagic = "GGUF";
constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr std::uint64_t kDefaultAlignment = 32;
// The format's limit for keys. The format has none for tensor names; this is ours.
constexpr std::uint64_t kMaxNameBytes = 65535;
// Published files have no nested arrays. The limit bounds the recursion.
constexpr int kMaxArrayDepth = 8;

}  // namespace quire::gguf
