#include "quire/backend/cpu/topology.h"

#include <set>
#include <thread>

#include <gtest/gtest.h>
#include <sched.h>

#include "quire/base/machine.h"

namespace quire::cpu {
namespace {

// The CPUs of the threads of a team that pins each to one.
std::vector<std::uint32_t> pinned(const Topology& machine, std::uint32_t threads) {
  std::vector<std::uint32_t> ids;
  for (const auto& cpus : machine.team(threads, Pin::Cores).cpus) {
    EXPECT_EQ(cpus.size(), 1u);
    ids.push_back(cpus.front());
  }
  return ids;
}

Topology synthetic(const std::string& description, std::vector<std::uint32_t> allowed = {}) {
  auto machine = Topology::synthetic(description, allowed);
  EXPECT_TRUE(machine.has_value()) << description;
  return machine ? *machine : Topology({}, 1, false);
}

class OfHwloc : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Topology::synthetic("core:1 pu:1")) GTEST_SKIP() << "this build has no hwloc";
  }
};

TEST_F(OfHwloc, CoresComeBeforeTheirSecondHyperthreads) {
  const Topology machine = synthetic("node:1 core:4 pu:2");  // CPUs 0 and 1 are one core
  EXPECT_EQ(machine.cores(), 4u);
  EXPECT_EQ(machine.cpus().size(), 8u);
  EXPECT_EQ(machine.default_threads(), 4u);
  EXPECT_EQ(pinned(machine, 4), (std::vector<std::uint32_t>{0, 2, 4, 6}));
  EXPECT_EQ(pinned(machine, 6), (std::vector<std::uint32_t>{0, 2, 4, 6, 1, 3}));
}

TEST_F(OfHwloc, ThreadsThatFitOnOneNodeAreOnOne) {
  const Topology machine = synthetic("node:2 core:4 pu:1");
  EXPECT_EQ(machine.nodes(), 2u);
  std::set<std::uint32_t> nodes;
  for (const LogicalCpu& cpu : machine.place(4)) nodes.insert(cpu.node);
  EXPECT_EQ(nodes.size(), 1u);
  const PlacedTeam placed = cpu::placed(machine, 4, {});
  EXPECT_EQ(placed.memory_nodes, std::vector<std::uint32_t>(nodes.begin(), nodes.end()));
}

TEST_F(OfHwloc, MoreThreadsAreOnAllNodesAndThoseOfANodeAreConsecutive) {
  const Topology machine = synthetic("node:2 core:4 pu:1");
  std::vector<std::uint32_t> nodes;
  for (const LogicalCpu& cpu : machine.place(6)) nodes.push_back(cpu.node);
  EXPECT_EQ(nodes, (std::vector<std::uint32_t>{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(cpu::placed(machine, 6, {}).memory_nodes, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(cpu::placed(machine, 6, {.numa = Numa::Local}).share_nodes, nodes);
  EXPECT_TRUE(cpu::placed(machine, 6, {.numa = Numa::Interleaved}).share_nodes.empty());
  EXPECT_TRUE(cpu::placed(machine, 6, {.numa = Numa::Off}).memory_nodes.empty());
}

TEST_F(OfHwloc, OnlyCpusThatTheProcessMayUseAreTaken) {
  const Topology machine = synthetic("node:2 core:4 pu:2", {1, 4, 5, 8, 9});  // cores 0, 2 and 4
  EXPECT_EQ(machine.cores(), 3u);
  EXPECT_EQ(pinned(machine, 3), (std::vector<std::uint32_t>{1, 4, 8}));
  EXPECT_EQ(machine.place(6), std::vector<LogicalCpu>{});
}

TEST_F(OfHwloc, FewerThreadsThanCoresShareTheCoresOfTheirNode) {
  const Topology machine = synthetic("node:2 core:4 pu:2");
  const TeamOptions team = machine.team(3, Pin::Automatic);
  ASSERT_EQ(team.cpus.size(), 3u);
  for (const auto& cpus : team.cpus) EXPECT_EQ(cpus, (std::vector<std::uint32_t>{0, 2, 4, 6}));
  EXPECT_FALSE(team.crowded);
  for (const auto& cpus : machine.team(8, Pin::Automatic).cpus) EXPECT_EQ(cpus.size(), 1u);
}

TEST_F(OfHwloc, AWrongDescriptionIsRefused) { EXPECT_FALSE(Topology::synthetic("no machine").has_value()); }

TEST(Topology, WithMoreThreadsThanMayRunNothingIsPinned) {
  const Topology machine({{0, 0, 0}, {1, 1, 0}, {2, 2, 0}, {3, 3, 0}}, 2, true);  // a quota of two CPUs
  EXPECT_EQ(machine.default_threads(), 2u);
  EXPECT_EQ(machine.team(2, Pin::Cores).cpus.size(), 2u);
  const TeamOptions team = machine.team(3, Pin::Cores);
  EXPECT_TRUE(team.crowded);
  EXPECT_TRUE(team.cpus.empty());
}

TEST(Topology, OffPinsNothingAndWithoutKnowledgeOnlyCoresPins) {
  const Topology machine({{0, 0, 0}, {1, 1, 0}}, 2, false);
  EXPECT_TRUE(machine.team(2, Pin::Off).cpus.empty());
  EXPECT_TRUE(machine.team(2, Pin::Automatic).cpus.empty());
  EXPECT_EQ(machine.team(2, Pin::Cores).cpus.size(), 2u);
  EXPECT_NE(machine.describe().find("without hwloc"), std::string::npos);
}

TEST(Topology, OfThisMachineHasOnlyCpusOfTheAffinityMask) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  const Topology machine = Topology::of_this_machine();
  EXPECT_EQ(machine.cpus().size(), static_cast<std::size_t>(CPU_COUNT(&mask)));
  for (const LogicalCpu& cpu : machine.cpus()) EXPECT_TRUE(CPU_ISSET(cpu.id, &mask)) << cpu.id;
  EXPECT_LE(machine.default_threads(), available_cores());
}

TEST(Topology, WorkersStayOnTheirCpuAndTheCallerKeepsItsMask) {
  const Topology machine = Topology::of_this_machine();
  const auto threads = static_cast<std::uint32_t>(std::min<std::size_t>(2, machine.cpus().size()));
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  ThreadTeam team(machine.team(threads, Pin::Cores));
  const std::thread::id here = std::this_thread::get_id();
  for (int i = 0; i < 100; ++i) {
    team.run([&](std::uint32_t, std::uint32_t) {
      if (std::this_thread::get_id() == here) return;
      cpu_set_t own;
      EXPECT_EQ(sched_getaffinity(0, sizeof own, &own), 0);
      EXPECT_EQ(CPU_COUNT(&own), 1);
    });
  }
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(PlacedMemory, AllocatesAlsoWhereTheSystemRefusesTheNodes) {
  PlacedMemory memory({0, 900});
  auto got = memory.allocate(1 << 20, 64);
  ASSERT_TRUE(got.has_value());
  move_to_node(static_cast<std::byte*>(*got), 1 << 20, 0);
  static_cast<char*>(*got)[12345] = 1;
  memory.deallocate(*got, 1 << 20);
}

}  // namespace
}  // namespace quire::cpu
