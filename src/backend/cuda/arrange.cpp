#include "quire/backend/cuda/arrange.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "quire/backend/cpu/kernels.h"
#include "quire/base/check.h"
#include "quire/base/numbers.h"
#include "quire/gguf/half.h"

namespace quire::cuda {

namespace {

using Bytes = const std::uint8_t*;

// 256 columns of a row: number i is scale[i / group] * (q[i] - offset), or scale * q + min.
struct Numbers {
  std::array<std::uint8_t, kPieceCols> q;
  std::array<float, 16> scale, min;
};

float f16_at(Bytes at) {
  std::uint16_t half;
  std::memcpy(&half, at, sizeof half);
  return gguf::f16_to_f32(half);
}

// --- blocks of 32, the b-th of a piece

// Low nibbles are elements 0 to 15, high nibbles 16 to 31.
void nibbles(Bytes from, std::uint8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = from[i] & 15;
    q[i + 16] = from[i] >> 4;
  }
}
void fifth_bits(Bytes from, std::uint8_t* q) {
  for (int i = 0; i < 32; ++i) q[i] = static_cast<std::uint8_t>(q[i] | ((from[i / 8] >> (i % 8)) & 1) << 4);
}

constexpr std::array<std::int8_t, 16> kLevels = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                 1,    13,   25,  38,  53,  69,  89,  113};
void levels(Bytes from, std::uint8_t* q) {
  nibbles(from, q);
  for (int i = 0; i < 32; ++i) q[i] = static_cast<std::uint8_t>(kLevels[q[i]] + 128);
}

void block_of_32(gguf::Type type, Bytes in, std::size_t b, Numbers& out) {
  std::uint8_t* q = out.q.data() + b * 32;
  if (type == gguf::Type::MXFP4) {
    out.scale[b] = 2 * gguf::half_e8m0(in[0]);
    return nibbles(in + 1, q);
  }
  out.scale[b] = f16_at(in);
  switch (type) {
    case gguf::Type::Q4_0: return nibbles(in + 2, q);
    case gguf::Type::Q4_1: out.min[b] = f16_at(in + 2); return nibbles(in + 4, q);
    case gguf::Type::Q5_0: nibbles(in + 6, q); return fifth_bits(in + 2, q);
    case gguf::Type::Q5_1:
      out.min[b] = f16_at(in + 2);
      nibbles(in + 8, q);
      return fifth_bits(in + 4, q);
    case gguf::Type::Q8_0:
      for (int i = 0; i < 32; ++i) q[i] = in[2 + i] ^ 0x80;
      return;
    default: return levels(in + 2, q);  // IQ4_NL
  }
}

// --- blocks of 256 (gguf/dequantize.cpp explains them)

void two_bits(Bytes quants, Numbers& out) {
  for (std::size_t run = 0; run < 8; ++run) {
    for (std::size_t i = 0; i < 32; ++i) out.q[run * 32 + i] = (quants[run / 4 * 32 + i] >> (run % 4 * 2)) & 3;
  }
}

void block_q2_k(Bytes in, Numbers& out) {
  const float d = f16_at(in + 80), dmin = f16_at(in + 82);
  for (std::size_t s = 0; s < 16; ++s) {
    out.scale[s] = d * static_cast<float>(in[s] & 15);
    out.min[s] = -dmin * static_cast<float>(in[s] >> 4);
  }
  two_bits(in + 16, out);
}

void block_q3_k(Bytes in, Numbers& out) {
  const Bytes scales = in + 96;
  const float d = f16_at(in + 108);
  for (std::size_t s = 0; s < 16; ++s) {
    const int low = (scales[s % 8] >> (s / 8 * 4)) & 15, high = (scales[8 + s % 4] >> (s / 4 * 2)) & 3;
    out.scale[s] = d * static_cast<float>((low | high << 4) - 32);
  }
  two_bits(in + 32, out);
  // Without the third bit 4 is subtracted. Here numbers have an offset of 8.
  for (std::size_t run = 0; run < 8; ++run) {
    for (std::size_t i = 0; i < 32; ++i) {
      std::uint8_t& q = out.q[run * 32 + i];
      q = static_cast<std::uint8_t>(q + 4 + ((in[i] >> run) & 1) * 4);
    }
  }
}

