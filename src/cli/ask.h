// One prompt put to an engine, and its answer: what `run` and `chat` have in common. The engine is driven from the
// caller's thread, step by step, until the answer is complete.
//
// Who may call: the thread that owns the hosted model, whose engine has no other request.
// How it fails: with one line: the engine refuses the prompt (it does not fit the context), or the model fails.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/engine/hosted_model.h"
#include "quire/engine/sampler.h"
#include "quire/text/tokenizer.h"

namespace quire::cli {

enum class Ending : std::uint8_t {
  end_of_text,  // the model wrote a token that ends a generation
  limit,        // as many tokens as were wanted
  context,      // no more fit
  stopped,      // the caller had enough
};
// "the model ended it", and so on: for people.
std::string_view reason(Ending ending);
// One word, for programs.
std::string_view word(Ending ending);

struct Timing {
  std::uint32_t tokens = 0;
  double seconds = 0;
  double per_second() const { return seconds > 0 ? tokens / seconds : 0; }
};

struct Question {
  std::vector<Token> prompt;
  std::uint32_t limit = 0;  // tokens of the answer; 0: none
  bool at_start = false;    // the answer begins a text, rather than continuing one
  engine::SamplerOptions sampling;
};

struct Answered {
  std::uint32_t reused = 0;   // tokens of the prompt that the pool still had
  bool prefill_done = false;  // false: it was stopped before the first token
  Timing prefill;             // tokens computed
  Timing decode;              // tokens written, without the one that ended the answer
  Ending ending = Ending::limit;
};

// Gets each token with the text that it completes, which is often empty and always whole, well-formed characters; false
// ends the answer. The last call has no token (text::kNoToken) and what was left waiting.
using TextSink = std::function<bool(text::TokenId token, std::string_view text)>;
// Called between steps: tokens of the prompt that are done, of how many. False ends the answer.
using Watch = std::function<bool(std::uint32_t done, std::uint32_t total)>;

Result<Answered> ask(engine::HostedModel& host, const text::Tokenizer& tokenizer, Question question, const Watch& watch,
                     const TextSink& sink);

}  // namespace quire::cli
