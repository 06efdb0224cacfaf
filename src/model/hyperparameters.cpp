#include "quire/model/hyperparameters.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace quire::model {

namespace {

// Far above any model, and so small that the product of any two is far below 2^64.
constexpr std::uint32_t kMaxContext = 1 << 30;
constexpr std::uint32_t kMaxWidth = 1 << 20;
constexpr std::uint32_t kMaxVocabulary = 1 << 24;
constexpr std::uint32_t kMaxHeads = 1 << 14;
constexpr std::uint32_t kMaxHeadLength = 1 << 16;
constexpr std::uint32_t kMaxConvKernel = 256;
constexpr std::uint32_t kMaxStateSize = 1 << 14;
constexpr std::uint32_t kMaxExperts = 1 << 12;

constexpr std::string_view kArchitectureKey = "general.architecture";
constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";

struct Range {
  std::uint32_t least;
  std::uint32_t most;
  bool contains(std::uint64_t value) const { return value >= least && value <= most; }
};

// Reads the keys of one architecture of one file.
class Reader {
 public:
  Reader(const gguf::File& file, const Architecture& architecture) : file_(file), prefix_(architecture.name) {
    prefix_ += '.';
  }

  std::string key(std::string_view name) const { return prefix_ + std::string(name); }
  bool has(std::string_view name) const { return file_.has(key(name)); }

  std::unexpected<Error> refuse(std::string_view name, std::string_view why) const {
    return fail(fmt::format("{}: metadata '{}': {}", file_.path(), key(name), why));
  }

  Result<std::uint32_t> number(std::string_view name, Range range) const {
    const auto value = file_.get<std::uint64_t>(key(name));
    if (!value) return std::unexpected(value.error());
    return checked(name, *value, range);
  }

  Result<std::uint32_t> number_or(std::string_view name, Range range, std::uint32_t fallback) const {
    return has(name) ? number(name, range) : Result<std::uint32_t>(fallback);
  }

  // One number for all layers, or an array with one per layer.
  Result<std::vector<std::uint32_t>> per_layer(std::string_view name, Range range, std::size_t layers) const {
    const auto entry = file_.find(key(name));
    if (!entry || !entry->value.is_array()) {
      const auto value = number(name, range);
      if (!value) return std::unexpected(value.error());
      return std::vector<std::uint32_t>(layers, *value);
    }
    const auto array = file_.get_array<std::uint64_t>(key(name));
    if (!array) return std::unexpected(array.error());
    if (array->size() != layers) {
      return refuse(name, fmt::format("has {} elements for {} layers", array->size(), layers));
    }
    std::vector<std::uint32_t> values;
    values.reserve(layers);
    for (const std::uint64_t element : *array) {
      const auto value = checked(name, element, range);
      if (!value) return std::unexpected(value.error());
      values.push_back(*value);
    }
    return values;
  }

  // An array with a flag per layer: bool, or 0 and 1.
  Result<std::vector<bool>> flags(std::string_view name, std::size_t layers) const {
    const auto entry = file_.find(key(name));
    if (entry && entry->value.is_array() && entry->value.size() != layers) {
      return refuse(name, fmt::format("has {} elements for {} layers", entry->value.size(), layers));
    }
    std::vector<bool> flags(layers);
    if (const auto bools = entry ? entry->value.as_array<bool>() : std::nullopt) {
      for (std::size_t i = 0; i < layers; ++i) flags[i] = (*bools)[i];
      return flags;
    }
    const auto numbers = per_layer(name, {0, 1}, layers);
    if (!numbers) return std::unexpected(numbers.error());
    for (std::size_t i = 0; i < layers; ++i) flags[i] = (*numbers)[i] != 0;
    return flags;
  }

  // Sets the layers that have the window. The file may name a period, or have a flag per layer (bool, or 0 and 1).
  Result<void> apply_window(std::uint32_t window, std::uint32_t default_period, std::vector<Layer>& layers) const {
    constexpr std::string_view kPattern = "attention.sliding_window_pattern";
    const auto entry = file_.find(key(kPattern));
    if (entry && entry->value.is_array()) {
      const auto pattern = flags(kPattern, layers.size());
      if (!pattern) return std::unexpected(pattern.error());
      for (std::size_t i = 0; i < layers.size(); ++i) layers[i].window = (*pattern)[i] ? window : 0;
      return {};
    }
    const auto period = number_or(kPattern, {0, kMaxLayers}, default_period);
    if (!period) return std::unexpected(period.error());
    for (std::size_t i = 0; i < layers.size(); ++i) {
      layers[i].window = *period == 0 || (i + 1) % *period != 0 ? window : 0;
    }
    return {};
  }

