#include "quire/cli/report_page.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/bench/report.h"
#include "quire/cli/cli_testing.h"
#include "quire/gguf/gguf_testing.h"

namespace quire::cli {
namespace {

using bench::kReportBegin;
using bench::kReportEnd;
using bench::with_report;
using gguf::testing::TemporaryFolder;
using ::testing::HasSubstr;
using testing::read_file;
using testing::write_file;

const std::string kPage =
    std::string("# Before\n\n").append(kReportBegin).append("\n\nold\n\n").append(kReportEnd).append("\n\nAfter.\n");

TEST(ReportPage, IsWrittenToThePage) {
  const TemporaryFolder folder;
  const std::string path = folder / "page.md";
  write_file(path, kPage);
  ASSERT_TRUE(check_report_page(path).has_value());
  EXPECT_EQ(read_file(path), kPage) << "to look changes nothing";
  for (int twice = 0; twice < 2; ++twice) {
    const auto ok = write_report_page(path, "| new |\n");
    ASSERT_TRUE(ok.has_value()) << ok.error().message;
    EXPECT_EQ(read_file(path), *with_report(kPage, "| new |\n"));
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << "nothing else is left there";
}

TEST(ReportPage, APageThatCannotTakeItIsNamedAndLeftAsItIs) {
  const TemporaryFolder folder;
  const std::string path = folder / "page.md";
  EXPECT_THAT(check_report_page(path).error().message, HasSubstr("page.md: cannot be opened"));
  write_file(path, "no room\n");
  EXPECT_THAT(check_report_page(path).error().message, HasSubstr("page.md: there is no line '<!-- bench: begin"));
  EXPECT_FALSE(write_report_page(path, "new\n").has_value());
  EXPECT_EQ(read_file(path), "no room\n");
}

TEST(ReportPage, ThePageOfTheProjectHasRoomForIt) {
  const auto ok = check_report_page(QUIRE_SOURCE_DIR "/docs/performance.md");
  EXPECT_TRUE(ok.has_value()) << ok.error().message;
}

}  // namespace
}  // namespace quire::cli
