// Sessions of every kind of model, through a file into another pool.
#include "quire/session/session_state.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "quire/session/session_file.h"
#include "quire/session/session_testing.h"
#include "quire/state/pool_behaviour_testing.h"

namespace quire::session::testing {
namespace {

using namespace quire::testing;

// A folder of the test's own, removed at its end.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "quire-session-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator()));
  }

 private:
  std::string path_;
};

struct Kind {
  const char* name;
  ToyModel model;
};
class Sessions : public ::testing::TestWithParam<Kind> {
 protected:
  static PoolConfig config(std::uint64_t model = 1) {
    PoolConfig config = pool_of(GetParam().model, 1 << 18);
    config.model = {{model, 2, 3, 4}};
    config.checkpoint_unit = 4;
    config.checkpoint_interval = 8;
    return config;
  }
};
INSTANTIATE_TEST_SUITE_P(Models, Sessions,
                         ::testing::Values(Kind{"Attention", ToyModel::attention()},
                                           Kind{"LargeBlocks", ToyModel::attention(16)},
                                           Kind{"Windowed", ToyModel::windowed(7)},
                                           Kind{"Recurrent", ToyModel::recurrent()}, Kind{"Hybrid", ToyModel::hybrid()},
                                           Kind{"HybridOfLargeBlocks", ToyModel::hybrid(16)},
                                           Kind{"Everything", ToyModel::everything(7)}),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(Sessions, AreFoundInAnotherPoolAfterTheyWentThroughAFile) {
  const Folder folder;
  for (const std::uint32_t length : {3u, 4u, 17u, 32u, 43u, 64u}) {
    CountingDevice device;
    ToyEngine engine(device, config()), twin(device, config());
    const std::vector<Token> tokens = counting(0, length);
    cached(engine, tokens, 0, 4);
    const auto snapshot = take(engine.pool(), tokens, 0);
    ASSERT_TRUE(done(snapshot));
    EXPECT_EQ(engine.pool().stats().sequences, 0u);
    EXPECT_TRUE(sound(engine.pool()));
    const std::string path = folder.file("s");
    const auto written = write(path, tokens, *snapshot, "{}");
    ASSERT_TRUE(written.has_value()) << written.error().message;
    EXPECT_EQ(*written, std::filesystem::file_size(path));
    const auto file = SessionFile::open(path);
    ASSERT_TRUE(file.has_value()) << file.error().message;
    EXPECT_EQ(file->contents().tokens, tokens);

    SequencePool& pool = twin.pool();
    ASSERT_TRUE(check_origin(file->contents(), pool.config().model, fingerprint_of(pool.layout())).has_value());
    const auto given = give(pool, file->contents(), 0);
    ASSERT_TRUE(done(given));
    EXPECT_EQ(pool.stats().sequences, 0u);
    EXPECT_TRUE(sound(pool));
    // The twin finds as much as the first pool, up to a whole unit, and every byte of it is right.
    std::vector<Token> more = tokens;
    if (more.size() < 64) more.push_back(1000);
    EXPECT_EQ(pool.lookup(more).tokens / 4, engine.pool().lookup(more).tokens / 4) << length;
    EXPECT_GE(pool.lookup(more).tokens + 16, length);
    auto resumed = twin.create(more).value();
    EXPECT_EQ(twin.verify(resumed), "");
    const auto rest = resumed.pending;
    ASSERT_TRUE(done(twin.append(resumed, rest)));
    EXPECT_EQ(twin.verify(resumed), "");
    ASSERT_TRUE(done(pool.release(resumed.id)));
    EXPECT_TRUE(sound(pool));
  }
}

TEST_P(Sessions, AreFoundAtEarlierPositionsTooForForksAndRewinds) {
  CountingDevice device;
  ToyEngine engine(device, config()), twin(device, config());
  const std::vector<Token> tokens = counting(0, 43);
  cached(engine, tokens, 0, 4);
  const auto snapshot = take(engine.pool(), tokens, 0);
  ASSERT_TRUE(done(snapshot));
  const Bytes file = bytes_of(encode(tokens, *snapshot, "{}"));
  ASSERT_TRUE(done(give(twin.pool(), *parse(file), 0)));
  const bool windows = std::ranges::any_of(twin.pool().layout().groups, [](const auto& g) { return g.window != 0; });
  for (const std::uint32_t position : {9u, 20u, 33u}) {
    std::vector<Token> prompt = counting(0, position);
    prompt.push_back(1000);
    auto forked = twin.create(prompt).value();
    if (!windows) {
      EXPECT_EQ(twin.last_hit().tokens, engine.pool().lookup(prompt).tokens) << position;
      EXPECT_GE(twin.last_hit().tokens, position - position % 8);
    }
    EXPECT_EQ(twin.verify(forked), "");
    ASSERT_TRUE(done(twin.pool().release(forked.id)));
  }
  EXPECT_TRUE(sound(twin.pool()));
}

TEST_P(Sessions, OfAnotherModelOrLayoutAreRefusedWithBothFingerprints) {
  CountingDevice device;
  ToyEngine engine(device, config(0xabc)), other(device, config(0xdef));
  const std::vector<Token> tokens = counting(0, 20);
  cached(engine, tokens, 0, 4);
  const Bytes bytes = bytes_of(encode(tokens, *take(engine.pool(), tokens, 0), "{}"));
  const auto file = parse(bytes);
  ASSERT_TRUE(file.has_value());
  const Hash128 layout = fingerprint_of(engine.pool().layout());
  EXPECT_EQ(check_origin(*file, other.pool().config().model, layout).error().message,
            "was made with another model or another arithmetic: its fingerprint is 0000000000000abc, and this one's "
            "0000000000000def");
  const auto wrong = check_origin(*file, engine.pool().config().model, Hash128{1, 2});
  EXPECT_NE(wrong.error().message.find("another layout"), std::string::npos);
  EXPECT_NE(wrong.error().message.find(short_name(layout)), std::string::npos);
  EXPECT_TRUE(refused(give(other.pool(), *file, 0), PoolError::Code::Incompatible)) << "whoever does not ask";
  EXPECT_EQ(other.pool().stats().prefix_blocks, 0u);
}

TEST_P(Sessions, BelongToTheTenantThatRestoresThem) {
  CountingDevice device;
  ToyEngine engine(device, config()), twin(device, config());
  const std::vector<Token> tokens = counting(0, 24);
  cached(engine, tokens, 5, 4);
  EXPECT_TRUE(take(engine.pool(), tokens, 6)->sequence.tokens.empty()) << "another tenant has nothing";
  const Bytes file = bytes_of(encode(tokens, *take(engine.pool(), tokens, 5), "{}"));
  ASSERT_TRUE(done(give(twin.pool(), *parse(file), 9)));
  const std::vector<Token> prompt = counting(0, 26);
  EXPECT_GE(twin.pool().lookup(prompt, 9).tokens, 16u);
  EXPECT_EQ(twin.pool().lookup(prompt, 5).tokens, 0u);
}

TEST_P(Sessions, ForWhichThereIsNoRoomAreRefusedAndLeaveNoSequence) {
  CountingDevice device;
  ToyEngine engine(device, config()), full(device, config());
  const std::vector<Token> tokens = counting(0, 40);
  cached(engine, tokens, 0, 4);
  const Bytes file = bytes_of(encode(tokens, *take(engine.pool(), tokens, 0), "{}"));
  for (Token first = 100; first < 900; first += 100)
    (void)written(full, counting(first, 3));  // as many as there can be
  const auto given = give(full.pool(), *parse(file), 0);
  EXPECT_TRUE(refused(given, PoolError::Code::Exhausted));
  EXPECT_EQ(full.pool().stats().sequences, 8u);
  EXPECT_EQ(full.pool().lookup(tokens).tokens, 0u);
  EXPECT_TRUE(sound(full.pool()));
}

// Whoever waits for the device hears of everything that failed before. It must not end here.
TEST_P(Sessions, TellOfWorkOfTheDeviceThatFailed) {
  CountingDevice device;
  ToyEngine engine(device, config());
  const std::vector<Token> tokens = counting(0, 43);
  cached(engine, tokens, 0, 4);
  const Bytes file = bytes_of(encode(tokens, *take(engine.pool(), tokens, 0), "{}"));
  std::uint64_t pieces = 0;
  for (bool failed = true; failed; ++pieces) {
    ASSERT_LT(pieces, 1000u);
    ToyEngine twin(device, config());
    ASSERT_TRUE(device.fence().has_value());
    device.fail_work_after(pieces);
    const auto given = give(twin.pool(), *parse(file), 0);
    failed = !given;
    if (failed) {
      EXPECT_EQ(given.error().code, PoolError::Code::WorkFailed);
      EXPECT_TRUE(device.fence().has_value()) << "it is told once";
      continue;
    }
    // There were not so many pieces: those that come now fail.
    const auto buffer = DeviceBuffer::create(device, 64);
    for (std::uint64_t i = 0; i <= pieces; ++i) (void)device.zero(buffer->data(), 64);
    EXPECT_FALSE(device.fence().has_value()) << "work failed, and nobody was told (" << pieces << ")";
  }
  EXPECT_GT(pieces, 2u);
}

TEST(SessionFiles, ThatCannotBeWrittenLeaveTheOldOneAndNothingElse) {
  const Folder folder;
  const std::string path = folder.file("s");
  const Snapshot nothing{.block_size = 4};
  const std::vector<Token> tokens(1000, 7);
  ASSERT_TRUE(write(path, tokens, nothing, R"({"old":true})").has_value());
  // The size limit of the process is a disk that is full in the middle of a file.
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 2000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto refused = write(path, tokens, nothing, R"({"old":false})");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  (void)std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "cannot be written: File too large");
  EXPECT_EQ(folder.files(), 1u) << "nothing is left beside it";
  EXPECT_EQ(SessionFile::open(path)->contents().metadata, R"({"old":true})");
  EXPECT_EQ(write(folder.file("no/such/folder"), tokens, nothing, "{}").error().message,
            "cannot be written: No such file or directory");
}

