// Random bytes as a stored object. They are accepted only if they are exactly what would have been written.
//
// The first byte chooses: the input alone, or a right object on which the input's other bytes are written. Without the
// latter no input would ever have a right checksum.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "quire/state/tier_object.h"

namespace {

using namespace quire;

bool accepted(const ObjectKey& key, std::span<const std::byte> stored, std::uint64_t expected) {
  const auto header = stored.first(std::min(stored.size(), kObjectHeaderBytes));
  return check_header(key, header, stored.size(), expected).has_value() &&
         check_bytes(header, stored.subspan(kObjectHeaderBytes)).has_value();
}

std::vector<std::byte> written(const ObjectKey& key, std::span<const std::byte> bytes) {
  const ObjectHeader header = header_of(key, bytes);
  std::vector<std::byte> object(header.begin(), header.end());
  object.insert(object.end(), bytes.begin(), bytes.end());
  return object;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto input = std::as_bytes(std::span(data, size)).subspan(2);
  ObjectKey key;
  key.cls = data[1];
  for (std::size_t i = 0; i < key.name.size(); ++i) key.name[i] = static_cast<std::uint8_t>(i * data[1]);
  std::vector<std::byte> stored(input.begin(), input.end());
  if (data[0] % 4 != 0 && input.size() >= 4) {
    // A right object of some bytes; then changes of three bytes each: where (two bytes), and with what.
    const std::size_t count = std::min<std::size_t>(static_cast<std::size_t>(input[0]) * 4, 512);
    std::vector<std::byte> bytes(count, input[1]);
    stored = written(key, bytes);
    for (std::size_t i = 2; i + 3 <= input.size(); i += 3) {
      const std::size_t at = (static_cast<std::size_t>(input[i]) | static_cast<std::size_t>(input[i + 1]) << 8);
      stored[at % stored.size()] ^= input[i + 2];
    }
    if (data[0] % 4 == 2) stored.resize(static_cast<std::size_t>(input[2]) * stored.size() / 255);
    if (data[0] % 4 == 3) stored.resize(stored.size() + static_cast<std::size_t>(input[3]));
  }
  const std::size_t length = stored.size() < kObjectHeaderBytes ? 0 : stored.size() - kObjectHeaderBytes;
  for (const std::uint64_t expected : {std::uint64_t{length}, std::uint64_t{data[1]}, std::uint64_t{UINT64_MAX}}) {
    if (!accepted(key, stored, expected)) continue;
    if (expected != length || stored != written(key, std::span(stored).subspan(kObjectHeaderBytes))) {
      std::fprintf(stderr, "DIFFERENCE: accepted an object of %zu bytes that nobody wrote\n", stored.size());
      std::abort();
    }
  }
  // What is written is accepted, and not under another name.
  if (!accepted(key, written(key, input), input.size())) std::abort();
  ObjectKey other = key;
  other.name[data[0] % other.name.size()] ^= 1;
  if (accepted(other, written(key, input), input.size())) std::abort();
  return 0;
}
