// Random bytes as what a Redis server says: to a client that reads them at once, and to one that gets them in pieces,
// some of them read straight to their place. Both must understand the same, and nothing may be written beside a
// payload's place.
//
// The first byte chooses the length of the payloads that are expected, the second one the pieces.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "quire/tiers/redis_slots.h"
#include "quire/tiers/resp.h"

namespace {

using namespace quire;
using namespace quire::tiers;

constexpr std::size_t kHeader = 8, kGuard = 16;
constexpr std::byte kUntouched{0xA5};

void describe(const Reply& reply, std::string& out) {
  out += static_cast<char>('a' + static_cast<int>(reply.kind));
  out += std::to_string(reply.integer) + (reply.whole ? "!" : ".") + reply.text;
  for (const Reply& element : reply.elements) describe(element, out += '(');
}

// Everything that is understood until the input ends or makes no sense. Every second reply is expected to be a payload.
std::string understood(std::span<const std::byte> input, std::size_t payload, unsigned pieces) {
  std::string out;
  ReplyParser parser;
  std::vector<std::byte> header(kHeader + kGuard, kUntouched), body(payload + kGuard, kUntouched);
  bool wants = true;
  const auto expect = [&] {
    const PayloadSink sink{std::span(header).first(kHeader), std::span(body).first(payload)};
    parser.expect(wants ? std::optional(sink) : std::nullopt);
    wants = !wants;
  };
  expect();
  unsigned random = pieces;
  while (!input.empty()) {
    random = random * 1664525 + 1013904223;
    std::size_t length = pieces == 0 ? input.size() : std::min<std::size_t>(input.size(), 1 + (random >> 16) % 9);
    const PayloadSink place = parser.direct();
    if (pieces % 2 == 1 && place.size() > 0) {
      const std::span<std::byte> to = place.first.empty() ? place.second : place.first;
      length = std::min(length, to.size());
      std::memcpy(to.data(), input.data(), length);
      parser.filled(length);
      input = input.subspan(length);
      continue;
    }
    auto piece = input.first(length);
    input = input.subspan(length);
    while (!piece.empty()) {
      const auto reply = parser.parse(piece);
      if (!reply) return out + "#";
      if (!*reply) break;
      describe(**reply, out += '\n');
      if ((*reply)->is_error()) (void)understand_error((*reply)->text);
      (void)SlotMap::from_reply(**reply, {"127.0.0.1", 6379});
      if ((*reply)->whole) {
        out.append(reinterpret_cast<const char*>(header.data()), kHeader);
        out.append(reinterpret_cast<const char*>(body.data()), payload);
      }
      expect();
    }
  }
  const auto touched = [](std::byte byte) { return byte != kUntouched; };
  if (std::any_of(header.begin() + kHeader, header.end(), touched) ||
      std::any_of(body.begin() + static_cast<std::ptrdiff_t>(payload), body.end(), touched)) {
    std::fprintf(stderr, "DIFFERENCE: written beside a payload's place\n");
    std::abort();
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto input = std::as_bytes(std::span(data, size)).subspan(2);
  const std::size_t payload = data[0] % 64;
  const std::string whole = understood(input, payload, 0);
  for (const unsigned pieces : {2u * data[1] + 2u, 2u * data[1] + 1u}) {
    if (understood(input, payload, pieces) == whole) continue;
    std::fprintf(stderr, "DIFFERENCE: in pieces something else is understood\n");
    std::abort();
  }
  return 0;
}
