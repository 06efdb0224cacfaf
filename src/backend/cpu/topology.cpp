#include "quire/backend/cpu/topology.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "quire/base/machine.h"
#include "quire/base/numbers.h"
#if QUIRE_HAS_HWLOC
#include <hwloc.h>
#endif

namespace quire::cpu {
namespace {

// The affinity mask of this thread; empty if the system does not tell.
std::set<std::uint32_t> affinity() {
  std::set<std::uint32_t> ids;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return ids;
  for (std::uint32_t id = 0; id < CPU_SETSIZE; ++id) {
    if (CPU_ISSET(id, &mask)) ids.insert(id);
  }
  return ids;
}

#if QUIRE_HAS_HWLOC
using Machine = std::unique_ptr<hwloc_topology, void (*)(hwloc_topology_t)>;

std::vector<LogicalCpu> cpus_of(hwloc_topology_t machine) {
  std::vector<LogicalCpu> cpus;
  const int count = hwloc_get_nbobjs_by_type(machine, HWLOC_OBJ_PU);
  for (int i = 0; i < count; ++i) {
    const hwloc_obj_t pu = hwloc_get_obj_by_type(machine, HWLOC_OBJ_PU, static_cast<unsigned>(i));
    const hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(machine, HWLOC_OBJ_CORE, pu);
    const int node = pu->nodeset != nullptr ? hwloc_bitmap_first(pu->nodeset) : 0;
    cpus.push_back({.id = pu->os_index,
                    .core = core != nullptr ? core->logical_index : static_cast<std::uint32_t>(i),
                    .node = static_cast<std::uint32_t>(std::max(node, 0))});
  }
  return cpus;
}

Machine new_machine() {
  hwloc_topology_t made = nullptr;
  if (hwloc_topology_init(&made) != 0) made = nullptr;
  return {made, [](hwloc_topology_t machine) {
            if (machine != nullptr) hwloc_topology_destroy(machine);
          }};
}
#endif

// All CPUs that the cgroup allows; empty if nothing is known of them.
const std::vector<LogicalCpu>& known_cpus() {
  static const std::vector<LogicalCpu> cpus = [] {
    std::vector<LogicalCpu> found;
#if QUIRE_HAS_HWLOC
    const Machine machine = new_machine();
    if (machine == nullptr) return found;
    // The system knows enough. hwloc's own look at the processor would run on each CPU in turn.
    hwloc_topology_set_components(machine.get(), HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
    if (hwloc_topology_load(machine.get()) == 0) found = cpus_of(machine.get());
#endif
    return found;
  }();
  return cpus;
}

}  // namespace

Topology Topology::of_this_machine() {
  const std::set<std::uint32_t> mask = affinity();
  std::vector<LogicalCpu> cpus = known_cpus();
  std::erase_if(cpus, [&](const LogicalCpu& cpu) { return !mask.empty() && !mask.contains(cpu.id); });
  const bool known = !cpus.empty();
  if (!known) {
    for (const std::uint32_t id : mask) cpus.push_back({.id = id, .core = id, .node = 0});
  }
  return {std::move(cpus), available_cores(), known};
}

std::optional<Topology> Topology::synthetic(const std::string& description, std::span<const std::uint32_t> allowed) {
#if QUIRE_HAS_HWLOC
  const Machine machine = new_machine();
  if (machine == nullptr || hwloc_topology_set_synthetic(machine.get(), description.c_str()) != 0 ||
      hwloc_topology_load(machine.get()) != 0) {
    return std::nullopt;
  }
  std::vector<LogicalCpu> cpus = cpus_of(machine.get());
  std::erase_if(cpus, [&](const LogicalCpu& cpu) {
    return !allowed.empty() && std::ranges::find(allowed, cpu.id) == allowed.end();
  });
  const auto usable = static_cast<std::uint32_t>(cpus.size());
  return Topology(std::move(cpus), usable, true);
#else
  (void)description;
  (void)allowed;
  return std::nullopt;
#endif
}

Topology::Topology(std::vector<LogicalCpu> cpus, std::uint32_t usable, bool known)
    : cpus_(std::move(cpus)), usable_(std::max(1u, usable)), known_(known) {
  if (cpus_.empty()) cpus_.push_back({});
  std::ranges::sort(cpus_, {}, &LogicalCpu::id);
  // Which hyperthread of its core a CPU is.
  std::map<std::uint32_t, std::uint32_t> seen, rank;
  for (const LogicalCpu& cpu : cpus_) rank[cpu.id] = seen[cpu.core]++;
  std::ranges::stable_sort(cpus_, [&](const LogicalCpu& a, const LogicalCpu& b) {
    return std::tuple(a.node, rank[a.id]) < std::tuple(b.node, rank[b.id]);
  });
}

std::uint32_t Topology::cores() const {
  std::set<std::uint32_t> all;
  for (const LogicalCpu& cpu : cpus_) all.insert(cpu.core);
  return static_cast<std::uint32_t>(all.size());
}

std::uint32_t Topology::nodes() const {
  std::set<std::uint32_t> all;
  for (const LogicalCpu& cpu : cpus_) all.insert(cpu.node);
  return static_cast<std::uint32_t>(all.size());
}

std::uint32_t Topology::default_threads() const { return std::min(cores(), usable_); }

std::vector<LogicalCpu> Topology::place(std::uint32_t threads) const {
  if (threads > cpus_.size()) return {};
  struct Node {
    std::vector<LogicalCpu> cpus;
    std::uint32_t cores = 0, taken = 0;
  };
  std::map<std::uint32_t, Node> by_node;
  std::set<std::uint32_t> counted;
  for (const LogicalCpu& cpu : cpus_) {
    Node& node = by_node[cpu.node];
    node.cpus.push_back(cpu);
    if (counted.insert(cpu.core).second) ++node.cores;
  }
  const auto largest = std::ranges::max_element(by_node, {}, [](const auto& entry) { return entry.second.cores; });
  if (threads <= largest->second.cores) {
    largest->second.taken = threads;
  } else {
    // One by one to the node with the largest share of its cores free; of its CPUs, when no core is free any more.
    const bool cores_suffice = threads <= cores();
    for (std::uint32_t i = 0; i < threads; ++i) {
      const auto free = std::ranges::max_element(by_node, {}, [&](const auto& entry) {
        const Node& node = entry.second;
        const auto all = static_cast<double>(cores_suffice ? node.cores : node.cpus.size());
        return (all - node.taken) / all;
      });
      ++free->second.taken;
    }
  }
  std::vector<LogicalCpu> placed;
  for (const auto& [id, node] : by_node) {
    placed.insert(placed.end(), node.cpus.begin(), node.cpus.begin() + node.taken);
  }
  return placed;
}

TeamOptions Topology::team(std::uint32_t threads, Pin pin) const {
  TeamOptions options{.threads = std::max(1u, threads), .crowded = threads > usable_};
  if (pin == Pin::Off || options.crowded || (pin == Pin::Automatic && !known_)) return options;
  const std::vector<LogicalCpu> placed = place(threads);
  const bool alone = pin == Pin::Cores || threads >= cores();
  for (const LogicalCpu& own : placed) {
    std::vector<std::uint32_t>& allowed = options.cpus.emplace_back();
    if (alone) {
      allowed.push_back(own.id);
      continue;
    }
    std::set<std::uint32_t> taken;  // the first hyperthread of each core of the node
    for (const LogicalCpu& cpu : cpus_) {
      if (cpu.node == own.node && taken.insert(cpu.core).second) allowed.push_back(cpu.id);
    }
  }
  return options;
}

std::string Topology::describe() const {
  const auto many = [](std::uint32_t count, const char* what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
  };
  std::string text =
      fmt::format("{}, {}, {}", many(cores(), "core"), many(static_cast<std::uint32_t>(cpus_.size()), "logical CPU"),
                  many(nodes(), "NUMA node"));
  if (usable_ < cpus_.size()) text += fmt::format("; {} may run at once (CPU quota)", many(usable_, "thread"));
  if (!known_) text += "; cores and nodes are not known (built without hwloc)";
  return text;
}

PlacedTeam placed(const Topology& machine, std::uint32_t threads, Placement placement) {
  PlacedTeam made{.team = machine.team(threads, placement.pin)};
  // Threads that may go anywhere have no memory of their own.
  if (machine.nodes() == 1 || made.team.cpus.empty() || placement.numa == Numa::Off) return made;
  std::vector<std::uint32_t> of_threads;
  for (const LogicalCpu& cpu : machine.place(threads)) of_threads.push_back(cpu.node);
  if (placement.numa == Numa::Local) made.share_nodes = of_threads;
  const std::set<std::uint32_t> nodes(of_threads.begin(), of_threads.end());
  made.memory_nodes.assign(nodes.begin(), nodes.end());
  return made;
}

// --- memory

namespace {

// As set_mempolicy() and mbind() want it.
struct NodeMask {
  unsigned long words[16] = {};

