// What a step wants of the executor, and what becomes of its output: tokens of answers, and logits and hidden states of
// prompts.
#include <algorithm>

#include "quire/base/check.h"
#include "quire/engine/choice.h"
#include "quire/engine/engine.h"
#include "quire/engine/job.h"

namespace quire::engine {
namespace {

// Calls call(choice, entry, row) for the entries that want logits. `row` is the first one's, among those of the batch.
template <typename Call>
void each_wanted(const Step& step, const Call& call) {
  std::uint32_t row = 0;
  for (std::size_t i = 0; i < step.choices.size(); ++i) {
    const BatchEntry& entry = step.batch.entries()[i];
    if (entry.logits == Logits::None) continue;
    call(*step.choices[i], entry, row);
    row += entry.wanted_rows();
  }
}

bool prompt_goes_on(const Choice& choice, const BatchEntry& entry) {
  return choice.position + entry.certain_rows() < choice.tokens.size();
}

}  // namespace

// The executor samples what fits into its limits. If something does not fit, the host gets the row's logits.
model::StepWants Engine::ask(const Step& step) {
  wanted_jobs_.clear();
  wanted_logits_.clear();
  wanted_hidden_.clear();
  budget_.clear();
  each_wanted(step, [&](Choice& choice, const BatchEntry& entry, std::uint32_t row) {
    const std::uint32_t end = row + entry.wanted_rows(), last = end - 1 - entry.drafts;
    const bool host_samples = !prompt_goes_on(choice, entry) && !ask_for_tokens(choice, last);
    const Job& job = *jobs_.at(choice.request);
    const bool tells = job.tells_prompt_logits();
    if (entry.drafts > 0) ask_for_drafts(choice, entry, last);
    for (std::uint32_t i = row; i < end; ++i) {
      const bool draft_on_host = i > last && i - last >= choice.jobs;
      if (tells || (host_samples && i == last) || draft_on_host) wanted_logits_.push_back(i);
      if (job.embeds()) wanted_hidden_.push_back(i);
    }
  });
  if (masks_) masks_->start();
  return {.jobs = wanted_jobs_,
          .logits = wanted_logits_,
          .hidden = wanted_hidden_,
          .masks = masks_.get(),
          .every_hidden = options_.drafter && options_.drafter->observes()};
}

// False: the host has to sample some of them.
bool Engine::ask_for_tokens(Choice& choice, std::uint32_t row) {
  Job& job = *jobs_.at(choice.request);
  bool all = true;
  // The other choices get what they need to begin.
  for (std::size_t i = 1; !job.siblings_started && i < job.choices.size(); ++i) (void)equip(job, *job.choices[i]);
  job.each_picking(choice, [&](Choice& picks) {
    sampling::Job wanted = picks.sampler.job(picks.tokens.size(), ask_for_mask(picks));
    wanted.row = row;
    picks.job.reset();
    if (budget_.take(wanted)) {
      picks.job = static_cast<std::uint32_t>(wanted_jobs_.size());
      wanted_jobs_.push_back(wanted);
    } else {
      all = false;
    }
  });
  return all;
}

// What follows the drafts, if they are right. The executor samples it if that does not depend on which tokens the
// answer has by then; otherwise the host does, token by token.
void Engine::ask_for_drafts(Choice& choice, const BatchEntry& entry, std::uint32_t row) {
  choice.jobs = choice.job ? 1 : 0;
  if (!choice.job || choice.sampler.depends_on_answer() || choice.constraint) return;
  for (std::uint32_t i = 1; i <= entry.drafts; ++i) {
    sampling::Job wanted = choice.sampler.job(choice.tokens.size() + i);
    wanted.row = row + i;
    if (!budget_.take(wanted)) return;
    wanted_jobs_.push_back(wanted);
    ++choice.jobs;
  }
}

// The words of the mask, which may still be computed. They stay valid until the answer grows: a step that is lost, or a
// suspension, does not change them. `at_once`: they are complete, because nothing is left to be computed meanwhile.
std::span<const std::uint32_t> Engine::ask_for_mask(Choice& choice, bool at_once) {
  if (!choice.constraint) return {};
  if (choice.masked_at == choice.tokens.size()) return choice.mask;
  choice.masked_at = choice.tokens.size();
  if (choice.forced.empty()) {
    at_once ? choice.constraint->mask(choice.mask) : masks_->add(*choice.constraint, choice.mask);
  } else {
    std::ranges::fill(choice.mask, 0);
    const auto token = static_cast<std::uint32_t>(choice.forced.back());
    choice.mask[token / 32] = 1U << (token % 32);
  }
  return choice.mask;
}

void Engine::take(const Step& step, const model::StepOutput& output) {
  QUIRE_CHECK(output.picked.size() == wanted_jobs_.size(), "an executor that samples answers every job");
  each_wanted(step, [&](Choice& choice, const BatchEntry& entry, std::uint32_t row) {
    Job& job = *jobs_.at(choice.request);
    if (!prompt_goes_on(choice, entry)) {
      job.each_picking(choice, [&](Choice& picks) {
        const std::uint32_t last = row + entry.wanted_rows() - 1 - entry.drafts;
        picks.picked = picks.job ? picks.sampler.told(output.picked[*picks.job])
                                 : picks.sampler.sample(output.logits.row(last), picks.tokens.size(), scratch_,
                                                        ask_for_mask(picks));
      });
    }
    if (job.tells_prompt_logits() || job.embeds()) take_prompt(choice, entry, row, output);
  });
}

// What a request wants to know of its prompt, position by position. A prompt that was preempted and is computed again
// has the same values again, which were taken already.
void Engine::take_prompt(const Choice& choice, const BatchEntry& entry, std::uint32_t row,
                         const model::StepOutput& output) {
  Job& job = *jobs_.at(choice.request);
  const std::uint32_t count = entry.wanted_rows();
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t position = choice.position + entry.rows - count + i;
    if (position < job.taken) continue;
    job.taken = position + 1;
    if (job.tells_prompt_logits()) tell_prompt_row(job, choice, position, output.logits.row(row + i));
    if (job.embeds()) pool_row(job, choice, position, output.hidden.row(row + i));
  }
}

