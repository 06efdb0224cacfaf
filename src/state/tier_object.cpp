#include "quire/state/tier_object.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace quire {
namespace {

constexpr std::string_view kMagic = "QUIREOBJ";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kVersionAt = 8, kClassAt = 12, kNameAt = 16, kLengthAt = 48, kChecksumAt = 64;

template <typename Number>
void put(std::byte* to, Number number) {
  for (std::size_t i = 0; i < sizeof number; ++i) to[i] = static_cast<std::byte>(number >> (8 * i));
}

template <typename Number>
Number take(const std::byte* from) {
  Number number = 0;
  for (std::size_t i = 0; i < sizeof number; ++i) number |= static_cast<Number>(from[i]) << (8 * i);
  return number;
}

XXH128_hash_t checksum(const std::byte* header, std::span<const std::byte> bytes) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  XXH3_128bits_update(&state, header, kChecksumAt);
  if (!bytes.empty()) XXH3_128bits_update(&state, bytes.data(), bytes.size());
  return XXH3_128bits_digest(&state);
}

}  // namespace

const char* name(ObjectFault fault) {
  switch (fault) {
    case ObjectFault::Truncated: return "truncated";
    case ObjectFault::NotAnObject: return "not an object";
    case ObjectFault::OtherVersion: return "other version";
    case ObjectFault::OtherName: return "other name";
    case ObjectFault::OtherLength: return "other length";
    case ObjectFault::WrongChecksum: return "wrong checksum";
  }
  return "unknown";
}

ObjectHeader header_of(const ObjectKey& key, std::span<const std::byte> bytes) {
  ObjectHeader header{};
  std::memcpy(header.data(), kMagic.data(), kMagic.size());
  put(header.data() + kVersionAt, kVersion);
  put(header.data() + kClassAt, std::uint32_t{key.cls});
  std::memcpy(header.data() + kNameAt, key.name.data(), key.name.size());
  put(header.data() + kLengthAt, std::uint64_t{bytes.size()});
  const XXH128_hash_t hash = checksum(header.data(), bytes);
  put(header.data() + kChecksumAt, std::uint64_t{hash.low64});
  put(header.data() + kChecksumAt + 8, std::uint64_t{hash.high64});
  return header;
}

std::expected<void, ObjectFault> check_header(const ObjectKey& key, std::span<const std::byte> header,
                                              std::uint64_t stored, std::uint64_t expected) {
  if (header.size() < kObjectHeaderBytes || stored < kObjectHeaderBytes) {
    return std::unexpected(ObjectFault::Truncated);
  }
  if (std::memcmp(header.data(), kMagic.data(), kMagic.size()) != 0) return std::unexpected(ObjectFault::NotAnObject);
  if (take<std::uint32_t>(header.data() + kVersionAt) != kVersion) return std::unexpected(ObjectFault::OtherVersion);
  if (take<std::uint32_t>(header.data() + kClassAt) != key.cls ||
      std::memcmp(header.data() + kNameAt, key.name.data(), key.name.size()) != 0) {
    return std::unexpected(ObjectFault::OtherName);
  }
  const auto length = take<std::uint64_t>(header.data() + kLengthAt);
  if (length != stored - kObjectHeaderBytes) return std::unexpected(ObjectFault::Truncated);
  if (length != expected) return std::unexpected(ObjectFault::OtherLength);
  return {};
}

std::expected<void, ObjectFault> check_bytes(std::span<const std::byte> header, std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = checksum(header.data(), bytes);
  if (take<std::uint64_t>(header.data() + kChecksumAt) != hash.low64 ||
      take<std::uint64_t>(header.data() + kChecksumAt + 8) != hash.high64) {
    return std::unexpected(ObjectFault::WrongChecksum);
  }
  return {};
}

}  // namespace quire
