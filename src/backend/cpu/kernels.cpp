#include "quire/backend/cpu/kernels.h"

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace quire::cpu {
#if defined(__x86_64__)
namespace {

// The same as __builtin_cpu_supports("f16c"), a name that clang 16 does not know.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

}  // namespace
#endif

const Kernels* kernels_by_name(const char* name) {
#if defined(__x86_64__)
  if (std::strcmp(name, "avx512") == 0) {
    const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                     __builtin_cpu_supports("avx512vnni");
    return has ? avx512_kernels() : nullptr;
  }
  if (std::strcmp(name, "avx2") == 0) {
    const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    return has ? avx2_kernels() : nullptr;
  }
#endif
  return std::strcmp(name, "scalar") == 0 ? &scalar_kernels() : nullptr;
}

const Kernels& best_kernels() {
  for (const char* name : {"avx512", "avx2"}) {
    if (const Kernels* kernels = kernels_by_name(name)) return *kernels;
  }
  return scalar_kernels();
}

}  // namespace quire::cpu
