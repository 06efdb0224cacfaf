// `quire session`, called in this process.
#include <filesystem>
#include <string>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/cli/cli_testing.h"
#include "quire/cli/session.h"

namespace quire::cli {
namespace {

namespace json = boost::json;
using testing::call;
using testing::demo_model;
using testing::expect_refusal;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::read_file;
using testing::write_file;

constexpr const char* kText =
    "Once upon a time there was a grumpy boy named Oscar. Oscar lived near the harbour. Oscar wanted to bring plums to "
    "a";

class SessionCommand : public ::testing::Test {
 protected:
  SessionCommand() {
    std::string name = (std::filesystem::temp_directory_path() / "quire-session-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~SessionCommand() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& name = "s.qs") const { return folder_ + "/" + name; }
  static std::string text(const std::vector<std::string>& arguments) {
    const Outcome ran = call(arguments);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return ran.out;
  }

  std::string folder_;
};

TEST_F(SessionCommand, LoadGoesOnAsRunDoesAndComputesAlmostNothing) {
  for (const char* model : {"llama", "hybrid", "mamba2"}) {
    const std::string path = demo_model(model);
    const Outcome saved = call({"session", "save", file(), kText, "-m", path, "--ctx", "256"});
    ASSERT_EQ(saved.exit_code, 0) << saved.err;
    for (const std::vector<std::string>& how : {std::vector<std::string>{"--temp", "0"},
                                                {"--seed", "7", "--temp", "1.2"},
                                                {"--regex", "[a-z ]{9}", "-s", "3"}}) {
      std::vector<std::string> run = {"run", "-m", path, "-p", kText, "-n", "24"};
      std::vector<std::string> load = {"session", "load", file(), "-m", path, "-n", "24"};
      run.insert(run.end(), how.begin(), how.end());
      load.insert(load.end(), how.begin(), how.end());
      EXPECT_EQ(text(load), text(run)) << model;
      load.emplace_back("--json");
      const json::value answer = json::parse(text(load));
      EXPECT_LT(answer.at("prefill").at("tokens").to_number<int>(), 17) << model;
    }
  }
}

TEST_F(SessionCommand, InfoShowsTheSectionsAndNeedsNoModel) {
  write_file(file("story.txt"), std::string(kText) + "\n");
  const json::value saved = json::parse(text({"session", "save", file(), "-f", file("story.txt"), "--json"}));
  const std::string shown = text({"session", "info", file()});
  EXPECT_THAT(shown, HasSubstr("version     1\n"));
  EXPECT_THAT(shown, HasSubstr("all checksums right\n"));
  EXPECT_THAT(shown, HasSubstr("pages of group 0"));
  const json::value info = json::parse(text({"session", "info", file(), "--json"}));
  EXPECT_EQ(info.at("tokens"), saved.at("tokens"));
  EXPECT_EQ(info.at("computed"), saved.at("computed"));
  EXPECT_EQ(info.at("bytes").to_number<std::uint64_t>(), std::filesystem::file_size(file()));
  EXPECT_EQ(info.at("sections").at(0).at("what"), "tokens");
}

TEST_F(SessionCommand, AFileThatIsDamagedOrOfAnotherModelIsRefusedByName) {
  ASSERT_EQ(call({"session", "save", file(), kText}).exit_code, 0);
  std::string bytes = read_file(file());
  bytes[bytes.size() / 2] ^= 1;
  write_file(file("bad"), bytes);
  for (const char* action : {"info", "load"}) {
    const Outcome bad = call({"session", action, file("bad")});
    expect_refusal(bad);
    EXPECT_THAT(bad.err, HasSubstr(file("bad") + " is damaged: the checksum of its "));
    const Outcome none = call({"session", action, file("none")});
    expect_refusal(none);
    EXPECT_THAT(none.err, HasSubstr("none cannot be opened: No such file or directory"));
  }
  const Outcome other = call({"session", "load", file(), "--kv-type", "f32"});
  expect_refusal(other);
  EXPECT_THAT(other.err, HasSubstr("was made with another "));
  EXPECT_THAT(other.err, HasSubstr(", and this one's "));
}

TEST_F(SessionCommand, ATextBelongsToSaveOnly) {
  EXPECT_EQ(call({"session", "save", file()}).exit_code, 2);
  EXPECT_EQ(call({"session", "info", file(), "text"}).exit_code, 2);
  EXPECT_EQ(call({"session", "keep", file()}).exit_code, 2);
  const Outcome nowhere = call({"session", "save", file("no/folder/here"), kText});
  expect_refusal(nowhere);
  EXPECT_THAT(nowhere.err, HasSubstr("cannot be written: No such file or directory"));
}

}  // namespace
}  // namespace quire::cli