TEST(SessionFiles, ThatAWriterLeftUnfinishedAreRemovedByALaterOne) {
  namespace fs = std::filesystem;
  const Folder folder;
  const Snapshot nothing{.block_size = 4};
  const std::vector<Token> tokens(100, 7);
  ASSERT_TRUE(write(folder.file("whole.qsession"), tokens, nothing, "{}").has_value());
  const auto hours_ago = [](int hours) { return fs::file_time_type::clock::now() - std::chrono::hours(hours); };
  const auto begun = [&](const std::string& name, int hours) {
    fs::copy_file(folder.file("whole.qsession"), folder.file(name));
    fs::resize_file(folder.file(name), 300);
    fs::last_write_time(folder.file(name), hours_ago(hours));
  };
  begun("a.qsession.tmp-Ab3dE9", 2);
  begun("b.qsession.tmp-XXXXXX", 30);
  begun("young.qsession.tmp-Ab3dE9", 0);
  begun("other.tmp-Ab3dE9", 2);
  std::ofstream(folder.file("empty.qsession.tmp-Ab3dE9")).close();
  fs::last_write_time(folder.file("empty.qsession.tmp-Ab3dE9"), hours_ago(2));
  std::ofstream(folder.file("notes.qsession.tmp-Ab3dE9")) << "a text of somebody else";
  fs::last_write_time(folder.file("notes.qsession.tmp-Ab3dE9"), hours_ago(2));
  fs::last_write_time(folder.file("whole.qsession"), hours_ago(20));
  ASSERT_TRUE(write(folder.file("new.qsession"), tokens, nothing, "{}").has_value());
  for (const char* gone : {"a.qsession.tmp-Ab3dE9", "b.qsession.tmp-XXXXXX", "empty.qsession.tmp-Ab3dE9"}) {
    EXPECT_FALSE(fs::exists(folder.file(gone))) << gone;
  }
  for (const char* there : {"young.qsession.tmp-Ab3dE9", "other.tmp-Ab3dE9", "notes.qsession.tmp-Ab3dE9",
                            "whole.qsession", "new.qsession"}) {
    EXPECT_TRUE(fs::exists(folder.file(there))) << there;
  }
}

