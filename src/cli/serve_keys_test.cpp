// `quire keys` and a running `quire serve --keys`: SIGHUP makes the server read the file again.
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/cli/serving_testing.h"

namespace quire::cli {
namespace {

using testing::call;
using testing::expect_refusal;
using ::testing::HasSubstr;
using testing::ServingProgram;
using testing::TemporaryFolder;

class Serving : public ServingProgram {
 public:
  explicit Serving(const std::string& keys) : ServingProgram({"--keys", keys}) {}

  // The status of GET /v1/models with this key.
  int status(const std::string& key) const {
    const std::string reply = ask("GET /v1/models", "", "Authorization: Bearer " + key + "\r\n");
    return reply.size() > 12 ? std::stoi(reply.substr(9, 3)) : 0;
  }
  // Waits until the log has this text so many times.
  ::testing::AssertionResult says(const std::string& text, std::size_t times = 1) const {
    for (int i = 0; i < 2000; ++i) {
      std::size_t found = 0;
      const std::string all = log();
      for (std::size_t at = 0; (at = all.find(text, at)) != std::string::npos; ++at) ++found;
      if (found >= times) return ::testing::AssertionSuccess();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return ::testing::AssertionFailure() << log();
  }
};

std::string added(const std::string& name, const std::string& path) {
  std::string key = call({"keys", "add", name, "--keys", path}).out;
  EXPECT_TRUE(key.ends_with('\n'));
  key.pop_back();
  return key;
}

TEST(ServeKeys, AHangUpReadsTheFileAgain) {
  const TemporaryFolder folder;
  const std::string path = folder / "keys.json";
  const std::string ann = added("ann", path);
  const Serving server(path);
  EXPECT_EQ(server.status(ann), 200);
  const std::string bob = added("bob", path);
  EXPECT_EQ(server.status(bob), 401);
  ASSERT_EQ(call({"keys", "revoke", "ann", "--keys", path}).exit_code, kSuccess);
  server.signal(SIGHUP);
  ASSERT_TRUE(server.says("read the keys"));
  EXPECT_EQ(server.status(ann), 401);
  EXPECT_EQ(server.status(bob), 200);

  testing::write_file(path, "{");
  server.signal(SIGHUP);
  ASSERT_TRUE(server.says("the keys stay as they were"));
  EXPECT_EQ(server.status(bob), 200);
}

TEST(ServeKeys, AFileThatIsMissingOrBadIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder / "keys.json";
  expect_refusal(call({"serve", "--port", "0", "--keys", path}));
  testing::write_file(path, R"({"next_id": 1, "keys": [], "extra": 1})");
  const auto outcome = call({"serve", "--port", "0", "--keys", path});
  expect_refusal(outcome);
  EXPECT_THAT(outcome.err, HasSubstr("there is no field 'extra'"));
}

}  // namespace
}  // namespace quire::cli
