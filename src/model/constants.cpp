#include "quire/model/constants.h"

#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "quire/gguf/message.h"

namespace quire::model {
namespace {

class Reader {
 public:
  Reader(const gguf::File& file, const Hyperparameters& model) : file_(file), prefix_(model.architecture->name) {
    prefix_ += '.';
  }
  std::string key(std::string_view name) const { return prefix_ + std::string(name); }
  bool has(std::string_view name) const { return file_.has(key(name)); }

  std::unexpected<Error> refuse(std::string_view name, std::string_view why) const {
    return fail(fmt::format("{}: metadata '{}': {}", file_.path(), key(name), why));
  }

  // Reads a finite number, and a positive one if asked. Without a fallback the file must have it.
  Result<float> number(std::string_view name, std::optional<float> fallback, bool positive = false) const {
    if (fallback && !has(name)) return *fallback;
    const auto value = file_.get<float>(key(name));
    if (!value) return value;
    if (!std::isfinite(*value) || (positive && *value <= 0)) {
      return refuse(name, fmt::format("{} is not a valid value", *value));
    }
    return value;
  }

 private:
  const gguf::File& file_;
  std::string prefix_;
};

// The angle per position of each pair: base^(-2i/dims) / factor.
std::vector<float> frequencies(std::uint32_t dims, float base, float factor) {
  std::vector<float> result(dims / 2);
  for (std::uint32_t i = 0; i < dims / 2; ++i) {
    result[i] = static_cast<float>(1.0 / std::pow(double{base}, 2.0 * i / dims)) / factor;
  }
  return result;
}

Result<void> divide_by(const gguf::Tensor& factors, const gguf::File& file, std::vector<float>& frequencies) {
  const auto refuse = [&](std::string_view why) {
    return fail(fmt::format("{}: tensor '{}' {}", file.path(), factors.name, why));
  };
  if (factors.elements() != frequencies.size()) {
    return refuse(fmt::format("has {} elements for {} frequencies", factors.elements(), frequencies.size()));
  }
  std::vector<float> values(frequencies.size());
  if (const auto ok = gguf::dequantize(factors.type, factors.data, values); !ok) return refuse(ok.error().message);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!(values[i] > 0)) return refuse(fmt::format("has {}, which is not a valid factor", values[i]));
    frequencies[i] /= values[i];
  }
  return {};
}

// The factor by which the context was extended, the same for all frequencies.
Result<float> read_stretch(const gguf::File& file, const Reader& reader) {
  // As in llama.cpp: a factor without a type is linear, the newer of the two keys wins, and 0 means no key.
  const auto kind = file.get_or<std::string_view>(reader.key("rope.scaling.type"), "linear");
  if (!kind) return std::unexpected(kind.error());
  constexpr std::string_view kNotYet = "is not supported yet (none, linear and Llama 3's are)";
  if (*kind != "none" && *kind != "linear") {
    return reader.refuse("rope.scaling.type", fmt::format("rotary scaling {} {}", gguf::quoted(*kind, 32), kNotYet));
  }
  for (const std::string_view name : {"rope_factors_long.weight", "rope_factors_short.weight"}) {
    if (!file.find_tensor(name)) continue;
    return fail(fmt::format("{}: tensor '{}': rotary scaling 'longrope' {}", file.path(), name, kNotYet));
  }
  const auto magnitude = reader.number("rope.scaling.attn_factor", 1.0f);
  if (!magnitude) return magnitude;
  if (*magnitude != 1) return reader.refuse("rope.scaling.attn_factor", "is not supported yet");

  constexpr std::string_view kFactor = "rope.scaling.factor", kOldFactor = "rope.scale_linear";
  const std::string_view name = reader.has(kFactor) ? kFactor : kOldFactor;
  const auto factor = reader.number(name, 1.0f);
  if (!factor) return factor;
  if (*factor < 0) return reader.refuse(name, fmt::format("{} is not a valid value", *factor));
  return *kind == "none" || *factor == 0 ? 1.0f : *factor;
}

