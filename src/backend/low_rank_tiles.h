// The matrices of adapters in the layout that backends use: f32, in tiles of 16 rows, [cols][16] each. The rows of the
// last tile that the matrix does not have are zeros.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quire/backend/backend.h"

namespace quire {

inline constexpr std::uint32_t kLowRankLanes = 16;  // rows of a tile

std::uint64_t low_rank_bytes(const FileMatrix& matrix);
// Writes the tiles to host memory. The type must be one that can be dequantised.
void make_low_rank_tiles(const FileMatrix& matrix, std::byte* to);
// The matrix, once its tiles are at `data`.
Weight low_rank_weight(const FileMatrix& matrix, const std::byte* data);

}  // namespace quire
