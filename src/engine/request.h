// Requests to the engine, and the events it answers with. These are plain values: a server fills a Request from JSON, a
// program by hand. The engine knows no wire format.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/shared_list.h"
#include "quire/engine/constraint.h"
#include "quire/engine/sampler.h"
#include "quire/state/sequence_pool.h"
#include "quire/state/tier.h"

namespace quire::engine {

using Clock = std::chrono::steady_clock;

// Turns the tokens of one choice into text as they come. The engine knows no tokenizer: a caller that wants text or
// stop strings provides one. Called on the engine's thread.
class TextStream {
 public:
  virtual ~TextStream() = default;
  virtual void push(Token token, std::string& out) = 0;  // appends the text that this token completes
  virtual void flush(std::string& out) = 0;              // appends the text that is still held back
};

// Limits of a request. Engine::submit() refuses what is beyond them.
inline constexpr std::uint32_t kMostChoices = 128;  // n, best_of
inline constexpr std::int32_t kMostLogprobs = 100;  // alternatives of each token, of an answer or a prompt
inline constexpr std::size_t kMostStopTokens = 1024;
inline constexpr std::size_t kMostStopStrings = 64;
inline constexpr std::size_t kMostStopBytes = 1024;       // of one stop string
inline constexpr std::int32_t kMostPriority = 1'000'000;  // and the least is the negative of it

// How the hidden states of a prompt become one vector.
enum class Pooling : std::uint8_t {
  None,   // no vector is wanted
  Mean,   // of all positions
  First,  // that of the first position (CLS)
  Last,   // that of the last position
};
const char* name(Pooling pooling);

// Copies share the long lists, so the prompts of one call can each have a copy of its options.
struct Request {
  std::vector<Token> prompt;
  // The last tokens of the prompt, so many, are the beginning of the answer: they come from an earlier request with the
  // same options, whose answer goes on as if it had never been interrupted. Penalties, `min_tokens`, stop strings, text
  // and constraint take them into account. Needs n of 1. Events tell of new tokens only.
  std::uint32_t answered = 0;
  std::uint32_t max_tokens = 16;  // of each choice; less where the context ends earlier
  // Before an answer has this many tokens, no stop token is picked while there is any other, and stop strings do not
  // count: one that begins in these tokens is text. At most max_tokens; the context may end earlier.
  std::uint32_t min_tokens = 0;
  // How many choices to return. The prompt is computed once for all of them. Choice i is the answer that a separate
  // request with seed + i would get.
  std::uint32_t n = 1;
  std::uint32_t best_of = 0;  // compute this many choices and return the n most likely; 0: n
  SamplerOptions sampling;
  // How many of the most likely tokens are reported with each token; 0: only the token itself; negative: no
  // log-probabilities at all. They are the model's own, before temperature, penalties and bias.
  std::int32_t logprobs = -1;
  // Report the logits of the prompt's last token or of all its tokens (Event::Kind::PromptLogits). For all of them the
  // whole prompt is computed; the prefix cache is not used.
  Logits prompt_logits = Logits::None;
  // Report the log-probability of each token of the prompt but the first, and this many of the most likely tokens in
  // its place (Event::Kind::PromptToken). Negative: none. The whole prompt is computed; the prefix cache is not used.
  std::int32_t prompt_logprobs = -1;
  // Report a vector that stands for the prompt (Event::Kind::Embedding). `max_tokens` must be 0. Except for the last
  // position, the whole prompt is computed; the prefix cache is not used.
  Pooling embedding = Pooling::None;
  SharedList<Token> stop_tokens;                      // end the answer and are not part of it
  SharedList<std::string> stop_strings;               // the same; may span several tokens; need `text`
  std::function<std::unique_ptr<TextStream>()> text;  // empty: events carry no text
  // Limits the tokens of the answer: one object for each choice. Empty: none. Tokens without an alternative are put
  // into the answer without sampling, except if log-probabilities are asked for; the tokens are the same.
  std::function<std::unique_ptr<Constraint>()> constraint;
  Namespace name_space = 0;  // its tenant; prefixes are reused only within a tenant
  // The number of the adapter that it is computed with (model::Model::add_adapter); 0: none. Prefixes are reused only
  // with the same adapter.
  std::uint32_t adapter = 0;
  bool reuse = true;  // use the prefix cache
  // Each level is worth EngineOptions::priority_worth of waiting time. A request that is one level higher goes before
  // requests that have waited up to that much longer, so no request waits forever. From -kMostPriority to
  // kMostPriority.
  std::int32_t priority = 0;
  Clock::time_point deadline = Clock::time_point::max();
};

// Why a request was refused. A refusal changes nothing in the engine.
struct Refusal {
  enum class Why : std::uint8_t {
    Invalid,      // a value makes no sense: the message names the field
    TooLong,      // the prompt is too long for the context
    NeverFits,    // it does not fit even into an empty pool: the message has the numbers
    QueueFull,    // try again later
    RateLimited,  // its tenant has used up its tokens a minute: try again after `retry_after`
    Stopping,     // the engine is shutting down
    DeviceLost,   // the device is lost: no request can be answered until the program is started again
  };
  Why why = Why::Invalid;
  std::string message;
  std::chrono::seconds retry_after{0};
};

enum class Finish : std::uint8_t {
  Stop,       // a stop token or stop string
  Length,     // max_tokens is reached, or the context is full
  Cancelled,  // by its client, or because the engine shuts down
  Deadline,   // its deadline has passed
  Failed,     // the device failed, or all logits are NaN: Event::error says which
};
const char* name(Finish finish);

// What a request used, and where its time went.
struct Usage {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t completion_tokens = 0;  // of all choices so far, stop tokens included
  Hit hit;                              // prefix cache: how many tokens of the prompt were reused, and why no more
  std::array<std::uint32_t, kTierKinds> from{};  // of those, how many came from a tier (by TierKind)
  double queued_seconds = 0;                     // until it was first admitted
  double first_token_seconds = 0;                // since it was submitted
  double total_seconds = 0;
  std::uint32_t suspensions = 0;
  std::uint32_t drafted_tokens = 0;   // guesses that were computed beside the answer (EngineOptions::drafter)
  std::uint32_t accepted_tokens = 0;  // of those, the ones that became part of it
};

// Valid only during the call of Listener::on_event.
struct Event {
  enum class Kind : std::uint8_t {
    Accepted,      // the request was accepted (only from Service: Engine::submit returns it)
    Refused,       // the request was refused (only from Service)
    PromptLogits,  // if requested: index, token and logits of the next token of the prompt
    PromptToken,   // if requested: index, token, logprob, rank and alternatives of the next token of the prompt
    Embedding,     // if requested: the prompt's vector
    Token,         // the next token of a choice
    Finished,      // a choice has ended: finish, usage, and the rest of its text
  };
  Kind kind = Kind::Token;
  RequestId request = 0;
  std::uint32_t choice = 0;
  std::uint32_t index = 0;  // Token: position in the answer; PromptLogits, PromptToken: position in the prompt
  Token token = 0;
  std::string_view text;                       // whole characters that cannot be part of a stop string; often empty
  float logprob = 0;                           // if requested
  std::span<const TokenLogprob> alternatives;  // if requested, the most likely first
  std::uint32_t rank = 0;                      // PromptToken: 1 if no token was more likely
  std::span<const float> logits;               // PromptLogits: [vocabulary]; Embedding: [hidden_width], not normalised
  Finish finish = Finish::Stop;
  std::string_view error;            // Failed: one line for a person
  std::string_view stop;             // Finished at a stop string: that string
  Token stop_token = -1;             // Finished at a stop token: that token
  bool last = false;                 // this is the last event of the request
  const Usage* usage = nullptr;      // Finished
  const Refusal* refusal = nullptr;  // Refused
};

// Called on the engine's thread, inside Engine::step() and cancel(). Service also calls it when it hands a request to
// the engine, or on the caller's thread if the engine's thread has ended. It must return quickly and must not call the
// engine.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void on_event(const Event& event) = 0;
};

}  // namespace quire::engine