void Engine::tell_prompt_row(Job& job, const Choice& choice, std::uint32_t position, std::span<const float> logits) {
  if (job.request.prompt_logits != Logits::None) {
    const bool wanted = job.request.prompt_logits == Logits::All || position + 1 == choice.prompt_tokens;
    if (wanted) {
      tell(job, {.kind = Event::Kind::PromptLogits,
                 .choice = choice.index,
                 .index = position,
                 .token = choice.tokens[position],
                 .logits = logits});
    }
  }
  const std::uint32_t next = position + 1;
  if (job.request.prompt_logprobs < 0 || next == choice.prompt_tokens) return;
  const Token token = choice.tokens[next];
  const Scored scored = score(logits, token, job.request.prompt_logprobs, scratch_, prompt_alternatives_);
  tell(job, {.kind = Event::Kind::PromptToken,
             .choice = choice.index,
             .index = next,
             .token = token,
             .logprob = scored.logprob,
             .alternatives = prompt_alternatives_,
             .rank = scored.rank});
}

// The sum over positions is in their order, so it does not depend on where chunks end.
void Engine::pool_row(Job& job, const Choice& choice, std::uint32_t position, std::span<const float> hidden) {
  const bool last = position + 1 == choice.prompt_tokens;
  const Pooling how = job.request.embedding;
  if (how == Pooling::Mean || (how == Pooling::First ? position == 0 : last)) {
    for (std::size_t i = 0; i < hidden.size(); ++i) job.pooled[i] += hidden[i];
  }
  if (!last) return;
  const double count = how == Pooling::Mean ? choice.prompt_tokens : 1;
  for (std::size_t i = 0; i < pooled_.size(); ++i) pooled_[i] = static_cast<float>(job.pooled[i] / count);
  tell(job, {.kind = Event::Kind::Embedding, .choice = choice.index, .logits = pooled_});
}

}  // namespace quire::engine
