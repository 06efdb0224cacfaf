#include "quire/bench/synth/shape_layout.h"

#include <algorithm>

#include <fmt/format.h>

#include "quire/model/hyperparameters.h"
#include "quire/model/state_layout.h"

namespace quire::synth {

Result<StateLayout> layout_of(const Shape& shape, ElementType kv_type) {
  if (auto ok = check_shape(shape); !ok) return std::unexpected(ok.error());
  model::Hyperparameters model{.architecture = model::find_architecture(shape.architecture),
                               .context_length = shape.context,
                               .embedding = shape.embedding,
                               .vocabulary = shape.vocabulary,
                               .key_length = shape.head_dim,
                               .value_length = shape.head_dim};
  if (model.architecture == nullptr) return fail(fmt::format("{} is not an architecture", shape.architecture));
  model.recurrent = {.conv_kernel = shape.conv,
                     .inner = shape.inner,
                     .state = shape.state,
                     .groups = shape.groups,
                     .heads = shape.ssm_heads};
  for (std::uint32_t i = 0; i < shape.layers; ++i) {
    model::Layer layer{.feed_forward = shape.feed_forward};
    layer.recurrent = shape.heads == 0 || (shape.inner != 0 && std::ranges::find(shape.attention_layers, i) ==
                                                                   shape.attention_layers.end());
    if (!layer.recurrent) {
      layer.heads = shape.heads;
      layer.kv_heads = shape.kv_heads;
    }
    model.layers.push_back(layer);
  }
  return model::state_layout(model, kDefaultBlockSize, kv_type);
}

}  // namespace quire::synth
