#include "quire/server/embeddings.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <utility>

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "quire/server/engine_calls.h"
#include "quire/server/fields.h"

namespace quire::server {
namespace {

namespace json = boost::json;

constexpr std::size_t kAtOnce = 32;  // texts of one call in the engine

static_assert(std::endian::native == std::endian::little, "floats are sent as the machine has them");

// Unlike a prompt, a text keeps the EOS that the tokenizer adds: models that pool the last position were trained so.
std::expected<std::vector<Token>, ApiError> encode_input(const json::value& input, const TextModel& model,
                                                         const std::string& field) {
  std::expected<std::vector<Token>, ApiError> ids;
  if (input.is_array()) {
    ids = token_ids(input.get_array(), model, field);
    if (!ids) return ids;
  } else {
    const std::string_view text = input.get_string();
    if (text.size() > model.most_bytes()) {
      return std::unexpected(too_long(field, fmt::format("{} bytes", text.size()), model));
    }
    auto encoded = model.tokenizer().encode(text);
    if (!encoded) return std::unexpected(invalid(fmt::format("'{}': {}", field, encoded.error().message), field));
    ids = std::move(*encoded);
  }
  if (ids->empty()) return std::unexpected(invalid(fmt::format("'{}' has no tokens", field), field));
  if (ids->size() > model.context()) {
    return std::unexpected(too_long(field, fmt::format("{} tokens", ids->size()), model));
  }
  return ids;
}

std::expected<void, ApiError> read_inputs(const json::value& input, const TextModel& model,
                                          std::vector<std::vector<Token>>& to) {
  const ApiError wrong = invalid(
      "'input' must be a string, an array of strings, an array of token ids or an array of such arrays", "input");
  const auto add = [&](const json::value& item, const std::string& field) -> std::expected<void, ApiError> {
    auto ids = encode_input(item, model, field);
    if (!ids) return std::unexpected(ids.error());
    to.push_back(std::move(*ids));
    return {};
  };
  if (input.is_string()) return add(input, "input");
  if (!input.is_array() || input.get_array().empty()) return std::unexpected(wrong);
  const json::array& items = input.get_array();
  if (items.front().is_number()) return add(input, "input");
  if (items.size() > kMostInputs) {
    return std::unexpected(
        invalid(fmt::format("'input' has {} texts, and {} is the most", items.size(), kMostInputs), "input"));
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].kind() != items.front().kind() || (!items[i].is_string() && !items[i].is_array())) {
      return std::unexpected(wrong);
    }
    if (auto ok = add(items[i], fmt::format("input[{}]", i)); !ok) return ok;
  }
  return {};
}

}  // namespace

EmbeddingResult parse_embeddings(json::object&& body, const TextModel& model) {
  EmbeddingRequest request;
  Fields fields(body);
  const auto adapter = check_model(fields, model);
  if (!adapter) return std::unexpected(adapter.error());
  request.options.adapter = *adapter;
  const ModelFacts& facts = model.facts();
  if (facts.pooling == engine::Pooling::None) {
    return std::unexpected(invalid("this model has no embeddings: it ranks pairs of texts"));
  }
  const auto dimensions = fields.integer("dimensions", 1, facts.embedding);
  request.dimensions = static_cast<std::uint32_t>(dimensions.value_or(facts.embedding));
  const std::string_view format = fields.string("encoding_format").value_or("float");
  if (format != "float" && format != "base64") fields.refuse("encoding_format", "must be \"float\" or \"base64\"");
  request.base64 = format == "base64";
  request.normalize = fields.boolean("normalize").value_or(true);
  engine::Request& options = request.options;
  options.max_tokens = 0;
  options.embedding = facts.pooling;
  options.reuse = fields.boolean("cache_prompt").value_or(true);
  options.priority =
      static_cast<std::int32_t>(fields.integer("priority", -engine::kMostPriority, engine::kMostPriority).value_or(0));
  const json::value* const input = fields.any("input");
  if (fields.error()) return std::unexpected(*fields.error());
  if (input == nullptr) return std::unexpected(invalid("'input' is missing", "input"));
  if (auto ok = read_inputs(*input, model, request.inputs); !ok) return std::unexpected(ok.error());
  if (request.inputs.size() * request.dimensions > kMostNumbers) {
    return std::unexpected(
        invalid(fmt::format("'input' has {} texts, which makes {} numbers, and {} is the most", request.inputs.size(),
                            request.inputs.size() * request.dimensions, kMostNumbers),
                "input"));
  }
  return request;
}

void shorten(std::vector<float>& vector, std::uint32_t dimensions, bool normalize) {
  if (dimensions < vector.size()) vector.resize(dimensions);
  if (!normalize) return;
  double squares = 0;
  for (const float x : vector) squares += double{x} * x;
  if (squares == 0) return;
  const double length = std::sqrt(squares);
  for (float& x : vector) x = static_cast<float>(x / length);
}

