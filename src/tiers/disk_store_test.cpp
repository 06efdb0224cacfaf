// The database of a disk tier by itself: what its index says is there while generations come and go.
#include "quire/tiers/disk_store.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include <gtest/gtest.h>
#include <rocksdb/env.h>
#include <rocksdb/slice.h>

#include "quire/tiers/disk_tier_testing.h"

namespace quire::tiers {
namespace {

using namespace testing;
using std::chrono::milliseconds;

constexpr std::size_t kBytes = 50'000;

class DiskStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto store = DiskStore::open(options_, rocksdb::Env::Default());
    ASSERT_TRUE(store) << store.error().message;
    store_ = std::move(*store);
  }
  static DiskStore::Clock::time_point soon() { return DiskStore::Clock::now() + milliseconds(500); }
  std::optional<DiskFault> put(std::uint64_t number) {
    DiskStore::Write write(*store_);
    if (!write.want(key_of(number), kBytes)) return {};
    if (auto fault = write.reserve(soon())) return fault;
    write.add(key_of(number), bytes_of_object(number, kBytes));
    return write.commit(soon());
  }
  TierOutcome get(std::uint64_t number) {
    rocksdb::PinnableSlice object;
    return store_->read(key_of(number), kBytes, object).outcome;
  }
  // As the keeper does it.
  void maintain() {
    const auto fault = store_->maintain(stop_);
    ASSERT_FALSE(fault) << fault->message;
  }
  // Until the next call of maintain() evicts.
  void fill() {
    while (!store_->wants_room()) {
      const auto fault = put(next_++);
      ASSERT_FALSE(fault) << fault->message;
    }
  }

  TemporaryDirectory directory_;
  DiskTierOptions options_ = small_options(directory_.path() / "cache");
  std::atomic<bool> stop_ = false;
  std::uint64_t next_ = 0;
  std::unique_ptr<DiskStore> store_;
};

// A put that has room waits for its bytes or for the disk, while others fill the cache.
TEST_F(DiskStoreTest, AGenerationIsNotEvictedWhileSomebodyWritesToIt) {
  constexpr std::uint64_t kSlow = 1'000'000;
  {
    DiskStore::Write slow(*store_);
    ASSERT_TRUE(slow.want(key_of(kSlow), kBytes));
    ASSERT_FALSE(slow.reserve(soon()));
    fill();
    maintain();
    EXPECT_EQ(store_->figures().evicted, 0u);
    EXPECT_TRUE(store_->wants_room()) << "it is tried again";
    slow.add(key_of(kSlow), bytes_of_object(kSlow, kBytes));
    const auto fault = slow.commit(soon());
    ASSERT_FALSE(fault) << fault->message;
  }
  EXPECT_EQ(get(kSlow), TierOutcome::Done);
  maintain();
  EXPECT_GT(store_->figures().evicted, 0u) << "now it can go";
  EXPECT_FALSE(store_->wants_room());
}

TEST_F(DiskStoreTest, WhatTheIndexHasCanBeReadAfterEvictions) {
  for (int round = 0; round < 8; ++round) {
    fill();
    maintain();
  }
  ASSERT_GT(store_->figures().evicted, 0u);
  std::uint64_t there = 0;
  for (std::uint64_t i = 0; i < next_; ++i) {
    const bool has = store_->has(key_of(i));
    there += has;
    EXPECT_EQ(get(i), has ? TierOutcome::Done : TierOutcome::Missing) << i;
  }
  EXPECT_EQ(there, store_->figures().objects);
  EXPECT_EQ(there + store_->figures().evicted, next_);
}

// Readers ask for the oldest objects all the time, which are those that are evicted. It is there or it is not.
TEST_F(DiskStoreTest, ReadersOfAGenerationThatIsEvictedHitOrMiss) {
  std::atomic<std::uint64_t> newest = 0, wrong = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      for (std::uint64_t oldest = 0; !stop_;) {
        while (oldest < newest && !store_->has(key_of(oldest))) ++oldest;
        for (std::uint64_t number = oldest; number < std::min(oldest + 40, newest.load()); ++number) {
          const TierOutcome outcome = get(number);
          wrong += outcome != TierOutcome::Done && outcome != TierOutcome::Missing;
        }
      }
    });
  }
  const std::atomic<bool> never = false;
  std::optional<DiskFault> fault;
  for (int round = 0; round < 8 && !fault; ++round) {
    fill();
    newest = next_;
    fault = store_->maintain(never);
  }
  stop_ = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_FALSE(fault) << fault->message;
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(store_->figures().evicted, 0u);
}

}  // namespace
}  // namespace quire::tiers