  const gguf::File& file() const { return file_; }

 private:
  Result<std::uint32_t> checked(std::string_view name, std::uint64_t value, Range range) const {
    if (range.contains(value)) return static_cast<std::uint32_t>(value);
    return refuse(name, fmt::format("{} is out of range ({} to {})", value, range.least, range.most));
  }

  const gguf::File& file_;
  std::string prefix_;
};

Result<const Architecture*> read_architecture(const gguf::File& file) {
  const auto name = file.get<std::string_view>(kArchitectureKey);
  if (!name) return std::unexpected(name.error());
  if (const Architecture* found = find_architecture(*name)) return found;
  const auto entry = file.find(kArchitectureKey);
  std::string known;
  for (const Architecture& row : architectures()) {
    known += known.empty() ? "" : ", ";
    known += row.name;
  }
  // describe() escapes control characters.
  return fail(fmt::format("{}: metadata '{}': {} is not an architecture that Quire knows ({})", file.path(),
                          kArchitectureKey, entry ? entry->value.describe() : "nothing", known));
}

// The size of the tokenizer's list. A file without a tokenizer may name the size.
Result<std::uint32_t> read_vocabulary_size(const Reader& reader) {
  const gguf::File& file = reader.file();
  if (!file.has(kTokensKey)) return reader.number("vocab_size", {1, kMaxVocabulary});
  const auto tokens = file.get_array<std::string_view>(kTokensKey);
  if (!tokens) return std::unexpected(tokens.error());
  if (tokens->empty() || tokens->size() > kMaxVocabulary) {
    return fail(fmt::format("{}: metadata '{}': {} tokens are out of range (1 to {})", file.path(), kTokensKey,
                            tokens->size(), kMaxVocabulary));
  }
  return static_cast<std::uint32_t>(tokens->size());
}

Result<void> read_heads(const Reader& reader, Hyperparameters& model) {
  constexpr std::string_view kHeads = "attention.head_count";
  constexpr std::string_view kKvHeads = "attention.head_count_kv";
  const bool hybrid = model.architecture->alternates();
  // A hybrid may have zeros for its recurrent layers.
  const bool by_heads = hybrid && model.architecture->attention_interval == 0;
  const Range range = {hybrid ? 0U : 1U, kMaxHeads};
  const std::size_t layers = model.layers.size();
  const auto heads = reader.per_layer(kHeads, range, layers);
  if (!heads) return std::unexpected(heads.error());
  // Without the key there are as many KV heads as query heads. A hybrid must have the key, since it says which layers
  // have none.
  const auto kv_heads = by_heads || reader.has(kKvHeads) ? reader.per_layer(kKvHeads, range, layers) : heads;
  if (!kv_heads) return std::unexpected(kv_heads.error());
  for (std::size_t i = 0; i < layers; ++i) {
    Layer& layer = model.layers[i];
    if (by_heads) layer.recurrent = (*kv_heads)[i] == 0;
    if (hybrid && layer.recurrent) continue;
    layer.heads = (*heads)[i];
    layer.kv_heads = (*kv_heads)[i];
    if (layer.kv_heads == 0) return reader.refuse(kKvHeads, fmt::format("layer {} has attention but no KV heads", i));
    if (layer.heads == 0) return reader.refuse(kHeads, fmt::format("layer {} has KV heads but no heads", i));
    if (layer.heads % layer.kv_heads != 0) {
      return reader.refuse(kKvHeads, fmt::format("{} heads of layer {} are not a multiple of {} KV heads", layer.heads,
                                                 i, layer.kv_heads));
    }
  }
  return {};
}

// Which layers of a hybrid are recurrent, where that does not follow from their KV heads: a flag per layer, or all but
// each n-th.
Result<void> read_interval(const Reader& reader, Hyperparameters& model) {
  constexpr std::string_view kFlags = "attention.recurrent_layers";
  const std::size_t ordinary = model.layers.size() - model.extra_layers;  // those that guess further have attention
  if (reader.has(kFlags)) {
    const auto flags = reader.flags(kFlags, model.layers.size());
    if (!flags) return std::unexpected(flags.error());
    for (std::size_t i = 0; i < model.layers.size(); ++i) model.layers[i].recurrent = (*flags)[i] && i < ordinary;
    return {};
  }
  const auto interval =
      reader.number_or("full_attention_interval", {1, kMaxLayers}, model.architecture->attention_interval);
  if (!interval) return std::unexpected(interval.error());
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    model.layers[i].recurrent = (i + 1) % *interval != 0 && i < ordinary;
  }
  return {};
}