// Q4_K and Q5_K: eight scales and minima of 6 bits.
void scales_q45_k(Bytes in, Numbers& out) {
  const float d = f16_at(in), dmin = f16_at(in + 2);
  const Bytes packed = in + 4;
  for (std::size_t s = 0; s < 8; ++s) {
    const int scale = s < 4 ? packed[s] & 63 : (packed[s + 4] & 15) | (packed[s - 4] >> 6) << 4;
    const int min = s < 4 ? packed[s + 4] & 63 : (packed[s + 4] >> 4) | (packed[s] >> 6) << 4;
    out.scale[s] = d * static_cast<float>(scale);
    out.min[s] = -dmin * static_cast<float>(min);
  }
}
void runs_of_nibbles(Bytes quants, Numbers& out) {
  for (std::size_t pair = 0; pair < 4; ++pair) {
    for (std::size_t i = 0; i < 32; ++i) {
      out.q[pair * 64 + i] = quants[pair * 32 + i] & 15;
      out.q[pair * 64 + 32 + i] = quants[pair * 32 + i] >> 4;
    }
  }
}

void block_q4_k(Bytes in, Numbers& out) {
  scales_q45_k(in, out);
  runs_of_nibbles(in + 16, out);
}
void block_q5_k(Bytes in, Numbers& out) {
  scales_q45_k(in, out);
  runs_of_nibbles(in + 48, out);
  for (std::size_t run = 0; run < 8; ++run) {
    for (std::size_t i = 0; i < 32; ++i) {
      std::uint8_t& q = out.q[run * 32 + i];
      q = static_cast<std::uint8_t>(q | ((in[16 + i] >> run) & 1) << 4);
    }
  }
}

void block_q6_k(Bytes in, Numbers& out) {
  const float d = f16_at(in + 208);
  for (std::size_t s = 0; s < 16; ++s) {
    out.scale[s] = d * static_cast<float>(static_cast<std::int8_t>(in[192 + s]));
  }
  for (std::size_t run = 0; run < 8; ++run) {  // four in each half of 128
    const Bytes low = in + run / 4 * 64 + run % 2 * 32, high = in + 128 + run / 4 * 32;
    for (std::size_t i = 0; i < 32; ++i) {
      const int low_bits = (low[i] >> (run % 4 / 2 * 4)) & 15, high_bits = (high[i] >> (run % 4 * 2)) & 3;
      out.q[run * 32 + i] = static_cast<std::uint8_t>(low_bits | high_bits << 4);
    }
  }
}

void block_iq4_xs(Bytes in, Numbers& out) {
  const float d = f16_at(in);
  for (std::size_t run = 0; run < 8; ++run) {
    const int low = (in[4 + run / 2] >> (run % 2 * 4)) & 15, high = (in[2 + run / 4] >> (run % 4 * 2)) & 3;
    out.scale[run] = d * static_cast<float>((low | high << 4) - 32);
    levels(in + 8 + run * 16, out.q.data() + run * 32);
  }
}

// The types with grids or three values: integers and scales as the CPU has them.
void block_of_grid(gguf::Type type, Bytes in, PackingInfo info, Numbers& out) {
  std::array<std::int8_t, kPieceCols> q;
  std::array<float, 16> scales, offsets;
  const bool known = cpu::scalar_kernels().unpack_quant(type, reinterpret_cast<const std::byte*>(in), kPieceCols,
                                                        {q.data(), scales.data(), offsets.data()});
  QUIRE_CHECK(known, "weights were checked when the model was bound");
  // All numbers of IQ3_XXS are even. Halved, they fit in six bits.
  const int divisor = type == gguf::Type::IQ3_XXS ? 2 : 1;
  const std::size_t groups = kPieceCols / info.group;
  for (std::size_t s = 0; s < groups; ++s) out.scale[s] = static_cast<float>(divisor) * scales[s * 16 / groups];
  for (std::size_t i = 0; i < kPieceCols; ++i) {
    out.q[i] = static_cast<std::uint8_t>(q[i] / divisor + static_cast<int>(info.offset()));
  }
}

