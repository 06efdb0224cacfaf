#include "quire/model/constants.h"

#include <algorithm>
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

constexpr std::string_view kLongFactors = "rope_factors_long.weight", kShortFactors = "rope_factors_short.weight";

// The factor by which the context was extended. 0: the file has none.
Result<float> read_factor(const Reader& reader) {
  // As in llama.cpp: the newer of the two keys wins, and 0 means no key.
  constexpr std::string_view kFactor = "rope.scaling.factor", kOldFactor = "rope.scale_linear";
  const std::string_view name = reader.has(kFactor) ? kFactor : kOldFactor;
  const auto factor = reader.number(name, 0.0f);
  if (!factor) return factor;
  if (*factor < 0) return reader.refuse(name, fmt::format("{} is not a valid value", *factor));
  return factor;
}

Result<RopeScaling> read_scaling(const gguf::File& file, const Reader& reader, const Hyperparameters& model,
                                 std::uint32_t context) {
  using Kind = RopeScaling::Kind;
  constexpr std::string_view kType = "rope.scaling.type", kOriginal = "rope.scaling.original_context_length";
  // As in llama.cpp: a factor without a type is linear, and factors for each frequency need no type.
  const auto type = file.get_or<std::string_view>(reader.key(kType), "linear");
  if (!type) return std::unexpected(type.error());
  const auto factor = read_factor(reader);
  if (!factor) return std::unexpected(factor.error());
  const auto original = file.get_or<std::uint32_t>(reader.key(kOriginal), model.context_length);
  if (!original) return std::unexpected(original.error());

  RopeScaling scaling;
  const bool factors = file.find_tensor(kLongFactors) || file.find_tensor(kShortFactors);
  if (*type == "longrope" || factors) {
    if (*type == "yarn") return reader.refuse(kType, "rotary scaling 'yarn' beside factors for each frequency");
    if (*type != "longrope" && *factor != 0 && *factor != 1) {
      return reader.refuse("rope.scaling.factor", "a factor beside factors for each frequency");
    }
    const std::uint32_t length = context != 0 ? context : model.context_length;
    scaling = {.kind = Kind::LongRope, .original_length = *original, .long_factors = length > *original};
  } else if (*type == "yarn") {
    if (*original == 0) return reader.refuse(kOriginal, "0 is not a valid value");
    // Hugging Face's factor for files that do not name one.
    const float ratio = static_cast<float>(model.context_length) / static_cast<float>(*original);
    scaling = {.kind = Kind::Yarn, .factor = *factor != 0 ? *factor : ratio, .original_length = *original};
  } else if (*type == "linear") {
    if (*factor != 0 && *factor != 1) scaling = {.kind = Kind::Linear, .factor = *factor};
  } else if (*type != "none") {
    return reader.refuse(kType, fmt::format("rotary scaling {} is not supported yet (none, linear, yarn, longrope and "
                                            "Llama 3's are)",
                                            gguf::quoted(*type, 32)));
  }
  return scaling;
}

// Applies YaRN to the frequencies, and its magnitude to the rotation or to the scores.
Result<void> read_yarn(const Reader& reader, const RopeScaling& scaling, const Architecture& row, float base,
                       Constants& constants) {
  if (base <= 1) return reader.refuse("rope.freq_base", fmt::format("{} is not a valid base for YaRN", base));
  Yarn yarn{.base = base,
            .factor = scaling.factor,
            .original_length = scaling.original_length,
            .whole_pairs = row.yarn_whole_pairs};
  float multiplier = 0, own_magnitude = 0;
  struct Read {
    std::string_view name;
    float* to;
    float fallback;
    bool positive;
  };
  const Read reads[] = {
      {"rope.scaling.yarn_beta_fast", &yarn.beta_fast, 32, true},
      {"rope.scaling.yarn_beta_slow", &yarn.beta_slow, 1, true},
      {"rope.scaling.yarn_ext_factor", &yarn.extrapolation, 1, false},
      {"rope.scaling.yarn_log_multiplier", &multiplier, 0, false},
      {"rope.scaling.yarn_attn_factor", &own_magnitude, 0, false},
  };
  for (const Read& read : reads) {
    const auto value = reader.number(read.name, read.fallback, read.positive);
    if (!value) return std::unexpected(value.error());
    *read.to = *value;
  }
  apply_yarn(constants.frequencies, yarn);
  if (own_magnitude > 0) {  // Hugging Face's attention_factor
    constants.rope_magnitude *= own_magnitude;
    return {};
  }
  if (yarn.extrapolation == 0) return {};
  if (row.yarn_scales_scores && multiplier != 0) {
    const float magnitude = yarn_magnitude(yarn.factor, 10 * multiplier);
    constants.attention_scale *= magnitude * magnitude;
    return {};
  }
  // The multiplier is Hugging Face's mscale_all_dim, for models whose mscale is 1.
  const float usual = yarn_magnitude(yarn.factor);
  constants.rope_magnitude *= multiplier == 0 ? usual : usual / yarn_magnitude(yarn.factor, multiplier);
  return {};
}

