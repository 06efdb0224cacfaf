#include "quire/cli/model_facts.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "quire/cli/printable.h"
#include "quire/model/model.h"
#include "quire/text/pretokenizer.h"

namespace quire::cli {

namespace {

constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";

Result<std::string> short_string(const gguf::File& file, std::string_view key) {
  const auto value = file.get_or<std::string_view>(key, "");
  if (!value) return std::unexpected(value.error());
  return std::string(clipped(*value, kMaxShown));
}

// Array<std::string_view> has no random access. Only a few tokens are read, so walking is cheap enough.
std::string_view token_at(const gguf::Array<std::string_view>& tokens, std::uint64_t index) {
  auto token = tokens.begin();
  for (std::uint64_t i = 0; i < index; ++i) ++token;
  return *token;
}

Result<void> read_special_tokens(const gguf::File& file, const gguf::Array<std::string_view>& tokens,
                                 ModelFacts::TokenizerFacts& tokenizer) {
  constexpr std::pair<std::string_view, std::string_view> kKeys[] = {
      {"BOS", "tokenizer.ggml.bos_token_id"},         {"EOS", "tokenizer.ggml.eos_token_id"},
      {"EOT", "tokenizer.ggml.eot_token_id"},         {"EOM", "tokenizer.ggml.eom_token_id"},
      {"unknown", "tokenizer.ggml.unknown_token_id"}, {"padding", "tokenizer.ggml.padding_token_id"},
  };
  for (const auto& [role, key] : kKeys) {
    if (!file.has(key)) continue;
    const auto id = file.get<std::uint32_t>(key);
    if (!id) return std::unexpected(id.error());
    if (*id >= tokens.size()) {
      return fail(fmt::format("{}: metadata '{}': {}, but there are {} tokens", file.path(), key, *id, tokens.size()));
    }
    tokenizer.special.push_back({std::string(role), *id, std::string(clipped(token_at(tokens, *id), kMaxShown))});
  }
  return {};
}

// Reads the metadata of the tokenizer without building it.
Result<std::optional<ModelFacts::TokenizerFacts>> read_tokenizer(const gguf::File& file) {
  constexpr std::string_view kModelKey = "tokenizer.ggml.model";
  constexpr std::string_view kTypesKey = "tokenizer.ggml.token_type";
  if (!file.has(kModelKey)) return std::nullopt;
  ModelFacts::TokenizerFacts tokenizer;
  auto model = short_string(file, kModelKey);
  if (!model) return std::unexpected(model.error());
  tokenizer.model = std::move(*model);
  auto pre = short_string(file, "tokenizer.ggml.pre");
  if (!pre) return std::unexpected(pre.error());
  tokenizer.pre = std::move(*pre);
  if (tokenizer.model == "gpt2") {
    tokenizer.kind = "byte-level BPE";
    const auto known = text::Pretokenizer::names();
    tokenizer.supported = std::ranges::find(known, tokenizer.pre) != known.end();
  } else if (tokenizer.model == "llama") {
    tokenizer.kind = "SentencePiece";
    tokenizer.supported = true;
  }
  const auto tokens = file.get_array<std::string_view>(kTokensKey);
  if (!tokens) return std::unexpected(tokens.error());
  tokenizer.tokens = tokens->size();
  if (file.has(kTypesKey)) {
    const auto types = file.get_array<std::int32_t>(kTypesKey);
    if (!types) return std::unexpected(types.error());
    if (types->size() != tokens->size()) {
      return fail(fmt::format("{}: metadata '{}': has {} elements for {} tokens", file.path(), kTypesKey, types->size(),
                              tokens->size()));
    }
  }
  if (auto ok = read_special_tokens(file, *tokens, tokenizer); !ok) return std::unexpected(ok.error());
  return tokenizer;
}

void count_tensors(const gguf::File& file, ModelFacts& facts) {
  facts.tensors = file.tensor_count();
  for (std::size_t i = 0; i < file.tensor_count(); ++i) {
    const gguf::Tensor tensor = file.tensor(i);
    auto type = std::ranges::find(facts.types, tensor.type, &ModelFacts::TensorType::type);
    if (type == facts.types.end()) type = facts.types.insert(type, {.type = tensor.type});
    ++type->tensors;
    type->elements += tensor.elements();
    type->bytes += tensor.data.size();
    facts.parameters += tensor.elements();
  }
  std::ranges::stable_sort(facts.types, std::ranges::greater(), &ModelFacts::TensorType::bytes);
}

Result<model::StateCost> cost_of_context(const gguf::File& file, const model::Hyperparameters& model,
                                         std::uint32_t block_size, ElementType type) {
  const auto layout = model::state_layout(model, block_size, type);
  if (!layout) return fail(fmt::format("{}: {}", file.path(), layout.error().message));
  auto cost = model::state_cost(*layout, model.context_length);
  if (!cost) return fail(fmt::format("{}: {}", file.path(), cost.error().message));
  return cost;
}

// The layout was made before with other types, so it can be made with these.
std::vector<ModelFacts::RecurrentBytes> recurrent_bytes(const model::Hyperparameters& model) {
  std::vector<ModelFacts::RecurrentBytes> all;
  for (const ElementType type : {ElementType::F32, ElementType::BF16, ElementType::F16}) {
    const auto layout = model::state_layout(model, kDefaultBlockSize, ElementType::F16, type);
    if (layout && layout->has_recurrent()) all.push_back({type, layout->recurrent.bytes()});
  }
  return all;
}

}  // namespace

Result<ModelFacts> model_facts(const gguf::File& file, std::uint32_t block_size) {
  ModelFacts facts;
  facts.path = file.path();
  facts.version = file.version();
  facts.parts.assign(file.parts().begin(), file.parts().end());
  for (const gguf::File::Part& part : facts.parts) facts.bytes += part.bytes;

  auto model = model::read_hyperparameters(file);
  if (!model) return std::unexpected(model.error());
  facts.model = std::move(*model);
  if (auto ok = model::check_tensors(file, facts.model); !ok) return std::unexpected(ok.error());
  if (facts.model.head) {
    if (auto ok = model::check_head(file, facts.model); !ok) facts.head_problem = std::move(ok.error().message);
  }
  // A model that is described but cannot be run has no constants.
  if (const auto constants = model::read_constants(file, facts.model)) facts.rope_scaling = constants->rope_scaling;
  count_tensors(file, facts);

  auto name = short_string(file, "general.name");
  if (!name) return std::unexpected(name.error());
  facts.name = std::move(*name);
  auto tokenizer = read_tokenizer(file);
  if (!tokenizer) return std::unexpected(tokenizer.error());
  facts.tokenizer = std::move(*tokenizer);
  if (file.has("tokenizer.chat_template")) {
    const auto chat_template = file.get<std::string_view>("tokenizer.chat_template");
    if (!chat_template) return std::unexpected(chat_template.error());
    facts.chat_template_bytes = chat_template->size();
  }

  facts.block_size = block_size;
  for (const ElementType type : {ElementType::F32, ElementType::F16, ElementType::Q8_0}) {
    const auto cost = cost_of_context(file, facts.model, block_size, type);
    if (!cost) return std::unexpected(cost.error());
    facts.states.push_back({type, *cost});
  }
  facts.recurrent_bytes = recurrent_bytes(facts.model);
  return facts;
}

}  // namespace quire::cli
