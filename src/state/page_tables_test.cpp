#include "quire/state/page_tables.h"

#include <gtest/gtest.h>

#include "quire/state/counting_device_testing.h"

namespace quire {
namespace {

constexpr std::uint64_t kEntry = sizeof(std::uint32_t);

class PageTablesTest : public ::testing::Test {
 protected:
  void sync() {
    ASSERT_TRUE(tables_.sync().has_value());
    device_.settle();
  }
  CountingDevice device_;
  PageTables tables_ = *PageTables::create(device_, 3, 8);
};

TEST_F(PageTablesTest, WhatChangedInAnyRowGoesUpInOneCall) {
  tables_.set(0, 0, 10);
  tables_.set(2, 1, 21);
  tables_.set(2, 2, 22);
  device_.reset_counts();
  sync();
  EXPECT_EQ(device_.counts().uploads, 1u);
  EXPECT_EQ(device_.counts().uploaded_bytes, 3 * kEntry);
  EXPECT_EQ(tables_.device_row(0)[0], 10u);
  EXPECT_EQ(tables_.device_row(2)[1], 21u);
  EXPECT_EQ(tables_.device_row(2)[2], 22u);
  EXPECT_EQ(tables_.host_row(2)[2], 22u);
  EXPECT_TRUE(tables_.in_step(0) && tables_.in_step(1) && tables_.in_step(2));
}

TEST_F(PageTablesTest, NothingChangedIsNoCall) {
  tables_.set(1, 4, 7);
  sync();
  device_.reset_counts();
  sync();
  EXPECT_EQ(device_.counts().uploads, 0u);
}

TEST_F(PageTablesTest, EntriesThatWereCutOffAreNotUploaded) {
  tables_.set(1, 0, 5);
  tables_.set(1, 1, 6);
  tables_.cut(1, 1);
  device_.reset_counts();
  sync();
  EXPECT_EQ(device_.counts().uploaded_bytes, kEntry);
  tables_.set(1, 3, 9);
  tables_.cut(1, 0);
  EXPECT_TRUE(tables_.in_step(1));
  device_.reset_counts();
  sync();
  EXPECT_EQ(device_.counts().uploads, 0u);
}

TEST_F(PageTablesTest, AfterARefusalTheNextSyncMendsTheMirror) {
  tables_.set(0, 3, 33);
  tables_.set(1, 0, 11);
  device_.fail_after(0);
  EXPECT_FALSE(tables_.sync().has_value());
  EXPECT_FALSE(tables_.in_step(0));
  sync();
  EXPECT_EQ(tables_.device_row(0)[3], 33u);
  EXPECT_EQ(tables_.device_row(1)[0], 11u);
}

TEST(PageTables, MoreChangesThanFitOneCallGoUpInSeveral) {
  CountingDevice device;
  PageTables tables = *PageTables::create(device, 40, 256);
  for (std::uint32_t row = 0; row < 40; ++row) {
    for (std::uint32_t block = 0; block < 256; ++block) tables.set(row, block, row * 1000 + block);
  }
  device.reset_counts();
  ASSERT_TRUE(tables.sync().has_value());
  device.settle();
  EXPECT_GT(device.counts().uploads, 1u);
  EXPECT_EQ(device.counts().uploaded_bytes, 40 * 256 * kEntry);
  for (std::uint32_t row = 0; row < 40; ++row) {
    for (std::uint32_t block = 0; block < 256; ++block) {
      ASSERT_EQ(tables.device_row(row)[block], row * 1000 + block);
    }
  }
}

}  // namespace
}  // namespace quire
