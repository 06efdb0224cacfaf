// A batch as kernels see it: pointers into device memory, uploaded once per step. C++20, for CUDA code.
#pragma once

#include <cstdint>

namespace quire::cuda {

// The tokens of one sequence: BatchEntry without what only the host needs.
struct DeviceEntry {
  std::uint32_t first_row = 0;
  std::uint32_t rows = 0;
  std::uint32_t position = 0;  // of the first token
  std::uint32_t table = 0;     // row of the group's page tables
  std::uint32_t state = 0;     // place of the recurrent state, in units of StatesView
  std::uint32_t from = 0;      // of drafts: place of the state that they continue from
};

struct DeviceBatch {
  const std::int32_t* tokens = nullptr;      // [rows]
  const std::uint32_t* positions = nullptr;  // [rows]
  const std::uint32_t* row_entry = nullptr;  // [rows]: the entry of a row
  const std::uint32_t* wanted = nullptr;     // [wanted_count]
  const DeviceEntry* entries = nullptr;      // [entry_count]
  std::uint32_t rows = 0;
  std::uint32_t entry_count = 0;
  std::uint32_t wanted_count = 0;
};

}  // namespace quire::cuda
