#include "quire/server/response_store.h"

#include <string>

#include <gtest/gtest.h>

namespace quire::server {
namespace {

using namespace std::chrono_literals;

StoredResponse response(std::string id, std::size_t bytes = 1000, StoredResponseRef previous = nullptr) {
  StoredResponse out;
  out.id = std::move(id);
  out.previous = std::move(previous);
  out.response = std::string(bytes, 'x');
  return out;
}

TEST(ResponseStore, ATenantSeesItsOwnAlone) {
  ResponseStore store({});
  store.keep(1, response("a"));
  EXPECT_NE(store.find(1, "a"), nullptr);
  EXPECT_EQ(store.find(2, "a"), nullptr);
  EXPECT_FALSE(store.erase(2, "a"));
  EXPECT_TRUE(store.erase(1, "a"));
  EXPECT_EQ(store.find(1, "a"), nullptr);
  EXPECT_EQ(store.count().bytes, 0u);
}

TEST(ResponseStore, TheLeastRecentlyUsedMakesRoomForItsTenantOnly) {
  ResponseStore store({.bytes = 5000});
  store.keep(2, response("other", 3000));
  for (const char* id : {"a", "b", "c"}) store.keep(1, response(id));
  EXPECT_NE(store.find(1, "a"), nullptr);
  store.keep(1, response("d"));
  EXPECT_EQ(store.find(1, "b"), nullptr) << "a was used after it";
  for (const char* id : {"a", "c", "d"}) EXPECT_NE(store.find(1, id), nullptr) << id;
  EXPECT_NE(store.find(2, "other"), nullptr);
  store.keep(1, response("too large", 6000));
  EXPECT_EQ(store.find(1, "too large"), nullptr);
  EXPECT_NE(store.find(1, "a"), nullptr) << "nothing went for it";
}

TEST(ResponseStore, WhatIsOldIsForgotten) {
  ResponseStore store({.age = 10s});
  const auto now = ResponseStore::Clock::now();
  store.keep(1, response("a"), now);
  store.keep(1, response("b"), now);
  EXPECT_NE(store.find(1, "a", now + 8s), nullptr);
  EXPECT_EQ(store.find(1, "b", now + 15s), nullptr);
  EXPECT_NE(store.find(1, "a", now + 15s), nullptr);
  EXPECT_EQ(store.find(1, "a", now + 26s), nullptr);
  EXPECT_EQ(store.count().responses, 0u);
}

TEST(ResponseStore, WhatAResponseContinuesIsThereAsLongAsItIs) {
  ResponseStore store({.bytes = 20'000});
  store.keep(1, response("a"));
  store.keep(1, response("b", 1000, store.find(1, "a")));
  EXPECT_TRUE(store.erase(1, "a"));
  const auto b = store.find(1, "b");
  ASSERT_NE(b->previous, nullptr);
  EXPECT_EQ(b->previous->id, "a");
  EXPECT_GT(store.count().bytes, 2000u) << "it is counted";
}

// A conversation without an end, and others beside it.
TEST(ResponseStore, AChainStaysWithinTheBytes) {
  ResponseStore store({.bytes = 50'000});
  StoredResponseRef last;
  for (int i = 0; i < 200; ++i) {
    store.keep(1, response("r" + std::to_string(i), 1000, last));
    last = store.find(1, "r" + std::to_string(i));
    EXPECT_LE(store.count().bytes, 50'000u);
    if (!last) break;
  }
  EXPECT_EQ(last, nullptr) << "at some point it is too long to be kept";
  store.keep(1, response("new"));
  EXPECT_NE(store.find(1, "new"), nullptr);
}

TEST(ResponseStore, ALongChainGoesWithoutRecursion) {
  ResponseStore store({.bytes = std::uint64_t{1} << 40});
  StoredResponseRef last;
  for (int i = 0; i < 200'000; ++i) {
    const std::string id = std::to_string(i);
    store.keep(1, response(id, 1, last));
    last = store.find(1, id);
    if (i > 0) store.erase(1, std::to_string(i - 1));
  }
  last.reset();
  EXPECT_TRUE(store.erase(1, "199999"));
  EXPECT_EQ(store.count().bytes, 0u);
}

TEST(ResponseStore, WithoutBytesNothingIsKept) {
  ResponseStore store({.bytes = 0});
  store.keep(1, response("a"));
  EXPECT_EQ(store.find(1, "a"), nullptr);
}

}  // namespace
}  // namespace quire::server
