// Which node of a Redis cluster has a key: the key's slot (CRC16 modulo 16384), and the map of slots to nodes as
// CLUSTER SLOTS tells it.
//
// Who may call: one thread at a time. slot_of(): any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/tiers/redis_url.h"
#include "quire/tiers/resp.h"

namespace quire::tiers {

inline constexpr std::size_t kRedisSlots = 16384;

// CRC-16/XMODEM: polynomial 0x1021, from 0, no reflection.
std::uint16_t crc16(std::string_view bytes);
// Of a key with a hash tag ("a{tag}b") only the tag counts.
std::uint16_t slot_of(std::string_view key);

class SlotMap {
 public:
  // Every slot at one node: a server that is not a cluster.
  static SlotMap single(const RedisAddress& address, std::vector<RedisAddress> replicas = {});
  // From the reply to CLUSTER SLOTS. `asked`: the node that answered; it stands for nodes without a host.
  // Fails if the reply has another form. Slots that no node serves stay empty.
  static Result<SlotMap> from_reply(const Reply& reply, const RedisAddress& asked);

  bool empty() const { return masters_.empty(); }
  const RedisAddress* master_of(std::uint16_t slot) const;  // nullptr: nobody serves it
  void move(std::uint16_t slot, const RedisAddress& to);    // after MOVED
  const std::vector<RedisAddress>& masters() const { return masters_; }
  const std::vector<RedisAddress>& replicas() const { return replicas_; }

 private:
  std::uint16_t index_of(const RedisAddress& master);

  std::vector<RedisAddress> masters_, replicas_;
  std::vector<std::uint16_t> slots_;  // kRedisSlots indices into masters_, plus one; 0: nobody
};

}  // namespace quire::tiers
