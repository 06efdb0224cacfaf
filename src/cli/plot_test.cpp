#include "quire/cli/plot.h"

#include <gtest/gtest.h>

namespace quire::cli {
namespace {

const std::vector<Curve> kCurves = {{"rises", {{0, 0}, {1, 0.5}, {2, 1}}}, {"stays", {{0, 1}, {2, 1}}}};
const std::vector<Mark> kMarks = {{0, "1 G"}, {1, "2 G"}, {2, "4 G"}};

TEST(Plot, PointsStandWhereTheyBelong) {
  const Style style{.utf8 = false, .width = 25};
  EXPECT_EQ(plot(kCurves, kMarks, 1, style),
            "100.0% |x..............o\n"
            "       |             ..\n"
            "       |           ..\n"
            "       |          ..\n"
            " 63.6% |         ..\n"
            "       |        o\n"
            "       |      ..\n"
            "       |     ..\n"
            " 27.3% |    ..\n"
            "       |  ..\n"
            "       | ..\n"
            "  0.0% |o.\n"
            "       1 G     2 G    4 G\n"
            "        o rises\n"
            "        x stays\n");
}

TEST(Plot, ATerminalWithColoursShowsBraille) {
  const std::string text = plot(kCurves, kMarks, 1, {.utf8 = true, .colour = true, .width = 40});
  EXPECT_NE(text.find("\x1b[36m●\x1b[0m rises"), std::string::npos) << text;
  EXPECT_NE(text.find("\x1b[33m⠉"), std::string::npos) << text;
}

TEST(Plot, NothingToDrawIsNothing) { EXPECT_EQ(plot({}, {}, 1, {}), ""); }

}  // namespace
}  // namespace quire::cli
