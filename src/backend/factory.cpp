#include "quire/backend/factory.h"

#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "quire/backend/cpu/cpu_backend.h"
#include "quire/backend/cpu/topology.h"
#include "quire/base/machine.h"
#ifdef QUIRE_HAS_CUDA
#include "quire/backend/cuda/cuda_backend.h"
#endif

namespace quire {
namespace {

std::string variants_of_this_machine() {
  std::string names;
  for (const char* name : cpu::kVariants) {
    if (cpu::kernels_by_name(name) == nullptr) continue;
    if (!names.empty()) names += ", ";
    names += name;
  }
  return names;
}

Result<std::unique_ptr<Backend>> make_cpu(const BackendOptions& options) {
  const cpu::Kernels* kernels = &cpu::best_kernels();
  if (!options.variant.empty()) {
    kernels = cpu::kernels_by_name(options.variant.c_str());
    if (kernels == nullptr) {
      return fail("this machine cannot run the variant '" + options.variant +
                  "' (it can: " + variants_of_this_machine() + ")");
    }
  }
  const cpu::Topology machine = cpu::Topology::of_this_machine();
  const std::uint32_t threads = options.threads != 0 ? options.threads : machine.default_threads();
  return std::make_unique<CpuBackend>(cpu::placed(machine, threads, options.placement), *kernels);
}

#ifdef QUIRE_HAS_CUDA
Result<std::vector<CudaFacts>> gpus() { return cuda_devices(); }
Result<std::unique_ptr<Backend>> make_cuda(std::uint32_t number) { return CudaBackend::create(number); }
#else
struct CudaFacts {
  std::uint32_t number, major, minor;
  std::string name;
  DeviceMemory memory;
};
Result<std::vector<CudaFacts>> gpus() { return fail("this program was built without CUDA"); }
Result<std::unique_ptr<Backend>> make_cuda(std::uint32_t) { return fail("this program was built without CUDA"); }
#endif

// The number of a GPU: "cuda" is the first, "cuda:2" the third.
std::optional<std::uint32_t> gpu_number(std::string_view device) {
  constexpr std::string_view kName = "cuda";
  if (!device.starts_with(kName)) return std::nullopt;
  device.remove_prefix(kName.size());
  if (device.empty()) return 0;
  if (device.front() != ':') return std::nullopt;
  device.remove_prefix(1);
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(device.data(), device.data() + device.size(), number);
  if (error != std::errc() || end != device.data() + device.size()) return std::nullopt;
  return number;
}

}  // namespace

Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options) {
  if (options.device == "cpu") return make_cpu(options);
  if (options.device == "auto") {
    const auto all = options.variant.empty() ? gpus() : fail("CPU kernels are asked for");
    if (!all || all->front().major < 8) return make_cpu(options);
    return make_cuda(0);
  }
  const auto number = gpu_number(options.device);
  if (!number) return fail("there is no device '" + options.device + "' (auto, cpu, cuda and cuda:N are known)");
  if (!options.variant.empty()) return fail("'" + options.variant + "' is a variant of the CPU's kernels");
  auto backend = make_cuda(*number);
  if (!backend) return fail(fmt::format("device '{}': {}", options.device, backend.error().message));
  return backend;
}

DeviceChoices known_devices() {
  DeviceChoices choices;
  if (const auto all = gpus()) {
    for (const CudaFacts& gpu : *all) {
      if (gpu.major < 8) {
        choices.why_no_gpu =
            fmt::format("{} has compute capability {}.{}; 8.0 is needed", gpu.name, gpu.major, gpu.minor);
        continue;
      }
      choices.usable.push_back(
          {.name = fmt::format("cuda:{}", gpu.number),
           .description = fmt::format("{}, compute capability {}.{}", gpu.name, gpu.major, gpu.minor),
           .memory = gpu.memory});
    }
    if (!choices.usable.empty()) choices.why_no_gpu.clear();
  } else {
    choices.why_no_gpu = all.error().message;
  }
  const MachineMemory memory = machine_memory();
  choices.usable.push_back({.name = "cpu",
                            .description = fmt::format("{}; kernels: {}", cpu::Topology::of_this_machine().describe(),
                                                       variants_of_this_machine()),
                            .memory = {.free = memory.available, .total = memory.total}});
  return choices;
}

}  // namespace quire
