// The file that a writer writes has every record, whatever the speed of the disk. A full disk stops the journal and
// nothing else.
#include "quire/journal/journal_writer.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "quire/base/counted_heap_testing.h"
#include "quire/journal/replay.h"

namespace quire::journal {
namespace {

using quire::testing::allocations;

class JournalWriterTest : public ::testing::Test {
 protected:
  JournalWriterTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "quire-journal-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ / "pool.journal";
  }
  ~JournalWriterTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<SequencePool> pool(PoolJournal& journal) {
    const LayerDesc layers[] = {LayerDesc::attention(2, 16), LayerDesc::recurrent(512, 1024)};
    PoolConfig config{.layout = *StateLayout::from_layers(layers, 16), .max_sequences = 8, .max_tokens = 512};
    config.checkpoint_interval = 32;
    config.budget_bytes = 40 * config.layout.groups[0].page_bytes() + 8 * config.layout.recurrent.bytes();
    config.journal = &journal;
    return *SequencePool::create(device_, config);
  }
  // A request: a prompt that shares half of it with the others, and 40 tokens of an answer.
  static void live(SequencePool& pool, Token round) {
    std::array<Token, 96> prompt;
    for (Token i = 0; i < 96; ++i) prompt[static_cast<std::size_t>(i)] = i < 48 ? i : i * 7 + round;
    const auto created = *pool.admit({.prompt = prompt}, 96, 96, {});
    for (auto rest = std::span<const Token>(prompt).subspan(created.hit.tokens); !rest.empty();) {
      const std::size_t chunk = std::min<std::size_t>(rest.size(), 16 - *pool.length(created.id) % 16);
      ASSERT_TRUE(pool.commit(created.id, rest.first(chunk), true));
      rest = rest.subspan(chunk);
    }
    for (Token token = 0; token < 40; ++token) {
      const BatchEntry entry{created.id, 1};
      ASSERT_TRUE(pool.reserve(std::span(&entry, 1)));
      ASSERT_TRUE(pool.commit(created.id, std::span(&token, 1)));
    }
    ASSERT_TRUE(pool.release(created.id));
  }
  ReplayReport replay_file() const {
    std::ifstream in(path_, std::ios::binary);
    return replay(in);
  }