Result<void> read_head_lengths(const Reader& reader, Hyperparameters& model) {
  constexpr std::string_view kKeyLength = "attention.key_length";
  constexpr std::string_view kValueLength = "attention.value_length";
  const auto layer = std::ranges::find_if(model.layers, [](const Layer& l) { return l.has(BlockKind::Attention); });
  if (layer == model.layers.end()) return {};
  std::uint32_t usual = 0;
  if (!reader.has(kKeyLength) || !reader.has(kValueLength)) {
    if (model.embedding % layer->heads != 0) {
      return reader.refuse("attention.head_count",
                           fmt::format("an embedding of {} does not divide into {} heads, and there is no '{}'",
                                       model.embedding, layer->heads, reader.key(kKeyLength)));
    }
    usual = model.embedding / layer->heads;
  }
  const Range range = {1, kMaxHeadLength};
  const auto keys = reader.number_or(kKeyLength, range, usual);
  if (!keys) return std::unexpected(keys.error());
  const auto values = reader.number_or(kValueLength, range, usual);
  if (!values) return std::unexpected(values.error());
  model.key_length = *keys;
  model.value_length = *values;
  return {};
}

// The lengths of heads are those before the projections are absorbed. Files name them with "_mla". In older files they
// are the plain lengths.
Result<void> read_latent(const Reader& reader, Hyperparameters& model) {
  const auto length = [&](std::string_view name, std::string_view older) {
    return reader.number(reader.has(name) ? name : older, {1, kMaxHeadLength});
  };
  const auto query = length("attention.key_length_mla", "attention.key_length");
  if (!query) return std::unexpected(query.error());
  const auto value = length("attention.value_length_mla", "attention.value_length");
  if (!value) return std::unexpected(value.error());
  const auto kv_rank = reader.number("attention.kv_lora_rank", {1, kMaxHeadLength});
  if (!kv_rank) return std::unexpected(kv_rank.error());
  const auto q_rank = reader.number_or("attention.q_lora_rank", {0, kMaxWidth}, 0);
  if (!q_rank) return std::unexpected(q_rank.error());
  const auto rotated = reader.number("rope.dimension_count", {1, kMaxHeadLength});
  if (!rotated) return std::unexpected(rotated.error());
  if (*rotated >= *query) {
    return reader.refuse(
        "rope.dimension_count",
        fmt::format("{} of {} elements of a head would leave none that are not rotated", *rotated, *query));
  }
  // Factors of queries that depend on their position.
  constexpr std::string_view kTemperature = "attention.temperature_scale";
  if (reader.has(kTemperature)) return reader.refuse(kTemperature, "is not supported yet");
  model.latent = {
      .q_rank = *q_rank, .kv_rank = *kv_rank, .plain = *query - *rotated, .rotated = *rotated, .value = *value};
  model.key_length = model.latent.row();
  model.value_length = *kv_rank;
  for (Layer& layer : model.layers) {
    layer.latent = true;
    layer.kv_heads = 1;  // older files count the heads before the projections are absorbed
  }
  return {};
}

Result<void> read_windows(const Reader& reader, Hyperparameters& model) {
  const auto window =
      reader.number_or("attention.sliding_window", {0, kMaxContext}, model.architecture->default_window);
  if (!window) return std::unexpected(window.error());
  if (*window == 0) return {};
  if (auto ok = reader.apply_window(*window, model.architecture->window_period, model.layers); !ok) return ok;
  for (Layer& layer : model.layers) {
    if (!layer.has(BlockKind::Attention)) layer.window = 0;
  }
  return {};
}

