#include "quire/server/completion_request.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <random>
#include <utility>

#include <boost/json/array.hpp>
#include <boost/json/stream_parser.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "quire/server/chat_messages.h"
#include "quire/server/constraint_fields.h"
#include "quire/server/fields.h"
#include "quire/server/unsupported.h"

namespace quire::server {
namespace {

namespace json = boost::json;

constexpr std::size_t kMostDepth = 100;  // of nested JSON; the schemas of tools are deep
constexpr std::int64_t kMostTokens = std::numeric_limits<std::int32_t>::max();
constexpr double kMostTemperature = 100;
constexpr double kMostPenalty = 2;
constexpr double kMostBias = 100;
constexpr std::size_t kMostBiasBytes = 1024;  // of one text in 'logit_bias'
constexpr std::int64_t kMostLogprobs = 20;

std::uint64_t random_seed() {
  thread_local std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

// [[15043, 1.0], [" Hello", -0.5], [2, false]]: a token, or all tokens of a text; false: never.
void read_bias_list(Fields& fields, const json::array& list, const TextModel& model, engine::SamplerOptions& sampling) {
  std::vector<std::pair<Token, float>> read;
  for (const json::value& item : list) {
    const json::array* const pair = item.if_array();
    if (pair == nullptr || pair->size() != 2) {
      return fields.refuse("logit_bias", "must be an object, or a list of pairs of a token id or a text and a number");
    }
    const json::value& value = pair->at(1);
    const bool never = value.is_bool() && !value.get_bool();
    const double bias = never               ? -std::numeric_limits<double>::infinity()
                        : value.is_number() ? value.to_number<double>()
                                            : std::numeric_limits<double>::quiet_NaN();
    if (!never && !(bias >= -kMostBias && bias <= kMostBias)) {
      return fields.refuse(
          "logit_bias", fmt::format("must have numbers from {:g} to {:g}, or false, as values", -kMostBias, kMostBias));
    }
    if (const json::string* const text = pair->at(0).if_string()) {
      if (text->size() > kMostBiasBytes) {
        return fields.refuse("logit_bias", fmt::format("must have no text of more than {} bytes", kMostBiasBytes));
      }
      const auto ids = model.tokenizer().encode(std::string_view(*text), {.add_special = false});
      if (!ids) return fields.refuse("logit_bias", "has a text that the vocabulary cannot spell");
      for (const Token id : *ids) read.emplace_back(id, static_cast<float>(bias));
    } else {
      const auto id = whole_number(pair->at(0));
      if (!id || *id < 0 || *id >= model.vocabulary()) {
        return fields.refuse("logit_bias", "must have token ids of the model, or texts, in its pairs");
      }
      read.emplace_back(static_cast<Token>(*id), static_cast<float>(bias));
    }
    if (read.size() > engine::kMostBiases) {
      return fields.refuse("logit_bias", fmt::format("must have at most {} tokens", engine::kMostBiases));
    }
  }
  sampling.logit_bias = std::move(read);
}

void read_logit_bias(Fields& fields, const TextModel& model, engine::SamplerOptions& sampling) {
  const json::value* const any = fields.any("logit_bias");
  if (any != nullptr && any->is_array()) return read_bias_list(fields, any->get_array(), model, sampling);
  const json::object* const biases = fields.object("logit_bias");
  if (biases == nullptr) return;
  if (biases->size() > engine::kMostBiases) {
    return fields.refuse("logit_bias", fmt::format("must have at most {} tokens", engine::kMostBiases));
  }
  std::vector<std::pair<Token, float>> read;
  read.reserve(biases->size());
  for (const auto& [key, value] : *biases) {
    Token token = -1;
    const char* const end = key.data() + key.size();
    const auto [rest, error] = std::from_chars(key.data(), end, token);
    if (rest != end || error != std::errc() || token < 0 || static_cast<std::uint32_t>(token) >= model.vocabulary()) {
      return fields.refuse("logit_bias", "must have token ids of the model as keys");
    }
    const double bias = value.is_number() ? value.to_number<double>() : std::numeric_limits<double>::quiet_NaN();
    if (!(bias >= -kMostBias && bias <= kMostBias)) {
      return fields.refuse("logit_bias",
                           fmt::format("must have numbers from {:g} to {:g} as values", -kMostBias, kMostBias));
    }
    read.emplace_back(token, static_cast<float>(bias));
  }
  sampling.logit_bias = std::move(read);
}

void read_stop_strings(Fields& fields, engine::Request& options) {
  const json::value* const stop = fields.any("stop");
  if (stop == nullptr) return;
  std::vector<std::string> texts;
  const auto add = [&](const json::value& text) {
    if (!text.is_string()) return fields.refuse("stop", "must be a string or an array of strings");
    const std::string_view view = text.get_string();
    if (view.empty()) return fields.refuse("stop", "must have no empty string");
    if (view.size() > engine::kMostStopBytes) {
      return fields.refuse("stop", fmt::format("must have no string of more than {} bytes", engine::kMostStopBytes));
    }
    texts.emplace_back(view);
  };
  if (stop->is_string()) {
    add(*stop);
  } else if (stop->is_array() && stop->get_array().size() <= kMostStops) {
    for (const json::value& each : stop->get_array()) add(each);
  } else {
    return fields.refuse("stop", fmt::format("must be a string or an array of at most {} strings", kMostStops));
  }
  options.stop_strings = std::move(texts);
}

void read_stop_tokens(Fields& fields, const TextModel& model, engine::Request& options) {
  std::vector<Token> stops;
  if (!fields.boolean("ignore_eos").value_or(false)) {
    const auto ends = model.tokenizer().end_of_generation();
    stops.assign(ends.begin(), ends.end());
  }
  if (const json::array* const ids = fields.array("stop_token_ids")) {
    if (ids->size() > kMostStopIds) {
      return fields.refuse("stop_token_ids", fmt::format("must be an array of at most {} token ids", kMostStopIds));
    }
    const auto tokens = token_ids(*ids, model, "stop_token_ids");
    if (!tokens) return fields.refuse("stop_token_ids", "must be token ids of the model");
    stops.insert(stops.end(), tokens->begin(), tokens->end());
  }
  // Sorted here, so that the engine need not do it for every prompt.
  std::ranges::sort(stops);
  options.stop_tokens = std::move(stops);
}

// The fields that completions and chats have in common.
void read_common(Fields& fields, const TextModel& model, CompletionRequest& request) {
  engine::Request& options = request.options;
  engine::SamplerOptions& sampling = options.sampling;
  sampling.temperature = fields.number("temperature", 0, kMostTemperature).value_or(1);
  sampling.top_p = fields.number("top_p", 0, 1).value_or(1);
  sampling.min_p = fields.number("min_p", 0, 1).value_or(0);
  sampling.top_k =
      static_cast<std::uint32_t>(std::max<std::int64_t>(fields.integer("top_k", -1, kMostTokens).value_or(0), 0));
  sampling.presence_penalty = fields.number("presence_penalty", -kMostPenalty, kMostPenalty).value_or(0);
  sampling.frequency_penalty = fields.number("frequency_penalty", -kMostPenalty, kMostPenalty).value_or(0);
  sampling.repetition_penalty = fields.number("repetition_penalty", 0.01, 100).value_or(1);
  const auto seed =
      fields.integer("seed", std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());
  sampling.seed = seed && *seed != -1 ? static_cast<std::uint64_t>(*seed) : random_seed();
  read_logit_bias(fields, model, sampling);
  read_stop_strings(fields, options);
  read_stop_tokens(fields, model, options);
  options.min_tokens = static_cast<std::uint32_t>(fields.integer("min_tokens", 0, kMostTokens).value_or(0));
  request.prompt_logprobs = static_cast<std::int32_t>(fields.integer("prompt_logprobs", 0, kMostLogprobs).value_or(-1));
  options.n = static_cast<std::uint32_t>(fields.integer("n", 1, engine::kMostChoices).value_or(1));
  options.best_of = static_cast<std::uint32_t>(fields.integer("best_of", 1, engine::kMostChoices).value_or(0));
  if (options.best_of != 0 && options.best_of < options.n) fields.refuse("best_of", "must be at least 'n'");
  options.priority =
      static_cast<std::int32_t>(fields.integer("priority", -engine::kMostPriority, engine::kMostPriority).value_or(0));
  options.reuse = fields.boolean("cache_prompt").value_or(true);
  request.stream = fields.boolean("stream").value_or(false);
  if (const json::object* const stream = fields.object("stream_options")) {
    Fields inner(*stream, "stream_options.");
    request.include_usage = inner.boolean("include_usage").value_or(false);
    if (inner.error()) fields.refuse("stream_options.include_usage", "must be true or false");
    if (!request.stream) fields.refuse("stream_options", "needs 'stream' to be true");
  }
  if (request.prompt_logprobs >= 0 && request.stream) {
    fields.refuse("prompt_logprobs", "cannot be used together with 'stream'");
  }
  const bool render_special = !fields.boolean("skip_special_tokens").value_or(true);
  options.text = [&model, at_start = request.chat, render_special] {
    return model.text_stream(at_start, render_special);
  };
}

// The shape that the answer must have.
std::optional<ApiError> add_constraint(const AskedConstraint& asked, const TextModel& model, engine::Request& options) {
  auto factory = model.constraints().make(asked.spec);
  if (!factory) {
    return invalid(fmt::format("'{}' cannot be enforced: {}", asked.field, factory.error().message), asked.field);
  }
  options.constraint = std::move(*factory);
  return std::nullopt;
}

std::expected<void, ApiError> read_prompts(const json::value& prompt, const TextModel& model, bool echo,
                                           CompletionRequest& request) {
  const auto add_text = [&](std::string_view text, const std::string& field) -> std::expected<void, ApiError> {
    auto ids = encode_prompt(text, model, field);
    if (!ids) return std::unexpected(ids.error());
    request.prompts.push_back(std::move(*ids));
    request.echoes.emplace_back(echo ? text : std::string_view());
    return {};
  };
  const auto add_ids = [&](const json::array& array, const std::string& field) -> std::expected<void, ApiError> {
    if (array.size() > model.context()) {
      return std::unexpected(too_long(field, fmt::format("{} tokens", array.size()), model));
    }
    auto ids = token_ids(array, model, field);
    if (!ids) return std::unexpected(ids.error());
    request.echoes.push_back(echo ? model.tokenizer().decode(*ids, {.repair_utf8 = true}) : std::string());
    request.prompts.push_back(std::move(*ids));
    return {};
  };
  const ApiError wrong = invalid(
      "'prompt' must be a string, an array of strings, an array of token ids or an array of such arrays", "prompt");
  if (prompt.is_string()) return add_text(std::string_view(prompt.get_string()), "prompt");
  if (!prompt.is_array() || prompt.get_array().empty()) return std::unexpected(wrong);
  const json::array& items = prompt.get_array();
  if (items.front().is_number()) return add_ids(items, "prompt");
  if (items.size() > kMostPrompts) {
    return std::unexpected(
        invalid(fmt::format("'prompt' has {} prompts, and {} is the most", items.size(), kMostPrompts), "prompt"));
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string field = fmt::format("prompt[{}]", i);
    const json::value& item = items[i];
    if (item.kind() != items.front().kind() || (!item.is_string() && !item.is_array())) return std::unexpected(wrong);
    const auto ok =
        item.is_string() ? add_text(std::string_view(item.get_string()), field) : add_ids(item.get_array(), field);
    if (!ok) return ok;
  }
  return {};
}

// A prompt with a gap behind it: what stands before the gap, what stands behind it, and the model's tokens around them.
std::expected<void, ApiError> add_suffix(std::string_view suffix, const TextModel& model, CompletionRequest& request) {
  const text::InfillTokens* const infill = model.infill();
  if (infill == nullptr) {
    return std::unexpected(
        invalid("'suffix' is not possible with this model: it has no tokens to fill in the middle", "suffix"));
  }
  if (suffix.size() > model.most_bytes()) {
    return std::unexpected(too_long("suffix", fmt::format("{} bytes", suffix.size()), model));
  }
  const auto behind = model.tokenizer().encode(suffix, {.add_special = false});
  if (!behind) return std::unexpected(invalid(fmt::format("'suffix': {}", behind.error().message), "suffix"));
  for (std::vector<Token>& prompt : request.prompts) {
    const auto bos = model.tokenizer().bos();
    const bool begins = model.tokenizer().adds_bos() && bos && !prompt.empty() && prompt.front() == *bos;
    prompt.insert(prompt.begin() + (begins ? 1 : 0), infill->prefix);
    prompt.push_back(infill->suffix);
    prompt.insert(prompt.end(), behind->begin(), behind->end());
    prompt.push_back(infill->middle);
  }
  std::vector<Token> stops(request.options.stop_tokens.begin(), request.options.stop_tokens.end());
  stops.insert(stops.end(), infill->ends.begin(), infill->ends.end());
  std::ranges::sort(stops);
  request.options.stop_tokens = std::move(stops);
  return {};
}

// What only shows when all fields are read.
void check_lengths(Fields& fields, const CompletionRequest& request) {
  if (request.options.min_tokens > request.options.max_tokens) {
    fields.refuse("min_tokens",
                  fmt::format("must be at most the number of tokens that may come: {}", request.options.max_tokens));
  }
}

// Asks the engine for what has to be known of the prompts' tokens.
std::optional<ApiError> ask_for_prompt_logprobs(CompletionRequest& request) {
  request.options.prompt_logprobs = std::max(request.echo_logprobs, request.prompt_logprobs);
  if (request.options.prompt_logprobs < 0) return std::nullopt;
  std::size_t tokens = 0;
  for (const auto& prompt : request.prompts) {
    // The engine would refuse it, but Completion::begin() reads the first token of every prompt before that.
    if (prompt.empty()) return invalid("the prompt has no tokens", request.chat ? "messages" : "prompt");
    tokens += prompt.size() * request.options.n;
  }
  std::size_t each = 0;
  for (const std::int32_t count : {request.echo_logprobs, request.prompt_logprobs}) {
    if (count >= 0) each += static_cast<std::size_t>(count) + 1;
  }
  if (tokens * each <= kMostPromptLogprobs) return std::nullopt;
  const std::string field = request.prompt_logprobs >= 0 ? "prompt_logprobs" : "logprobs";
  return invalid(fmt::format("'{}' reports {} log-probabilities of prompts, and {} is the most", field, tokens * each,
                             kMostPromptLogprobs),
                 field);
}

// What only shows when all prompts are known.
std::optional<ApiError> check_size(const CompletionRequest& request) {
  const std::size_t choices = std::max(request.options.n, request.options.best_of);
  if (request.prompts.size() * choices > kMostChoicesInAll) {
    return invalid(fmt::format("'n' or 'best_of' times {} prompts makes {} choices, and {} is the most",
                               request.prompts.size(), request.prompts.size() * choices, kMostChoicesInAll),
                   request.options.best_of > request.options.n ? "best_of" : "n");
  }
  std::size_t bytes = 0;
  for (const std::string& echo : request.echoes) bytes += echo.size() * request.options.n;
  if (bytes > kMostEchoBytes) {
    return invalid(
        fmt::format("'echo' puts {} bytes of prompts before the choices, and {} is the most", bytes, kMostEchoBytes),
        "echo");
  }
  return std::nullopt;
}

}  // namespace

std::expected<std::uint32_t, ApiError> check_model(Fields& fields, const TextModel& model) {
  const auto name = fields.string("model");
  if (fields.error()) return std::unexpected(*fields.error());
  if (!name) return 0;
  if (const auto adapter = model.find(*name)) return *adapter;
  return std::unexpected(no_model(*name, model));
}

ApiError no_model(std::string_view name, const TextModel& model) {
  std::string has = fmt::format("'{}'", model.name());
  for (std::uint32_t i = 1; i <= model.adapters().size(); ++i) has += fmt::format(", '{}'", model.name_of(i));
  return {.status = 404,
          .message = fmt::format("the model {} does not exist; this server has {}", in_quotes(name), has),
          .param = "model",
          .code = "model_not_found"};
}

ApiError too_long(const std::string& field, std::string_view has, const TextModel& model) {
  return {.message = fmt::format("'{}' has {}, too many for the context of {} tokens", field, has, model.context()),
          .param = field,
          .code = "context_length_exceeded"};
}

std::expected<json::object, ApiError> parse_body(std::string_view body) {
  json::parse_options options;
  options.max_depth = kMostDepth;
  json::stream_parser parser({}, options);
  json::error_code error;
  std::size_t at = parser.write_some(body.data(), body.size(), error);
  if (!error && at < body.size())
    return std::unexpected(invalid(fmt::format("the body has extra bytes after its JSON, at byte {}", at)));
  if (!error) parser.finish(error);
  if (error) {
    if (body.empty()) return std::unexpected(invalid("the body is empty; it must be a JSON object"));
    return std::unexpected(invalid(fmt::format("the body is not JSON: {} at byte {}", error.message(), at)));
  }
  json::value value = parser.release();
  if (!value.is_object()) return std::unexpected(invalid("the body must be a JSON object"));
  return std::move(value.get_object());
}

std::expected<std::vector<Token>, ApiError> encode_prompt(std::string_view text, const TextModel& model,
                                                          const std::string& field) {
  if (text.size() > model.most_bytes()) {
    return std::unexpected(too_long(field, fmt::format("{} bytes", text.size()), model));
  }
  const text::Tokenizer& tokenizer = model.tokenizer();
  auto ids = tokenizer.encode(text);
  if (!ids) return std::unexpected(invalid(fmt::format("'{}': {}", field, ids.error().message), field));
  // An EOS that the tokenizer adds would end the text before the model can continue it.
  if (tokenizer.adds_eos() && !ids->empty() && ids->back() == tokenizer.eos()) ids->pop_back();
  if (ids->empty()) {
    return std::unexpected(
        invalid(fmt::format("'{}' is empty, and the model has no token to begin a text with", field), field));
  }
  return std::move(*ids);
}

std::expected<std::vector<Token>, ApiError> token_ids(const json::array& ids, const TextModel& model,
                                                      const std::string& field) {
  std::vector<Token> tokens;
  tokens.reserve(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = whole_number(ids[i]);
    if (!id || *id < 0 || *id >= model.vocabulary()) {
      return std::unexpected(
          invalid(fmt::format("'{}[{}]' must be a token id from 0 to {}", field, i, model.vocabulary() - 1), field));
    }
    tokens.push_back(static_cast<Token>(*id));
  }
  return tokens;
}

CompletionResult parse_completion(json::object&& body, const TextModel& model) {
  CompletionRequest request;
  Fields fields(body);
  const auto adapter = check_model(fields, model);
  if (!adapter) return std::unexpected(adapter.error());
  request.options.adapter = *adapter;
  if (auto error = refuse_unsupported(body, UnsupportedField::Completions)) return std::unexpected(std::move(*error));
  read_common(fields, model, request);
  auto asked = read_constraint(body);
  if (!asked) return std::unexpected(std::move(asked.error()));
  request.options.max_tokens = static_cast<std::uint32_t>(fields.integer("max_tokens", 0, kMostTokens).value_or(16));
  request.options.logprobs = static_cast<std::int32_t>(fields.integer("logprobs", 0, kMostLogprobs).value_or(-1));
  const bool echo = fields.boolean("echo").value_or(false);
  if (echo) request.echo_logprobs = request.options.logprobs;
  const std::string_view suffix = fields.string("suffix").value_or(std::string_view());
  if (!suffix.empty() && request.echo_logprobs >= 0) {
    fields.refuse("suffix", "cannot be used together with 'echo' and 'logprobs'");
  }
  check_lengths(fields, request);
  const json::value* const prompt = fields.any("prompt");
  if (prompt == nullptr) fields.refuse("prompt", "is missing");
  if (fields.error()) return std::unexpected(*fields.error());
  if (auto ok = read_prompts(*prompt, model, echo, request); !ok) return std::unexpected(ok.error());
  if (!suffix.empty()) {
    if (auto ok = add_suffix(suffix, model, request); !ok) return std::unexpected(ok.error());
  }
  if (auto error = check_size(request)) return std::unexpected(std::move(*error));
  if (*asked) {
    if (auto error = add_constraint(**asked, model, request.options)) return std::unexpected(std::move(*error));
  }
  if (auto error = ask_for_prompt_logprobs(request)) return std::unexpected(std::move(*error));
  return request;
}

CompletionResult parse_chat(json::object&& body, const TextModel& model) {
  CompletionRequest request;
  request.chat = true;
  Fields fields(body);
  const auto adapter = check_model(fields, model);
  if (!adapter) return std::unexpected(adapter.error());
  request.options.adapter = *adapter;
  if (auto error = refuse_unsupported(body, UnsupportedField::Chats)) return std::unexpected(std::move(*error));
  read_common(fields, model, request);
  auto asked = read_constraint(body);
  if (!asked) return std::unexpected(std::move(asked.error()));
  // The newer name wins. Without either, only the context limits the answer.
  const auto older = fields.integer("max_tokens", 0, kMostTokens);
  const auto newer = fields.integer("max_completion_tokens", 0, kMostTokens);
  request.options.max_tokens = static_cast<std::uint32_t>(newer.value_or(older.value_or(model.context())));
  const bool logprobs = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, kMostLogprobs);
  if (top.value_or(0) > 0 && !logprobs) fields.refuse("top_logprobs", "needs 'logprobs' to be true");
  request.options.logprobs = logprobs ? static_cast<std::int32_t>(top.value_or(0)) : -1;
  check_lengths(fields, request);
  if (fields.error()) return std::unexpected(*fields.error());
  auto style = answer_style(body, model);
  if (!style) return std::unexpected(style.error());
  const bool render_special = !fields.boolean("skip_special_tokens").value_or(true);
  const auto rendered = rendered_chat(std::move(body), model);
  if (!rendered) return std::unexpected(rendered.error());
  auto prompt = chat_tokens(*rendered, model);
  if (!prompt) return std::unexpected(prompt.error());
  request.style = std::move(*style);
  request.style.primer = tools::primer(request.style.format, request.style.reasoning, rendered->text);
  if (auto error = constrain(request.style, *asked, model, request.options)) return std::unexpected(std::move(*error));
  request.options.text = [&model, render_special, marks = request.style.marks()] {
    return model.text_stream(true, render_special, marks);
  };
  request.prompts.push_back(std::move(*prompt));
  request.echoes.emplace_back();
  if (auto error = ask_for_prompt_logprobs(request)) return std::unexpected(std::move(*error));
  return request;
}

}  // namespace quire::server
