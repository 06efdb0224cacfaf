// One choice of a request, as the engine sees it: the tokens it has, where its sequence stands in the pool, what it
// picks the next token by. For the files of the engine only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quire/engine/engine.h"
#include "quire/engine/stop_matcher.h"

namespace quire::engine {

// The order of choices: the lower time goes first. A level of priority is so much time.
struct Rank {
  std::int64_t time = 0;
  std::uint64_t number = 0;  // of the request, in the order they came
  std::uint32_t choice = 0;
  friend auto operator<=>(const Rank&, const Rank&) = default;
};

struct Choice {
  using State = SequenceInfo::State;

  RequestId request = 0;
  std::uint32_t index = 0;
  Rank rank;
  std::int32_t priority = 0;
  Namespace name_space = 0;
  bool reuse = true;
  State state = State::Waiting;

  // tokens[0 .. position) are in the pool's sequence; the others are to be computed.
  std::vector<Token> tokens;  // prompt and answer; room for max_tokens
  std::uint32_t prompt_tokens = 0;
  std::uint32_t max_tokens = 0;  // prompt and answer
  std::uint32_t position = 0;
  SequenceId sequence;      // valid while in prefill or decode
  bool all_logits = false;  // of every token of the prompt

  // Where recurrent states are to be kept, in rising order: a chunk of the prompt ends at each of them.
  std::vector<std::uint32_t> checkpoint_positions;

  Hit hit;  // of the first admission
  bool admitted_before = false;
  bool just_resumed = false;  // it has not decoded a token since, and is not suspended before that
  std::uint32_t suspensions = 0;
  std::optional<SavedSequence> saved;  // Suspended by copy
  // Waiting: whose prefill computes what it needs, and how far that one has to come. The number tells whether it is
  // still the same one.
  const Choice* leader = nullptr;
  std::uint64_t leader_number = 0;
  std::uint32_t leader_until = 0;
  std::uint32_t waits = 0;

  // The answer
  Sampler sampler;
  std::unique_ptr<TextStream> text;
  StopMatcher stop;
  std::optional<Sampled> picked;  // in this step, and not committed yet
  double logprob_sum = 0;
  bool done = false;

  // best_of: told at the end, if at all
  struct Told {
    Token token;
    float logprob;
    std::size_t text_end;
    std::size_t alternatives_end;
  };
  std::vector<Told> told;
  std::string told_text;
  std::vector<TokenLogprob> told_alternatives;
  Finish finish = Finish::Stop;
  std::string finish_error;
  std::string finish_stop;
  Token finish_token = -1;

  std::uint32_t generated() const { return static_cast<std::uint32_t>(tokens.size()) - prompt_tokens; }
  std::uint32_t pending() const { return static_cast<std::uint32_t>(tokens.size()) - position; }
  bool decodes() const { return state == State::Decode; }
};

// A batch, and whose entries they are.
struct Step {
  Batch batch;
  std::vector<Choice*> choices;  // by entry
};

}  // namespace quire::engine
