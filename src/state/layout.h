// The memory layout of a model: the shapes of its KV pages and recurrent states, in bytes. The pool is built from this
// description and knows nothing else about the model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/numbers.h"
#include "quire/state/pool_error.h"
#include "quire/state/views.h"

namespace quire {

inline constexpr std::size_t kMaxClasses = 16;  // layer groups, and one for states

// Every object in an arena starts at a multiple of this, so that vector loads and copies of any device are aligned.
inline constexpr std::uint64_t kObjectAlignment = 64;

// Tokens of a page. docs/performance.md has what was measured for others.
inline constexpr std::uint32_t kDefaultBlockSize = 16;

// One page: K and V of `block_size` tokens for all layers of a group, one contiguous run of bytes.
//   [num_layers][K, V][num_kv_heads][block_size][head_dim]
// With one plane instead of two, the value of a token is a part of its key, and the page has keys only:
//   [num_layers][num_kv_heads][block_size][head_dim]
struct PageShape {
  std::uint32_t block_size = kDefaultBlockSize;
  std::uint32_t num_layers = 0;
  std::uint32_t num_kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t planes = 2;  // of a layer: K and V, or 1 for both (latent attention)
  ElementType type = ElementType::F16;
  std::uint32_t window = 0;  // a token attends to this many positions, itself included; 0: full attention

  std::uint64_t row_bytes() const { return quire::row_bytes(type, head_dim); }
  std::uint64_t head_bytes() const { return row_bytes() * block_size; }
  std::uint64_t plane_bytes() const { return head_bytes() * num_kv_heads; }  // K, or V, of one layer
  std::uint64_t layer_bytes() const { return planes * plane_bytes(); }
  std::uint64_t value_offset() const { return (planes - 1) * plane_bytes(); }  // within a layer; keys are at 0
  std::uint64_t page_bytes() const { return round_up(layer_bytes() * num_layers, kObjectAlignment); }
  std::uint64_t bytes_per_token() const { return layer_bytes() * num_layers / block_size; }

  PoolResult<void> check() const;  // refuses zero and absurd dimensions
  friend bool operator==(const PageShape&, const PageShape&) = default;
};

// One recurrent state: convolution state and SSM state of all recurrent layers, one contiguous run of bytes.
//   [num_layers][conv, padded][ssm, padded]
struct StateShape {
  std::uint32_t num_layers = 0;
  std::uint64_t conv_bytes = 0;  // of one layer
  std::uint64_t ssm_bytes = 0;   // of one layer
  std::uint32_t capacity = 0;    // tokens a sequence may have; 0: no limit
  // Element type of the SSM state; its bytes are counted in ssm_bytes. The convolution state is small and always f32.
  ElementType type = ElementType::F32;

  std::uint64_t conv_stride() const { return round_up(conv_bytes, kObjectAlignment); }
  std::uint64_t layer_stride() const { return conv_stride() + round_up(ssm_bytes, kObjectAlignment); }
  std::uint64_t bytes() const { return layer_stride() * num_layers; }

  PoolResult<void> check() const;
  // Whether both shapes describe the same bytes. The capacity is a limit and does not change them.
  bool same_bytes(const StateShape& other) const {
    return num_layers == other.num_layers && conv_bytes == other.conv_bytes && ssm_bytes == other.ssm_bytes &&
           type == other.type;
  }
};

// One layer of a model, as far as memory is concerned.
struct LayerDesc {
  enum class Kind : std::uint8_t { Attention, Recurrent, Stateless };
  Kind kind = Kind::Stateless;
  // Attention
  std::uint32_t num_kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t planes = 2;
  std::uint32_t window = 0;
  ElementType type = ElementType::F16;
  // Recurrent
  std::uint64_t conv_bytes = 0;
  std::uint64_t ssm_bytes = 0;
  ElementType state_type = ElementType::F32;

  static LayerDesc attention(std::uint32_t num_kv_heads, std::uint32_t head_dim, ElementType type = ElementType::F16,
                             std::uint32_t window = 0) {
    return {
        .kind = Kind::Attention, .num_kv_heads = num_kv_heads, .head_dim = head_dim, .window = window, .type = type};
  }
  // Latent attention: one row per token for all heads, which holds key and value.
  static LayerDesc latent(std::uint32_t row, ElementType type = ElementType::F16) {
    return {.kind = Kind::Attention, .num_kv_heads = 1, .head_dim = row, .planes = 1, .type = type};
  }
  static LayerDesc recurrent(std::uint64_t conv_bytes, std::uint64_t ssm_bytes, ElementType type = ElementType::F32) {
    return {.kind = Kind::Recurrent, .conv_bytes = conv_bytes, .ssm_bytes = ssm_bytes, .state_type = type};
  }
};

// Layers sorted into groups: attention layers with the same window and page geometry share pages and one block table;
// all recurrent layers share one state.
struct StateLayout {
  struct Place {
    LayerDesc::Kind kind = LayerDesc::Kind::Stateless;
    std::uint32_t group = 0;  // attention: which group
    std::uint32_t index = 0;  // which layer of its group, or of the state
  };

  std::uint32_t block_size = kDefaultBlockSize;
  std::vector<PageShape> groups;
  StateShape recurrent;
  std::vector<Place> places;  // one per layer of the model

  bool has_attention() const { return !groups.empty(); }
  bool has_recurrent() const { return recurrent.num_layers > 0; }

  static PoolResult<StateLayout> from_layers(std::span<const LayerDesc> layers, std::uint32_t block_size);

 private:
  static PoolResult<StateLayout> sorted_into_groups(std::span<const LayerDesc> layers, std::uint32_t block_size);
};

}  // namespace quire
