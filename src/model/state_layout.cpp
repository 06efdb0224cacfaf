#include "quire/model/state_layout.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "quire/base/numbers.h"
#include "quire/model/block.h"

namespace quire::model {

Result<StateLayout> state_layout(const Hyperparameters& model, std::uint32_t block_size, ElementType kv_type,
                                 ElementType state_type) {
  if (model.count(BlockKind::Attention) > 0 && model.key_length != model.value_length) {
    return fail(fmt::format("{}: keys of {} and values of {} elements, which cannot share a page",
                            model.architecture->name, model.key_length, model.value_length));
  }
  std::vector<LayerDesc> layers;
  layers.reserve(model.layers.size());
  for (const Layer& layer : model.layers) {
    for (const BlockSpec& spec : model.architecture->blocks) {
      if (!layer.has(spec.kind)) continue;
      const LayerDesc state = make_block(spec.kind, model, layer)->state(kv_type, state_type);
      if (state.kind != LayerDesc::Kind::Stateless) layers.push_back(state);
    }
  }
  auto layout = StateLayout::from_layers(layers, block_size);
  if (!layout) return fail(fmt::format("{}: {}", model.architecture->name, layout.error().message()));
  return std::move(*layout);
}

Result<StateCost> state_cost(const StateLayout& layout, std::uint32_t length) {
  StateCost cost;
  cost.fixed_bytes = layout.recurrent.bytes();
  cost.total_bytes = cost.fixed_bytes;
  for (const PageShape& group : layout.groups) {
    std::uint64_t pages = divide_up(length, group.block_size);
    cost.unfilled_bytes += (group.block_size - 1) * group.bytes_per_token();
    if (group.window == 0) {
      cost.bytes_per_token += group.bytes_per_token();
    } else {
      cost.window_bytes_per_token += group.bytes_per_token();
      // The first and the last page of the window may be only partly inside it.
      pages = std::min<std::uint64_t>(pages, divide_up(group.window - 1, group.block_size) + 1);
    }
    const auto bytes = checked_mul(pages, group.page_bytes());
    const auto total = bytes ? checked_add(cost.total_bytes, *bytes) : bytes;
    if (!total) return fail(fmt::format("the state of {} tokens takes more than 2^64 bytes", length));
    cost.total_bytes = *total;
  }
  return cost;
}

}  // namespace quire::model
