#include "quire/server/text_endpoints.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "quire/base/sha256.h"
#include "quire/server/chat_messages.h"
#include "quire/server/completion_format.h"
#include "quire/server/completion_request.h"
#include "quire/server/fields.h"

namespace quire::server {
namespace {

namespace json = boost::json;

constexpr std::size_t kMostPieces = std::size_t{1} << 18;     // tokens of /tokenize with their text
constexpr std::size_t kMostTextBytes = std::size_t{8} << 20;  // that /detokenize answers with
constexpr std::int64_t kMostRouteBlocks = 1 << 20;            // at the beginning of a prompt
constexpr std::size_t kRouteKeyBytes = 16;                    // 32 hex digits

// Adds the bytes of a number, the lowest first, whatever machine this is.
template <typename Number>
void add_number(Sha256& hash, Number number) {
  std::array<char, sizeof(Number)> bytes;
  for (char& byte : bytes) {
    byte = static_cast<char>(number & 0xff);
    number = static_cast<Number>(number >> 8);
  }
  hash.add({bytes.data(), bytes.size()});
}

}  // namespace

json::object model_object(const TextModel& model, std::uint32_t adapter) {
  const ModelFacts& facts = model.facts();
  return {{"id", model.name_of(adapter)},
          {"object", "model"},
          {"created", model.created()},
          {"owned_by", "quire"},
          {"parent", adapter == 0 ? json::value() : json::value(model.name())},
          {"context_length", model.context()},
          {"max_model_len", model.context()},
          {"vocabulary", model.vocabulary()},
          {"chat", model.chat() != nullptr},
          {"meta",
           {{"n_vocab", model.vocabulary()},
            {"n_ctx_train", facts.context},
            {"n_embd", facts.embedding},
            {"n_params", facts.parameters},
            {"size", facts.bytes}}}};
}

std::expected<std::string, ApiError> tokenized(const json::object& body, const TextModel& model) {
  Fields fields(body);
  const auto content = fields.string("content");
  const auto prompt = fields.string("prompt");
  const bool add_special = fields.boolean("add_special").value_or(false);
  const bool with_pieces = fields.boolean("with_pieces").value_or(false);
  if (!content && !prompt) fields.refuse("content", "is missing");
  if (fields.error()) return std::unexpected(*fields.error());
  const auto ids = model.tokenizer().encode(content ? *content : *prompt, {.add_special = add_special});
  if (!ids) return std::unexpected(invalid(ids.error().message, "content"));
  if (with_pieces && ids->size() > kMostPieces) {
    fields.refuse("with_pieces",
                  fmt::format("takes at most {} tokens, and this text has {}", kMostPieces, ids->size()));
    return std::unexpected(*fields.error());
  }
  // Millions of tokens are written as text at once: as JSON values they would take twenty times the memory.
  std::string out = "{\"tokens\":[";
  for (const text::TokenId id : *ids) {
    if (out.back() != '[') out += ',';
    if (!with_pieces) {
      fmt::format_to(std::back_inserter(out), "{}", id);
      continue;
    }
    fmt::format_to(std::back_inserter(out), "{{\"id\":{},\"piece\":", id);
    append_json_string(out, model.token_text(id));
    out += '}';
  }
  fmt::format_to(std::back_inserter(out), "],\"count\":{},\"max_model_len\":{}}}", ids->size(), model.context());
  return out;
}

std::expected<std::string, ApiError> detokenized(const json::object& body, const TextModel& model) {
  Fields fields(body);
  const json::array* const tokens = fields.array("tokens");
  const bool special = fields.boolean("special").value_or(false);
  if (tokens == nullptr) fields.refuse("tokens", "is missing");
  if (fields.error()) return std::unexpected(*fields.error());
  const auto ids = token_ids(*tokens, model, "tokens");
  if (!ids) return std::unexpected(ids.error());
  std::size_t bytes = 0;
  for (const Token id : *ids) bytes += model.tokenizer().piece(id).size();
  if (bytes > kMostTextBytes) {
    fields.refuse("tokens", fmt::format("are a text of {} bytes, and {} is the most", bytes, kMostTextBytes));
    return std::unexpected(*fields.error());
  }
  std::string text;
  append_json_string(text, model.tokenizer().decode(*ids, {.render_special = special, .repair_utf8 = true}));
  return fmt::format("{{\"content\":{},\"prompt\":{}}}", text, text);
}

std::expected<std::string, ApiError> templated(const json::object& body, const TextModel& model) {
  const auto rendered = rendered_chat(body, model);
  if (!rendered) return std::unexpected(rendered.error());
  std::string out = "{\"prompt\":";
  append_json_string(out, rendered->text);
  out += '}';
  return out;
}

std::expected<std::string, ApiError> routed(const json::object& body, const TextModel& model, Namespace tenant,
                                            std::uint32_t block_size) {
  Fields fields(body);
  const auto session = fields.string("session");
  const json::array* const messages = fields.array("messages");
  const json::value* const prompt = fields.any("prompt");
  const auto blocks = static_cast<std::size_t>(fields.integer("blocks", 1, kMostRouteBlocks).value_or(1));
  if (int{session.has_value()} + int{messages != nullptr} + int{prompt != nullptr} != 1) {
    fields.refuse("prompt", "must be there, or 'messages', or 'session': one of the three");
  }
  if (session && session->empty()) fields.refuse("session", "must not be empty");
  if (fields.error()) return std::unexpected(*fields.error());
  const auto adapter = check_model(fields, model);
  if (!adapter) return std::unexpected(adapter.error());

  Sha256 hash;
  std::size_t hashed = 0;
  if (session) {
    hash.add("quire route session 1");
    add_number<std::uint64_t>(hash, tenant);
    hash.add(*session);
  } else {
    auto tokens = [&]() -> std::expected<std::vector<Token>, ApiError> {
      if (messages != nullptr) return chat_prompt(body, model);
      if (prompt->is_string()) return encode_prompt(std::string_view(prompt->get_string()), model, "prompt");
      if (prompt->is_array()) return token_ids(prompt->get_array(), model, "prompt");
      return wrong("prompt", "must be a string or an array of token ids");
    }();
    if (!tokens) return std::unexpected(tokens.error());
    if (tokens->empty()) return wrong("prompt", "must have at least one token");
    // The last block of a prompt is rarely full. A prompt that ends before the blocks do has a key of its own.
    hashed = std::min(tokens->size(), blocks * block_size);
    hash.add("quire route 1");
    add_number<std::uint64_t>(hash, tenant);
    // What was computed with another adapter, or with none, is of no use to this request.
    if (*adapter != 0) hash.add("adapter ").add(model.adapters()[*adapter - 1].name);
    for (const Token token : std::span(*tokens).first(hashed)) {
      add_number<std::uint32_t>(hash, static_cast<std::uint32_t>(token));
    }
  }
  const Sha256Digest digest = hash.finish();
  return fmt::format(R"({{"key":"{}","tokens":{}}})", to_hex(std::span(digest).first(kRouteKeyBytes)), hashed);
}

json::object props(const TextModel& model, std::uint32_t slots, bool speculative) {
  // What a request gets that says nothing: so these are the defaults, not a copy of them.
  const auto request = parse_completion({{"prompt", json::array{0}}}, model);
  json::object params;
  if (request) {
    const engine::Request& options = request->options;
    const engine::SamplerOptions& sampling = options.sampling;
    params = {{"temperature", sampling.temperature},
              {"top_k", sampling.top_k},
              {"top_p", sampling.top_p},
              {"min_p", sampling.min_p},
              {"repeat_penalty", sampling.repetition_penalty},
              {"presence_penalty", sampling.presence_penalty},
              {"frequency_penalty", sampling.frequency_penalty},
              {"seed", -1},
              {"max_tokens", options.max_tokens},
              {"min_tokens", options.min_tokens},
              {"n_probs", std::max(options.logprobs, 0)},
              {"stream", request->stream}};
  }
  const text::Tokenizer& tokenizer = model.tokenizer();
  const auto spelled = [&](std::optional<text::TokenId> id) { return id ? model.token_text(*id) : std::string(); };
  return {{"default_generation_settings",
           {{"n_ctx", model.context()}, {"params", std::move(params)}, {"speculative", speculative}}},
          {"total_slots", slots},
          {"model_alias", model.name()},
          {"model_path", model.facts().file},
          {"modalities", {{"vision", false}, {"audio", false}}},
          {"chat_template", model.facts().chat_template},
          {"bos_token", spelled(tokenizer.bos())},
          {"eos_token", spelled(tokenizer.eos())},
          {"build_info", "quire " QUIRE_VERSION}};
}

}  // namespace quire::server
