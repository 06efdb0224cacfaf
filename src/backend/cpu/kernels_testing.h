// For tests of the CPU's kernels.
#pragma once

#include <vector>

#include "quire/backend/cpu/kernels.h"

namespace quire::cpu {

// The kernels that this machine can run.
inline std::vector<const Kernels*> all_kernels() {
  std::vector<const Kernels*> all;
  for (const char* name : {"scalar", "avx2", "avx512"}) {
    if (const Kernels* kernels = kernels_by_name(name)) all.push_back(kernels);
  }
  return all;
}

}  // namespace quire::cpu