Result<void> read_rope(const gguf::File& file, const Reader& reader, const Hyperparameters& model,
                       Constants& constants) {
  const Architecture& row = *model.architecture;
  if (row.finetuned_switches_rope) {
    const auto tuned = file.get_or<bool>(reader.key("rope.scaling.finetuned"), true);
    if (!tuned) return std::unexpected(tuned.error());
    if (!*tuned) return {};
  }
  const auto dims = file.get_or<std::uint32_t>(reader.key("rope.dimension_count"), model.key_length);
  if (!dims) return std::unexpected(dims.error());
  if (*dims == 0 || *dims % 2 != 0 || *dims > model.key_length) {
    return reader.refuse("rope.dimension_count", fmt::format("{} of {} elements of a head cannot be rotated in pairs",
                                                             *dims, model.key_length));
  }
  const auto base = reader.number("rope.freq_base", 10000.0f, true);
  if (!base) return std::unexpected(base.error());
  const auto window_base = reader.number("rope.freq_base_swa", row.window_rope_base, true);
  if (!window_base) return std::unexpected(window_base.error());
  const auto stretch = read_stretch(file, reader);
  if (!stretch) return std::unexpected(stretch.error());
  constants.frequencies = frequencies(*dims, *base, *stretch);

  // Llama 3's scaling is a tensor with a factor for each frequency.
  if (const auto factors = file.find_tensor("rope_freqs.weight")) {
    if (auto ok = divide_by(*factors, file, constants.frequencies); !ok) return ok;
  }
  // Layers with a base of their own are not scaled.
  constants.window_frequencies = *window_base > 0 ? frequencies(*dims, *window_base, 1.0f) : constants.frequencies;
  return {};
}

}  // namespace

Result<Constants> read_constants(const gguf::File& file, const Hyperparameters& model) {
  const Architecture& row = *model.architecture;
  const Reader reader(file, model);
  Constants constants;
  const bool attends = model.count(BlockKind::Attention) > 0;
  float usual_scale = 1;
  if (attends) {
    const bool by_width = row.layers_that_scale_by_width != 0 && model.layers.size() == row.layers_that_scale_by_width;
    const float length = by_width ? static_cast<float>(model.embedding) / static_cast<float>(model.layers.front().heads)
                                  : static_cast<float>(model.key_length);
    usual_scale = 1.0f / std::sqrt(length);
  }
  struct Read {
    std::string_view name;
    float* to;
    std::optional<float> fallback;  // empty: the file must have it
    bool positive;
  };
  float divide_logits = 1;
  const float usual_embedding =
      row.embedding_times_root_of_width ? std::sqrt(static_cast<float>(model.embedding)) : 1.0f;
  const Read reads[] = {
      {"attention.layer_norm_rms_epsilon", &constants.epsilon, std::nullopt, true},
      {"embedding_scale", &constants.embedding_scale, usual_embedding, false},
      {"residual_scale", &constants.residual_scale, 1, false},
      {"logit_scale", &divide_logits, 1, true},
      {"attention.scale", &constants.attention_scale, usual_scale, true},
      {"attn_logit_softcapping", &constants.attention_cap, row.default_attention_cap, false},
      {"final_logit_softcapping", &constants.logit_cap, row.default_logit_cap, false},
      {"expert_weights_scale", &constants.expert_scale, 1, false},
  };
  for (const Read& read : reads) {
    const auto value = reader.number(read.name, read.fallback, read.positive);
    if (!value) return std::unexpected(value.error());
    *read.to = *value;
  }
  constants.logit_scale = 1.0f / divide_logits;
  if (constants.expert_scale == 0) constants.expert_scale = 1;  // as in llama.cpp: no scale
  if (attends) {
    if (auto ok = read_rope(file, reader, model, constants); !ok) return std::unexpected(ok.error());
  }
  return constants;
}

}  // namespace quire::model
