// `quire replay`, called in this process.
#include <string>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/cli/program_testing.h"
#include "quire/cli/replay.h"
#include "quire/journal/journal_testing.h"

namespace quire::cli {
namespace {

using journal::testing::MemoryJournal;
using ::testing::AllOf;
using testing::call;
using testing::expect_refusal;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

// The journal of two requests. The second reuses the prompt of the first.
class ReplayCommand : public ::testing::Test {
 protected:
  ReplayCommand() {
    const LayerDesc layers[] = {LayerDesc::attention(1, 16)};
    PoolConfig config{.layout = *StateLayout::from_layers(layers, 16), .max_sequences = 4, .max_tokens = 128};
    config.budget_bytes = 32 * config.layout.groups[0].page_bytes();
    config.journal = &journal_;
    HostDevice device;
    const auto pool = *SequencePool::create(device, config);
    const std::vector<Token> prompt(48, 7);
    for (int i = 0; i < 2; ++i) {
      const auto created = *pool->create({.prompt = prompt});
      const auto rest = std::span(prompt).subspan(created.hit.tokens);
      EXPECT_TRUE(pool->reserve(created.id, static_cast<std::uint32_t>(rest.size())));
      EXPECT_TRUE(pool->commit(created.id, rest));
      EXPECT_TRUE(pool->release(created.id));
    }
  }
  std::string write(const std::string& bytes) {
    const std::string path = folder_ / "pool.journal";
    testing::write_file(path, bytes);
    return path;
  }
  TemporaryFolder folder_;
  MemoryJournal journal_;
};

TEST_F(ReplayCommand, SaysWhatWasDoneAndThatThereIsNoDifference) {
  const auto outcome = call({"replay", write(journal_.file())});
  EXPECT_EQ(outcome.exit_code, kSuccess);
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("4 sequences of 128 tokens"), HasSubstr("records     8 ("),
                                 HasSubstr("create                  2\n"), HasSubstr("sequences   2\n"),
                                 HasSubstr("96 in prompts, 47 of them reused (49.0 %), 49 computed")));
  EXPECT_TRUE(outcome.out.ends_with("\nno difference\n")) << outcome.out;
}

TEST_F(ReplayCommand, PrintsJson) {
  const std::string path = write(journal_.file());
  const auto outcome = call({"replay", path, "--json"});
  EXPECT_EQ(outcome.exit_code, kSuccess);
  const auto said = boost::json::parse(outcome.out).as_object();
  EXPECT_EQ(said.at("file").as_string(), path);
  EXPECT_EQ(said.at("records").as_int64(), 8);
  EXPECT_EQ(said.at("operations").at("commit").as_int64(), 2);
  EXPECT_EQ(said.at("hit_tokens").as_int64(), 47);
  EXPECT_TRUE(said.at("difference").is_null());
  EXPECT_TRUE(said.at("damage").is_null());
}

TEST_F(ReplayCommand, FailsAtTheFirstRecordThatDiffers) {
  journal_.operations[4].operation.hit.tokens = 32;
  journal_.operations[4].operation.hit.matched = 32;
  const std::string path = write(journal_.file());
  auto outcome = call({"replay", path});
  EXPECT_EQ(outcome.exit_code, kFailure);
  EXPECT_THAT(outcome.out, HasSubstr("records     5 ("));
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr(path + ": record 5 at byte"), HasSubstr("create(48 tokens, namespace 0)"),
                    HasSubstr("the pool said: 32 of 32 known tokens reused"), HasSubstr("reference model: 47 of 47")));
  outcome = call({"replay", path, "--json"});
  EXPECT_EQ(outcome.exit_code, kFailure);
  const auto found = boost::json::parse(outcome.out).at("difference").as_object();
  EXPECT_EQ(found.at("record").as_int64(), 5);
  EXPECT_EQ(found.at("operation").as_string(), "create(48 tokens, namespace 0)");
}

TEST_F(ReplayCommand, FailsAtADamagedRecordAndAtAnIncompleteOne) {
  std::vector<std::size_t> ends;
  std::string file = journal_.file(&ends);
  const auto cut = call({"replay", write(file.substr(0, file.size() - 1))});
  EXPECT_EQ(cut.exit_code, kFailure);
  EXPECT_THAT(cut.err,
              AllOf(HasSubstr("record 8 at byte"), HasSubstr("incomplete"), HasSubstr("no difference before")));
  file[ends[2] + 3] = static_cast<char>(file[ends[2] + 3] ^ 4);
  const std::string path = write(file);
  const auto damaged = call({"replay", path});
  EXPECT_EQ(damaged.exit_code, kFailure);
  EXPECT_THAT(damaged.err, HasSubstr("record 3 at byte " + std::to_string(ends[2]) + " is damaged: its checksum"));
  const auto found = boost::json::parse(call({"replay", path, "--json"}).out).at("damage").as_object();
  EXPECT_EQ(found.at("record").as_int64(), 3);
  EXPECT_EQ(found.at("offset").as_int64(), static_cast<std::int64_t>(ends[2]));
  EXPECT_FALSE(found.at("truncated").as_bool());
}

TEST_F(ReplayCommand, RefusesWhatIsNoJournal) {
  expect_refusal(call({"replay"}), kUsage);
  expect_refusal(call({"replay", folder_ / "absent"}));
  expect_refusal(call({"replay", folder_ / ""}));
  const auto other = call({"replay", write("GGUF and so on")});
  expect_refusal(other);
  EXPECT_THAT(other.err, HasSubstr("this is not a journal"));
}

}  // namespace
}  // namespace quire::cli
