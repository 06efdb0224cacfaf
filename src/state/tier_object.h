// What a tier stores under a key: a header, then the bytes of a page or a state as they were in the arena.
//
//   offset  bytes
//        0      8   "QUIREOBJ"
//        8      4   version, little-endian: 1
//       12      4   class: the layer group of a page, or 0xff for a state
//       16     32   name of the block
//       48      8   length of the bytes that follow the header
//       56      8   0, for later versions
//       64     16   XXH3-128 of everything above and of the bytes that follow
//       80      -   the bytes
//
// Whoever reads an object checks all of it. An object that fails a check is a miss, with the reason. The checksum
// detects accidents; who can write to a tier can also write a right checksum (docs/operations.md).
//
// Who may call: any thread. Nothing is allocated.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>

#include "quire/state/object_name.h"

namespace quire {

inline constexpr std::size_t kObjectHeaderBytes = 80;
using ObjectHeader = std::array<std::byte, kObjectHeaderBytes>;

enum class ObjectFault : std::uint8_t {
  Truncated,      // fewer bytes than the header says, or no whole header
  NotAnObject,    // the first bytes are others
  OtherVersion,   // written by a version whose format this one does not know
  OtherName,      // it is another object than the one that was asked for
  OtherLength,    // as many bytes as it says, but not as many as this pool's objects have
  WrongChecksum,  // some bit is not as it was written
};
const char* name(ObjectFault fault);

// The header of an object with these bytes.
ObjectHeader header_of(const ObjectKey& key, std::span<const std::byte> bytes);

// Checks everything that can be checked before the bytes are there, so that a reader can refuse an object early.
// `stored`: the length of header and bytes as the tier has them. `expected`: the length that the bytes should have.
std::expected<void, ObjectFault> check_header(const ObjectKey& key, std::span<const std::byte> header,
                                              std::uint64_t stored, std::uint64_t expected);
// The checksum, over header and bytes.
std::expected<void, ObjectFault> check_bytes(std::span<const std::byte> header, std::span<const std::byte> bytes);

}  // namespace quire
