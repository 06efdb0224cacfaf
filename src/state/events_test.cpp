// The stream of what happened in a pool.
#include "quire/state/events.h"

#include <array>

#include <gtest/gtest.h>

namespace quire {
namespace {

using Kind = PoolEvent::Kind;

TEST(EventLog, EventsAreReadOldestFirstWithEverythingThatWasRecorded) {
  EventLog log(8);
  log.record(Kind::PageTaken, 1, 10);
  log.record(Kind::PageCopied, 2, 11, 12);
  std::array<PoolEvent, 8> out;
  const auto read = log.read(0, out);
  EXPECT_EQ(read.lost, 0u);
  EXPECT_EQ(read.cursor, 2u);
  ASSERT_EQ(read.count, 2u);
  EXPECT_EQ(out[0].kind, Kind::PageTaken);
  EXPECT_EQ(out[0].group, 1u);
  EXPECT_EQ(out[0].object, 10u);
  EXPECT_EQ(out[0].detail, 0u);
  EXPECT_EQ(out[1].kind, Kind::PageCopied);
  EXPECT_EQ(out[1].group, 2u);
  EXPECT_EQ(out[1].object, 11u);
  EXPECT_EQ(out[1].detail, 12u);
}

TEST(EventLog, ReadingGoesOnWhereItStopped) {
  EventLog log(8);
  for (std::uint32_t i = 0; i < 5; ++i) log.record(Kind::PageTaken, 0, i);
  std::array<PoolEvent, 3> out;
  auto read = log.read(0, out);
  EXPECT_EQ(read.count, 3u);
  EXPECT_EQ(out[2].object, 2u);
  read = log.read(read.cursor, out);
  EXPECT_EQ(read.count, 2u);
  EXPECT_EQ(read.lost, 0u);
  EXPECT_EQ(out[0].object, 3u);
  EXPECT_EQ(out[1].object, 4u);
  read = log.read(read.cursor, out);
  EXPECT_EQ(read.count, 0u);
  EXPECT_EQ(read.cursor, 5u);
}

TEST(EventLog, ASlowReaderIsToldHowManyEventsItLost) {
  EventLog log(4);
  for (std::uint32_t i = 0; i < 10; ++i) log.record(Kind::PageTaken, 0, i);
  std::array<PoolEvent, 8> out;
  const auto read = log.read(1, out);
  EXPECT_EQ(read.lost, 5u);
  ASSERT_EQ(read.count, 4u);
  EXPECT_EQ(out[0].object, 6u);
  EXPECT_EQ(out[3].object, 9u);
  EXPECT_EQ(read.cursor, 10u);
  EXPECT_EQ(log.read(read.cursor, out).lost, 0u);
}

TEST(EventLog, TheCapacityIsRoundedUpToAPowerOfTwo) {
  EventLog log(5);
  for (std::uint32_t i = 0; i < 8; ++i) log.record(Kind::PageTaken, 0, i);
  std::array<PoolEvent, 8> out;
  const auto read = log.read(0, out);
  EXPECT_EQ(read.lost, 0u);
  EXPECT_EQ(read.count, 8u);
}

TEST(EventLog, ALogOfNoCapacityOnlyCounts) {
  EventLog log(0);
  for (std::uint32_t i = 0; i < 3; ++i) log.record(Kind::PageTaken, 0, i);
  EXPECT_EQ(log.written(), 3u);
  std::array<PoolEvent, 8> out;
  const auto read = log.read(0, out);
  EXPECT_EQ(read.lost, 3u);
  EXPECT_EQ(read.count, 0u);
  EXPECT_EQ(read.cursor, 3u);
}

TEST(EventLog, ACursorFromTheFutureReadsNothingUntilSomethingHappens) {
  EventLog log(4);
  log.record(Kind::PageTaken, 0, 1);
  std::array<PoolEvent, 4> out;
  auto read = log.read(100, out);
  EXPECT_EQ(read.count, 0u);
  EXPECT_EQ(read.cursor, 1u);
  log.record(Kind::PageFreed, 0, 1);
  read = log.read(read.cursor, out);
  ASSERT_EQ(read.count, 1u);
  EXPECT_EQ(out[0].kind, Kind::PageFreed);
}

}  // namespace
}  // namespace quire
