// Decides how many drafts a step computes, so that answers become faster, and hardly slower where guesses are wrong.
//
// What a draft brings is the chance that it and all drafts before it are right. It is learned: for each choice by the
// place of the draft, beginning with what was learned of all choices for the kind of the guess (drafter.h). What it
// costs is learned by the cost model: a row more in the step. Of all drafts of a step those are computed that raise the
// expected tokens per second of the whole step.
//
// A row more may cost little and the first one much: kernels are made for so many rows (a GPU's products for 32, say).
// So what a step with drafts takes beyond the sum of its rows is learned too, by the number of decoding sequences. And
// drafts cost time outside of the model, where the host samples their rows. What guesses cost is what the drafter
// reports; if it reports nothing, they are part of the time outside of the model.
//
// An account keeps it honest. Every second of computing adds a hundredth of a second to it, a step with drafts takes
// what it was measured to cost more than without them, and drafts that were right add the time that they saved. While
// it is overdrawn, nothing is drafted. So whatever the estimates are worth, drafts cost a hundredth of the time in a
// long run; the first tries of a short one cost more (1 to 3 % over answers of 64 tokens on an H200). Not in the
// account is what a drafter does once for a choice: a smaller model computes its prompt. Where drafts of a choice do
// not pay, one is tried now and then, with pauses that double.
//
// Nothing here changes an answer. Who may call: the scheduler.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "quire/engine/choice.h"
#include "quire/engine/cost_model.h"
#include "quire/engine/drafter.h"

namespace quire::engine {

class Speculation {
 public:
  // `redoes`: drafts that are right are computed again if one behind them is wrong (recurrent models). `always`: drafts
  // are computed whether they pay or not. `now`: the time, as in EngineOptions.
  Speculation(std::shared_ptr<Drafter> drafter, std::uint32_t most_drafts, std::uint32_t max_running, bool redoes,
              bool always, std::function<Clock::time_point()> now = {});

  // A choice that decodes in the next step, and how many drafts it could have.
  struct Candidate {
    Choice* choice = nullptr;
    std::uint32_t most = 0;
  };
  // Sets the drafts of the candidates, `rows` in all at most. `step` is the step without drafts.
  void plan(std::span<const Candidate> candidates, const StepShape& step, const CostModel& costs, std::uint32_t rows);
  // How the drafts of a choice turned out: the first `right` of `count` were right, and the next was `wrong` or is not
  // known to be.
  void note(Choice& choice, std::uint32_t count, std::uint32_t right, bool wrong);
  // What the step cost, after the cost model has learned from it. `seconds`: of the model.
  void account(const StepShape& step, const CostModel& costs, double seconds);
  // What the engine did for the same step besides, plan() included, when it is committed.
  void account_outside(double seconds);

  std::uint32_t most_drafts() const { return most_; }
  double balance() const { return balance_; }  // seconds

 private:
  struct Odds {
    float tried = 0, right = 0;
  };
  double chance(const Choice& choice, std::uint32_t place) const;
  void choose(std::span<const Candidate> candidates, const StepShape& step, const StepCosts& costs, std::uint32_t rows);
  double& beyond_rows(std::uint32_t decoding);
  Clock::time_point now() const { return now_ ? now_() : Clock::now(); }

  std::shared_ptr<Drafter> drafter_;
  std::function<Clock::time_point()> now_;
  std::uint32_t most_;
  bool redoes_;
  bool always_;
  std::array<Odds, kDraftKinds> kinds_{};  // of all choices: drafts that followed right ones
  std::vector<Drafts*> wanted_;            // scratch
  double balance_ = 0;
  double step_seconds_ = 0;     // of the last step, without its drafts
  std::uint32_t decoding_ = 0;  // choices in that step
  bool opened_ = false;         // the account has its first deposit
  // Seconds of a step with drafts beyond those of its rows, by the decoding sequences: 1, 2 to 3, 4 to 7, ...
  std::array<double, 16> beyond_rows_{};
  std::uint32_t draft_rows_ = 0;  // of the last step
  bool only_decodes_ = false;     // that step has no prompt
  double reported_ = 0;           // seconds of that step's guesses, if the drafter reports what they cost
  double outside_ = 0;            // seconds of a step without drafts that are not the model's
  double outside_row_ = 0;        // and what each draft adds
};

}  // namespace quire::engine
