// The block formats. In each, `d` is a 16-bit float scale. Blocks of 256 are divided into smaller ones, with their own
// scales and perhaps offsets in 6 or 4 bits. Every product of scales and quants below is exact in float32, and at most
// one rounding follows. So the results do not depend on the order that a compiler chooses, as long as it does not fuse
// (the module is built with -ffp-contract=off).
#include <cstring>

#include <fmt/format.h>

#include "quire/gguf/blocks.h"
#include "quire/gguf/types.h"

namespace quire::gguf {

namespace {

void block_f32(Bytes in, float* out) { std::memcpy(out, in, sizeof *out); }
void block_f16(Bytes in, float* out) { *out = f16_at(in); }
void block_bf16(Bytes in, float* out) { *out = bf16_to_f32(u16_at(in)); }

// Blocks of 32. The low nibbles are elements 0 to 15, the high ones 16 to 31. Bit i of a 32-bit word is the fifth bit
// of element i.

// d, 16 bytes of nibbles
void block_q4_0(Bytes in, float* out) {
  const float d = f16_at(in);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((in[2 + i] & 15) - 8);
    out[i + 16] = d * static_cast<float>((in[2 + i] >> 4) - 8);
  }
}

// d, m, 16 bytes of nibbles
void block_q4_1(Bytes in, float* out) {
  const float d = f16_at(in), m = f16_at(in + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(in[4 + i] & 15) + m;
    out[i + 16] = d * static_cast<float>(in[4 + i] >> 4) + m;
  }
}

int fifth_bit(Bytes bits, int i) { return ((bits[i / 8] >> (i % 8)) & 1) << 4; }

// d, 4 bytes of fifth bits, 16 bytes of nibbles
void block_q5_0(Bytes in, float* out) {
  const float d = f16_at(in);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(((in[6 + i] & 15) | fifth_bit(in + 2, i)) - 16);
    out[i + 16] = d * static_cast<float>(((in[6 + i] >> 4) | fifth_bit(in + 2, i + 16)) - 16);
  }
}

// d, m, 4 bytes of fifth bits, 16 bytes of nibbles
void block_q5_1(Bytes in, float* out) {
  const float d = f16_at(in), m = f16_at(in + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((in[8 + i] & 15) | fifth_bit(in + 4, i)) + m;
    out[i + 16] = d * static_cast<float>((in[8 + i] >> 4) | fifth_bit(in + 4, i + 16)) + m;
  }
}

// d, 32 signed bytes
void block_q8_0(Bytes in, float* out) {
  const float d = f16_at(in);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<std::int8_t>(in[2 + i]));
}

// d, 16 bytes of nibbles that are indices of levels
void block_iq4_nl(Bytes in, float* out) {
  const float d = f16_at(in);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * kLevels[in[2 + i] & 15];
    out[i + 16] = d * kLevels[in[2 + i] >> 4];
  }
}

// A byte of exponent (the scale is a power of two), 16 bytes of nibbles that are floats of 4 bits
void block_mxfp4(Bytes in, float* out) {
  const float d = half_e8m0(in[0]);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * kTwiceE2M1[in[1 + i] & 15];
    out[i + 16] = d * kTwiceE2M1[in[1 + i] >> 4];
  }
}

// Blocks of 256.

