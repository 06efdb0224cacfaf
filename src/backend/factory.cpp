#include "quire/backend/factory.h"

#include "quire/backend/cpu/cpu_backend.h"
#include "quire/base/machine.h"

namespace quire {
namespace {

std::string variants_of_this_machine() {
  std::string names;
  for (const char* name : {"scalar", "avx2", "avx512"}) {
    if (cpu::kernels_by_name(name) == nullptr) continue;
    if (!names.empty()) names += ", ";
    names += name;
  }
  return names;
}

}  // namespace

Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options) {
  if (options.device != "auto" && options.device != "cpu") {
    return fail("there is no device '" + options.device + "' (auto and cpu are known)");
  }
  const cpu::Kernels* kernels = &cpu::best_kernels();
  if (!options.variant.empty()) {
    kernels = cpu::kernels_by_name(options.variant.c_str());
    if (kernels == nullptr) {
      return fail("this machine cannot run the variant '" + options.variant +
                  "' (it can: " + variants_of_this_machine() + ")");
    }
  }
  const std::uint32_t threads = options.threads != 0 ? options.threads : available_cores();
  return std::make_unique<CpuBackend>(threads, *kernels);
}

}  // namespace quire
