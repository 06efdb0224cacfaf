// The kernels behind the table Kernels, written once. Each of kernels_scalar.cpp, kernels_avx2.cpp and
// kernels_avx512.cpp compiles this text with its own flags, inside a namespace of its own.
//
// No template of the standard library may be instantiated here: the linker could pick the copy that was compiled for
// the newest processor and use it everywhere.

// In this order: each file uses the ones before it.
// clang-format off
#include "vectors.inl"
#include "file_rows_grids.inl"
#include "file_rows.inl"
#include "tiles.inl"
#include "product_parts.inl"
#include "unpack.inl"
#include "products.inl"
#include "float_products.inl"
#include "bf16_products.inl"
#include "rows.inl"
#include "layer_norm.inl"
#include "low_rank.inl"
#include "attention.inl"
#include "state_types.inl"
#include "recurrent.inl"
#include "mamba1.inl"
#include "delta_rule.inl"
// clang-format on

constexpr Kernels make_kernels(const char* name) {
  return {.name = name,
          .biased = kBias != 0,
          .unpack_quant = unpack_quant,
          .quantize = quantize,
          .multiply_quant = multiply_quant,
          .multiply_float = multiply_float,
          .round_to_bf16 = round_to_bf16,
          .multiply_bf16 = multiply_bf16,
          .attend = attend,
          .merge = merge,
          .end_attention = end_attention,
          .store_kv = store_kv,
          .rms_norm = rms_norm,
          .layer_norm = layer_norm,
          .scale_by = scale_by,
          .add_scaled = add_scaled,
          .gate_silu = gate_silu,
          .gate_gelu = gate_gelu,
          .gate_sigmoid = gate_sigmoid,
          .multiply = multiply,
          .gate_clamped = gate_clamped,
          .activate_silu = activate_silu,
          .activate_gelu = activate_gelu,
          .soft_cap = soft_cap,
          .rotate = rotate,
          .discretize = discretize,
          .recur = recur,
          .convolve = convolve,
          .scan_channels = scan_channels,
          .normalize = normalize,
          .delta_gates = delta_gates,
          .delta_rule = delta_rule,
          .low_rank_a = low_rank_a,
          .low_rank_b = low_rank_b};
}