// A piece of a row; `cols` of its columns exist. The others are zeros.
void read_piece(gguf::Type type, Bytes in, std::uint32_t cols, PackingInfo info, Numbers& out) {
  switch (type) {
    case gguf::Type::Q2_K: return block_q2_k(in, out);
    case gguf::Type::Q3_K: return block_q3_k(in, out);
    case gguf::Type::Q4_K: return block_q4_k(in, out);
    case gguf::Type::Q5_K: return block_q5_k(in, out);
    case gguf::Type::Q6_K: return block_q6_k(in, out);
    case gguf::Type::IQ4_XS: return block_iq4_xs(in, out);
    case gguf::Type::IQ1_S:
    case gguf::Type::IQ1_M:
    case gguf::Type::IQ2_XXS:
    case gguf::Type::IQ2_XS:
    case gguf::Type::IQ2_S:
    case gguf::Type::IQ3_XXS:
    case gguf::Type::IQ3_S:
    case gguf::Type::TQ1_0:
    case gguf::Type::TQ2_0: return block_of_grid(type, in, info, out);
    default: break;
  }
  out.q.fill(static_cast<std::uint8_t>(info.offset()));
  out.scale.fill(0);
  out.min.fill(0);
  const std::uint32_t bytes = gguf::type_info(type).block_bytes;
  for (std::size_t b = 0; b < cols / 32; ++b) block_of_32(type, in + b * bytes, b, out);
}

// --- writing

void or_word(std::byte* at, std::uint32_t bits) {
  std::uint32_t word;
  std::memcpy(&word, at, sizeof word);
  word |= bits;
  std::memcpy(at, &word, sizeof word);
}

// The numbers of a piece, without scales. `numbers` is by row of the tile.
template <std::uint32_t kBits>
void write_numbers(PackingInfo info, const Numbers* numbers, std::byte* piece) {
  for (std::uint32_t k = 0; k < kSteps * 32; ++k) {
    const std::uint32_t step = k / 32, lane = k % 32;
    std::uint32_t low = 0, high = 0;
    for (std::uint32_t i = 0; i < 8; ++i) {
      const Place at = place_of(step, lane, i);
      const std::uint32_t q = numbers[at.row].q[at.col];
      if constexpr (kBits == 8) piece[byte_at(step, lane, i)] = static_cast<std::byte>(q);
      if constexpr (kBits < 8) low |= (q & 15) << nibble_bit(i);
      if constexpr (kBits == 5) high |= (q >> 4) << fifth_bit(step, i);
      if constexpr (kBits == 6) high |= (q >> 4) << sixth_bit(step, i);
    }
    if constexpr (kBits < 8) std::memcpy(piece + nibble_word_at(step, lane), &low, sizeof low);
    if constexpr (kBits == 5) or_word(piece + info.low_bytes() + fifth_word_at(step, lane), high);
    if constexpr (kBits == 6) or_word(piece + info.low_bytes() + sixth_word_at(step, lane), high);
  }
}
void write_numbers(PackingInfo info, const Numbers* numbers, std::byte* piece) {
  switch (info.bits) {
    case 4: return write_numbers<4>(info, numbers, piece);
    case 5: return write_numbers<5>(info, numbers, piece);
    case 6: return write_numbers<6>(info, numbers, piece);
    default: return write_numbers<8>(info, numbers, piece);
  }
}

void write_scales(PackingInfo info, const Numbers* numbers, const float* power, std::byte* to) {
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    for (std::uint32_t group = 0; group < info.lane_groups(); ++group) {
      const std::uint32_t all = lane % 4 * info.lane_groups() + group;
      for (std::uint32_t second = 0; second < 2; ++second) {
        const std::uint32_t row = lane / 4 + 8 * second;
        const std::uint16_t scale = gguf::f32_to_f16(numbers[row].scale[all] * power[row]);
        std::memcpy(to + scale_at(info, lane, group, second, 0), &scale, sizeof scale);
        if (!info.min) continue;
        const std::uint16_t min = gguf::f32_to_f16(numbers[row].min[all] * power[row]);
        std::memcpy(to + scale_at(info, lane, group, second, 1), &min, sizeof min);
      }
    }
  }
}

