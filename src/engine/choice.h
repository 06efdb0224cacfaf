// One choice of a request, as the engine sees it: tokens it has, where its sequence stands in the pool, what it picks
// the next token by. For the files of the engine only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quire/engine/engine.h"
#include "quire/engine/stop_matcher.h"

namespace quire::engine {

// Who goes first: the lower time does. A level of priority is so much time.
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
  SequenceId sequence;  // valid while Reading or Writing

  // Recurrent states are kept where a piece of the prompt ends; these ends are asked for, in rising order.
  std::vector<std::uint32_t> stops;

  Hit hit;  // of the first admission
  bool admitted_before = false;
  bool safe = false;  // from suspension: it has not written a token since it was brought back
  std::uint32_t suspensions = 0;
  std::optional<SavedSequence> saved;  // Suspended by copy
  // Waiting: who is reading what it needs, and how far that one has to come. The number tells whether it is still the
  // same one.
  const Choice* leader = nullptr;
  std::uint64_t leader_number = 0;
  std::uint32_t leader_until = 0;
  std::uint32_t waits = 0;

  // The answer
  Sampler sampler;
  std::unique_ptr<TextStream> text;
  StopMatcher stop;
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
  std::string finish_stop;
  Token finish_token = -1;

  std::uint32_t generated() const { return static_cast<std::uint32_t>(tokens.size()) - prompt_tokens; }
  std::uint32_t pending() const { return static_cast<std::uint32_t>(tokens.size()) - position; }
  bool writes() const { return state == State::Writing; }
};

// A piece of work in a step.
struct Scheduled {
  Choice* choice = nullptr;
  std::uint32_t tokens = 0;
  bool logits = false;      // it comes to the end of what it has
  bool checkpoint = false;  // keep the recurrent state there
};

}  // namespace quire::engine
