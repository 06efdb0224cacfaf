// The named shapes, and shapes that are made from them.
#include <algorithm>
#include <iterator>

#include "quire/bench/synth/family.h"
#include "quire/bench/synth/named_shapes.h"
#include "quire/bench/synth/numbers.h"
#include "quire/bench/synth/synth.h"

namespace quire::synth {
namespace {

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = [] {
    std::vector<Shape> list = dense_shapes();
    for (std::vector<Shape>& more : std::vector{recurrent_shapes(), expert_shapes()}) {
      std::ranges::move(more, std::back_inserter(list));
    }
    return list;
  }();
  return all;
}

// Sizes of recurrent layers that follow from others.
void derive_recurrence(Shape& shape, const Shape& before, const Shape& changes, const Family& family) {
  if (family.recurrence == Recurrence::delta_rule) {
    if (shape.ssm_heads == 0) shape.ssm_heads = std::max(1u, shape.embedding / std::max(1u, shape.state));
    if (changes.inner == 0) shape.inner = shape.ssm_heads * shape.state;
    return;
  }
  const bool twice = before.inner == 2 * before.embedding;
  if (changes.inner == 0 && twice) shape.inner = 2 * shape.embedding;
  if (family.recurrence == Recurrence::mamba1) {
    const bool sixteenth = before.dt_rank * 16 == before.embedding;
    if (changes.dt_rank == 0 && sixteenth) shape.dt_rank = (shape.embedding + 15) / 16;
    return;
  }
  const std::uint32_t channels = before.ssm_heads != 0 ? before.inner / before.ssm_heads : 64;
  if (changes.ssm_heads == 0) shape.ssm_heads = std::max(1u, shape.inner / channels);
}

}  // namespace

const std::vector<std::string>& shape_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Shape& shape : shapes()) all.push_back(shape.name);
    return all;
  }();
  return names;
}

const Shape* find_shape(std::string_view name) {
  const auto found = std::ranges::find(shapes(), name, &Shape::name);
  return found == shapes().end() ? nullptr : &*found;
}

const std::vector<std::string>& architecture_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Family& family : families()) all.emplace_back(family.name);
    return all;
  }();
  return names;
}

Shape usual_shape(std::string_view architecture) {
  Shape shape{.name = std::string(architecture),
              .architecture = std::string(architecture),
              .vocabulary = 32000,
              .context = 4096};
  const Family* family = find_family(architecture);
  if (family == nullptr) return shape;
  if (family->has_scan()) shape.state = family->recurrence == Recurrence::mamba1 ? 16 : 128;
  if (family->has_ssm_heads()) shape.groups = 1;
  if (family->recurrence != Recurrence::none) shape.conv = family->recurrence == Recurrence::convolution ? 3 : 4;
  if (family->attention == Attention::interval) shape.attention_interval = 4;
  if (family->latent) shape.kv_heads = 1;
  // Other values that are not sizes come from the named models of the family.
  const auto kin = std::ranges::find(shapes(), architecture, &Shape::architecture);
  if (kin != shapes().end()) {
    shape.tied = kin->tied;
    shape.pre = kin->pre;
    shape.epsilon = kin->epsilon;
    shape.rope_base = kin->rope_base;
    shape.embedding_scale = kin->embedding_scale;
    shape.residual_scale = kin->residual_scale;
  }
  return shape;
}

Shape changed(Shape shape, const Shape& changes) {
  const Shape before = shape;
  bool any = !changes.attention_layers.empty();
  for (const Number& number : numbers()) {
    if (changes.*number.value == 0) continue;
    shape.*number.value = changes.*number.value;
    any = true;
  }
  if (any) shape.name += "-custom";
  const Family* family = find_family(shape.architecture);
  if (family == nullptr) return shape;
  if (family->has_attention()) {
    if (shape.kv_heads == 0) shape.kv_heads = shape.heads;
    const bool divides = before.heads * before.head_dim == before.embedding;
    if (changes.head_dim == 0 && divides && shape.heads != 0) shape.head_dim = shape.embedding / shape.heads;
    const bool quarter = before.rope_dim * 4 == before.head_dim;
    if (family->partial_rotation && changes.rope_dim == 0 && quarter) shape.rope_dim = shape.head_dim / 4;
  }
  if (family->has_scan()) derive_recurrence(shape, before, changes, *family);
  if (changes.dense_layers == 0 && shape.dense_layers >= shape.layers) {
    shape.dense_layers = shape.layers == 0 ? 0 : shape.layers - 1;
  }
  if (!changes.attention_layers.empty()) {
    shape.attention_layers = changes.attention_layers;
  } else {
    std::erase_if(shape.attention_layers, [&](std::uint32_t layer) { return layer >= shape.layers; });
  }
  return shape;
}

}  // namespace quire::synth
