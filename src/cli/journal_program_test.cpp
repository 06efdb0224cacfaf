// `quire serve --journal`, as a program: the journal of a server that has answered replays without a difference, and a
// full disk does not disturb the server.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/cli/serving_testing.h"

namespace quire::cli {
namespace {

using testing::call;
using ::testing::HasSubstr;
using testing::ServingProgram;
using testing::TemporaryFolder;

void expect_answers(const ServingProgram& server) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(server.ask("POST /v1/completions", R"({"prompt": "Once upon a time there was a", "max_tokens": 12})"),
                HasSubstr("200 OK"));
  }
}

TEST(Journal, OfAServerReplaysWithoutADifference) {
  const TemporaryFolder folder;
  const std::string path = folder / "pool.journal";
  ServingProgram server({"--journal", path});
  expect_answers(server);
  const std::string metrics = server.ask("GET /metrics");
  EXPECT_THAT(metrics, HasSubstr("\nquire_journal_failed 0\n"));
  EXPECT_EQ(metrics.find("\nquire_journal_records_total 0\n"), std::string::npos);
  EXPECT_EQ(server.stop(), 0) << server.log();
  const auto outcome = call({"replay", path});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("sequences   3\n"));
  EXPECT_THAT(outcome.out, HasSubstr("\nno difference\n"));
}

TEST(Journal, OnAFullDiskStopsAndTheServerGoesOn) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "there is no /dev/full";
  ServingProgram server({"--journal", "/dev/full"});
  expect_answers(server);
  std::string metrics;
  // It is written by a thread of its own.
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
       std::chrono::steady_clock::now() < end && metrics.find("\nquire_journal_failed 1\n") == std::string::npos;) {
    metrics = server.ask("GET /metrics");
  }
  EXPECT_THAT(metrics, HasSubstr("\nquire_journal_failed 1\n"));
  expect_answers(server);
  EXPECT_EQ(server.stop(), 0) << server.log();
  EXPECT_THAT(server.log(), HasSubstr("quire: /dev/full: the journal stops here: No space left on device\n"));
}

TEST(Journal, ThatCannotBeWrittenIsRefusedBeforeTheServerListens) {
  const auto outcome = call({"serve", "--port", "0", "--journal", "/nowhere/pool.journal"});
  testing::expect_refusal(outcome);
  EXPECT_THAT(outcome.err, HasSubstr("/nowhere/pool.journal"));
}

}  // namespace
}  // namespace quire::cli
