#include "quire/tiers/resp.h"

#include <cstring>
#include <random>

namespace quire::tiers {
namespace {

using testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// Parses the text in pieces of `step` bytes.
Result<std::optional<Reply>> parse(ReplyParser& parser, const std::string& text, std::size_t step) {
  for (std::size_t at = 0; at < text.size(); at += step) {
    auto piece = bytes_of(text).subspan(at, std::min(step, text.size() - at));
    auto reply = parser.parse(piece);
    if (!reply || *reply) return reply;
  }
  return std::nullopt;
}

Reply parsed(const std::string& text) {
  ReplyParser parser;
  parser.expect(std::nullopt);
  auto reply = parse(parser, text, text.size());
  EXPECT_TRUE(reply) << reply.error().message;
  EXPECT_TRUE(reply->has_value());
  return **reply;
}

TEST(Resp, CommandsAreArraysOfBulkStrings) {
  EXPECT_EQ(format_command({"GET", std::string_view("a\0b", 3)}), std::string("*2\r\n$3\r\nGET\r\n$3\r\na\0b\r\n", 22));
  const FramedCommand set = frame_command({"SET", "k"}, 5, {"EX", "60"});
  EXPECT_EQ(set.head + "value" + set.tail, format_command({"SET", "k", "value", "EX", "60"}));
  const FramedCommand plain = frame_command({"SET", "k"}, 0, {});
  EXPECT_EQ(plain.head + plain.tail, format_command({"SET", "k", ""}));
}

TEST(Resp, EveryKindOfReplyIsRead) {
  EXPECT_EQ(parsed("+OK\r\n").text, "OK");
  EXPECT_EQ(parsed("-ERR no\r\n").kind, Reply::Kind::Error);
  EXPECT_EQ(parsed(":-42\r\n").integer, -42);
  EXPECT_EQ(parsed("$-1\r\n").kind, Reply::Kind::Nil);
  EXPECT_EQ(parsed("$4\r\na\r\nb\r\n").text, "a\r\nb");
  EXPECT_EQ(parsed("*0\r\n").elements.size(), 0u);
  const Reply nested = parsed("*2\r\n*1\r\n:7\r\n$1\r\nx\r\n");
  ASSERT_EQ(nested.elements.size(), 2u);
  EXPECT_EQ(nested.elements[0].elements[0].integer, 7);
  EXPECT_EQ(nested.elements[1].text, "x");
}

TEST(Resp, RepliesMayComeInPiecesAndTogether) {
  const std::string text = "*2\r\n$3\r\na\nb\r\n:5\r\n+NEXT\r\n";
  for (std::size_t step = 1; step <= text.size(); ++step) {
    ReplyParser parser;
    std::vector<Reply> replies;
    for (std::size_t at = 0; at < text.size(); at += step) {
      auto piece = bytes_of(text).subspan(at, std::min(step, text.size() - at));
      while (!piece.empty()) {
        auto reply = parser.parse(piece);
        ASSERT_TRUE(reply) << reply.error().message;
        if (*reply) replies.push_back(std::move(**reply));
      }
    }
    ASSERT_EQ(replies.size(), 2u) << step;
    EXPECT_EQ(replies[0].elements[0].text, "a\nb");
    EXPECT_EQ(replies[1].text, "NEXT");
  }
}

TEST(Resp, APayloadGoesStraightToItsPlace) {
  const std::string text = "$10\r\n01234\r\n789\r\n";
  for (std::size_t step = 1; step <= text.size(); ++step) {
    std::array<std::byte, 4> first{};
    std::array<std::byte, 6> second{};
    ReplyParser parser;
    parser.expect(PayloadSink{first, second});
    auto reply = parse(parser, text, step);
    ASSERT_TRUE(reply && *reply) << step;
    EXPECT_EQ((*reply)->kind, Reply::Kind::Payload);
    EXPECT_TRUE((*reply)->whole);
    EXPECT_EQ(std::memcmp(first.data(), "0123", 4), 0);
    EXPECT_EQ(std::memcmp(second.data(), "4\r\n789", 6), 0);
  }
}

TEST(Resp, ThePlaceOfTheRestIsToldWhileAPayloadComes) {
  std::array<std::byte, 4> first{};
  std::array<std::byte, 6> second{};
  ReplyParser parser;
  parser.expect(PayloadSink{first, second});
  EXPECT_EQ(parser.direct().size(), 0u);
  ASSERT_FALSE(parse(parser, "$10\r\nab", 7)->has_value());
  EXPECT_EQ(parser.direct().first.data(), first.data() + 2);
  EXPECT_EQ(parser.direct().size(), 8u);
  parser.filled(5);
  EXPECT_TRUE(parser.direct().first.empty());
  EXPECT_EQ(parser.direct().second.data(), second.data() + 3);
  parser.filled(3);
  EXPECT_EQ(parser.direct().size(), 0u);
  auto reply = parse(parser, "\r\n", 2);
  ASSERT_TRUE(reply && *reply);
  EXPECT_TRUE((*reply)->whole);
}

TEST(Resp, APayloadOfAnotherLengthIsSkippedAndNothingIsOverwritten) {
  for (const std::string text : {"$3\r\nabc\r\n", "$12\r\nabcdefghijkl\r\n", "$0\r\n\r\n"}) {
    for (std::size_t step = 1; step <= text.size(); ++step) {
      std::array<std::byte, 4> first{};
      std::array<std::byte, 6> second{};
      ReplyParser parser;
      parser.expect(PayloadSink{first, second});
      auto reply = parse(parser, text, step);
      ASSERT_TRUE(reply && *reply) << text;
      EXPECT_FALSE((*reply)->whole);
      EXPECT_THAT(second, testing::Each(std::byte{0}));
      const std::string_view expected = text[1] == '3'   ? std::string_view("abc\0", 4)
                                        : text[1] == '1' ? std::string_view("abcd", 4)
                                                         : std::string_view("\0\0\0\0", 4);
      EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(first.data()), 4), expected);
    }
  }
}