void choose_unrotated(Hyperparameters& model) {
  const std::uint32_t period = model.architecture->unrotated_period;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    Layer& layer = model.layers[i];
    const bool by_period = period != 0 && (i + 1) % period == 0;
    const bool by_window = model.architecture->rotated_in_windows_only && layer.window == 0;
    layer.unrotated = layer.has(BlockKind::Attention) && (by_period || by_window);
  }
}

struct RecurrentKey {
  std::string_view name;
  std::uint32_t RecurrentShape::*member;
  Range range;
};
constexpr RecurrentKey kConvKernel = {"ssm.conv_kernel", &RecurrentShape::conv_kernel, {1, kMaxConvKernel}};
constexpr RecurrentKey kInner = {"ssm.inner_size", &RecurrentShape::inner, {1, kMaxWidth}};
constexpr RecurrentKey kState = {"ssm.state_size", &RecurrentShape::state, {1, kMaxStateSize}};
constexpr RecurrentKey kGroups = {"ssm.group_count", &RecurrentShape::groups, {1, kMaxHeads}};
constexpr RecurrentKey kHeads = {"ssm.time_step_rank", &RecurrentShape::heads, {1, kMaxHeads}};
constexpr RecurrentKey kRank = {"ssm.time_step_rank", &RecurrentShape::rank, {1, kMaxWidth}};

constexpr RecurrentKey kMamba1Keys[] = {kConvKernel, kInner, kState, kRank};
constexpr RecurrentKey kHeadKeys[] = {kConvKernel, kInner, kState, kGroups, kHeads};  // Mamba-2 and the delta rule
constexpr RecurrentKey kShortConvKeys[] = {{"shortconv.l_cache", &RecurrentShape::conv_kernel, {1, kMaxConvKernel}}};

std::span<const RecurrentKey> keys_of(BlockKind kind) {
  switch (kind) {
    case BlockKind::Mamba1: return kMamba1Keys;
    case BlockKind::ShortConv: return kShortConvKeys;
    default: return kHeadKeys;
  }
}

Result<void> check_heads(const Reader& reader, const RecurrentShape& shape) {
  if (shape.inner % shape.heads != 0) {
    return reader.refuse("ssm.inner_size", fmt::format("{} does not divide into {} heads ('{}')", shape.inner,
                                                       shape.heads, reader.key("ssm.time_step_rank")));
  }
  if (shape.heads % shape.groups != 0) {
    return reader.refuse("ssm.time_step_rank", fmt::format("{} heads do not divide into {} groups ('{}')", shape.heads,
                                                           shape.groups, reader.key("ssm.group_count")));
  }
  return {};
}

Result<void> read_recurrent(const Reader& reader, Hyperparameters& model) {
  const BlockKind kind = model.architecture->recurrent_kind();
  if (!is_recurrent(kind) || model.count(kind) == 0) return {};
  RecurrentShape& shape = model.recurrent;
  for (const RecurrentKey& key : keys_of(kind)) {
    const auto value = reader.number(key.name, key.range);
    if (!value) return std::unexpected(value.error());
    shape.*key.member = *value;
  }
  if (kind == BlockKind::ShortConv) shape.inner = model.embedding;
  if (kind == BlockKind::Mamba1) {
    const auto normed = reader.file().get_or<bool>(reader.key("ssm.dt_b_c_rms"), false);
    if (!normed) return std::unexpected(normed.error());
    shape.plain_step_norms = *normed;
  }
  return shape.heads > 0 ? check_heads(reader, shape) : Result<void>();
}

// How a router scores experts: the ids of the file. 0 is what the architecture's models do.
Result<Router::Scores> read_scores(const Reader& reader, Router::Scores usual) {
  constexpr std::string_view kGating = "expert_gating_func";
  const auto id = reader.number_or(kGating, {0, UINT32_MAX}, 0);
  if (!id) return std::unexpected(id.error());
  switch (*id) {
    case 0: return usual;
    case 1: return Router::Scores::Softmax;
    case 2: return Router::Scores::Sigmoid;
    case 3: return Router::Scores::ChosenSoftmax;
    default:
      return reader.refuse(kGating, fmt::format("{} is not supported (1: softmax, 2: sigmoid, 3: softmax over the "
                                                "chosen experts)",
                                                *id));
  }
}

