#include "quire/server/completion_format.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <iterator>

#include <fmt/format.h>

#include "quire/server/json_text.h"

namespace quire::server {
namespace {

void append_number(std::string& out, float value) {
  // JSON has no infinity. OpenAI uses -9999 for a token that cannot come.
  fmt::format_to(std::back_inserter(out), "{}", std::isfinite(value) ? value : -9999.0f);
}

void append_bytes(std::string& out, std::string_view piece) {
  out += '[';
  for (std::size_t i = 0; i < piece.size(); ++i) {
    fmt::format_to(std::back_inserter(out), "{}{}", i == 0 ? "" : ",", static_cast<unsigned char>(piece[i]));
  }
  out += ']';
}

std::uint64_t characters(std::string_view text) {
  return static_cast<std::uint64_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

void comma(std::string& to) {
  if (!to.empty()) to += ',';
}

std::string_view piece_of(const TextModel& model, Token token) {
  const text::Tokenizer& tokenizer = model.tokenizer();
  return tokenizer.is_special(token) ? tokenizer.spelling(token) : tokenizer.piece(token);
}

double milliseconds(double seconds) { return std::round(seconds * 1e6) / 1e3; }

void append_prompt_logprobs(std::string& out, std::string_view logprobs) {
  if (logprobs.empty()) return;
  out += ",\"prompt_logprobs\":";
  out += logprobs;
}

void append_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  append_escaped(out, text);
  out += '"';
}

std::string_view miss_reason(HitEnd end, bool has_keys) {
  return name(end == HitEnd::OtherNamespace && has_keys ? HitEnd::NeverSeen : end);
}

TierTokens reused_from(const Hit& hit, const std::array<std::uint32_t, kTierKinds>& brought) {
  TierTokens from{};
  std::uint32_t rest = hit.tokens;
  for (std::size_t i = 0; i < kTierKinds; ++i) {
    from[i] = std::min(brought[i], rest);
    rest -= static_cast<std::uint32_t>(from[i]);
  }
  return from;
}

std::string from_json(std::uint64_t reused, const TierTokens& from) {
  for (const std::uint64_t tokens : from) reused -= tokens;
  std::string out = fmt::format(R"({{"pool":{})", reused);
  for (std::size_t i = 0; i < kTierKinds; ++i) {
    if (from[i] > 0) put(out, R"(,"{}":{})", name(static_cast<TierKind>(i)), from[i]);
  }
  return out + "}";
}

void UsageSum::add(const engine::Usage& usage, std::string_view reason) {
  if (prompt_tokens == 0) miss_reason = reason;
  prompt_tokens += usage.prompt_tokens;
  completion_tokens += usage.completion_tokens;
  cached_tokens += usage.hit.tokens;
  matched_tokens += usage.hit.matched;
  const TierTokens reused = reused_from(usage.hit, usage.from);
  for (std::size_t i = 0; i < kTierKinds; ++i) from[i] += reused[i];
  suspensions += usage.suspensions;
  drafted_tokens += usage.drafted_tokens;
  accepted_tokens += usage.accepted_tokens;
  queued_seconds = std::max(queued_seconds, usage.queued_seconds);
  first_token_seconds = std::max(first_token_seconds, usage.first_token_seconds);
  total_seconds = std::max(total_seconds, usage.total_seconds);
}

std::string to_json(const UsageSum& usage) {
  return fmt::format(
      R"({{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":{},)"
      R"("cached_from":{},"matched_tokens":{},"miss_reason":"{}"}},"completion_tokens_details":{{)"
      R"("accepted_prediction_tokens":{},"rejected_prediction_tokens":{}}},)"
      R"("quire":{{"queued_ms":{},"first_token_ms":{},"total_ms":{},"suspensions":{}}}}})",
      usage.prompt_tokens, usage.completion_tokens, usage.prompt_tokens + usage.completion_tokens, usage.cached_tokens,
      from_json(usage.cached_tokens, usage.from), usage.matched_tokens, usage.miss_reason, usage.accepted_tokens,
      usage.rejected_tokens(), milliseconds(usage.queued_seconds), milliseconds(usage.first_token_seconds),
      milliseconds(usage.total_seconds), usage.suspensions);
}

// --- log-probabilities

void LogprobsFormat::add(Token token, float logprob, std::span<const engine::TokenLogprob> alternatives) {
  const auto piece = [this](Token of) { return piece_of(*model_, of); };
  if (chat_) {
    comma(tokens_);
    const auto entry = [&](Token of, float value) {
      tokens_ += "{\"token\":";
      append_json_string(tokens_, model_->token_text(of));
      tokens_ += ",\"logprob\":";
      append_number(tokens_, value);
      tokens_ += ",\"bytes\":";
      append_bytes(tokens_, piece(of));
    };
    entry(token, logprob);
    tokens_ += ",\"top_logprobs\":[";
    for (std::size_t i = 0; i < alternatives.size(); ++i) {
      if (i > 0) tokens_ += ',';
      entry(alternatives[i].token, alternatives[i].logprob);
      tokens_ += '}';
    }
    tokens_ += "]}";
    return;
  }
  add_text(token, logprob, alternatives);
  offset_ += characters(piece(token));
}

void LogprobsFormat::add_prompt(Token token, std::optional<float> logprob,
                                std::span<const engine::TokenLogprob> alternatives, std::string_view text) {
  add_text(token, logprob, alternatives);
  offset_ += characters(text);
}

void LogprobsFormat::add_text(Token token, std::optional<float> logprob,
                              std::span<const engine::TokenLogprob> alternatives) {
  comma(tokens_);
  append_json_string(tokens_, model_->token_text(token));
  comma(logprobs_);
  if (logprob) {
    append_number(logprobs_, *logprob);
  } else {
    logprobs_ += "null";
  }
  comma(offsets_);
  fmt::format_to(std::back_inserter(offsets_), "{}", offset_);
  comma(tops_);
  if (alternatives.empty()) {
    tops_ += "null";
    return;
  }
  tops_ += '{';
  for (std::size_t i = 0; i < alternatives.size(); ++i) {
    if (i > 0) tops_ += ',';
    // Tokens that are parts of characters would all get the same name. OpenAI's notation tells them apart.
    const std::string_view bytes = piece_of(*model_, alternatives[i].token);
    const std::string readable = model_->token_text(alternatives[i].token);
    std::string key = readable;
    if (readable != bytes) {
      key = "bytes:";
      for (const char c : bytes) fmt::format_to(std::back_inserter(key), "\\x{:02x}", static_cast<unsigned char>(c));
    }
    append_json_string(tops_, key);
    tops_ += ':';
    append_number(tops_, alternatives[i].logprob);
  }
  tops_ += '}';
}

std::string LogprobsFormat::take() {
  std::string out =
      chat_ ? fmt::format(R"({{"content":[{}],"refusal":null}})", tokens_)
            : fmt::format(R"({{"tokens":[{}],"token_logprobs":[{}],"top_logprobs":[{}],"text_offset":[{}]}})", tokens_,
                          logprobs_, tops_, offsets_);
  for (std::string* part : {&tokens_, &logprobs_, &tops_, &offsets_}) part->clear();
  return out;
}

void PromptLogprobsFormat::add(Token token, float logprob, std::uint32_t rank,
                               std::span<const engine::TokenLogprob> alternatives) {
  const auto entry = [this](Token of, float value, std::uint32_t at) {
    fmt::format_to(std::back_inserter(tokens_), R"("{}":{{"logprob":)", of);
    append_number(tokens_, value);
    fmt::format_to(std::back_inserter(tokens_), R"(,"rank":{},"decoded_token":)", at);
    append_json_string(tokens_, model_->token_text(of));
    tokens_ += '}';
  };
  tokens_ += ",{";
  entry(token, logprob, rank);
  for (std::size_t i = 0; i < alternatives.size(); ++i) {
    if (alternatives[i].token == token) continue;
    tokens_ += ',';
    entry(alternatives[i].token, alternatives[i].logprob, static_cast<std::uint32_t>(i) + 1);
  }
  tokens_ += '}';
}

// --- answers

CompletionFormat::CompletionFormat(bool chat, bool stream, bool usage_in_chunks, std::string_view id,
                                   std::string_view model, std::string_view session)
    : chat_(chat), usage_in_chunks_(usage_in_chunks) {
  const char* const object = !chat ? "text_completion" : stream ? "chat.completion.chunk" : "chat.completion";
  head_ = fmt::format(R"({{"id":"{}-{}","object":"{}","created":{},"model":)", chat ? "chatcmpl" : "cmpl", id, object,
                      static_cast<std::int64_t>(std::time(nullptr)));
  append_json_string(head_, model);
  if (!session.empty()) {
    head_ += ",\"session\":";
    append_json_string(head_, session);
  }
  head_ += ",\"choices\":[";
}

std::string CompletionFormat::whole(std::span<const ChoiceAnswer> choices, const UsageSum& usage) const {
  std::string out = head_;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const ChoiceAnswer& choice = choices[i];
    fmt::format_to(std::back_inserter(out), R"({}{{"index":{},)", i == 0 ? "" : ",", choice.index);
    if (!choice.object.empty()) {
      put(out, R"("message":{})", choice.object);
    } else {
      out += chat_ ? R"("message":{"role":"assistant","content":)" : R"("text":)";
      out += '"';
      append_escaped(out, choice.echo);
      append_escaped(out, choice.text);
      out += '"';
      if (chat_) out += ",\"refusal\":null}";
    }
    fmt::format_to(std::back_inserter(out), R"(,"logprobs":{},"finish_reason":"{}")",
                   choice.logprobs.empty() ? "null" : choice.logprobs, choice.finish);
    if (!chat_) append_prompt_logprobs(out, choice.prompt_logprobs);
    out += '}';
  }
  out += ']';
  if (chat_ && !choices.empty()) append_prompt_logprobs(out, choices.front().prompt_logprobs);
  out += ",\"usage\":";
  out += to_json(usage);
  out += '}';
  return out;
}