TEST(Resp, WherePayloadsAreExpectedErrorsAndNothingAreReadToo) {
  std::array<std::byte, 4> place{};
  ReplyParser parser;
  parser.expect(PayloadSink{place, {}});
  EXPECT_EQ((*parse(parser, "$-1\r\n", 5))->kind, Reply::Kind::Nil);
  parser.expect(PayloadSink{place, {}});
  EXPECT_EQ((*parse(parser, "-MOVED 1 a:2\r\n", 3))->text, "MOVED 1 a:2");
}

TEST(Resp, WhatIsNotTheProtocolIsAnError) {
  for (const std::string text :
       {"hello\r\n", "$x\r\n", "$\r\n", "$-2\r\n", "$99999999999\r\n", "$12345678901234567890123456\r\n", "$2\r\nabXY",
        "$4\n", "$+4\r\n", "HTTP/1.1 400 Bad Request\r\n"}) {
    std::array<std::byte, 2> place{};
    ReplyParser parser;
    parser.expect(PayloadSink{place, {}});
    EXPECT_FALSE(parse(parser, text, text.size())) << text;
  }
  for (const std::string text : {"\x16\x03\x01\r\n", ":4x\r\n", "*-7\r\n", "*1\r\n?\r\n"}) {
    ReplyParser parser;
    EXPECT_FALSE(parse(parser, text, text.size())) << text;
  }
}

// Otherwise the rest of the line would be taken for the beginning of the next reply.
TEST(Resp, AStringWithoutItsEndOfLineIsAnErrorHoweverItComes) {
  for (const std::string text : {"$2\r\nidx!:1\r\n", "*1\r\n$2\r\nidx!:1\r\n", "$0\r\nab\r\n"}) {
    for (std::size_t step = 1; step <= text.size(); ++step) {
      ReplyParser parser;
      parser.expect(std::nullopt);
      const auto reply = parse(parser, text, step);
      ASSERT_FALSE(reply) << text << " in steps of " << step;
      EXPECT_THAT(reply.error().message, HasSubstr("no end of line behind a string"));
    }
  }
}

TEST(Resp, AReplyThatAnnouncesTooMuchIsAnErrorBeforeItsMemoryIsTaken) {
  ReplyParser many;
  EXPECT_FALSE(parse(many, "*2000000000\r\n", 100));
  std::string nested = "*1000\r\n";
  for (int i = 0; i < 1000; ++i) nested += "*1000\r\n";
  ReplyParser counted;
  EXPECT_FALSE(parse(counted, nested, nested.size()));
  ReplyParser deep;
  std::string tower;
  for (int i = 0; i < 100; ++i) tower += "*1\r\n";
  EXPECT_FALSE(parse(deep, tower, tower.size()));
  ReplyParser endless;
  EXPECT_FALSE(parse(endless, "+" + std::string(5 << 20, 'x'), 65536));
}

TEST(Resp, RandomBytesNeverDoMoreThanFail) {
  std::mt19937 random(7);
  const std::string letters = "$*+-:0123456789\r\n\r\nab";
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (unsigned i = 0; i < 40; ++i) text += letters[random() % letters.size()];
    std::array<std::byte, 8> place{};
    ReplyParser parser;
    parser.expect(round % 2 == 0 ? std::optional(PayloadSink{place, {}}) : std::nullopt);
    (void)parse(parser, text, 1 + random() % 40);
  }
}

TEST(Resp, ErrorsAreUnderstood) {
  const RedisError moved = understand_error("MOVED 3999 127.0.0.1:6381");
  EXPECT_EQ(moved.fault, RedisFault::Moved);
  EXPECT_EQ(moved.slot, 3999);
  EXPECT_EQ(moved.address, (RedisAddress{"127.0.0.1", 6381}));
  EXPECT_EQ(understand_error("ASK 1 ::1:7000").address, (RedisAddress{"::1", 7000}));
  EXPECT_EQ(understand_error("MOVED 1 :7000").address, (RedisAddress{"", 7000}));
  EXPECT_EQ(understand_error("OOM command not allowed").fault, RedisFault::NoRoom);
  EXPECT_EQ(understand_error("LOADING Redis is loading").fault, RedisFault::Loading);
  EXPECT_EQ(understand_error("READONLY You can't write").fault, RedisFault::ReadOnly);
  EXPECT_EQ(understand_error("NOAUTH Authentication required.").fault, RedisFault::NoAuth);
  EXPECT_EQ(understand_error("CLUSTERDOWN The cluster is down").fault, RedisFault::Down);
  for (const char* text : {"MOVED", "MOVED x a:1", "MOVED 16384 a:1", "MOVED 1", "MOVED 1 a", "ASK 5 a:b", "ERR", ""}) {
    EXPECT_EQ(understand_error(text).fault, RedisFault::Other) << text;
  }
}

TEST(Resp, WhatAServerSaysIsShownInOneShortLine) {
  EXPECT_EQ(printable("a\r\nb\x01\xff"), "a??b??");
  EXPECT_LT(printable(std::string(10000, 'x')).size(), 200u);
}

}  // namespace
}  // namespace quire::tiers