Result<void> read_groups(const Reader& reader, ExpertShape& experts) {
  constexpr std::string_view kGroupCount = "expert_group_count", kGroupsUsed = "expert_group_used_count";
  const auto groups = reader.number_or(kGroupCount, {0, Router::kMostGroups}, 1);
  if (!groups) return std::unexpected(groups.error());
  experts.groups = std::max(*groups, 1u);
  if (experts.count % experts.groups != 0) {
    return reader.refuse(kGroupCount, fmt::format("{} experts do not divide into {} groups", experts.count, *groups));
  }
  // 0 is written for models without groups.
  const auto used = reader.number_or(kGroupsUsed, {0, experts.groups}, experts.groups);
  if (!used) return std::unexpected(used.error());
  experts.groups_used = std::max(*used, 1u);
  if (experts.count / experts.groups * experts.groups_used < experts.used) {
    return reader.refuse(kGroupsUsed, fmt::format("{} of {} groups have fewer than {} experts", experts.groups_used,
                                                  experts.groups, experts.used));
  }
  return {};
}

Result<void> read_experts(const Reader& reader, Hyperparameters& model) {
  const auto count = reader.number_or("expert_count", {0, kMaxExperts}, 0);
  if (!count) return std::unexpected(count.error());
  if (*count == 0) return {};
  const auto used = reader.number("expert_used_count", {1, *count});
  if (!used) return std::unexpected(used.error());
  const auto scores = read_scores(reader, model.architecture->expert_scores);
  if (!scores) return std::unexpected(scores.error());
  const auto normed =
      reader.file().get_or<bool>(reader.key("expert_weights_norm"), model.architecture->expert_weights_normed);
  if (!normed) return std::unexpected(normed.error());
  model.experts = {.count = *count, .used = *used, .scores = *scores, .normed = *normed};
  return read_groups(reader, model.experts);
}

// The width of the shared expert: that of several experts, or a width of its own.
Result<std::uint32_t> read_shared_width(const Reader& reader, std::uint32_t expert_width) {
  constexpr std::string_view kCount = "expert_shared_count";
  const auto count = reader.number_or(kCount, {0, kMaxExperts}, 0);
  if (!count) return count;
  if (std::uint64_t{*count} * expert_width > kMaxWidth) {
    return reader.refuse(kCount, fmt::format("{} experts of {} are too many", *count, expert_width));
  }
  return reader.number_or("expert_shared_feed_forward_length", {0, kMaxWidth}, *count * expert_width);
}

// A model with experts may have layers without them: the first ones, or those whose tensors say so.
Result<void> read_expert_layers(const Reader& reader, Hyperparameters& model) {
  const auto dense = reader.number_or("leading_dense_block_count", {0, kMaxLayers}, 0);
  if (!dense) return std::unexpected(dense.error());
  bool any = false;
  for (std::uint32_t i = 0; i < model.layers.size(); ++i) {
    const auto has = [&](std::string_view name) {
      return reader.file().find_tensor(fmt::format("blk.{}.{}", i, name)).has_value();
    };
    model.layers[i].experts = i >= *dense && (has("ffn_gate_inp.weight") || !has("ffn_down.weight"));
    any = any || model.layers[i].experts;
  }
  if (!any) return {};
  const auto width = reader.number_or("expert_feed_forward_length", {0, kMaxWidth}, 0);
  if (!width) return std::unexpected(width.error());
  std::uint32_t widest = 0;
  for (Layer& layer : model.layers) {
    if (!layer.experts) continue;
    if (*width > 0) layer.feed_forward = *width;
    widest = std::max(widest, layer.feed_forward);
  }
  const auto shared = read_shared_width(reader, widest);
  if (!shared) return std::unexpected(shared.error());
  model.experts.shared_inner = *shared;
  return {};
}

