#include "quire/cli/line_reader.h"

#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace quire::cli {
namespace {

std::vector<std::string> lines_of(const std::vector<std::string>& pieces) {
  int pipe[2];
  EXPECT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  std::thread writer([&] {
    for (const std::string& piece : pieces) EXPECT_EQ(::write(pipe[1], piece.data(), piece.size()), std::ssize(piece));
    ::close(pipe[1]);
  });
  PipeReader reader(pipe[0]);
  std::vector<std::string> out;
  for (Line line = reader.read(); line.kind == Line::Kind::text; line = reader.read()) out.push_back(line.text);
  EXPECT_EQ(reader.read().kind, Line::Kind::end) << "an end is an end";
  writer.join();
  ::close(pipe[0]);
  return out;
}

TEST(PipeReader, GivesLinesHoweverTheyCome) {
  using ::testing::ElementsAre;
  EXPECT_THAT(lines_of({"a\nb\n"}), ElementsAre("a", "b"));
  EXPECT_THAT(lines_of({"a", "b\nc", "\n", "d"}), ElementsAre("ab", "c", "d"));
  EXPECT_THAT(lines_of({"\n\n"}), ElementsAre("", ""));
  EXPECT_THAT(lines_of({""}), ElementsAre());
}

TEST(PipeReader, CutsALineThatHasNoEnd) {
  const std::string endless(kMaxLineBytes + 10, 'x');
  const auto lines = lines_of({endless, "\nb\n"});
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].size(), kMaxLineBytes);
  EXPECT_EQ(lines[1], "xxxxxxxxxx");
  EXPECT_EQ(lines[2], "b");
}

TEST(HistoryPath, IsWhereTheDesktopsSpecificationSays) {
  const auto with = [](const char* state, const char* home) {
    state != nullptr ? ::setenv("XDG_STATE_HOME", state, 1) : ::unsetenv("XDG_STATE_HOME");
    home != nullptr ? ::setenv("HOME", home, 1) : ::unsetenv("HOME");
    return history_path();
  };
  EXPECT_EQ(with("/state", "/home/mia"), "/state/quire/history");
  EXPECT_EQ(with(nullptr, "/home/mia"), "/home/mia/.local/state/quire/history");
  EXPECT_EQ(with("", "/home/mia"), "/home/mia/.local/state/quire/history");
  EXPECT_EQ(with("relative", "/home/mia"), "/home/mia/.local/state/quire/history");
  EXPECT_EQ(with(nullptr, nullptr), "");
}

}  // namespace
}  // namespace quire::cli
