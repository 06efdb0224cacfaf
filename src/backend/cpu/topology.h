// The CPUs that this process may use, with their cores and NUMA nodes, and which of them the threads of a team get.
//
//   const Topology machine = Topology::of_this_machine();
//   ThreadTeam team(machine.team(machine.default_threads(), Pin::Automatic));
//
// What holds: affinity masks, cpusets of a cgroup and its CPU quota are respected. Cores come before their second
//   hyperthreads. If all threads fit on one NUMA node they are on one, the largest; otherwise each node gets threads in
//   proportion to its cores, and the threads of a node have consecutive numbers, so that their shares of a matrix are
//   contiguous too.
// How it fails: never. Without hwloc, or if the system tells nothing, every CPU counts as a core of one node, and
//   threads are pinned only where that is asked for.
// Who may call: anyone, from any thread. Nothing changes after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quire/backend/placement.h"
#include "quire/base/thread_team.h"
#include "quire/state/device.h"

namespace quire::cpu {

struct LogicalCpu {
  std::uint32_t id = 0;    // as the system numbers it
  std::uint32_t core = 0;  // hyperthreads of one core have the same
  std::uint32_t node = 0;  // of memory
  friend bool operator==(const LogicalCpu&, const LogicalCpu&) = default;
};

class Topology {
 public:
  static Topology of_this_machine();
  // A machine as hwloc describes it ("node:2 core:4 pu:2"), of which the process may use some CPUs (empty: all). For
  // tests. Nothing if this build has no hwloc, or the description is wrong.
  static std::optional<Topology> synthetic(const std::string& description, std::span<const std::uint32_t> allowed = {});
  // `known`: by hwloc. `usable`: how many threads may run at once, by the CPU quota too.
  Topology(std::vector<LogicalCpu> cpus, std::uint32_t usable, bool known);

  std::uint32_t cores() const;
  std::uint32_t nodes() const;
  const std::vector<LogicalCpu>& cpus() const { return cpus_; }
  bool known() const { return known_; }
  std::uint32_t default_threads() const;  // one per core, and no more than may run at once

  // The CPU of each thread if every thread has one of its own. Empty: there are more threads than CPUs.
  std::vector<LogicalCpu> place(std::uint32_t threads) const;
  TeamOptions team(std::uint32_t threads, Pin pin) const;
  std::string describe() const;  // one line for people

 private:
  std::vector<LogicalCpu> cpus_;  // by node; in a node the first hyperthreads of all cores, then the second, ...
  std::uint32_t usable_ = 1;
  bool known_ = false;
};

// A team with its place on the machine.
struct PlacedTeam {
  TeamOptions team;
  std::vector<std::uint32_t> memory_nodes = {};  // on which memory is allocated; empty: as the system likes
  std::vector<std::uint32_t> share_nodes = {};   // of each thread, if its share of a matrix goes there; or empty
};
PlacedTeam placed(const Topology& machine, std::uint32_t threads, Placement placement);

// Asks the system for memory of these nodes while the object lives: for pages that this thread touches first. Does
// nothing if the system refuses, as it does in some containers.
class MemoryFrom {
 public:
  // Interleaved over the nodes; one node: preferred. None: nothing is changed.
  explicit MemoryFrom(std::span<const std::uint32_t> nodes);
  ~MemoryFrom();
  MemoryFrom(const MemoryFrom&) = delete;
  MemoryFrom& operator=(const MemoryFrom&) = delete;

 private:
  bool changed_ = false;
};
// Host memory of these nodes.
class PlacedMemory final : public HostDevice {
 public:
  explicit PlacedMemory(std::vector<std::uint32_t> nodes) : nodes_(std::move(nodes)) {}
  PoolResult<void*> allocate(std::size_t bytes, std::size_t alignment) override {
    const MemoryFrom from(nodes_);
    return HostDevice::allocate(bytes, alignment);
  }

 private:
  std::vector<std::uint32_t> nodes_;
};
// Moves whole pages of memory to a node. What the system refuses to move stays where it is.
void move_to_node(std::byte* memory, std::size_t bytes, std::uint32_t node);

}  // namespace quire::cpu
