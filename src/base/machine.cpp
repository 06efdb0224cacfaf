#include "quire/base/machine.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>

#include <sched.h>
#include <unistd.h>

namespace quire {

namespace {

std::uint32_t allowed_cpus() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) == 0)
    return static_cast<std::uint32_t>(std::max(1, CPU_COUNT(&cores)));
  // The machine has more cores than the set has room for.
  return static_cast<std::uint32_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

// The first line of a file; nothing if there is none.
std::optional<std::string> first_line(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), std::fclose);
  char line[256];
  if (file == nullptr || std::fgets(line, sizeof line, file.get()) == nullptr) return std::nullopt;
  return line;
}

}  // namespace

std::uint32_t available_cores() {
  const std::uint32_t allowed = allowed_cpus();
  const std::optional<double> quota = cpu_quota();
  if (!quota || *quota >= allowed) return allowed;
  return std::max(1u, static_cast<std::uint32_t>(std::ceil(*quota)));
}

std::optional<double> cpu_quota(const std::string& root) {
  std::optional<double> least;
  const auto limit = [&](double microseconds, double period) {
    if (microseconds <= 0 || period <= 0) return;
    least = least ? std::min(*least, microseconds / period) : microseconds / period;
  };
  // Version 2: one line "0::/path". A group inherits the limits of those above it. In a container the path may be that
  // of another file system; then the root's limit is the container's.
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> groups(std::fopen((root + "/proc/self/cgroup").c_str(), "re"),
                                                               std::fclose);
  char line[4096];
  std::string path;
  while (groups != nullptr && std::fgets(line, sizeof line, groups.get()) != nullptr) {
    const std::string_view text(line);
    if (text.starts_with("0::")) path = text.substr(3, text.find_last_not_of('\n') - 2);
  }
  for (;;) {
    std::string file = root;
    file.append("/sys/fs/cgroup").append(path).append("/cpu.max");
    if (const auto quota = first_line(file)) {
      double most = 0, period = 0;
      if (std::sscanf(quota->c_str(), "%lf %lf", &most, &period) == 2) limit(most, period);  // not "max 100000"
    }
    if (path.empty()) break;
    path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  }
  // Version 1: -1 is no limit.
  const auto most = first_line(root + "/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  const auto period = first_line(root + "/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (most && period) limit(std::atof(most->c_str()), std::atof(period->c_str()));
  return least;
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
