#include "quire/engine/speculation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace quire::engine {
namespace {

constexpr double kAllowance = 0.01;  // of all time
constexpr double kMostBalance = 1;   // steps without drafts; so much may be lost in a row
constexpr double kFirstBalance = 1;  // the same, when the first step was measured
constexpr float kPrior = 4;          // drafts: how much the experience with a kind counts for a choice
constexpr float kKindPrior = 16;     // the same for what is expected of a kind before anything was measured
constexpr float kRemembered = 48;    // drafts of a place that a choice remembers
constexpr float kKindRemembered = 512;
constexpr std::uint32_t kLongestPause = 512;  // steps between two tries
constexpr double kLeastRow = 0.01;            // a draft costs at least this part of a step, until it was measured
constexpr std::uint32_t kUnknown = 2;         // drafts of a choice while no draft was measured
constexpr double kRedo = 0.5;                 // of the drafts that are right, the part that is computed twice
constexpr double kNewest = 0.125;             // how much the last measurement counts in a mean
constexpr double kMostLost = 16;              // steps: more than this was something else on the machine

void remember(double& mean, double seconds) { mean += kNewest * (seconds - mean); }

}  // namespace

Speculation::Speculation(std::shared_ptr<Drafter> drafter, std::uint32_t most_drafts, std::uint32_t max_running,
                         bool redoes, bool always, std::function<Clock::time_point()> now)
    : drafter_(std::move(drafter)),
      now_(std::move(now)),
      most_(std::min(most_drafts, kMostDrafts)),
      redoes_(redoes),
      always_(always) {
  wanted_.reserve(max_running);
}

// Of the draft at this place (the first: 0) being right, if those before it are.
double Speculation::chance(const Choice& choice, std::uint32_t place) const {
  const std::uint32_t kind = choice.drafts.kind;
  const double of_kind =
      (kinds_[kind].right + kKindPrior * drafter_->expected(kind)) / (kinds_[kind].tried + kKindPrior);
  const Choice::DraftOdds& own = choice.draft_odds[place];
  return (own.right + kPrior * of_kind) / (own.tried + kPrior);
}

void Speculation::plan(std::span<const Candidate> candidates, const StepShape& step, const CostModel& costs,
                       std::uint32_t rows) {
  wanted_.clear();
  reported_ = 0;
  for (const Candidate& candidate : candidates) candidate.choice->drafts.count = 0;
  if (rows == 0 || (!always_ && (!costs.knows_anything() || balance_ < 0))) return;
  for (const Candidate& candidate : candidates) {
    Choice& choice = *candidate.choice;
    choice.drafts.text = choice.tokens;
    choice.drafts.longest = choice.max_tokens + 1;
    choice.drafts.most = std::min({candidate.most, most_, rows});
    if (!always_ && choice.draft_wait > 0) {
      --choice.draft_wait;  // drafts do not pay here; one is tried when the pause is over
      continue;
    }
    if (choice.drafts.most > 0) wanted_.push_back(&choice.drafts);
  }
  if (wanted_.empty()) return;
  // Where guessing itself takes time, only what will be computed is guessed.
  const bool costly = drafter_->seconds_per_token() > 0;
  if (costly) {
    for (Drafts* drafts : wanted_) drafts->count = drafts->most;
    choose(candidates, step, costs.costs(), rows);
    for (Drafts* drafts : wanted_) drafts->most = drafts->count;
  }
  const Clock::time_point start = now();
  drafter_->propose(wanted_);
  if (costly) reported_ = std::chrono::duration<double>(now() - start).count();
  if (!costly) choose(candidates, step, costs.costs(), rows);
}

