#include "quire/cli/progress.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::cli {
namespace {

Style terminal(bool utf8, unsigned width) {
  Style style;
  style.terminal = true;
  style.utf8 = utf8;
  style.width = width;
  return style;
}

TEST(Progress, ShowsABarAndTakesItAway) {
  StringOutput out;
  {
    Progress progress(out, terminal(false, 30), "reading", {});
    progress.update(5, 10);
    EXPECT_EQ(out.text(), "\rreading #####......  50%");
  }
  EXPECT_EQ(out.text(), "\rreading #####......  50%\r" + std::string(29, ' ') + "\r");
}

TEST(Progress, NeedsNoMoreThanTheTerminalHas) {
  for (unsigned width = 12; width < 100; ++width) {
    StringOutput out;
    Progress progress(out, terminal(false, width), "reading", {});
    progress.update(10, 10);
    EXPECT_LE(out.text().size() - 1, std::max(width, 14u)) << width;
    EXPECT_THAT(out.text(), ::testing::EndsWith("100%"));
  }
}

TEST(Progress, IsSilentWhereNobodyLooks) {
  StringOutput out;
  {
    Progress progress(out, Style{}, "reading", {});
    progress.update(5, 10);
  }
  EXPECT_EQ(out.text(), "");
}

TEST(Progress, WhatIsQuickShowsNothingAndDrawingsAreFew) {
  StringOutput out;
  Progress quick(out, terminal(true, 80), "loading");
  for (int i = 0; i <= 100; ++i) quick.update(static_cast<std::uint64_t>(i), 100);
  EXPECT_EQ(out.text(), "");
  Progress slow(out, terminal(true, 80), "loading", {});
  for (int i = 0; i < 100; ++i) slow.update(static_cast<std::uint64_t>(i), 100);
  EXPECT_LE(std::ranges::count(out.text(), '%'), 20);
}

}  // namespace
}  // namespace quire::cli
