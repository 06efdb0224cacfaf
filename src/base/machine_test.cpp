#include "quire/base/machine.h"

#include <filesystem>
#include <fstream>
#include <map>

#include <gtest/gtest.h>
#include <unistd.h>

namespace quire {
namespace {

TEST(Machine, HasACoreAndSomeMemory) {
  EXPECT_GE(available_cores(), 1u);
  EXPECT_LT(available_cores(), 100'000u);
  const MachineMemory memory = machine_memory();
  EXPECT_GT(memory.available, 0u);
  EXPECT_GE(memory.total, memory.available);
}

// A file system with these files below a temporary folder.
class FakeRoot {
 public:
  explicit FakeRoot(const std::map<std::string, std::string>& files)
      : path_(std::filesystem::temp_directory_path() / ("quire-machine-" + std::to_string(getpid()))) {
    std::filesystem::remove_all(path_);
    for (const auto& [name, text] : files) {
      std::filesystem::create_directories((path_ / name).parent_path());
      std::ofstream(path_ / name) << text;
    }
  }
  ~FakeRoot() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

TEST(CpuQuota, IsTheLeastOfTheGroupAndThoseAboveIt) {
  const auto quota = [](const std::map<std::string, std::string>& files) { return cpu_quota(FakeRoot(files).path()); };
  EXPECT_EQ(quota({}), std::nullopt);
  const std::string group = "0::/a/b\n";
  EXPECT_EQ(quota({{"proc/self/cgroup", group}, {"sys/fs/cgroup/a/b/cpu.max", "max 100000\n"}}), std::nullopt);
  EXPECT_EQ(quota({{"proc/self/cgroup", group}, {"sys/fs/cgroup/a/b/cpu.max", "250000 100000\n"}}), 2.5);
  EXPECT_EQ(quota({{"proc/self/cgroup", group},
                   {"sys/fs/cgroup/a/b/cpu.max", "400000 100000\n"},
                   {"sys/fs/cgroup/a/cpu.max", "150000 100000\n"}}),
            1.5);
  EXPECT_EQ(quota({{"proc/self/cgroup", "0::/\n"}, {"sys/fs/cgroup/cpu.max", "300000 100000\n"}}), 3);
  EXPECT_EQ(quota({{"proc/self/cgroup", group}, {"sys/fs/cgroup/a/b/cpu.max", "nonsense\n"}}), std::nullopt);
  // Version 1
  EXPECT_EQ(
      quota({{"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n"}, {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "50000\n"}}),
      4);
  EXPECT_EQ(quota({{"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"}, {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "50000\n"}}),
            std::nullopt);
}

TEST(Machine, HasAProcessorWithANameOfOneLine) {
  const std::string name = processor_name();
  ASSERT_FALSE(name.empty());
  EXPECT_EQ(name.find('\n'), std::string::npos);
  EXPECT_NE(name.front(), ' ');
  EXPECT_NE(name.back(), ' ');
}

TEST(RandomSeed, IsAnotherOneEachTime) {
  const auto first = random_seed(), second = random_seed();
  ASSERT_TRUE(first && second);
  EXPECT_NE(*first, *second);
}

}  // namespace
}  // namespace quire
