#include "quire/tiers/redis_slots.h"

#include <algorithm>
#include <array>
#include <utility>

namespace quire::tiers {
namespace {

constexpr std::array<std::uint16_t, 256> make_table() {
  std::array<std::uint16_t, 256> table{};
  for (unsigned i = 0; i < 256; ++i) {
    unsigned crc = i << 8;
    for (int bit = 0; bit < 8; ++bit) crc = (crc << 1) ^ ((crc & 0x8000) != 0 ? 0x1021 : 0);
    table[i] = static_cast<std::uint16_t>(crc);
  }
  return table;
}
constexpr std::array<std::uint16_t, 256> kTable = make_table();
constexpr std::size_t kMostNodes = 4096;

// [host, port, id, ...]; the host may be missing (the node does not know its own address).
Result<RedisAddress> read_node(const Reply& node, const RedisAddress& asked) {
  if (node.kind != Reply::Kind::Array || node.elements.size() < 2 || node.elements[1].kind != Reply::Kind::Integer ||
      node.elements[1].integer < 1 || node.elements[1].integer > 65535) {
    return fail("CLUSTER SLOTS: a node without address");
  }
  const Reply& host = node.elements[0];
  if (host.kind != Reply::Kind::String && host.kind != Reply::Kind::Nil) {
    return fail("CLUSTER SLOTS: a node without address");
  }
  const bool unknown = host.text.empty() || host.text == "?";
  return RedisAddress{unknown ? asked.host : host.text, static_cast<std::uint16_t>(node.elements[1].integer)};
}

}  // namespace

std::uint16_t crc16(std::string_view bytes) {
  unsigned crc = 0;
  for (const char c : bytes) crc = ((crc << 8) ^ kTable[((crc >> 8) ^ static_cast<unsigned char>(c)) & 0xff]) & 0xffff;
  return static_cast<std::uint16_t>(crc);
}

std::uint16_t slot_of(std::string_view key) {
  if (const std::size_t open = key.find('{'); open != std::string_view::npos) {
    const std::size_t close = key.find('}', open + 1);
    if (close != std::string_view::npos && close > open + 1) key = key.substr(open + 1, close - open - 1);
  }
  return static_cast<std::uint16_t>(crc16(key) % kRedisSlots);
}

std::uint16_t SlotMap::index_of(const RedisAddress& master) {
  const auto found = std::find(masters_.begin(), masters_.end(), master);
  if (found != masters_.end()) return static_cast<std::uint16_t>(found - masters_.begin());
  masters_.push_back(master);
  return static_cast<std::uint16_t>(masters_.size() - 1);
}

SlotMap SlotMap::single(const RedisAddress& address, std::vector<RedisAddress> replicas) {
  SlotMap map;
  map.masters_.push_back(address);
  map.replicas_ = std::move(replicas);
  map.slots_.assign(kRedisSlots, 1);
  return map;
}

Result<SlotMap> SlotMap::from_reply(const Reply& reply, const RedisAddress& asked) {
  if (reply.kind != Reply::Kind::Array) return fail("CLUSTER SLOTS: not a list");
  SlotMap map;
  map.slots_.assign(kRedisSlots, 0);
  for (const Reply& range : reply.elements) {
    // [first, last, master, replica...]
    if (range.kind != Reply::Kind::Array || range.elements.size() < 3 ||
        range.elements[0].kind != Reply::Kind::Integer || range.elements[1].kind != Reply::Kind::Integer) {
      return fail("CLUSTER SLOTS: a range of another form");
    }
    const std::int64_t first = range.elements[0].integer;
    const std::int64_t last = range.elements[1].integer;
    if (first < 0 || last < first || last >= static_cast<std::int64_t>(kRedisSlots)) {
      return fail("CLUSTER SLOTS: slots that there are not");
    }
    auto master = read_node(range.elements[2], asked);
    if (!master) return std::unexpected(master.error());
    const std::uint16_t index = map.index_of(*master);
    std::fill(map.slots_.begin() + first, map.slots_.begin() + last + 1, static_cast<std::uint16_t>(index + 1));
    for (std::size_t i = 3; i < range.elements.size(); ++i) {
      auto replica = read_node(range.elements[i], asked);
      if (!replica) return std::unexpected(replica.error());
      if (std::find(map.replicas_.begin(), map.replicas_.end(), *replica) == map.replicas_.end()) {
        map.replicas_.push_back(std::move(*replica));
      }
    }
    if (map.masters_.size() + map.replicas_.size() > kMostNodes) return fail("CLUSTER SLOTS: over 4096 nodes");
  }
  return map;
}

const RedisAddress* SlotMap::master_of(std::uint16_t slot) const {
  if (slots_.empty() || slots_[slot] == 0) return nullptr;
  return &masters_[slots_[slot] - 1u];
}

void SlotMap::move(std::uint16_t slot, const RedisAddress& to) {
  if (slots_.empty()) slots_.assign(kRedisSlots, 0);
  if (masters_.size() >= kMostNodes) return;
  slots_[slot] = static_cast<std::uint16_t>(index_of(to) + 1);
}

}  // namespace quire::tiers
