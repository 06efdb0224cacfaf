// Whether a shape is possible.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "quire/bench/synth/family.h"
#include "quire/bench/synth/numbers.h"
#include "quire/bench/synth/synth.h"

namespace quire::synth {
namespace {

Result<void> check_numbers(const Shape& shape, const Family& family) {
  for (const Number& number : numbers()) {
    const std::uint32_t value = shape.*number.value;
    const Need need = number.need(family, shape);
    if (need == Need::none && value != 0) {
      return fail(fmt::format("{}: a model of architecture {} has none", number.name, shape.architecture));
    }
    if (need == Need::must && value == 0) {
      return fail(fmt::format("{}: a model of architecture {} needs it", number.name, shape.architecture));
    }
    if (value > number.most) return fail(fmt::format("{}: {} is more than {}", number.name, value, number.most));
  }
  return {};
}

Result<void> check_attention(const Shape& shape, const Family& family) {
  if (shape.heads % shape.kv_heads != 0) {
    return fail(fmt::format("kv-heads: {} heads are not a multiple of {}", shape.heads, shape.kv_heads));
  }
  if (shape.head_dim % 2 != 0) {
    return fail(fmt::format("head-dim: {} elements of a head cannot be rotated in pairs", shape.head_dim));
  }
  if (family.latent && shape.kv_heads != 1) {
    return fail(fmt::format("kv-heads: all heads share one row, and {} is not 1", shape.kv_heads));
  }
  if (family.partial_rotation && (shape.rope_dim % 2 != 0 || shape.rope_dim >= shape.head_dim)) {
    return fail(
        fmt::format("rope-dim: {} is not an even part of the {} elements of a head", shape.rope_dim, shape.head_dim));
  }
  return {};
}

Result<void> check_recurrence(const Shape& shape, const Family& family) {
  if (!family.has_ssm_heads()) return {};
  if (shape.inner % shape.ssm_heads != 0) {
    return fail(fmt::format("ssm-heads: {} channels do not divide into {} heads", shape.inner, shape.ssm_heads));
  }
  if (shape.ssm_heads % shape.groups != 0) {
    return fail(fmt::format("groups: {} heads do not divide into {} groups", shape.ssm_heads, shape.groups));
  }
  const std::uint64_t values = std::uint64_t{shape.ssm_heads} * shape.state;
  if (family.recurrence == Recurrence::delta_rule && shape.inner != values) {
    return fail(fmt::format("inner: {} channels are not {} heads of {}", shape.inner, shape.ssm_heads, shape.state));
  }
  return {};
}

Result<void> check_experts(const Shape& shape, const Family& family) {
  if (shape.experts == 0) return {};
  if (shape.experts_used > shape.experts) {
    return fail(fmt::format("experts-used: {} is more than the {} experts", shape.experts_used, shape.experts));
  }
  if (shape.dense_layers >= shape.layers) {
    return fail(fmt::format("dense-layers: {} of {} layers leave none with experts", shape.dense_layers, shape.layers));
  }
  // DeepSeek's files say how many experts are shared, not how wide they are.
  if (family.latent && shape.shared_feed_forward % shape.expert_feed_forward != 0) {
    return fail(fmt::format("shared-feed-forward: {} is not a number of experts of {}", shape.shared_feed_forward,
                            shape.expert_feed_forward));
  }
  return {};
}

Result<void> check_attention_layers(const Shape& shape, const Family& family) {
  const std::vector<std::uint32_t>& attending = shape.attention_layers;
  if (family.attention == Attention::interval && shape.attention_interval > shape.layers) {
    return fail(
        fmt::format("attention-interval: there is no layer {} of {}", shape.attention_interval - 1, shape.layers));
  }
  if (family.attention != Attention::listed) {
    if (attending.empty()) return {};
    return fail(fmt::format("attention-layers: only hybrids choose them, not {}", shape.architecture));
  }
  if (attending.empty()) return fail("attention-layers: a hybrid has at least one");
  for (std::size_t i = 0; i < attending.size(); ++i) {
    if (attending[i] >= shape.layers) {
      return fail(fmt::format("attention-layers: there is no layer {} of {}", attending[i], shape.layers));
    }
    if (i > 0 && attending[i] <= attending[i - 1]) {
      return fail(fmt::format("attention-layers: {} does not come after {}", attending[i], attending[i - 1]));
    }
  }
  return {};
}

Result<void> check_outliers(const Shape& shape, const Family& family) {
  if (shape.outliers == 0) return {};
  if (!family.has_attention()) {
    return fail(fmt::format("outliers: a model of architecture {} has neither keys nor a feed-forward block",
                            shape.architecture));
  }
  if (!family.outliers || shape.experts != 0) {
    return fail(fmt::format("outliers: they are not written for architecture {}{}", shape.architecture,
                            shape.experts != 0 ? " with experts" : ""));
  }
  const std::uint32_t most = std::min(shape.head_dim, shape.feed_forward) / 4;
  if (shape.outliers % 2 == 0 && shape.outliers <= most) return {};
  return fail(fmt::format("outliers: {} is not an even number of at most {} channels", shape.outliers, most / 2 * 2));
}

}  // namespace

Result<void> check_shape(const Shape& shape) {
  const Family* family = find_family(shape.architecture);
  if (family == nullptr) {
    return fail(fmt::format("arch: '{}' is not one of {}", shape.architecture, fmt::join(architecture_names(), ", ")));
  }
  if (auto ok = check_numbers(shape, *family); !ok) return ok;
  // Three special tokens, one token per byte, and the space of SentencePiece.
  constexpr std::uint32_t kFewest = 260;
  if (shape.vocabulary < kFewest) {
    return fail(
        fmt::format("vocabulary: {} tokens are too few to spell every text ({} are not)", shape.vocabulary, kFewest));
  }
  if (family->has_attention()) {
    if (auto ok = check_attention(shape, *family); !ok) return ok;
  }
  if (auto ok = check_recurrence(shape, *family); !ok) return ok;
  if (auto ok = check_experts(shape, *family); !ok) return ok;
  if (auto ok = check_outliers(shape, *family); !ok) return ok;
  return check_attention_layers(shape, *family);
}

}  // namespace quire::synth
