// One choice of a request, as the engine sees it: its tokens, its sequence in the pool, and its sampler. Only the
// engine's own files include this.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/engine/drafter.h"
#include "quire/engine/engine.h"
#include "quire/engine/stop_matcher.h"
#include "quire/engine/tenants.h"

namespace quire::engine {

// The order of choices: the earlier time goes first. Each level of priority makes the time earlier by
// EngineOptions::priority_worth.
struct Rank {
  std::int64_t time = 0;
  std::uint64_t number = 0;  // of the request, in the order of arrival
  std::uint32_t choice = 0;
  friend auto operator<=>(const Rank&, const Rank&) = default;
};

struct Choice {
  using State = SequenceInfo::State;

  RequestId request = 0;
  std::uint32_t index = 0;
  Rank rank;
  std::int32_t priority = 0;
  Namespace name_space = 0;  // of the pool: its tenant and its adapter
  Tenant* tenant = nullptr;
  bool reuse = true;
  State state = State::Waiting;

  // tokens[0 .. position) are in the pool's sequence; the others are still to be computed.
  std::vector<Token> tokens;  // prompt and answer; room for max_tokens
  std::uint32_t prompt_tokens = 0;
  std::uint32_t max_tokens = 0;  // prompt and answer
  std::uint32_t position = 0;
  SequenceId sequence;     // valid while in prefill or decode
  bool every_row = false;  // something of every position of its prompt is wanted, and the prompt is not complete

  // Where recurrent states are kept, in ascending order. A chunk of the prompt ends at each position.
  std::vector<std::uint32_t> checkpoint_positions;

  Hit hit;  // of the first admission
  bool admitted_before = false;
  bool just_resumed = false;  // it has not decoded a token since it was resumed; others are suspended first
  std::uint32_t charged = 0;  // tokens that its tenant has paid for; those of the cache are free
  std::uint32_t passed = 0;   // others that were admitted while it waited for memory
  // When it last did not fit: Scheduler::room_changes_ and admissions_ at that time.
  std::uint64_t blocked_at = 0, blocked_in = 0;
  std::uint32_t suspensions = 0;
  // Only while suspended by copy. Its tokens are tokens[0 .. position).
  std::optional<SuspendedSequence> suspended;
  // Waiting: this choice waits until the leader's prefill has reached position leader_until. The leader may be gone and
  // its memory reused; leader_number tells whether it is still the same choice.
  const Choice* leader = nullptr;
  std::uint64_t leader_number = 0;
  std::uint32_t leader_until = 0;
  std::uint32_t waits = 0;
  // What is looked for or fetched in the tiers. It was looked for already, unless there was no room for it then.
  tiers::FetchId fetch = 0;
  bool looked = false;
  std::uint64_t no_room_at = 0;  // Scheduler::room_changes_ when there was none
  std::uint32_t brought = 0;     // tokens that were fetched while it waited; they may be evicted before it runs
  std::uint64_t brought_at = 0;  // Scheduler::room_changes_ when they were last seen in the pool
  std::uint32_t retries = 0;     // fetches of what had been evicted
  struct Wait {                  // for a fetch
    std::uint64_t bytes = 0;     // that were to be read
    Clock::time_point since{};
  } wait;
  std::array<std::uint32_t, kTierKinds> from{};
  struct Front {             // what is computed while the rest is fetched
    std::uint32_t end = 0;   // the position where the rest begins
    bool open = false;       // the step was planned before it was complete
    Clock::time_point at{};  // when it was last computed, by `position`
    std::uint32_t position = 0;
    std::uint32_t idle_steps = 0;
  } front;

  // The answer
  Sampler sampler;
  std::unique_ptr<TextStream> text;
  StopMatcher stop;
  std::unique_ptr<Constraint> constraint;  // null: none
  std::vector<std::uint32_t> mask;         // with a constraint: a bit for each token of the vocabulary
  std::size_t masked_at = 0;               // `mask` is for the token after so many; 0: for none
  std::vector<Token> forced;               // tokens that must come next; the next one is the last here
  std::optional<std::uint32_t> job;        // of this step's sampling; empty: the host samples
  std::uint32_t jobs = 0;                  // with drafts: rows that the executor samples, from the first one on
  std::optional<Sampled> picked;           // sampled in this step, not committed yet
  double logprob_sum = 0;
  bool done = false;

  // Speculation
  Drafts drafts;  // of the next step, and of the step that runs
  struct DraftOdds {
    float tried = 0, right = 0;
  };
  std::array<DraftOdds, kMostDrafts> draft_odds{};  // by place: drafts that followed right ones
  std::uint32_t draft_count = 0;                    // scratch
  std::span<const Token> guesses;                   // while they are compared with tokens[guesses_at ..)
  std::size_t guesses_at = 0;
  std::uint32_t draft_pause = 0, draft_wait = 0;  // steps: after the next try that fails; until that try
  bool draft_probe = false;                       // a try, although it does not seem to pay

  // With best_of, tokens are kept here until all choices have ended. Only the best are told.
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

  std::uint32_t answered = 0;   // of the prompt's tokens: see Request::answered
  std::size_t told_before = 0;  // bytes that the stop matcher has held back and that were told with the earlier part

  std::uint32_t generated() const { return static_cast<std::uint32_t>(tokens.size()) - prompt_tokens; }
  std::uint32_t pending() const { return static_cast<std::uint32_t>(tokens.size()) - position; }
  // Stop strings count now: see Request::min_tokens.
  bool may_stop(std::uint32_t min_tokens) const { return answered + generated() > min_tokens || min_tokens == 0; }
  // Text that was not told yet.
  std::string_view untold(std::string_view piece) {
    const std::size_t known = std::min(told_before, piece.size());
    told_before -= known;
    return piece.substr(known);
  }
  // How many guesses have turned out right.
  std::uint32_t right_guesses() const {
    const auto known = std::span(tokens).subspan(guesses_at);
    const auto [at, end] = std::ranges::mismatch(guesses, known);
    return static_cast<std::uint32_t>(at - guesses.begin());
  }
  bool decodes() const { return state == State::Decode; }
  void find_forced() {
    constraint->forced(forced);
    std::ranges::reverse(forced);
  }
};

// A batch, and the choice that each entry belongs to.
struct Step {
  Batch batch;
  std::vector<Choice*> choices;  // by entry
};

}  // namespace quire::engine
