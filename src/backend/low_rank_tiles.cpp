#include "quire/backend/low_rank_tiles.h"

#include <cstring>
#include <vector>

#include "quire/base/check.h"
#include "quire/base/numbers.h"

namespace quire {

std::uint64_t low_rank_bytes(const FileMatrix& matrix) {
  return std::uint64_t{round_up(matrix.rows, kLowRankLanes)} * matrix.cols * sizeof(float);
}

void make_low_rank_tiles(const FileMatrix& matrix, std::byte* to) {
  auto* const floats = reinterpret_cast<float*>(to);
  std::memset(to, 0, low_rank_bytes(matrix));
  std::vector<float> row(matrix.cols);
  for (std::uint32_t i = 0; i < matrix.rows; ++i) {
    const auto ok = gguf::dequantize(matrix.type, {matrix.data + i * matrix.row_bytes, matrix.row_bytes}, row);
    QUIRE_CHECK(ok.has_value(), "the types of adapters are checked when they are read");
    float* const tile = floats + std::size_t{i / kLowRankLanes} * kLowRankLanes * matrix.cols + i % kLowRankLanes;
    for (std::uint32_t k = 0; k < matrix.cols; ++k) tile[std::size_t{k} * kLowRankLanes] = row[k];
  }
}

Weight low_rank_weight(const FileMatrix& matrix, const std::byte* data) {
  return {.type = gguf::Type::F32,
          .rows = matrix.rows,
          .cols = matrix.cols,
          .data = data,
          .unit_bytes = std::uint64_t{kLowRankLanes} * matrix.cols * sizeof(float),
          .arranged = true};
}

}  // namespace quire
