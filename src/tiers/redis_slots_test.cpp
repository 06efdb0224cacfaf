#include "quire/tiers/redis_slots.h"

namespace quire::tiers {
namespace {

Reply text(std::string value) { return {.kind = Reply::Kind::String, .text = std::move(value)}; }
Reply number(std::int64_t value) { return {.kind = Reply::Kind::Integer, .integer = value}; }
Reply list(std::vector<Reply> elements) { return {.kind = Reply::Kind::Array, .elements = std::move(elements)}; }
Reply node(std::string host, int port) { return list({text(std::move(host)), number(port), text("id"), list({})}); }

const RedisAddress kAsked{"10.0.0.9", 7009};

TEST(RedisSlots, TheCheckSumHasItsKnownValue) { EXPECT_EQ(crc16("123456789"), 0x31c3); }

TEST(RedisSlots, KeysHaveTheirKnownSlots) {
  EXPECT_EQ(slot_of("foo"), 12182);
  EXPECT_EQ(slot_of("bar"), 5061);
  EXPECT_EQ(slot_of("hello"), 866);
  EXPECT_EQ(slot_of(""), 0);
}

TEST(RedisSlots, OfAKeyWithATagOnlyTheTagCounts) {
  EXPECT_EQ(slot_of("{user1000}.following"), slot_of("user1000"));
  EXPECT_EQ(slot_of("foo{bar}{zap}"), slot_of("bar"));
  EXPECT_EQ(slot_of("foo{{bar}}zap"), slot_of("{bar"));
  EXPECT_EQ(slot_of("foo{}{bar}"), crc16("foo{}{bar}") % 16384);  // an empty tag is none
  EXPECT_EQ(slot_of("foo{bar"), crc16("foo{bar") % 16384);
}

TEST(RedisSlots, TheMapOfAClusterIsRead) {
  const Reply reply = list({list({number(0), number(5460), node("10.0.0.1", 7001), node("10.0.0.4", 7004)}),
                            list({number(5461), number(10922), node("", 7002)}),
                            list({number(10924), number(16383), node("10.0.0.1", 7001)})});
  auto map = SlotMap::from_reply(reply, kAsked);
  ASSERT_TRUE(map) << map.error().message;
  EXPECT_EQ(*map->master_of(0), (RedisAddress{"10.0.0.1", 7001}));
  EXPECT_EQ(*map->master_of(5461), (RedisAddress{"10.0.0.9", 7002}));
  EXPECT_EQ(map->master_of(10923), nullptr);
  EXPECT_EQ(*map->master_of(16383), (RedisAddress{"10.0.0.1", 7001}));
  EXPECT_EQ(map->masters().size(), 2u);
  EXPECT_THAT(map->replicas(), testing::ElementsAre(RedisAddress{"10.0.0.4", 7004}));
  map->move(0, {"10.0.0.7", 7007});
  EXPECT_EQ(*map->master_of(0), (RedisAddress{"10.0.0.7", 7007}));
  EXPECT_EQ(*map->master_of(1), (RedisAddress{"10.0.0.1", 7001}));
}

TEST(RedisSlots, AMapOfAnotherFormIsRefused) {
  for (const Reply& reply :
       {text("x"), list({number(1)}), list({list({number(0), number(1)})}),
        list({list({number(0), number(16384), node("a", 1)})}), list({list({number(-1), number(5), node("a", 1)})}),
        list({list({number(5), number(4), node("a", 1)})}), list({list({number(0), number(1), node("a", 0)})}),
        list({list({number(0), number(1), node("a", 70000)})}), list({list({number(0), number(1), list({text("a")})})}),
        list({list({number(0), number(1), list({number(1), number(1)})})})}) {
    EXPECT_FALSE(SlotMap::from_reply(reply, kAsked));
  }
}

TEST(RedisSlots, OneServerHasAllSlots) {
  const SlotMap map = SlotMap::single({"a", 1});
  EXPECT_EQ(*map.master_of(0), (RedisAddress{"a", 1}));
  EXPECT_EQ(*map.master_of(16383), (RedisAddress{"a", 1}));
  EXPECT_EQ(SlotMap().master_of(5), nullptr);
}

}  // namespace
}  // namespace quire::tiers