  HostDevice device_;
  std::filesystem::path folder_, path_;
};

// The record of a resumption names every page that was not copied. The longest one must fit into a buffer, or the step
// would wait forever. And it allocates nothing.
TEST_F(JournalWriterTest, AResumptionOfManySharedPagesFitsIntoTheSmallestBuffers) {
  auto writer = *JournalWriter::create(path_, {.buffer_bytes = 1});
  {
    const LayerDesc layers[] = {LayerDesc::attention(1, 4), LayerDesc::attention(1, 4, ElementType::F16, 4096)};
    PoolConfig config{.layout = *StateLayout::from_layers(layers, 1), .max_sequences = 3, .max_tokens = 512};
    ASSERT_EQ(config.layout.groups.size(), 2u);
    config.budget_bytes = 2100 * config.layout.groups[0].page_bytes();
    config.journal = writer.get();
    const auto pool = *SequencePool::create(device_, config);
    const auto arena = *pool->create_host_arena(1 << 20);
    const std::vector<Token> tokens(512, 7);
    const auto first = *pool->admit({.prompt = tokens}, 512, 512, {});
    ASSERT_TRUE(pool->commit(first.id, tokens));
    const auto second = *pool->fork(first.id, 512);
    const std::uint64_t before = allocations;
    const auto suspended = *pool->suspend(second.id, *arena);
    EXPECT_EQ(suspended.bytes, 0u);  // all pages are shared
    ASSERT_TRUE(pool->resume(suspended, tokens));
    EXPECT_EQ(allocations - before, 0u);
  }
  ASSERT_TRUE(writer->close().has_value());
  const ReplayReport report = replay_file();
  EXPECT_TRUE(report.clean());
  EXPECT_EQ(report.operations[static_cast<std::size_t>(PoolOperation::Kind::Resume)], 1u);
}

TEST_F(JournalWriterTest, AFileReplaysWithoutADifference) {
  auto writer = *JournalWriter::create(path_, {});
  {
    const auto owned = pool(*writer);
    for (Token i = 0; i < 200; ++i) live(*owned, i % 20);
  }
  ASSERT_TRUE(writer->close().has_value());
  const ReplayReport report = replay_file();
  EXPECT_TRUE(report.clean());
  EXPECT_EQ(report.records, writer->status().records);
  EXPECT_EQ(report.bytes, writer->status().bytes);
  EXPECT_EQ(report.bytes, std::filesystem::file_size(path_));
  EXPECT_EQ(report.sequences, 200u);
  EXPECT_GT(report.hit_tokens, 0u);
  struct stat facts = {};
  ASSERT_EQ(::stat(path_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u) << "a journal holds prompts: it is for its owner alone";
}

TEST_F(JournalWriterTest, RecordsReachTheFileSoonWithoutBeingAskedTo) {
  auto writer = *JournalWriter::create(path_, {});
  const auto owned = pool(*writer);
  live(*owned, 1);
  while (std::filesystem::file_size(path_) < writer->status().bytes) std::this_thread::yield();
  EXPECT_TRUE(replay_file().clean());
}

// Small buffers and a reader that is slow: the pool waits, and every record arrives.
TEST_F(JournalWriterTest, AFileThatIsWrittenSlowlyLosesNothing) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  std::string arrived;
  std::thread reader([&] {
    const int fd = ::open(path_.c_str(), O_RDONLY);
    char bytes[512];
    for (ssize_t n = 0; (n = ::read(fd, bytes, sizeof bytes)) > 0;) {
      arrived.append(bytes, static_cast<std::size_t>(n));
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    ::close(fd);
  });
  auto writer = *JournalWriter::create(path_, {.buffer_bytes = 1});
  {
    const auto owned = pool(*writer);
    for (Token i = 0; i < 300; ++i) live(*owned, i % 20);
  }
  ASSERT_TRUE(writer->close().has_value());
  reader.join();
  EXPECT_EQ(arrived.size(), writer->status().bytes);
  std::istringstream in(arrived);
  const ReplayReport report = replay(in);
  EXPECT_TRUE(report.clean());
  EXPECT_EQ(report.records, writer->status().records);
}

TEST_F(JournalWriterTest, AFullDiskStopsTheJournalAndNotThePool) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  std::atomic<int> told = 0;
  std::string line;
  auto writer = *JournalWriter::create("/dev/full", {.buffer_bytes = 1, .on_error = [&](const std::string& what) {
                                                       line = what;
                                                       ++told;
                                                     }});
  const auto owned = pool(*writer);
  for (Token i = 0; i < 300; ++i) live(*owned, i % 20);
  while (told == 0) std::this_thread::yield();
  EXPECT_TRUE(writer->status().failed);
  const std::uint64_t records = writer->status().records;
  live(*owned, 3);
  EXPECT_EQ(writer->status().records, records);
  EXPECT_TRUE(owned->check_integrity().has_value());
  const auto closed = writer->close();
  ASSERT_FALSE(closed.has_value());
  EXPECT_NE(closed.error().message.find("/dev/full"), std::string::npos);
  EXPECT_EQ(closed.error().message, line);
  EXPECT_EQ(told, 1);
}

TEST_F(JournalWriterTest, AFileThatCannotBeMadeIsNamed) {
  const auto writer = JournalWriter::create((folder_ / "none" / "pool.journal").string(), {});
  ASSERT_FALSE(writer.has_value());
  EXPECT_NE(writer.error().message.find("none/pool.journal"), std::string::npos);
}

TEST_F(JournalWriterTest, AJournalIsForOnePool) {
  auto writer = *JournalWriter::create(path_, {});
  const auto owned = pool(*writer);
  PoolConfig config = owned->config();
  EXPECT_EQ(SequencePool::create(device_, config).error().code, PoolError::Code::InvalidArgument);
}

TEST_F(JournalWriterTest, APoolWithAJournalAllocatesNothing) {
  auto writer = *JournalWriter::create(path_, {.buffer_bytes = 1});
  const auto owned = pool(*writer);
  for (Token i = 0; i < 3; ++i) live(*owned, i);
  const std::uint64_t before = allocations, records = writer->status().records;
  for (Token i = 0; i < 200; ++i) live(*owned, i % 20);
  EXPECT_EQ(allocations - before, 0u);
  EXPECT_GT(writer->status().records - records, 200u * 80);
}

}  // namespace
}  // namespace quire::journal
