// Formats answers as OpenAI's API does: whole answers and stream chunks, for completions and for chats.
//
// Who may call: one thread at a time.
// What holds: every string is well-formed UTF-8, and every chunk is one server-sent event.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/engine/request.h"
#include "quire/server/text_model.h"
#include "quire/state/tier.h"

namespace quire::server {

// Tokens by tier.
using TierTokens = std::array<std::uint64_t, kTierKinds>;
// Which of the reused tokens came from a tier. What was brought may be more than that: the last token of a prompt is
// always computed.
TierTokens reused_from(const Hit& hit, const std::array<std::uint32_t, kTierKinds>& brought);
// {"pool":12,"disk":84}: the pool, and the tiers that some of the reused tokens came from.
std::string from_json(std::uint64_t reused, const TierTokens& from);

// The usage of a request, summed over its prompts.
struct UsageSum {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t completion_tokens = 0;
  std::uint64_t cached_tokens = 0;
  std::uint64_t matched_tokens = 0;
  TierTokens from{};  // of the cached tokens: those from a tier; the rest was in the pool
  std::uint64_t suspensions = 0;
  std::uint64_t drafted_tokens = 0, accepted_tokens = 0;
  double queued_seconds = 0;
  double first_token_seconds = 0;
  double total_seconds = 0;
  std::string_view miss_reason;  // of the first prompt

  std::uint64_t rejected_tokens() const { return drafted_tokens - accepted_tokens; }
  void add(const engine::Usage& usage, std::string_view reason);
};
std::string to_json(const UsageSum& usage);

// Why the prefix hit ended, in the words for clients. It never reveals that another key has sent the same prompt.
std::string_view miss_reason(HitEnd end, bool has_keys);

// Formats the log-probabilities of tokens of one choice. Completions and chats have different formats.
class LogprobsFormat {
 public:
  LogprobsFormat(const TextModel& model, bool chat) : model_(&model), chat_(chat) {}
  void add(Token token, float logprob, std::span<const engine::TokenLogprob> alternatives);
  // Completions: a token of the prompt, before all others. `text`: what it adds to the text. No logprob: the first one.
  void add_prompt(Token token, std::optional<float> logprob, std::span<const engine::TokenLogprob> alternatives,
                  std::string_view text);
  // Returns what was added as a JSON object and clears it. Text offsets continue.
  std::string take();

 private:
  void add_text(Token token, std::optional<float> logprob, std::span<const engine::TokenLogprob> alternatives);

  const TextModel* model_;
  bool chat_;
  std::string tokens_, logprobs_, tops_, offsets_;  // chats use only the first
  std::uint64_t offset_ = 0;                        // in characters
};

// Formats the log-probabilities of a prompt's tokens as vLLM does: for each token an object with the token itself and
// the most likely ones in its place; null for the first one.
class PromptLogprobsFormat {
 public:
  explicit PromptLogprobsFormat(const TextModel& model) : model_(&model) {}
  void add(Token token, float logprob, std::uint32_t rank, std::span<const engine::TokenLogprob> alternatives);
  std::string json() const { return "[null" + tokens_ + "]"; }

 private:
  const TextModel* model_;
  std::string tokens_;
};

struct ChoiceAnswer {
  std::uint32_t index = 0;
  std::string_view echo;  // the prompt, if it is repeated before the text
  std::string_view text;
  std::string_view logprobs;              // JSON; empty: null
  std::string_view finish;                // empty: null
  std::string_view object = {};           // chats: the JSON of `delta` or `message`, instead of `text`
  std::string_view prompt_logprobs = {};  // JSON; empty: there is no such field
};

class CompletionFormat {
 public:
  // `session`: the id of the session that the answer belongs to; empty: none.
  CompletionFormat(bool chat, bool stream, bool usage_in_chunks, std::string_view id, std::string_view model,
                   std::string_view session = {});

  std::string whole(std::span<const ChoiceAnswer> choices, const UsageSum& usage) const;

  // Each appends one event: "data: ", the chunk and an empty line.
  void chunk(std::string& out, const ChoiceAnswer& choice) const;
  void role_chunk(std::string& out, std::uint32_t index) const;  // chats: a choice begins
  void usage_chunk(std::string& out, const UsageSum& usage) const;
  static void done(std::string& out) { out += "data: [DONE]\n\n"; }

 private:
  bool chat_;
  bool usage_in_chunks_;
  std::string head_;  // {"id":...,"choices":[
};

void append_json_string(std::string& out, std::string_view text);

}  // namespace quire::server
