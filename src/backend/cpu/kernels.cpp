#include "quire/backend/cpu/kernels.h"

#include <cstring>

#if defined(__x86_64__) && QUIRE_VECTOR_KERNELS
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace quire::cpu {
#if defined(__x86_64__) && QUIRE_VECTOR_KERNELS
namespace {

// The same as __builtin_cpu_supports("f16c"), a name that clang 16 does not know.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

// Tiles need the processor, an operating system that saves them, and its permission, which is for the whole process.
bool has_amx() {
  constexpr unsigned kTiles = 1u << 24, kInt8 = 1u << 25, kSaved = 3u << 17;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0) return false;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & (kTiles | kInt8)) != (kTiles | kInt8)) return false;
  unsigned low = 0, high = 0;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & kSaved) != kSaved) return false;
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace
#endif

const Kernels* kernels_by_name(const char* name) {
#if defined(__x86_64__) && QUIRE_VECTOR_KERNELS
  if (std::strcmp(name, "amx") == 0) {
    static const bool has = kernels_by_name("avx512") != nullptr && has_amx();
    return has ? amx_kernels() : nullptr;
  }
  if (std::strcmp(name, "avx512bf16") == 0) {
    const bool has = kernels_by_name("avx512") != nullptr && __builtin_cpu_supports("avx512bf16");
    return has ? avx512bf16_kernels() : nullptr;
  }
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
  // The last is the best: processors that have tiles multiply BF16 by VDPBF16PS at half the rate of floats, so that
  // "amx", which multiplies it as "avx512" does, is better there than "avx512bf16".
  const Kernels* best = &scalar_kernels();
  for (const char* name : kVariants) {
    if (const Kernels* kernels = kernels_by_name(name)) best = kernels;
  }
  return *best;
}

}  // namespace quire::cpu
