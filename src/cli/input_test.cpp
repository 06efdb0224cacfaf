#include "quire/cli/input.h"

#include <string>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "quire/cli/cli_testing.h"
#include "quire/gguf/gguf_testing.h"

namespace quire::cli {
namespace {

using gguf::testing::TemporaryFolder;
using ::testing::HasSubstr;
using testing::write_file;

std::string refusal(const std::string& path, std::size_t limit = 100) {
  const auto text = read_input(path, limit);
  return text ? "(it was read)" : text.error().message;
}

TEST(Input, AFileIsReadToItsLastByte) {
  const TemporaryFolder folder;
  const std::string large(200000, 'x');
  write_file(folder / "large", large);
  EXPECT_EQ(read_input(folder / "large", large.size()).value(), large);
  write_file(folder / "empty", "");
  EXPECT_EQ(read_input(folder / "empty", 0).value(), "");
}

TEST(Input, MoreThanTheLimitIsRefused) {
  const TemporaryFolder folder;
  write_file(folder / "file", "12345");
  EXPECT_EQ(read_input(folder / "file", 5).value(), "12345");
  EXPECT_THAT(refusal(folder / "file", 4), HasSubstr("file: is larger than 4 bytes"));
  EXPECT_THAT(refusal("/dev/zero"), HasSubstr("/dev/zero: is larger than 100 bytes"));
}

TEST(Input, TextThatIsNotUtf8IsRefusedWithItsPlace) {
  const TemporaryFolder folder;
  write_file(folder / "utf8", "gr\u00f6\u00dfe\n");
  write_file(folder / "latin1", "gr\xF6\xDF\x65\n");
  EXPECT_EQ(read_text(folder / "utf8", 100).value(), "gr\u00f6\u00dfe\n");
  const auto refused = read_text(folder / "latin1", 100);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("latin1: the text is not UTF-8 at byte 2"));
  EXPECT_EQ(read_input(folder / "latin1", 100).value(), "gr\xF6\xDF\x65\n");
}

TEST(Input, WhatCannotBeReadIsNamed) {
  const TemporaryFolder folder;
  EXPECT_THAT(refusal(folder / "nothing"), HasSubstr("nothing: cannot be opened: No such file"));
  EXPECT_THAT(refusal(folder.path().string()), HasSubstr("is a directory"));
  EXPECT_THAT(refusal(folder / "a\x1b[2Jb"), HasSubstr("a\\x1b[2Jb: cannot be opened"));
  write_file(folder / "secret", "x");
  ASSERT_EQ(::chmod((folder / "secret").c_str(), 0), 0);
  if (::geteuid() != 0) {
    EXPECT_THAT(refusal(folder / "secret"), HasSubstr("Permission denied"));
  }
}

TEST(Input, APipeThatNobodyWritesToIsRefusedAtOnce) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal(folder / "pipe"), HasSubstr("is a pipe that nobody writes to"));
}

TEST(Input, APipeThatSomebodyWritesToIsReadToItsEnd) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  std::thread writer([&ends] {
    for (const std::string_view part : {"one ", "two ", "three"}) {
      ::usleep(2000);  // lets the reader find an empty pipe first; it must get everything either way
      EXPECT_EQ(::write(ends[1], part.data(), part.size()), static_cast<ssize_t>(part.size()));
    }
    ::close(ends[1]);
  });
  const auto text = read_input("/dev/fd/" + std::to_string(ends[0]), 100);
  writer.join();
  ::close(ends[0]);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(*text, "one two three");
}

TEST(Input, ADashIsCalledStandardInput) {
  EXPECT_EQ(input_name("-"), "standard input");
  EXPECT_EQ(input_name("./-"), "./-");
}

}  // namespace
}  // namespace quire::cli
