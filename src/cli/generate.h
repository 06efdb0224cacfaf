// The loop that writes: sample, decode, hand the text on, compute, until something ends it.
//
// Who may call: the session's thread. A token takes nothing from the heap, but for a text longer than any before it.
// How it fails: where the model's logits are no numbers, and with what the session fails with.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "quire/base/error.h"
#include "quire/engine/sampler.h"
#include "quire/engine/session.h"
#include "quire/text/tokenizer.h"

namespace quire::cli {

enum class Ending : std::uint8_t {
  end_of_text,  // the model wrote a token that ends a generation
  limit,        // as many tokens as were wanted
  context,      // no more fit
  stopped,      // the sink had enough
};
// "the model ended it", and so on: for people.
std::string_view reason(Ending ending);
// One word, for programs.
std::string_view word(Ending ending);

struct Generated {
  std::uint32_t tokens = 0;  // without the one that ended it
  Ending ending = Ending::limit;
  double seconds = 0;
};

struct GenerateOptions {
  std::uint32_t limit = 0;  // tokens; 0: none
  bool at_start = false;    // what is written begins a text, rather than going on with one
};

// Gets each token with the text that it completes, which is often empty and always whole, well-formed characters; false
// ends it. The last call has no token (text::kNoToken) and what was left waiting.
using TextSink = std::function<bool(text::TokenId token, std::string_view text)>;

// Something has been read.
Result<Generated> generate(engine::Session& session, engine::LoneSampler& sampler, const text::Tokenizer& tokenizer,
                           const GenerateOptions& options, const TextSink& sink);

}  // namespace quire::cli