  explicit NodeMask(std::span<const std::uint32_t> nodes) {
    constexpr std::uint32_t kBits = 8 * sizeof(unsigned long);
    for (const std::uint32_t node : nodes) {
      if (node < std::size(words) * kBits) words[node / kBits] |= 1UL << (node % kBits);
    }
  }
  static constexpr unsigned long bits() { return 8 * sizeof(words) + 1; }  // the system reads one fewer
};

}  // namespace

MemoryFrom::MemoryFrom(std::span<const std::uint32_t> nodes) {
  if (nodes.empty()) return;
  const NodeMask mask(nodes);
  const int mode = nodes.size() == 1 ? MPOL_PREFERRED : MPOL_INTERLEAVE;
  changed_ = syscall(SYS_set_mempolicy, mode, mask.words, NodeMask::bits()) == 0;
}

MemoryFrom::~MemoryFrom() {
  if (changed_) (void)syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0UL);
}

void move_to_node(std::byte* memory, std::size_t bytes, std::uint32_t node) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = round_up(reinterpret_cast<std::uintptr_t>(memory), page);
  const auto end = (reinterpret_cast<std::uintptr_t>(memory) + bytes) / page * page;
  if (begin >= end) return;
  const NodeMask mask({&node, 1});
  (void)syscall(SYS_mbind, begin, end - begin, MPOL_PREFERRED, mask.words, NodeMask::bits(), MPOL_MF_MOVE);
}

}  // namespace quire::cpu
