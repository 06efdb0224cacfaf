#include <boost/json/array.hpp>
#include <boost/json/value.hpp>

#include "quire/cli/info.h"

namespace quire::cli {

namespace {

namespace json = boost::json;

json::object layer_json(const ModelFacts& facts, const model::Layer& layer) {
  json::object out;
  const bool attends = layer.has(model::BlockKind::Attention) || layer.latent;
  const std::string attention = layer.latent ? "latent attention" : "attention";
  out["kind"] = !attends ? "recurrent" : layer.recurrent ? attention + " and recurrent" : attention;
  if (attends) {
    out["heads"] = layer.heads;
    out["kv_heads"] = layer.kv_heads;
    out["key_length"] = facts.model.key_length;
    out["value_length"] = facts.model.value_length;
    if (layer.latent) {
      const model::LatentShape& latent = facts.model.latent;
      out["latent"] = {{"q_rank", latent.q_rank},
                       {"kv_rank", latent.kv_rank},
                       {"plain", latent.plain},
                       {"rotated", latent.rotated},
                       {"value", latent.value}};
    }
    out["window"] = layer.window == 0 ? json::value() : json::value(layer.window);
    out["rotary"] = !layer.unrotated;
  }
  out["feed_forward_length"] = layer.feed_forward;
  return out;
}

json::value rope_scaling_json(const model::RopeScaling& scaling) {
  using Kind = model::RopeScaling::Kind;
  switch (scaling.kind) {
    case Kind::None: break;
    case Kind::Linear: return {{"kind", "linear"}, {"factor", scaling.factor}};
    case Kind::Yarn:
      return {{"kind", "yarn"}, {"factor", scaling.factor}, {"original_context_length", scaling.original_length}};
    case Kind::LongRope:
      return {{"kind", "longrope"},
              {"factors", scaling.long_factors ? "long" : "short"},
              {"original_context_length", scaling.original_length}};
  }
  return nullptr;
}

const char* name_of(model::BlockKind kind) {
  switch (kind) {
    case model::BlockKind::Mamba1: return "mamba1";
    case model::BlockKind::ShortConv: return "short_conv";
    case model::BlockKind::DeltaRule: return "delta_rule";
    default: return "mamba2";
  }
}

json::value recurrent_json(const model::Hyperparameters& model) {
  const model::RecurrentShape& shape = model.recurrent;
  if (shape == model::RecurrentShape()) return nullptr;
  json::object out{{"kind", name_of(model.architecture->recurrent_kind())},
                   {"heads", shape.heads},
                   {"inner_size", shape.inner},
                   {"state_size", shape.state},
                   {"groups", shape.groups},
                   {"conv_kernel", shape.conv_kernel}};
  if (shape.rank > 0) out["step_rank"] = shape.rank;
  return out;
}

json::value tokenizer_json(const std::optional<ModelFacts::TokenizerFacts>& tokenizer) {
  if (!tokenizer) return nullptr;
  json::object special;
  for (const ModelFacts::SpecialToken& token : tokenizer->special) {
    special[token.role] = {{"id", token.id}, {"spelling", token.spelling}};
  }
  return {{"model", tokenizer->model},
          {"pre", tokenizer->pre.empty() ? json::value() : json::value(tokenizer->pre)},
          {"supported", tokenizer->supported},
          {"tokens", tokenizer->tokens},
          {"special", std::move(special)}};
}

json::object cost_json(const model::StateCost& cost) {
  json::object out;
  out["bytes_per_token"] = cost.bytes_per_token + cost.window_bytes_per_token;
  out["bytes_per_token_within_window"] = cost.window_bytes_per_token;
  out["bytes_per_sequence"] = cost.fixed_bytes;
  out["bytes_at_full_context"] = cost.total_bytes;
  out["bytes_unfilled_at_most"] = cost.unfilled_bytes;
  return out;
}

json::value recurrent_bytes_json(const ModelFacts& facts) {
  if (facts.recurrent_bytes.empty()) return nullptr;
  json::object out;
  for (const auto& [type, bytes] : facts.recurrent_bytes) out[name(type)] = bytes;
  return out;
}

}  // namespace

json::object info_json(const ModelFacts& facts) {
  const model::Hyperparameters& model = facts.model;
  json::array parts, layers, types;
  for (const gguf::File::Part& part : facts.parts) {
    parts.push_back({{"path", part.path}, {"bytes", part.bytes}, {"tensors", part.tensors}});
  }
  for (const model::Layer& layer : model.layers) layers.push_back(layer_json(facts, layer));
  for (const ModelFacts::TensorType& type : facts.types) {
    types.push_back({{"type", gguf::type_name(type.type)},
                     {"tensors", type.tensors},
                     {"elements", type.elements},
                     {"bytes", type.bytes}});
  }

  json::object out;
  out["file"] = {{"path", facts.path}, {"bytes", facts.bytes}, {"gguf_version", facts.version}};
  out["file"].as_object()["parts"] = std::move(parts);
  out["name"] = facts.name.empty() ? json::value() : json::value(facts.name);
  out["architecture"] = model.architecture->name;
  out["parameters"] = facts.parameters;
  out["context_length"] = model.context_length;
  out["vocabulary"] = model.vocabulary;
  out["embedding_length"] = model.embedding;
  out["experts"] = model.experts.count;
  out["experts_used"] = model.experts.used;
  out["expert_groups"] = model.experts.groups;
  out["expert_groups_used"] = model.experts.groups_used;
  out["shared_expert_length"] = model.experts.shared_inner;
  out["layers"] = std::move(layers);
  out["learned_positions"] = model.architecture->learned_positions;
  out["rope_scaling"] = rope_scaling_json(facts.rope_scaling);
  out["recurrent"] = recurrent_json(model);
  out["next_token_heads"] = model.head ? 1 : 0;
  out["next_token_head_problem"] = facts.head_problem.empty() ? json::value() : json::value(facts.head_problem);
  out["layers_not_used"] = model.extra_layers - (model.head ? 1 : 0);
  out["tensors"] = facts.tensors;
  out["types"] = std::move(types);
  out["tokenizer"] = tokenizer_json(facts.tokenizer);
  out["chat_template_bytes"] = facts.chat_template_bytes ? json::value(*facts.chat_template_bytes) : json::value();
  json::object state{{"block_size", facts.block_size}};
  for (const ModelFacts::KvChoice& choice : facts.states) state[name(choice.type)] = cost_json(choice.cost);
  state["bf16"] = state["f16"];
  state["recurrent_bytes_per_sequence"] = recurrent_bytes_json(facts);
  const bool recurrent = model.recurrent != model::RecurrentShape();
  state["checkpoint_unit"] = recurrent ? json::value(model::checkpoint_unit_for(facts.block_size)) : json::value();
  out["state"] = std::move(state);
  return out;
}

}  // namespace quire::cli
