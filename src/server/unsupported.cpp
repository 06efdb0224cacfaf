#include "quire/server/unsupported.h"

#include <algorithm>
#include <string>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

namespace quire::server {
namespace {

namespace json = boost::json;
using In = UnsupportedField::In;

constexpr std::string_view kTemplateVariable = "put it into 'chat_template_kwargs' if the model's template knows it";

constexpr UnsupportedField kFields[] = {
    // The answer follows a grammar.
    {.name = "structural_tag"},
    {.name = "ebnf"},
    {.name = "guided_whitespace_pattern"},
    {.name = "response_format",
     .neutral = R"([{"type": "text"}])",
     .instead = "send 'text.format'",
     .in = In::Responses},
    // Other ways to sample.
    {.name = "mirostat", .neutral = "[0]"},
    {.name = "typical_p", .neutral = "[1]"},
    {.name = "typical", .neutral = "[1]"},
    {.name = "tfs_z", .neutral = "[1]"},
    {.name = "top_a", .neutral = "[0]"},
    {.name = "top_n_sigma", .neutral = "[-1, 0]"},
    {.name = "adaptive_target", .neutral = "[-1]"},
    {.name = "xtc_probability", .neutral = "[0]"},
    {.name = "dry_multiplier", .neutral = "[0]"},
    {.name = "dynatemp_range", .neutral = "[0]"},
    {.name = "smoothing_factor", .neutral = "[0]"},
    {.name = "epsilon_cutoff", .neutral = "[0]"},
    {.name = "eta_cutoff", .neutral = "[0]"},
    {.name = "penalty_alpha", .neutral = "[0]"},
    {.name = "guidance_scale", .neutral = "[1]"},
    {.name = "no_repeat_ngram_size", .neutral = "[0]"},
    {.name = "repeat_penalty", .neutral = "[1]", .instead = "send 'repetition_penalty'"},
    {.name = "min_keep", .neutral = "[0, 1]"},
    {.name = "samplers", .neutral = R"([[], ""])"},
    {.name = "logits_processors", .neutral = "[[]]"},
    {.name = "bad_words", .neutral = "[[]]", .instead = "use 'logit_bias'"},
    {.name = "allowed_token_ids"},
    {.name = "use_beam_search", .neutral = "[false]"},
    {.name = "length_penalty", .neutral = "[1]"},
    {.name = "early_stopping", .neutral = "[false]"},
    // How long the answer is, and where it ends.
    {.name = "n_predict", .neutral = "[-1]", .instead = "send 'max_tokens'", .in = In::All & ~In::Responses},
    {.name = "n_predict", .neutral = "[-1]", .instead = "send 'max_output_tokens'", .in = In::Responses},
    {.name = "min_new_tokens", .neutral = "[0]"},
    {.name = "n_indent", .neutral = "[0]"},
    {.name = "t_max_predict_ms", .neutral = "[-1, 0]"},
    {.name = "stop_regex", .neutral = "[[]]"},
    {.name = "include_stop_str_in_output", .neutral = "[false]"},
    {.name = "max_tokens", .instead = "send 'max_output_tokens'", .in = In::Responses},
    {.name = "max_completion_tokens", .instead = "send 'max_output_tokens'", .in = In::Responses},
    {.name = "max_completion_tokens", .instead = "send 'max_tokens'", .in = In::Messages},
    {.name = "max_output_tokens", .instead = "send 'max_tokens'", .in = In::Messages},
    {.name = "stop_sequences", .neutral = "[[]]", .instead = "send 'stop'", .in = In::Responses},
    {.name = "top_logprobs", .neutral = "[0]", .in = In::Messages},
    {.name = "parallel_tool_calls",
     .neutral = "[true]",
     .instead = "send 'tool_choice.disable_parallel_tool_use'",
     .in = In::Messages},
    {.name = "stop", .neutral = "[[]]", .instead = "send 'stop_sequences'", .in = In::Messages},
    // Another prompt.
    {.name = "suffix", .neutral = R"([""])", .instead = "it belongs to /v1/completions", .in = In::Conversations},
    {.name = "truncate_prompt_tokens"},
    {.name = "add_special_tokens", .neutral = "[true]", .in = In::Completions},
    {.name = "add_special_tokens", .neutral = "[false]", .in = In::Conversations},
    {.name = "chat_template", .neutral = R"([""])", .instead = "the model's own template is used"},
    {.name = "documents", .neutral = "[[]]", .instead = kTemplateVariable, .in = In::Conversations},
    {.name = "reasoning_effort", .in = In::Completions},
    {.name = "reasoning_effort", .instead = "send 'reasoning.effort'", .in = In::Responses},
    {.name = "enable_thinking", .instead = kTemplateVariable},
    {.name = "thinking",
     .neutral = R"([{"type": "disabled"}])",
     .instead = kTemplateVariable,
     .in = In::All & ~In::Messages},
    {.name = "reasoning", .in = In::All & ~In::Responses},
    {.name = "continue_final_message", .neutral = "[false]", .in = In::Responses | In::Messages},
    {.name = "add_generation_prompt", .neutral = "[true]", .in = In::Responses | In::Messages},
    {.name = "session", .instead = "it belongs to /v1/chat/completions", .in = In::Responses | In::Messages},
    {.name = "verbosity", .neutral = R"(["medium"])"},
    {.name = "image_data", .neutral = "[[]]", .instead = "this server takes text only"},
    {.name = "mm_processor_kwargs", .neutral = "[{}]", .instead = "this server takes text only"},
    // Another answer.
    {.name = "functions", .neutral = "[[]]", .instead = "send 'tools'"},
    {.name = "function_call", .neutral = R"(["none", "auto"])", .instead = "send 'tools' and 'tool_choice'"},
    {.name = "modalities", .neutral = R"([["text"]])"},
    {.name = "audio"},
    {.name = "prediction"},
    {.name = "web_search_options"},
    {.name = "mcp_servers", .neutral = "[[]]", .in = In::Messages},
    {.name = "echo", .neutral = "[false]", .in = In::Conversations},
    {.name = "n_probs", .neutral = "[0]", .instead = "send 'logprobs'"},
    {.name = "n", .neutral = "[1]", .in = In::Responses | In::Messages},
    {.name = "best_of", .neutral = "[1]", .in = In::Responses | In::Messages},
    {.name = "logprobs", .neutral = "[false]", .in = In::Responses | In::Messages},
    {.name = "prompt_logprobs", .in = In::Responses | In::Messages},
    // Another model, another place for it.
    {.name = "lora", .neutral = "[[]]"},
    {.name = "lora_path"},
    {.name = "id_slot", .neutral = "[-1]", .instead = "this server has no slots"},
    {.name = "cache_salt", .instead = "each API key has a cache of its own"},
    {.name = "kv_transfer_params", .neutral = "[{}]"},
    {.name = "vllm_xargs", .neutral = "[{}]"},
};

struct Known {
  const UnsupportedField* field;
  json::array neutral;
};

const std::vector<Known>& known() {
  static const std::vector<Known> all = [] {
    std::vector<Known> out;
    for (const UnsupportedField& field : kFields) out.push_back({&field, json::parse(field.neutral).as_array()});
    return out;
  }();
  return all;
}

bool same(const json::value& a, const json::value& b) {
  // 1.0 is 1.
  if (a.is_number() && b.is_number()) return a.to_number<double>() == b.to_number<double>();
  return a == b;
}

bool asks_for(const json::object& body, std::string_view name) {
  const json::value* const value = body.if_contains(name);
  return value != nullptr && !value->is_null() && !(value->is_array() && value->get_array().empty());
}

std::string advice(const Known& known) {
  std::string taken;
  for (const json::value& value : known.neutral) {
    taken += fmt::format("{}{}", taken.empty() ? "" : " or ", json::serialize(value));
  }
  std::string out = taken.empty() ? "is not supported" : fmt::format("is not supported, except as {}", taken);
  if (!known.field->instead.empty()) out += fmt::format(": {}", known.field->instead);
  return out;
}

}  // namespace

std::span<const UnsupportedField> unsupported_fields() { return kFields; }

std::optional<ApiError> refuse_unsupported(const json::object& body, UnsupportedField::In endpoint) {
  for (const Known& each : known()) {
    const UnsupportedField& field = *each.field;
    if ((field.in & endpoint) == 0) continue;
    const json::value* const value = body.if_contains(field.name);
    if (value == nullptr || value->is_null()) continue;
    if (!field.only_with.empty() && !asks_for(body, field.only_with)) continue;
    if (std::ranges::any_of(each.neutral, [&](const json::value& one) { return same(*value, one); })) continue;
    return invalid(fmt::format("'{}' {}", field.name, advice(each)), std::string(field.name));
  }
  return std::nullopt;
}

}  // namespace quire::server
