// What this machine has to give. Anyone may ask, from any thread; the answers may change from one moment to the next.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace quire {

// Cores that this process may run on; at least 1.
std::uint32_t available_cores();

// What the processor calls itself; "unknown processor" where the system does not say.
std::string processor_name();

struct MachineMemory {
  std::uint64_t total = 0;      // bytes of memory there are
  std::uint64_t available = 0;  // that could be taken without pushing others out
};

// Both are the most that can be counted where the system does not say.
MachineMemory machine_memory();

// A number that nobody can foretell; nothing where the system gives none.
std::optional<std::uint64_t> random_seed();

}  // namespace quire