std::string base64_of(std::span<const float> vector) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<unsigned char> bytes(vector.size_bytes());
  std::memcpy(bytes.data(), vector.data(), bytes.size());
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t left = std::min<std::size_t>(bytes.size() - i, 3);
    std::uint32_t word = 0;
    for (std::size_t b = 0; b < 3; ++b) word = word << 8 | (b < left ? bytes[i + b] : 0u);
    for (std::size_t digit = 0; digit < 4; ++digit) {
      out += digit <= left ? kDigits[word >> (18 - 6 * digit) & 63] : '=';
    }
  }
  return out;
}

void EmbeddingCall::start(const CompletionContext& context, EmbeddingRequest request, Namespace name_space,
                          std::shared_ptr<Responder> responder) {
  const auto call = std::make_shared<EmbeddingCall>(context, std::move(request), std::move(responder));
  call->request_.options.name_space = name_space;
  call->responder_->on_gone = [weak = call->weak_from_this()] {
    const auto self = weak.lock();
    if (!self || self->over_) return;
    self->over_ = true;
    self->context_.metrics.completed(Outcome::Gone);
    self->note("cancelled");
    self->cancel();
  };
  while (!call->over_ && call->open_ < kAtOnce && call->ids_.size() < call->request_.inputs.size()) {
    call->submit_next();
  }
  call->responder_->headers.emplace_back("x-request-id", std::to_string(call->ids_.front()));
}

EmbeddingCall::EmbeddingCall(const CompletionContext& context, EmbeddingRequest request,
                             std::shared_ptr<Responder> responder)
    : context_(context),
      request_(std::move(request)),
      responder_(std::move(responder)),
      submitted_(engine::Clock::now()),
      vectors_(request_.inputs.size()) {}

void EmbeddingCall::submit_next() {
  const std::size_t next = ids_.size();
  engine::Request asked = request_.options;
  asked.prompt = std::move(request_.inputs[next]);
  asked.deadline = submitted_ + context_.request_timeout;
  ++open_;
  ids_.push_back(context_.service.submit(
      std::move(asked),
      std::make_shared<PromptListener>(context_.inbox, shared_from_this(), static_cast<std::uint32_t>(next))));
}

void EmbeddingCall::receive(const Arrival& arrival) {
  if (over_) return;
  switch (arrival.kind) {
    case engine::Event::Kind::Refused:
      if (arrival.refusal->why == engine::Refusal::Why::RateLimited) {
        context_.metrics.rate_limited(request_.options.name_space);
      }
      return fail(from_refusal(*arrival.refusal), outcome_of(*arrival.refusal));
    case engine::Event::Kind::Embedding: vectors_[arrival.prompt] = arrival.vector; return;
    case engine::Event::Kind::Finished: return finished(arrival);
    default: return;
  }
}

void EmbeddingCall::finished(const Arrival& arrival) {
  if (const auto failure = failure_of(arrival, context_.request_timeout)) return fail(failure->error, failure->outcome);
  const bool sound = std::ranges::all_of(vectors_[arrival.prompt], [](float x) { return std::isfinite(x); });
  if (!sound) {
    return fail({.status = 500,
                 .type = "server_error",
                 .message = "the model's hidden states are not numbers",
                 .code = "model_failed"},
                Outcome::Failed);
  }
  usage_.add(arrival.usage, miss_reason(arrival.usage.hit.end, context_.has_keys));
  --open_;
  shorten(vectors_[arrival.prompt], request_.dimensions, request_.normalize);
  if (ids_.size() < request_.inputs.size()) return submit_next();
  if (open_ == 0) complete();
}

void EmbeddingCall::complete() {
  over_ = true;
  context_.metrics.completed(Outcome::Finished);
  note("embedding");
  std::string out = R"({"object":"list","data":[)";
  for (std::size_t i = 0; i < vectors_.size(); ++i) {
    fmt::format_to(std::back_inserter(out), R"({}{{"object":"embedding","index":{},"embedding":)", i == 0 ? "" : ",",
                   i);
    if (request_.base64) {
      out += '"';
      out += base64_of(vectors_[i]);
      out += '"';
    } else {
      out += '[';
      for (std::size_t k = 0; k < vectors_[i].size(); ++k) {
        fmt::format_to(std::back_inserter(out), "{}{}", k == 0 ? "" : ",", vectors_[i][k]);
      }
      out += ']';
    }
    out += '}';
  }
  out += "],\"model\":";
  append_json_string(out, context_.model.name_of(request_.options.adapter));
  out += ",\"usage\":";
  out += to_json(usage_);
  out += '}';
  context_.metrics.answered(200);
  responder_->send({.body = std::move(out)});
}

void EmbeddingCall::broken() {
  if (!over_) fail(internal_error(), Outcome::Failed);
}

void EmbeddingCall::fail(const ApiError& error, Outcome outcome) {
  over_ = true;
  context_.metrics.completed(outcome);
  note(error.code.empty() ? error.type : error.code);
  cancel();
  context_.metrics.answered(error.status);
  responder_->send(to_response(error));
}

void EmbeddingCall::note(std::string_view finish) {
  RequestNotes& notes = responder_->notes;
  notes.request = ids_.empty() ? 0 : ids_.front();
  notes.prompt_tokens = usage_.prompt_tokens;
  notes.finish = finish;
}

void EmbeddingCall::cancel() {
  for (const RequestId id : ids_) context_.service.cancel(id);
}

}  // namespace quire::server