// The largest number that a row can have, from its scales and minima alone.
float bound_of(PackingInfo info, const Numbers& numbers) {
  const auto most = static_cast<float>(info.floats ? 6 : info.min ? (1u << info.bits) - 1 : info.offset());
  float bound = 0;
  for (std::size_t s = 0; s < kPieceCols / info.group; ++s) {
    const float here = most * std::fabs(numbers.scale[s]) + (info.min ? std::fabs(numbers.min[s]) : 0.0f);
    if (!(here <= bound)) bound = here;  // also a NaN
  }
  return bound;
}
// The power of two that brings it to [2^13, 2^14).
float power_for(float bound) {
  if (!std::isfinite(bound) || bound == 0) return 1;
  return std::ldexp(1.0f, std::clamp(13 - std::ilogb(bound), -100, 100));
}

struct Rows {  // of a tile
  gguf::Type type;
  std::uint32_t rows, cols;
  Bytes data;
  std::uint64_t row_bytes, piece_bytes;

  Bytes at(std::uint32_t row, std::uint32_t piece) const { return data + row * row_bytes + piece * piece_bytes; }
  std::uint32_t cols_of(std::uint32_t piece) const { return std::min(kPieceCols, cols - piece * kPieceCols); }
};

void arrange_quants(const Rows& rows, PackingInfo info, float* inverses, std::byte* to) {
  // First the scales of whole rows: the power of two is one for all of a row.
  std::array<Numbers, kTileRows> numbers = {};
  std::array<float, kTileRows> power;
  power.fill(1);
  const std::uint32_t pieces = pieces_of(rows.cols);
  for (std::uint32_t row = 0; row < rows.rows; ++row) {
    float bound = 0;
    for (std::uint32_t piece = 0; piece < pieces; ++piece) {
      read_piece(rows.type, rows.at(row, piece), rows.cols_of(piece), info, numbers[row]);
      const float here = bound_of(info, numbers[row]);
      if (!(here <= bound)) bound = here;
    }
    power[row] = power_for(bound);
  }
  for (std::uint32_t row = rows.rows; row < kTileRows; ++row) numbers[row] = {};  // scales of 0
  for (std::uint32_t row = 0; row < kTileRows; ++row) inverses[row] = 1 / power[row];
  for (std::uint32_t piece = 0; piece < pieces; ++piece, to += info.piece_bytes()) {
    for (std::uint32_t row = 0; row < rows.rows; ++row) {
      read_piece(rows.type, rows.at(row, piece), rows.cols_of(piece), info, numbers[row]);
    }
    std::memset(to + info.low_bytes(), 0, info.high_bytes());
    write_numbers(info, numbers.data(), to);
    write_scales(info, numbers.data(), power.data(), to + info.low_bytes() + info.high_bytes());
  }
}

// F16 and BF16: the bits as they are.
void arrange_halves(const Rows& rows, float* inverses, std::byte* to) {
  constexpr PackingInfo kInfo = packing_info(Packing::F16);
  std::fill_n(inverses, kTileRows, 1.0f);
  for (std::uint32_t piece = 0; piece < pieces_of(rows.cols); ++piece, to += kInfo.piece_bytes()) {
    std::uint16_t halves[kTileRows][kPieceCols] = {};
    for (std::uint32_t row = 0; row < rows.rows; ++row) {
      std::memcpy(halves[row], rows.at(row, piece), rows.cols_of(piece) * sizeof(std::uint16_t));
    }
    for (std::uint32_t step = 0; step < kSteps; ++step) {
      for (std::uint32_t lane = 0; lane < 32; ++lane) {
        for (std::uint32_t i = 0; i < 8; i += 2) {
          const Place at = place_of(step, lane, i);
          std::memcpy(to + half_at(step, lane, i), &halves[at.row][at.col], 2 * sizeof(std::uint16_t));
        }
      }
    }
  }
}

