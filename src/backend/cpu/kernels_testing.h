// For tests of the CPU's kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "quire/backend/cpu/kernels.h"

namespace quire::cpu {

// The kernels that this machine can run, and those of AMX with emulated tiles.
inline std::vector<const Kernels*> all_kernels() {
  std::vector<const Kernels*> all;
  for (const char* name : kVariants) {
    if (const Kernels* kernels = kernels_by_name(name)) all.push_back(kernels);
  }
  if (kernels_by_name("avx512") != nullptr) all.push_back(emulated_amx_kernels());
  return all;
}

inline std::vector<float> random_floats(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

}  // namespace quire::cpu
