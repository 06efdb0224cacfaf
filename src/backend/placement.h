// Where the CPU backend's threads and memory are: what a user may choose. backend/cpu/topology.h says what becomes of
// it.
#pragma once

#include <cstdint>

namespace quire {

// Automatic: a thread that has a core to itself stays on it; if there are more cores than threads, the threads stay on
// the cores of their NUMA nodes, one per core. Cores: each thread stays on one core in any case. Off: as the system
// likes. With more threads than cores nothing is pinned.
enum class Pin : std::uint8_t { Automatic, Cores, Off };

// Automatic: on the threads' node, or interleaved if they are on several. Interleaved: page by page over all nodes of
// the threads. Local: each thread's share of a matrix is on its own node. Off: as the system likes.
enum class Numa : std::uint8_t { Automatic, Interleaved, Local, Off };

struct Placement {
  Pin pin = Pin::Automatic;
  Numa numa = Numa::Automatic;
};

}  // namespace quire