void arrange_floats(const FileMatrix& matrix, std::byte* to) {
  const std::uint64_t bytes = std::uint64_t{matrix.cols} * sizeof(float);
  for (std::uint32_t row = 0; row < matrix.rows; ++row) {
    std::memcpy(to + row * bytes, matrix.data + row * matrix.row_bytes, bytes);
  }
  const std::uint64_t all = matrix.rows * bytes;
  std::memset(to + all, 0, arranged_bytes(matrix.type, matrix.rows, matrix.cols) - all);
}

}  // namespace

Packing packing_of(gguf::Type type) {
  switch (type) {
    case gguf::Type::F32: return Packing::F32;
    case gguf::Type::F16: return Packing::F16;
    case gguf::Type::BF16: return Packing::BF16;
    case gguf::Type::Q4_0:
    case gguf::Type::TQ1_0:
    case gguf::Type::TQ2_0: return Packing::Q4;
    case gguf::Type::Q4_1:
    case gguf::Type::Q4_K: return Packing::Q4Min;
    case gguf::Type::Q2_K: return Packing::Q4x16Min;
    case gguf::Type::Q3_K: return Packing::Q4x16;
    case gguf::Type::MXFP4: return Packing::E2M1;
    case gguf::Type::Q5_0:
    case gguf::Type::IQ1_S:
    case gguf::Type::IQ3_S: return Packing::Q5;
    case gguf::Type::Q5_1:
    case gguf::Type::Q5_K: return Packing::Q5Min;
    case gguf::Type::Q6_K:
    case gguf::Type::IQ1_M:
    case gguf::Type::IQ3_XXS: return Packing::Q6x16;
    case gguf::Type::IQ2_XS:
    case gguf::Type::IQ2_S: return Packing::Q8x16;
    case gguf::Type::Q8_0:
    case gguf::Type::IQ2_XXS:
    case gguf::Type::IQ4_NL:
    case gguf::Type::IQ4_XS: return Packing::Q8;
    default: QUIRE_CHECK(false, "weights were checked when the model was bound"); return Packing::F32;
  }
}

std::uint64_t arranged_bytes(gguf::Type type, std::uint32_t rows, std::uint32_t cols) {
  const Packing packing = packing_of(type);
  const std::uint64_t bytes = packing == Packing::F32 ? std::uint64_t{rows} * cols * sizeof(float)
                                                      : tiles_at(rows) + tiles_of(rows) * tile_bytes(packing, cols);
  return round_up(std::max<std::uint64_t>(bytes, 1), std::uint64_t{256});
}

void arrange(const FileMatrix& matrix, ThreadTeam& team, std::byte* to) {
  const Packing packing = packing_of(matrix.type);
  if (packing == Packing::F32) return arrange_floats(matrix, to);
  const PackingInfo info = packing_info(packing);
  const gguf::TypeInfo& type = gguf::type_info(matrix.type);
  const std::uint64_t one_tile = tile_bytes(packing, matrix.cols),
                      end = arranged_bytes(matrix.type, matrix.rows, matrix.cols);
  const std::uint32_t tiles = tiles_of(matrix.rows);
  const std::uint64_t inverses = std::uint64_t{tiles} * kTileRows * sizeof(float), first = tiles_at(matrix.rows);
  std::memset(to + inverses, 0, first - inverses);
  std::memset(to + first + tiles * one_tile, 0, end - first - tiles * one_tile);
  team.run([&](std::uint32_t part, std::uint32_t parts) {
    const auto of = [&](std::uint32_t i) { return static_cast<std::uint32_t>(std::uint64_t{tiles} * i / parts); };
    for (std::uint32_t tile = of(part); tile < of(part + 1); ++tile) {
      const std::uint32_t row = tile * kTileRows;
      const Rows rows{matrix.type,      std::min(kTileRows, matrix.rows - row),
                      matrix.cols,      reinterpret_cast<Bytes>(matrix.data) + row * matrix.row_bytes,
                      matrix.row_bytes, std::uint64_t{kPieceCols} / type.block_size * type.block_bytes};
      auto* powers = reinterpret_cast<float*>(to) + row;
      std::byte* tile_at = to + first + tile * one_tile;
      info.quantised() ? arrange_quants(rows, info, powers, tile_at) : arrange_halves(rows, powers, tile_at);
    }
  });
}

}  // namespace quire::cuda
