#include "quire/cli/interrupt.h"

#include <csignal>

#include <gtest/gtest.h>

namespace quire::cli {
namespace {

TEST(Interrupt, ASignalIsAFlagUntilItIsForgotten) {
  Interrupt interrupt;
  EXPECT_FALSE(interrupt.asked());
  ::raise(SIGINT);
  EXPECT_TRUE(interrupt.asked());
  interrupt.forget();
  EXPECT_FALSE(interrupt.asked());
  ::raise(SIGINT);
  EXPECT_TRUE(interrupt.asked());
}

TEST(InterruptDeathTest, ASecondSignalThatNobodyHasSeenEndsTheProgram) {
  const auto twice = [] {
    Interrupt interrupt;
    ::raise(SIGINT);
    ::raise(SIGINT);
  };
  EXPECT_EXIT(twice(), ::testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace quire::cli