Result<void> apply_long_factors(const gguf::File& file, const RopeScaling& scaling, std::vector<float>& frequencies) {
  const auto longer = file.tensor(kLongFactors), shorter = file.tensor(kShortFactors);
  if (!longer) return std::unexpected(longer.error());
  if (!shorter) return std::unexpected(shorter.error());
  return divide_by(scaling.long_factors ? *longer : *shorter, file, frequencies);
}

Result<void> read_rope(const gguf::File& file, const Reader& reader, const Hyperparameters& model,
                       std::uint32_t context, Constants& constants) {
  const Architecture& row = *model.architecture;
  const auto unrotated = [](const Layer& layer) { return layer.kv_heads == 0 || layer.unrotated; };
  if (std::ranges::all_of(model.layers, unrotated)) return {};
  if (row.finetuned_switches_rope) {
    const auto tuned = file.get_or<bool>(reader.key("rope.scaling.finetuned"), true);
    if (!tuned) return std::unexpected(tuned.error());
    if (!*tuned) return {};
  }
  if (row.refuses_rope_sections && reader.has("rope.dimension_sections")) {
    return reader.refuse("rope.dimension_sections",
                         "a model that reads images: its order of rotary dimensions is not supported");
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
  const auto scaling = read_scaling(file, reader, model, context);
  if (!scaling) return std::unexpected(scaling.error());
  const auto magnitude = reader.number("rope.scaling.attn_factor", 1.0f, true);
  if (!magnitude) return std::unexpected(magnitude.error());

  using Kind = RopeScaling::Kind;
  constants.rope_scaling = *scaling;
  constants.rope_magnitude = *magnitude;
  constants.frequencies = frequencies(*dims, *base, scaling->kind == Kind::Linear ? scaling->factor : 1.0f);
  // Llama 3's scaling is a tensor with a factor for each frequency.
  if (const auto factors = file.find_tensor("rope_freqs.weight")) {
    if (auto ok = divide_by(*factors, file, constants.frequencies); !ok) return ok;
  }
  if (scaling->kind == Kind::LongRope) {
    if (auto ok = apply_long_factors(file, *scaling, constants.frequencies); !ok) return ok;
  }
  if (scaling->kind == Kind::Yarn) {
    if (auto ok = read_yarn(reader, *scaling, row, *base, constants); !ok) return ok;
  }
  // Layers with a base of their own are not scaled.
  const bool unscaled = *window_base > 0 || row.windows_are_not_scaled;
  constants.window_frequencies =
      unscaled ? frequencies(*dims, *window_base > 0 ? *window_base : *base, 1.0f) : constants.frequencies;
  constants.window_rope_magnitude = unscaled ? 1.0f : constants.rope_magnitude;
  return {};
}

}  // namespace

Result<Constants> read_constants(const gguf::File& file, const Hyperparameters& model, std::uint32_t context) {
  const Architecture& row = *model.architecture;
  const Reader reader(file, model);
  Constants constants;
  const bool attends = model.attends();
  float usual_scale = 1;
  if (attends) {
    const bool by_width = row.layers_that_scale_by_width != 0 && model.layers.size() == row.layers_that_scale_by_width;
    const float length = by_width ? static_cast<float>(model.embedding) / static_cast<float>(model.layers.front().heads)
                                  : static_cast<float>(model.query_length());
    usual_scale = 1.0f / std::sqrt(length);
  }
  struct Read {
    std::string_view name;
    float* to;
    std::optional<float> fallback;  // empty: the file must have it
    bool positive;
  };
  float logits = 1;
  const std::optional<float> usual_logits = row.logits_are_multiplied ? std::nullopt : std::optional(1.0f);
  const std::string_view epsilon =
      row.norm == NormKind::Layer ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
  const float usual_embedding =
      row.embedding_times_root_of_width ? std::sqrt(static_cast<float>(model.embedding)) : 1.0f;
  const Read reads[] = {
      {epsilon, &constants.epsilon, std::nullopt, true},
      {"embedding_scale", &constants.embedding_scale, usual_embedding, false},
      {"residual_scale", &constants.residual_scale, 1, false},
      {"logit_scale", &logits, usual_logits, true},
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
  constants.logit_scale = row.logits_are_multiplied ? logits : 1.0f / logits;
  if (constants.expert_scale == 0) constants.expert_scale = 1;  // as in llama.cpp: no scale
  if (attends) {
    if (auto ok = read_rope(file, reader, model, context, constants); !ok) return std::unexpected(ok.error());
  }
  return constants;
}

}  // namespace quire::model