void CompletionFormat::chunk(std::string& out, const ChoiceAnswer& choice) const {
  out += "data: ";
  out += head_;
  fmt::format_to(std::back_inserter(out), R"({{"index":{},)", choice.index);
  if (!choice.object.empty()) {
    put(out, R"("delta":{})", choice.object);
  } else if (chat_) {
    out += R"("delta":{)";
    if (!choice.text.empty() || choice.finish.empty()) {
      out += R"("content":)";
      append_json_string(out, choice.text);
    }
    out += '}';
  } else {
    out += R"("text":)";
    append_json_string(out, choice.text);
  }
  out += R"(,"logprobs":)";
  out += choice.logprobs.empty() ? "null" : choice.logprobs;
  out += R"(,"finish_reason":)";
  if (choice.finish.empty()) {
    out += "null";
  } else {
    append_json_string(out, choice.finish);
  }
  out += usage_in_chunks_ ? "}],\"usage\":null}\n\n" : "}]}\n\n";
}

void CompletionFormat::role_chunk(std::string& out, std::uint32_t index) const {
  out += "data: ";
  out += head_;
  fmt::format_to(std::back_inserter(out),
                 R"({{"index":{},"delta":{{"role":"assistant","content":""}},"logprobs":null,"finish_reason":null}}])",
                 index);
  out += usage_in_chunks_ ? ",\"usage\":null}\n\n" : "}\n\n";
}

void CompletionFormat::usage_chunk(std::string& out, const UsageSum& usage) const {
  out += "data: ";
  out += head_;
  out += "],\"usage\":";
  out += to_json(usage);
  out += "}\n\n";
}

}  // namespace quire::server