// 16 bytes of scale (low nibble) and offset (high nibble), one for each 16 elements; 64 bytes of quants; d, dmin. In
// each half of 128 elements, 32 bytes hold four runs of 32: bits 0-1 are the first run, bits 2-3 the second, and so on.
void block_q2_k(Bytes in, float* out) {
  const Bytes scales = in, quants = in + 16;
  const float d = f16_at(in + 80), dmin = f16_at(in + 82);
  for (int i = 0; i < 256; ++i) {
    const int scale = scales[i / 16];
    const int q = (quants[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
    out[i] = d * static_cast<float>(scale & 15) * static_cast<float>(q) - dmin * static_cast<float>(scale >> 4);
  }
}

// 32 bytes of third bits (bit r of byte i: element i of the r-th run of 32), 64 bytes of the two lower bits as in Q2_K,
// 12 bytes of 16 scales in 6 bits, d. If the third bit is not set, 4 is subtracted.
void block_q3_k(Bytes in, float* out) {
  const Bytes high = in, quants = in + 32, scales = in + 96;
  const float d = f16_at(in + 108);
  for (int i = 0; i < 256; ++i) {
    // Scale s has its low 4 bits in nibble s of the first 8 bytes (low nibbles first), and its high 2 bits in the last
    // 4 bytes.
    const int s = i / 16;
    const int low_bits = (scales[s % 8] >> (s / 8 * 4)) & 15;
    const int high_bits = (scales[8 + s % 4] >> (s / 4 * 2)) & 3;
    const int scale = (low_bits | high_bits << 4) - 32;
    const int q = (quants[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
    const int third = (high[i % 32] >> (i / 32)) & 1;
    out[i] = d * static_cast<float>(scale) * static_cast<float>(q - (third != 0 ? 0 : 4));
  }
}

struct ScaleAndOffset {
  int scale, offset;
};

// Q4_K and Q5_K: eight scales and eight offsets of 6 bits in 12 bytes. The first four of each are the low 6 bits of
// bytes 0-3 and 4-7. The others have their low 4 bits in bytes 8-11 and their high 2 bits in the top bits of bytes 0-7.
ScaleAndOffset six_bits(Bytes scales, int s) {
  if (s < 4) return {scales[s] & 63, scales[s + 4] & 63};
  return {(scales[s + 4] & 15) | (scales[s - 4] >> 6) << 4, (scales[s + 4] >> 4) | (scales[s] >> 6) << 4};
}

// d, dmin, 12 bytes of scales, 128 bytes of nibbles. In each 32 bytes, the low nibbles are a run of 32 elements and the
// high nibbles are the next run.
void block_q4_k(Bytes in, float* out) {
  const float d = f16_at(in), dmin = f16_at(in + 2);
  const Bytes quants = in + 16;
  for (int run = 0; run < 8; ++run) {
    const auto [scale, offset] = six_bits(in + 4, run);
    const float step = d * static_cast<float>(scale), min = dmin * static_cast<float>(offset);
    for (int i = 0; i < 32; ++i) {
      const int q = (quants[run / 2 * 32 + i] >> (run % 2 * 4)) & 15;
      out[run * 32 + i] = step * static_cast<float>(q) - min;
    }
  }
}

// As Q4_K, with 32 bytes of fifth bits (bit r of byte i: element i of run r) between scales and nibbles.
void block_q5_k(Bytes in, float* out) {
  const float d = f16_at(in), dmin = f16_at(in + 2);
  const Bytes high = in + 16, quants = in + 48;
  for (int run = 0; run < 8; ++run) {
    const auto [scale, offset] = six_bits(in + 4, run);
    const float step = d * static_cast<float>(scale), min = dmin * static_cast<float>(offset);
    for (int i = 0; i < 32; ++i) {
      const int low_bits = (quants[run / 2 * 32 + i] >> (run % 2 * 4)) & 15;
      const int q = low_bits | ((high[i] >> run) & 1) << 4;
      out[run * 32 + i] = step * static_cast<float>(q) - min;
    }
  }
}

// 128 bytes of the low 4 bits, 64 bytes of the high 2, 16 signed bytes of scales, d. In each half of 128 elements, runs
// 0 and 1 are the low nibbles of 64 bytes and runs 2 and 3 the high ones. The high bits are laid out like the quants of
// Q2_K.
void block_q6_k(Bytes in, float* out) {
  const Bytes low = in, high = in + 128, scales = in + 192;
  const float d = f16_at(in + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, run = i % 128 / 32;
    const int low_bits = (low[half * 64 + i % 64] >> (run / 2 * 4)) & 15;
    const int high_bits = (high[half * 32 + i % 32] >> (run * 2)) & 3;
    const float step = d * static_cast<float>(static_cast<std::int8_t>(scales[i / 16]));
    out[i] = step * static_cast<float>((low_bits | high_bits << 4) - 32);
  }
}

// d, 2 bytes with the high 2 bits of eight scales, 4 bytes with their low 4 bits, 128 bytes of nibbles that are indices
// of levels: eight runs, each laid out as an IQ4_NL block.
void block_iq4_xs(Bytes in, float* out) {
  const float d = f16_at(in);
  const int scales_high = u16_at(in + 2);
  const Bytes scales_low = in + 4, quants = in + 8;
  for (int run = 0; run < 8; ++run) {
    const int low_bits = (scales_low[run / 2] >> (run % 2 * 4)) & 15;
    const int high_bits = (scales_high >> (run * 2)) & 3;
    const float step = d * static_cast<float>((low_bits | high_bits << 4) - 32);
    for (int i = 0; i < 16; ++i) {
      out[run * 32 + i] = step * kLevels[quants[run * 16 + i] & 15];
      out[run * 32 + i + 16] = step * kLevels[quants[run * 16 + i] >> 4];
    }
  }
}

BlockFunction block_function(Type type) {
  switch (type) {
    case Type::F32: return block_f32;
    case Type::F16: return block_f16;
    case Type::BF16: return block_bf16;
    case Type::Q4_0: return block_q4_0;
    case Type::Q4_1: return block_q4_1;
    case Type::Q5_0: return block_q5_0;
    case Type::Q5_1: return block_q5_1;
    case Type::Q8_0: return block_q8_0;
    case Type::Q2_K: return block_q2_k;
    case Type::Q3_K: return block_q3_k;
    case Type::Q4_K: return block_q4_k;
    case Type::Q5_K: return block_q5_k;
    case Type::Q6_K: return block_q6_k;
    case Type::IQ4_NL: return block_iq4_nl;
    case Type::IQ4_XS: return block_iq4_xs;
    case Type::MXFP4: return block_mxfp4;
    default: return grid_block_function(type);
  }
}

}  // namespace

Result<void> dequantize(Type type, std::span<const std::byte> blocks, std::span<float> out) {
  const TypeInfo& info = type_info(type);
  const BlockFunction function = block_function(type);
  if (function == nullptr) return fail(fmt::format("tensors of type {} cannot be turned into floats", info.name));
  if (blocks.size() % info.block_bytes != 0 || out.size() % info.block_size != 0 ||
      blocks.size() / info.block_bytes != out.size() / info.block_size) {
    return fail(fmt::format("{} bytes of {} are not {} elements ({} bytes for every {})", blocks.size(), info.name,
                            out.size(), info.block_bytes, info.block_size));
  }
  Bytes in = reinterpret_cast<Bytes>(blocks.data());
  for (std::size_t block = 0; block < out.size() / info.block_size; ++block) {
    function(in + block * info.block_bytes, out.data() + block * info.block_size);
  }
  return {};
}

}  // namespace quire::gguf
