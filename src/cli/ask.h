// Sends one prompt to an engine and returns its answer; `run` and `chat` both use it. It runs the engine's steps on the
// caller's thread until the answer is complete.
//
// Who may call: the thread that owns the hosted model. The engine must have no other request.
// How it fails: with one line: the engine refuses the prompt (it does not fit the context), or the model fails.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/engine/constraint.h"
#include "quire/engine/hosted_model.h"
#include "quire/engine/sampler.h"
#include "quire/text/tokenizer.h"

namespace quire::cli {

enum class Ending : std::uint8_t {
  end_of_text,  // the model wrote a token that ends a generation
  stop_string,  // the text reached a stop string
  limit,        // the token limit was reached
  context,      // the context is full
  stopped,      // the caller stopped it
};
// For users: "the model ended it", ...
std::string_view reason(Ending ending);
// For JSON: one word.
std::string_view word(Ending ending);

struct Timing {
  std::uint32_t tokens = 0;
  double seconds = 0;
  // Tokens that were computed in this time. Of an answer, the first token is not: it comes with the prefill. The token
  // that ended it is.
  std::uint32_t timed = 0;
  double per_second() const { return seconds > 0 ? timed / seconds : 0; }
};

struct Question {
  std::vector<Token> prompt;
  std::uint32_t limit = 0;         // tokens of the answer; 0: none
  bool at_start = false;           // the answer begins a new text instead of continuing the prompt
  std::vector<std::string> stops;  // strings that end the answer and are not part of it
  engine::SamplerOptions sampling;
  std::function<std::unique_ptr<engine::Constraint>()> constraint = {};  // what the answer must look like; empty: free
  std::function<std::unique_ptr<engine::TextStream>()> text = {};        // empty: without control tokens
  std::uint32_t adapter = 0;                                             // number of an adapter; 0: none
};

struct Answered {
  std::uint32_t reused = 0;                 // tokens of the prompt that were in the prefix cache
  bool prefill_done = false;                // false: stopped before the first token
  Timing prefill;                           // tokens computed
  Timing decode;                            // tokens of the answer, without the one that ended it
  std::uint32_t drafted = 0, accepted = 0;  // guesses that were computed; of those, the ones that were right
  Ending ending = Ending::limit;
};

// Called for every token with the text that it completes. The text is whole, valid characters and may be empty. The
// last call has no token (text::kNoToken) but the rest of the text. Returning false ends the answer.
using TextSink = std::function<bool(text::TokenId token, std::string_view text)>;
// Called between steps: `done` of the `total` tokens of the prompt are computed. Returning false ends the answer.
using Watch = std::function<bool(std::uint32_t done, std::uint32_t total)>;

Result<Answered> ask(engine::HostedModel& host, const text::Tokenizer& tokenizer, Question question, const Watch& watch,
                     const TextSink& sink);

// Computes a prompt and leaves it in the prefix cache, which the hosted model must have.
Result<Timing> compute(engine::HostedModel& host, std::vector<Token> prompt, std::uint32_t adapter,
                       const std::function<void(std::uint32_t done, std::uint32_t total)>& progress);

}  // namespace quire::cli
