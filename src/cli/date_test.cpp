#include "quire/cli/date.h"

#include <gtest/gtest.h>

namespace quire::cli {
namespace {

using namespace std::chrono_literals;
using std::chrono::local_days;
using std::chrono::local_seconds;

constexpr local_seconds kDay = local_days(std::chrono::year(2024) / 7 / 26);

TEST(Date, ADayIsItsMidnight) {
  EXPECT_EQ(parse_date("2024-07-26"), kDay);
  EXPECT_EQ(parse_date("2024-02-29"), local_days(std::chrono::year(2024) / 2 / 29));
  EXPECT_EQ(parse_date("0001-01-01"), local_days(std::chrono::year(1) / 1 / 1));
}

TEST(Date, ATimeOfDayMayFollow) {
  EXPECT_EQ(parse_date("2024-07-26T09:30"), kDay + 9h + 30min);
  EXPECT_EQ(parse_date("2024-07-26 09:30:15"), kDay + 9h + 30min + 15s);
  EXPECT_EQ(parse_date("2024-07-26T23:59:59"), kDay + 24h - 1s);
}

TEST(Date, FractionsAndZonesChangeNothing) {
  EXPECT_EQ(parse_date("2024-07-26T09:30:15.123456"), kDay + 9h + 30min + 15s);
  EXPECT_EQ(parse_date("2024-07-26T09:30:15Z"), kDay + 9h + 30min + 15s);
  EXPECT_EQ(parse_date("2024-07-26T09:30:15+02:00"), kDay + 9h + 30min + 15s);
  EXPECT_EQ(parse_date("2024-07-26T09:30-0700"), kDay + 9h + 30min);
}

TEST(Date, WhatIsNoDateIsNone) {
  for (const char* text : {"",
                           "today",
                           "2024",
                           "2024-07",
                           "2024-7-26",
                           "24-07-26",
                           "2024-13-01",
                           "2024-00-10",
                           "2024-02-30",
                           "2023-02-29",
                           "0000-01-01",
                           "2024-07-26T",
                           "2024-07-26T9:30",
                           "2024-07-26T24:00",
                           "2024-07-26T09:60",
                           "2024-07-26T09:30:60",
                           "2024-07-26T09:30:15.",
                           "2024-07-26T09:30+2",
                           "2024-07-26 ",
                           " 2024-07-26",
                           "2024-07-26x",
                           "-024-07-26",
                           "2024/07/26",
                           "20240726"}) {
    EXPECT_EQ(parse_date(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace quire::cli
