#include "quire/base/machine.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string_view>

#include <sched.h>
#include <unistd.h>

namespace quire {

std::uint32_t available_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) == 0)
    return static_cast<std::uint32_t>(std::max(1, CPU_COUNT(&cores)));
  // The machine has more cores than the set has room for.
  return static_cast<std::uint32_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

std::string processor_name() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/cpuinfo", "re"), std::fclose);
  char line[256];
  while (file != nullptr && std::fgets(line, sizeof line, file.get()) != nullptr) {
    const std::string_view text(line);
    const std::size_t colon = text.find(':');
    if (!text.starts_with("model name") || colon == std::string_view::npos) continue;
    const std::size_t begin = text.find_first_not_of(" \t", colon + 1);
    const std::size_t end = text.find_last_not_of(" \t\n");
    if (begin != std::string_view::npos && begin <= end) return std::string(text.substr(begin, end + 1 - begin));
  }
  return "unknown processor";
}

MachineMemory machine_memory() {
  MachineMemory memory{.total = UINT64_MAX, .available = UINT64_MAX};
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/meminfo", "re"), std::fclose);
  if (file == nullptr) return memory;
  char line[256];
  while (std::fgets(line, sizeof line, file.get()) != nullptr) {
    unsigned long long kilobytes = 0;
    if (std::sscanf(line, "MemTotal: %llu kB", &kilobytes) == 1) memory.total = kilobytes * 1024;
    if (std::sscanf(line, "MemAvailable: %llu kB", &kilobytes) == 1) memory.available = kilobytes * 1024;
  }
  return memory;
}

std::optional<std::uint64_t> random_seed() {
  std::uint64_t seed = 0;
  if (getentropy(&seed, sizeof seed) != 0) return std::nullopt;
  return seed;
}

}  // namespace quire