Result<void> read_feed_forward(const Reader& reader, Hyperparameters& model) {
  constexpr std::string_view kFeedForward = "feed_forward_length";
  if (auto ok = read_experts(reader, model); !ok) return ok;
  // A pure Mamba model has none, and needs no key. One with experts may name their width only.
  const bool needed = model.attends() && !reader.has("expert_feed_forward_length");
  if (reader.has(kFeedForward) || needed) {
    const auto widths = reader.per_layer(kFeedForward, {0, kMaxWidth}, model.layers.size());
    if (!widths) return std::unexpected(widths.error());
    for (std::size_t i = 0; i < model.layers.size(); ++i) model.layers[i].feed_forward = (*widths)[i];
  }
  return model.experts.count == 0 ? Result<void>() : read_expert_layers(reader, model);
}

// Files without the tensors of a layer that guesses further tokens still count it.
bool has_tensors(const gguf::File& file, std::uint32_t layer) {
  const std::string prefix = fmt::format("blk.{}.", layer);
  for (std::size_t i = 0; i < file.tensor_count(); ++i) {
    if (file.tensor(i).name.starts_with(prefix)) return true;
  }
  return false;
}

}  // namespace

std::uint32_t Hyperparameters::count(BlockKind kind) const {
  return static_cast<std::uint32_t>(std::ranges::count_if(layers, [&](const Layer& layer) { return layer.has(kind); }));
}

Result<Hyperparameters> read_hyperparameters(const gguf::File& file, const Architecture* row) {
  if (file.get_or<std::string_view>("general.type", "").value_or("") == "adapter") {
    return fail(file.path() + ": is an adapter and not a model; it is given with --lora NAME=FILE");
  }
  const auto architecture = row != nullptr ? Result<const Architecture*>(row) : read_architecture(file);
  if (!architecture) return std::unexpected(architecture.error());
  Hyperparameters model;
  model.architecture = *architecture;
  const Reader reader(file, **architecture);

  const auto layers = reader.number("block_count", {1, kMaxLayers});
  if (!layers) return std::unexpected(layers.error());
  // Arrays per layer have elements for the layers that predict further tokens, too. So those are dropped at the end.
  const auto extra = reader.number_or("nextn_predict_layers", {0, *layers - 1}, 0);
  if (!extra) return std::unexpected(extra.error());
  const auto context = reader.number("context_length", {1, kMaxContext});
  if (!context) return std::unexpected(context.error());
  const auto embedding = reader.number("embedding_length", {1, kMaxWidth});
  if (!embedding) return std::unexpected(embedding.error());
  const auto vocabulary = read_vocabulary_size(reader);
  if (!vocabulary) return std::unexpected(vocabulary.error());
  model.context_length = *context;
  model.embedding = *embedding;
  model.vocabulary = *vocabulary;
  model.layers.resize(*layers);
  model.extra_layers = *extra;

  if (model.architecture->recurs() && !model.architecture->alternates()) {
    for (Layer& layer : model.layers) layer.recurrent = true;
  }
  if (model.architecture->has(BlockKind::LatentAttention)) {
    if (auto ok = read_heads(reader, model); !ok) return std::unexpected(ok.error());
    if (auto ok = read_latent(reader, model); !ok) return std::unexpected(ok.error());
  }
  if (model.architecture->attention_interval > 0) {
    if (auto ok = read_interval(reader, model); !ok) return std::unexpected(ok.error());
  }
  if (model.architecture->has(BlockKind::Attention)) {
    if (auto ok = read_heads(reader, model); !ok) return std::unexpected(ok.error());
    if (auto ok = read_head_lengths(reader, model); !ok) return std::unexpected(ok.error());
    if (auto ok = read_windows(reader, model); !ok) return std::unexpected(ok.error());
    choose_unrotated(model);
  }
  const auto causal = file.get_or<bool>(reader.key("attention.causal"), true);
  if (!causal) return std::unexpected(causal.error());
  if (!*causal) return reader.refuse("attention.causal", "only models that attend backwards are supported");
  if (auto ok = read_recurrent(reader, model); !ok) return std::unexpected(ok.error());
  if (auto ok = read_feed_forward(reader, model); !ok) return std::unexpected(ok.error());
  const std::uint32_t ordinary = *layers - *extra;
  if (model.architecture->next_token_head && *extra > 0 && has_tensors(file, ordinary)) {
    model.head = model.layers[ordinary];
  }
  model.layers.resize(ordinary);
  return model;
}

}  // namespace quire::model
