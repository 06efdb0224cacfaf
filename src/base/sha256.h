// SHA-256 (FIPS 180-4), and helpers for secrets. For keys at rest: see src/server/key_file.h.
//
// Who may call: any thread; an object belongs to one caller.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace quire {

using Sha256Digest = std::array<std::uint8_t, 32>;

class Sha256 {
 public:
  Sha256& add(std::string_view bytes);
  // The digest of all that was added. Nothing can be added after it.
  Sha256Digest finish();

 private:
  void block(const std::uint8_t* bytes);

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, 64> pending_{};
  std::uint64_t length_ = 0;  // bytes
};

std::string to_hex(std::span<const std::uint8_t> bytes);
// Fills `bytes` from lower-case or upper-case hex digits. False: the text is not exactly that.
bool from_hex(std::string_view text, std::span<std::uint8_t> bytes);
// Takes the same time wherever the two differ.
bool same_secret(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b);
// Bytes from the kernel's generator. False: it has none, and no secret may be made.
bool fill_random(std::span<std::uint8_t> bytes);

}  // namespace quire
