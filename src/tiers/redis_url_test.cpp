#include "quire/tiers/redis_url.h"

namespace quire::tiers {
namespace {

using testing::HasSubstr;

std::string problem(std::string_view text) {
  auto url = parse_redis_url(text);
  return url ? "" : url.error().message;
}

TEST(RedisUrl, OneHostIsEnough) {
  auto url = parse_redis_url("redis://cache");
  ASSERT_TRUE(url) << url.error().message;
  EXPECT_FALSE(url->tls);
  EXPECT_THAT(url->hosts, testing::ElementsAre(RedisAddress{"cache", 6379}));
  EXPECT_EQ(url->prefix, "quire");
  EXPECT_EQ(url->expire, std::chrono::hours(168));
  EXPECT_EQ(url->timeout, std::chrono::seconds(1));
  EXPECT_EQ(url->part, 8u << 20);
  EXPECT_EQ(url->cluster, RedisUrl::Cluster::Auto);
}

TEST(RedisUrl, EveryPartIsRead) {
  auto url = parse_redis_url(
      "rediss://me:p%40ss%2f:x@a:1,[::1]:7000,10.0.0.3/5?cluster=no&prefix=my%20app&expire=12h&timeout=250ms&part=512K"
      "&ca=/etc/ca.pem&insecure=yes");
  ASSERT_TRUE(url) << url.error().message;
  EXPECT_TRUE(url->tls);
  EXPECT_EQ(url->user, "me");
  EXPECT_EQ(url->password, "p@ss/:x");
  EXPECT_THAT(url->hosts,
              testing::ElementsAre(RedisAddress{"a", 1}, RedisAddress{"::1", 7000}, RedisAddress{"10.0.0.3", 6379}));
  EXPECT_EQ(url->db, 5u);
  EXPECT_EQ(url->cluster, RedisUrl::Cluster::No);
  EXPECT_EQ(url->prefix, "my app");
  EXPECT_EQ(url->expire, std::chrono::hours(12));
  EXPECT_EQ(url->timeout, std::chrono::milliseconds(250));
  EXPECT_EQ(url->part, 512u << 10);
  EXPECT_EQ(url->ca, "/etc/ca.pem");
  EXPECT_TRUE(url->insecure);
}

TEST(RedisUrl, ADescriptionHasNoPasswordAndReadsBack) {
  auto url = parse_redis_url("rediss://me:secret@a:1,[::1]:7000?cluster=yes&expire=0&timeout=0.5&part=1M&insecure=yes");
  ASSERT_TRUE(url) << url.error().message;
  const std::string text = describe(*url);
  EXPECT_EQ(text, "rediss://a:1,[::1]:7000?cluster=yes&expire=0s&timeout=500ms&part=1048576&insecure=yes");
  auto again = parse_redis_url(text);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(describe(*again), text);
}

TEST(RedisUrl, WhatIsWrongIsNamedInOneLine) {
  EXPECT_THAT(problem("http://cache"), HasSubstr("redis:// or rediss://"));
  EXPECT_THAT(problem("redis://"), HasSubstr("no host"));
  EXPECT_THAT(problem("redis://a,,b"), HasSubstr("no host"));
  EXPECT_THAT(problem("redis://a:0"), HasSubstr("'0' is not a port"));
  EXPECT_THAT(problem("redis://a:70000"), HasSubstr("'70000' is not a port"));
  EXPECT_THAT(problem("redis://a:12x"), HasSubstr("'12x' is not a port"));
  EXPECT_THAT(problem("redis://[::1"), HasSubstr("no ']'"));
  EXPECT_THAT(problem("redis://[::1]x"), HasSubstr("after ']'"));
  EXPECT_THAT(problem("redis://a/x"), HasSubstr("'/x'"));
  EXPECT_THAT(problem("redis://a?speed=1"), HasSubstr("unknown option 'speed'"));
  EXPECT_THAT(problem("redis://a?cluster=maybe"), HasSubstr("cluster=maybe"));
  EXPECT_THAT(problem("redis://a?expire=soon"), HasSubstr("expire=soon"));
  EXPECT_THAT(problem("redis://a?expire=-1"), HasSubstr("expire=-1"));
  EXPECT_THAT(problem("redis://a?expire=nan"), HasSubstr("expire=nan"));
  EXPECT_THAT(problem("redis://a?timeout=0"), HasSubstr("timeout=0"));
  EXPECT_THAT(problem("redis://a?part=1"), HasSubstr("part=1"));
  EXPECT_THAT(problem("redis://a?part=99999999999999999999M"), HasSubstr("part="));
  EXPECT_THAT(problem("redis://a?prefix="), HasSubstr("prefix="));
  EXPECT_THAT(problem("redis://a?prefix={x}"), HasSubstr("without braces"));
  EXPECT_THAT(problem("redis://a?prefix=%4"), HasSubstr("two hex digits"));
  EXPECT_THAT(problem("redis://a?ca=x"), HasSubstr("rediss://"));
  EXPECT_THAT(problem("redis://a/3?cluster=yes"), HasSubstr("no databases"));
}

TEST(RedisUrl, AnErrorDoesNotRepeatThePassword) {
  for (const char* text :
       {"redis://me:secret@a:0", "redis://secret@a", "redis://me:secret%@a", "xredis://me:secret@a"}) {
    EXPECT_NE(problem(text), "") << text;
    EXPECT_THAT(problem(text), testing::Not(HasSubstr("secret"))) << text;
  }
}

TEST(RedisUrl, RedirectsHaveABareIPv6Host) {
  EXPECT_EQ(parse_redirect_address("10.1.2.3:7001").value(), (RedisAddress{"10.1.2.3", 7001}));
  EXPECT_EQ(parse_redirect_address("::1:7001").value(), (RedisAddress{"::1", 7001}));
  EXPECT_EQ(parse_redirect_address(":7001").value(), (RedisAddress{"", 7001}));
  EXPECT_FALSE(parse_redirect_address("nowhere"));
  EXPECT_EQ(to_text(RedisAddress{"::1", 7001}), "[::1]:7001");
}

}  // namespace
}  // namespace quire::tiers
