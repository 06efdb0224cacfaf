#include "quire/state/layout.h"

#include "quire/state/out_of_memory.h"

namespace quire {
namespace {

// Far above any model, and small enough that their products do not overflow 64 bits.
constexpr std::uint64_t kMostLayers = 1 << 14;
constexpr std::uint64_t kMostHeads = 1 << 14;
constexpr std::uint64_t kMostHeadDim = 1 << 16;
constexpr std::uint64_t kMostBlockSize = 1 << 14;
constexpr std::uint64_t kMostObjectBytes = std::uint64_t{1} << 40;

}  // namespace

PoolResult<void> PageShape::check() const {
  const auto within = [](std::uint64_t value, std::uint64_t most) { return value > 0 && value <= most; };
  if (!within(block_size, kMostBlockSize))
    return std::unexpected(PoolError::invalid_argument("block size out of range"));
  if (!within(num_layers, kMostLayers)) return std::unexpected(PoolError::invalid_argument("layer count out of range"));
  if (!within(num_kv_heads, kMostHeads)) return std::unexpected(PoolError::invalid_argument("KV heads out of range"));
  if (type == ElementType::Q8_0 && head_dim > kMostScaledRow)
    return std::unexpected(PoolError::invalid_argument("heads of more than 1024 elements cannot be kept as q8_0"));
  if (!within(head_dim, kMostHeadDim))
    return std::unexpected(PoolError::invalid_argument("head dimension out of range"));
  if (planes != 1 && planes != 2) return std::unexpected(PoolError::invalid_argument("neither one plane nor two"));
  // Multiplied step by step: the product of all the largest dimensions would overflow 64 bits.
  if (plane_bytes() > kMostObjectBytes || layer_bytes() * num_layers > kMostObjectBytes) {
    return std::unexpected(PoolError::invalid_argument("a page of more than a terabyte"));
  }
  return {};
}

PoolResult<void> StateShape::check() const {
  if (num_layers == 0 || num_layers > kMostLayers) {
    return std::unexpected(PoolError::invalid_argument("layer count out of range"));
  }
  if (conv_bytes > kMostObjectBytes / kMostLayers || ssm_bytes > kMostObjectBytes / kMostLayers) {
    return std::unexpected(PoolError::invalid_argument("a recurrent state of more than a terabyte"));
  }
  if (type != ElementType::F32 && type != ElementType::F16 && type != ElementType::BF16) {
    return std::unexpected(PoolError::invalid_argument("a recurrent state that is neither f32, f16 nor bf16"));
  }
  if (conv_bytes + ssm_bytes == 0) return std::unexpected(PoolError::invalid_argument("a recurrent state of no bytes"));
  return {};
}

PoolResult<StateLayout> StateLayout::from_layers(std::span<const LayerDesc> layers, std::uint32_t block_size) {
  return or_out_of_memory("a layout", [&] { return sorted_into_groups(layers, block_size); });
}

PoolResult<StateLayout> StateLayout::sorted_into_groups(std::span<const LayerDesc> layers, std::uint32_t block_size) {
  StateLayout layout;
  layout.block_size = block_size;
  if (block_size == 0) return std::unexpected(PoolError::invalid_argument("block size out of range"));
  for (const LayerDesc& layer : layers) {
    Place place{.kind = layer.kind};
    if (layer.kind == LayerDesc::Kind::Attention) {
      PageShape shape{.block_size = block_size,
                      .num_layers = 0,
                      .num_kv_heads = layer.num_kv_heads,
                      .head_dim = layer.head_dim,
                      .planes = layer.planes,
                      .type = layer.type,
                      .window = layer.window};
      std::size_t group = 0;
      while (group < layout.groups.size()) {
        PageShape known = layout.groups[group];
        known.num_layers = 0;
        if (known == shape) break;
        ++group;
      }
      if (group == layout.groups.size()) layout.groups.push_back(shape);
      place.group = static_cast<std::uint32_t>(group);
      place.index = layout.groups[group].num_layers++;
    } else if (layer.kind == LayerDesc::Kind::Recurrent) {
      StateShape& state = layout.recurrent;
      if (state.num_layers > 0 && (state.conv_bytes != layer.conv_bytes || state.ssm_bytes != layer.ssm_bytes)) {
        return std::unexpected(PoolError::invalid_argument("recurrent layers of different sizes in one model"));
      }
      if (state.num_layers > 0 && state.type != layer.state_type) {
        return std::unexpected(PoolError::invalid_argument("recurrent layers of different types in one model"));
      }
      state.conv_bytes = layer.conv_bytes;
      state.ssm_bytes = layer.ssm_bytes;
      state.type = layer.state_type;
      place.index = state.num_layers++;
    }
    layout.places.push_back(place);
  }
  for (const PageShape& shape : layout.groups) {
    if (auto ok = shape.check(); !ok) return std::unexpected(ok.error());
  }
  if (layout.has_recurrent()) {
    if (auto ok = layout.recurrent.check(); !ok) return std::unexpected(ok.error());
  }
  if (!layout.has_attention() && !layout.has_recurrent()) {
    return std::unexpected(PoolError::invalid_argument("a model without attention or recurrent layers"));
  }
  return layout;
}

}  // namespace quire
