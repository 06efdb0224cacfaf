#include "quire/model/constants.h"

#include <cmath>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace quire::model {
namespace {

class Reader {
 public:
  Reader(const gguf::File& file, const Hyperparameters& model) : file_(file), prefix_(model.architecture->name) {
    prefix_ += '.';
  }
  std::string key(std::string_view name) const { return prefix_ + std::string(name); }
  bool has(std::string_view name) const { return file_.has(key(name)); }

  // A number that computing with makes sense.
  Result<float> number_or(std::string_view name, float fallback, bool positive = false) const {
    const auto value = file_.get_or<float>(key(name), fallback);
    if (!value) return value;
    if (!std::isfinite(*value) || (positive && has(name) && *value <= 0)) {
      return fail(fmt::format("{}: metadata '{}': {} is no sensible value", file_.path(), key(name), *value));
    }
    return value;
  }

 private:
  const gguf::File& file_;
  std::string prefix_;
};

// Angles per token: base^(-2i/dims), divided by what stretches them.
std::vector<float> frequencies(std::uint32_t dims, float base, float factor) {
  std::vector<float> result(dims / 2);
  for (std::uint32_t i = 0; i < dims / 2; ++i) {
    result[i] = static_cast<float>(1.0 / std::pow(double{base}, 2.0 * i / dims)) / factor;
  }
  return result;
}

Result<void> read_rope(const gguf::File& file, const Reader& reader, const Hyperparameters& model,
                       Constants& constants) {
  const Architecture& row = *model.architecture;
  if (row.rope_only_if_finetuned) {
    const auto tuned = file.get_or<bool>(reader.key("rope.scaling.finetuned"), false);
    if (!tuned) return std::unexpected(tuned.error());
    if (!*tuned) return {};
  }
  const auto dims = file.get_or<std::uint32_t>(reader.key("rope.dimension_count"), model.key_length);
  if (!dims) return std::unexpected(dims.error());
  if (*dims == 0 || *dims % 2 != 0 || *dims > model.key_length) {
    return fail(fmt::format("{}: metadata '{}': {} of {} elements of a head cannot be rotated in pairs", file.path(),
                            reader.key("rope.dimension_count"), *dims, model.key_length));
  }
  const auto base = reader.number_or("rope.freq_base", 10000.0f, true);
  if (!base) return std::unexpected(base.error());
  const auto window_base = reader.number_or("rope.freq_base_swa", row.window_rope_base, true);
  if (!window_base) return std::unexpected(window_base.error());

  const auto kind = file.get_or<std::string_view>(reader.key("rope.scaling.type"), "none");
  if (!kind) return std::unexpected(kind.error());
  const bool long_rope = file.find_tensor("rope_factors_long.weight").has_value();
  if ((*kind != "none" && *kind != "linear") || long_rope) {
    const std::string_view name = long_rope ? std::string_view("longrope") : *kind;
    return fail(fmt::format("{}: rotary scaling '{:.32}' is not supported yet (none, linear and Llama 3's are)",
                            file.path(), name));
  }
  // The old key and the new one; a factor says how much longer the context has become.
  const auto old_factor = reader.number_or("rope.scale_linear", 1.0f, true);
  if (!old_factor) return std::unexpected(old_factor.error());
  const auto factor = reader.number_or("rope.scaling.factor", *old_factor, true);
  if (!factor) return std::unexpected(factor.error());
  constants.frequencies =
      frequencies(*dims, *base, *kind == "linear" || reader.has("rope.scale_linear") ? *factor : 1.0f);
  constants.window_frequencies = *window_base > 0 ? frequencies(*dims, *window_base, 1.0f) : constants.frequencies;

  // Llama 3's scaling comes as a factor for each frequency.
  const auto factors = file.find_tensor("rope_freqs.weight");
  if (!factors) return {};
  std::vector<float> values(factors->elements() == *dims / 2 ? *dims / 2 : 0);
  if (values.empty()) {
    return fail(fmt::format("{}: tensor 'rope_freqs.weight' has {} elements for {} frequencies", file.path(),
                            factors->elements(), *dims / 2));
  }
  if (const auto ok = gguf::dequantize(factors->type, factors->data, values); !ok) return std::unexpected(ok.error());
  for (std::uint32_t i = 0; i < values.size(); ++i) {
    if (!(values[i] > 0))
      return fail(fmt::format("{}: tensor 'rope_freqs.weight': {} is no factor", file.path(), values[i]));
    constants.frequencies[i] /= values[i];
    constants.window_frequencies[i] /= values[i];
  }
  return {};
}

}  // namespace

Result<Constants> read_constants(const gguf::File& file, const Hyperparameters& model) {
  const Architecture& row = *model.architecture;
  const Reader reader(file, model);
  if (model.experts > 0) {
    return fail(fmt::format("{}: metadata '{}': mixtures of experts are not supported yet", file.path(),
                            reader.key("expert_count")));
  }
  Constants constants;
  const bool attends = model.count(Layer::Kind::attention) > 0;
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
    float fallback;
    bool positive;
  };
  float divide_logits = 1;
  const float usual_embedding =
      row.embedding_times_root_of_width ? std::sqrt(static_cast<float>(model.embedding)) : 1.0f;
  const Read reads[] = {
      {"attention.layer_norm_rms_epsilon", &constants.epsilon, 1e-5f, true},
      {"embedding_scale", &constants.embedding_scale, usual_embedding, false},
      {"residual_scale", &constants.residual_scale, 1, false},
      {"logit_scale", &divide_logits, 1, true},
      {"attention.scale", &constants.attention_scale, usual_scale, true},
      {"attn_logit_softcapping", &constants.attention_cap, 0, false},
      {"final_logit_softcapping", &constants.logit_cap, 0, false},
  };
  for (const Read& read : reads) {
    const auto value = reader.number_or(read.name, read.fallback, read.positive);
    if (!value) return std::unexpected(value.error());
    *read.to = *value;
  }
  constants.logit_scale = 1.0f / divide_logits;
  if (attends) {
    if (auto ok = read_rope(file, reader, model, constants); !ok) return std::unexpected(ok.error());
  }
  return constants;
}

}  // namespace quire::model