// A draft is worth computing if its chance, per second that it costs, is more than the tokens per second of the step
// with the drafts chosen so far. That rate rises with each round, so drafts are only taken away, and few rounds
// suffice.
void Speculation::choose(std::span<const Candidate> candidates, const StepShape& step, const StepCosts& costs,
                         std::uint32_t rows) {
  const double plain = costs.seconds(step);
  const bool measured = costs.draft_row > 0;
  const double row = std::max({costs.draft_row, measured ? 0.0 : costs.decode_row,
                               kLeastRow * plain / std::max(1u, step.decode_rows)}) +
                     drafter_->seconds_per_token() + outside_row_;
  const double without = plain > 0 ? step.decode_rows / plain : 0;
  const double first = std::max(0.0, beyond_rows(step.decode_rows));
  double rate = without, reached = 0;
  for (int round = 0; round < 4; ++round) {
    double tokens = step.decode_rows, seconds = plain + first;
    std::uint32_t left = rows;
    for (const Candidate& candidate : candidates) {
      Choice& choice = *candidate.choice;
      std::uint32_t count = 0;
      double all = 1;
      const std::uint32_t most = std::min({choice.drafts.count, left, measured || always_ ? kMostDrafts : kUnknown});
      while (count < most) {
        all *= chance(choice, count);
        const double costs_of_row = row * (redoes_ ? 1 + kRedo * all : 1);
        if (!always_ && all <= rate * costs_of_row) break;
        tokens += all;
        seconds += costs_of_row;
        ++count;
      }
      left -= count;
      choice.draft_count = count;
    }
    reached = seconds > 0 ? tokens / seconds : 0;
    if (reached <= rate * 1.001) break;
    rate = reached;
  }
  if (!always_ && reached < without) {  // all of them together do not bring what the first one costs
    for (const Candidate& candidate : candidates) candidate.choice->draft_count = 0;
  }
  std::uint32_t left = rows;
  for (const Candidate& candidate : candidates) {
    Choice& choice = *candidate.choice;
    if (choice.drafts.count == 0) continue;
    std::uint32_t count = std::min(std::exchange(choice.draft_count, 0), left);
    choice.draft_probe = count == 0 && left > 0;
    if (choice.draft_probe) count = 1;  // nothing was tried for a while
    choice.drafts.count = count;
    left -= count;
  }
}

void Speculation::note(Choice& choice, std::uint32_t count, std::uint32_t right, bool wrong) {
  const auto remember = [](auto& odds, bool was_right, float most) {
    odds.tried += 1;
    odds.right += was_right ? 1.0f : 0.0f;
    if (odds.tried <= most) return;
    odds.tried /= 2;
    odds.right /= 2;
  };
  const std::uint32_t seen = std::min(count, right + (wrong ? 1 : 0));
  for (std::uint32_t i = 0; i < seen; ++i) {
    remember(choice.draft_odds[i], i < right, kRemembered);
    remember(kinds_[choice.drafts.kind], i < right, kKindRemembered);
  }
  if (right > 0) {
    choice.draft_pause = choice.draft_wait = 0;
  } else if (wrong && choice.draft_probe) {
    choice.draft_pause = std::min(2 * choice.draft_pause + 1, kLongestPause);
    choice.draft_wait = choice.draft_pause;
  }
  // Each token saves what it costs in a step without drafts.
  if (decoding_ > 0) balance_ += right * (step_seconds_ + outside_) / decoding_;
  balance_ = std::min(balance_, kMostBalance * step_seconds_);
}

double& Speculation::beyond_rows(std::uint32_t decoding) {
  return beyond_rows_[std::min<std::size_t>(std::bit_width(decoding), beyond_rows_.size() - 1)];
}

void Speculation::account(const StepShape& step, const CostModel& costs, double seconds) {
  draft_rows_ = step.draft_rows;
  only_decodes_ = step.decode_rows > 0 && step.prefill_rows == 0;
  if (step.decode_rows == 0) return;
  StepShape plain = step;
  plain.draft_rows = 0;
  plain.prefill_rows = 0;
  plain.prefill_context = 0;
  step_seconds_ = costs.costs().seconds(plain);
  decoding_ = step.decode_rows;
  if (!std::exchange(opened_, true)) balance_ = kFirstBalance * step_seconds_;
  balance_ += kAllowance * seconds;
  double lost = step.draft_rows * costs.costs().draft_row;
  if (step.draft_rows > 0 && only_decodes_) {  // beside a prompt, drafts are lost in the noise
    const double beyond = std::clamp(seconds - step_seconds_ - lost, -step_seconds_, kMostLost * step_seconds_);
    remember(beyond_rows(step.decode_rows), beyond);
    lost += std::max(0.0, beyond);
  }
  balance_ -= lost + step.draft_rows * drafter_->seconds_per_token();
  balance_ = std::min(balance_, kMostBalance * step_seconds_);
}

// What the drafter reports is paid in account(). It is not all of what guessing took: a smaller model computes a prompt
// once, and that says nothing about the guesses after it.
void Speculation::account_outside(double seconds) {
  if (!only_decodes_) return;
  seconds = std::max(0.0, seconds - reported_);
  if (draft_rows_ == 0) return remember(outside_, seconds);
  const double lost = std::clamp(seconds - outside_, 0.0, kMostLost * step_seconds_);
  remember(outside_row_, lost / draft_rows_);
  balance_ -= lost;
}

}  // namespace quire::engine
