// For tests and the fuzzer of session files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "quire/session/session_format.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace quire::session::testing {

using Bytes = std::vector<std::byte>;

inline Bytes bytes_of(const Pieces& file) {
  Bytes out = file.head;
  for (const Pieces::Piece& piece : file.pieces) {
    out.insert(out.end(), piece.bytes.begin(), piece.bytes.end());
    out.resize(out.size() + piece.padding);
  }
  return out;
}

template <typename T>
T number_at(const Bytes& file, std::size_t at) {
  T value{};
  if (at + sizeof value <= file.size()) std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}
template <typename T>
void set_number(Bytes& file, std::size_t at, T value) {
  if (at + sizeof value <= file.size()) std::memcpy(file.data() + at, &value, sizeof value);
}

// Makes all checksums right, as somebody would who changes a file on purpose: of each section that lies inside the
// file, then of the header and the table.
inline void seal(Bytes& file) {
  if (file.size() < kHeaderBytes) return;
  const std::uint64_t room = (file.size() - kHeaderBytes) / kEntryBytes;
  const auto sections = std::min<std::uint64_t>(number_at<std::uint32_t>(file, 12), room);
  const auto put = [&](std::size_t at, const XXH128_hash_t& hash) {
    set_number(file, at, hash.low64);
    set_number(file, at + 8, hash.high64);
  };
  for (std::uint64_t i = 0; i < sections; ++i) {
    const std::size_t entry = kHeaderBytes + i * kEntryBytes;
    const auto offset = number_at<std::uint64_t>(file, entry + 8), length = number_at<std::uint64_t>(file, entry + 16);
    if (offset > file.size() || length > file.size() - offset) continue;
    put(entry + 40, XXH3_128bits(file.data() + offset, length));
  }
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  XXH3_128bits_update(&state, file.data(), 112);
  XXH3_128bits_update(&state, file.data() + kHeaderBytes, sections * kEntryBytes);
  put(112, XXH3_128bits_digest(&state));
}

}  // namespace quire::session::testing
