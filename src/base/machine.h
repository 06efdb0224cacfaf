// The resources of this machine. Anyone may ask, from any thread. The answers may change at any time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace quire {

// Logical CPUs that this process may use at once: those of its affinity mask, and no more than its cgroup's CPU quota
// pays for. At least 1.
std::uint32_t available_cores();
// The CPU quota of this process's cgroup and of those above it, in CPUs, in a file system whose root is `root`.
// Nothing: there is no limit.
std::optional<double> cpu_quota(const std::string& root = "");

// The processor's name; "unknown processor" if the system does not report one.
std::string processor_name();

struct MachineMemory {
  std::uint64_t total = 0;      // bytes of memory in all
  std::uint64_t available = 0;  // bytes that could be allocated without swapping
};

// Both are UINT64_MAX if the system does not report them.
MachineMemory machine_memory();

// An unpredictable number from the system; nothing if the system has none.
std::optional<std::uint64_t> random_seed();

}  // namespace quire
