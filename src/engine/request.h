// What is asked of the engine, and what it answers. Plain values: a server makes a Request from JSON, a program by
// hand; neither end knows the other's format.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/engine/sampler.h"
#include "quire/state/sequence_pool.h"

namespace quire::engine {

using Clock = std::chrono::steady_clock;

// Turns the tokens of one choice into text as they come. The engine knows no tokenizer; whoever wants text, or stops at
// strings, brings one. Called on the engine's thread.
class TextStream {
 public:
  virtual ~TextStream() = default;
  virtual void push(Token token, std::string& out) = 0;  // appends what is complete with this token
  virtual void flush(std::string& out) = 0;              // appends what is left
};

struct Request {
  std::vector<Token> prompt;
  std::uint32_t max_tokens = 16;  // of each choice; cut to what the context leaves
  // Choices. The prompt is computed once for all of them. The i-th has the answer that a request of its own with
  // seed + i has.
  std::uint32_t n = 1;
  std::uint32_t best_of = 0;  // so many are computed and the n likeliest given; 0: n
  SamplerOptions sampling;
  // The likeliest so many tokens are told with each one; 0: only its own; negative: no log-probabilities at all. They
  // are the model's: before temperature, penalties and bias.
  std::int32_t logprobs = -1;
  // Tell the logits of the prompt's tokens, of the last or of all (Event::Kind::PromptLogits). For all of them the
  // prompt is computed anew.
  Logits prompt_logits = Logits::None;
  std::vector<Token> stop_tokens;                     // end the answer and are no part of it
  std::vector<std::string> stop_strings;              // the same, wherever token borders fall; need `text`
  std::function<std::unique_ptr<TextStream>()> text;  // none: events carry no text
  Namespace name_space = 0;                           // prefixes are reused within one
  bool reuse = true;                                  // of cached prefixes
  // A level is worth EngineOptions::priority_worth of waiting: who is a level higher goes before those who have waited
  // up to so much longer. So nobody waits for ever. From minus a million to a million.
  std::int32_t priority = 0;
  Clock::time_point deadline = Clock::time_point::max();
};

// Why a request was not taken. Nothing has happened then.
struct Refusal {
  enum class Why : std::uint8_t {
    Invalid,    // it cannot be meant: the message names the field
    TooLong,    // for the context
    NeverFits,  // not even in an empty pool: the message has the numbers
    QueueFull,  // come back later
    Stopping,   // the engine is shutting down
  };
  Why why = Why::Invalid;
  std::string message;
};

enum class Finish : std::uint8_t {
  Stop,       // at a stop token or string
  Length,     // max_tokens, or the context is full
  Cancelled,  // by its client
  Deadline,   // its time was over
  Failed,     // the device failed, or the model computed no number to choose by: Event::error says which
};
const char* name(Finish finish);

// What a request used, and why it was as fast as it was.
struct Usage {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t completion_tokens = 0;  // of all choices so far, with the stop token
  Hit hit;                              // of the prompt: hit.tokens were found in the pool, and why no more
  double queued_seconds = 0;            // until it was first admitted
  double first_token_seconds = 0;       // since it was submitted
  double total_seconds = 0;
  std::uint32_t suspensions = 0;
};

// Valid during the call that hands it over.
struct Event {
  enum class Kind : std::uint8_t {
    Accepted,      // the request was taken (only from Service: Engine::submit says so itself)
    Refused,       // it was not (likewise)
    PromptLogits,  // of the next token of the prompt: index, token, logits; where asked for
    Token,         // one more token of a choice
    Finished,      // a choice has ended: finish, usage, and the rest of its text
  };
  Kind kind = Kind::Token;
  RequestId request = 0;
  std::uint32_t choice = 0;
  std::uint32_t index = 0;  // Token: which one of its choice; PromptLogits: which one of the prompt
  Token token = 0;
  std::string_view text;                       // complete and beyond any stop string that could still come; often empty
  float logprob = 0;                           // where asked for
  std::span<const TokenLogprob> alternatives;  // the likeliest first, where asked for
  std::span<const float> logits;               // PromptLogits: [vocabulary]
  Finish finish = Finish::Stop;
  std::string_view error;            // Failed: one line for a person
  std::string_view stop;             // Finished at a stop string: which
  Token stop_token = -1;             // Finished at a stop token: which
  bool last = false;                 // nothing follows for this request
  const Usage* usage = nullptr;      // Finished
  const Refusal* refusal = nullptr;  // Refused
};

// Called on the engine's thread, inside Engine::step() and cancel(): short, and not back into the engine.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void on_event(const Event& event) = 0;
};

}  // namespace quire::engine