// Somebody copies another file over it, or the disk takes it away, after it was opened and checked.
TEST(SessionFiles, ThatAreCutOrChangedAfterTheyWereOpenedStayAsTheyWere) {
  const Folder folder;
  const std::string path = folder.file("s");
  const std::vector<Token> tokens(100'000, 7);  // many pages
  const std::string metadata = "{\"text\":\"" + std::string(100'000, 'x') + "\"}";
  ASSERT_TRUE(write(path, tokens, Snapshot{.block_size = 4}, metadata).has_value());
  const auto file = SessionFile::open(path);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary) << std::string(600'000, '\0');
  EXPECT_EQ(file->contents().metadata, metadata);
  std::filesystem::resize_file(path, 10);
  EXPECT_EQ(file->contents().metadata, metadata);
  EXPECT_EQ(SessionFile::open(path).error().message, "is not a session file: its first bytes are others");
}

TEST(SessionFiles, ThatAreNoneAreRefused) {
  const Folder folder;
  EXPECT_EQ(SessionFile::open(folder.file("missing")).error().message, "cannot be opened: No such file or directory");
  EXPECT_EQ(SessionFile::open(folder.file("")).error().message, "is not a regular file");
  std::ofstream(folder.file("empty")).flush();
  EXPECT_EQ(SessionFile::open(folder.file("empty")).error().message, "is empty");
  std::ofstream(folder.file("text")) << "some text that is longer than a magic number";
  EXPECT_EQ(SessionFile::open(folder.file("text")).error().message,
            "is not a session file: its first bytes are others");
}

}  // namespace
}  // namespace quire::session::testing
