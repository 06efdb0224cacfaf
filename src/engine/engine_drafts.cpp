// What becomes of the drafts of a step: those that are right are part of the answer.
#include "quire/base/check.h"
#include "quire/engine/drafter.h"
#include "quire/engine/engine.h"
#include "quire/engine/job.h"
#include "quire/engine/scheduler.h"

namespace quire::engine {

// The token after the certain ones was sampled. While the answer goes on as drafted, the logits of the next draft's row
// are those of the answer: its token is sampled there, with the random number of its position. Everything happens in
// the order of an engine without drafts: a token is committed before the next one is accepted. Only a recurrent state
// exists before the drafts and after all of them, so drafts of which some are right are computed again with the next
// step.
void Engine::accept_drafts(Choice& choice, const Step& step, const BatchEntry& entry, std::uint32_t row,
                           const model::StepOutput& output) {
  Job& job = *jobs_.at(choice.request);
  const auto drafts = step.batch.tokens(entry).last(entry.drafts);
  const std::size_t begin = choice.tokens.size();
  const bool all_or_none = pool_->layout().has_recurrent();
  std::uint32_t right = 0;
  const auto commit = [&](std::span<const Token> tokens) {
    const auto ok = pool_->commit(choice.sequence, tokens);
    QUIRE_CHECK(ok.has_value(), "draft() has made room for what is committed");
    choice.position += static_cast<std::uint32_t>(tokens.size());
  };
  stats_.drafted_tokens += entry.drafts;
  job.usage.drafted_tokens += entry.drafts;
  bool wrong = false;
  for (;;) {
    choice.guesses = drafts.subspan(right);
    choice.guesses_at = begin + right;
    accept(choice);
    choice.guesses = {};
    const auto known = static_cast<std::uint32_t>(choice.tokens.size() - begin);
    const std::uint32_t before = right;
    while (right < std::min(known, entry.drafts) && choice.tokens[begin + right] == drafts[right]) ++right;
    stats_.accepted_tokens += right - before;
    stats_.generated_tokens += right - before;
    if (choice.done) break;  // its sequence is released, and its usage was told
    job.usage.accepted_tokens += right - before;
    if (!all_or_none) {
      for (std::uint32_t i = before; i < right; ++i) commit(drafts.subspan(i, 1));
    } else if (right == entry.drafts && before < right) {
      commit(drafts);
    }
    wrong = right < known && right < entry.drafts;
    if (right < known) break;
    const std::uint32_t next = row + right;
    if (right < choice.jobs) {
      choice.picked = choice.sampler.told(output.picked[*choice.job + right]);
    } else {
      choice.picked =
          choice.sampler.sample(output.logits.row(next), choice.tokens.size(), scratch_, ask_for_mask(choice, true));
    }
  }
  if (!choice.done) {
    const auto ok = pool_->end_draft(choice.sequence);
    QUIRE_CHECK(ok.has_value(), "the sequence has drafts");
    // Tokens that a constraint forces are computed like a chunk of a prompt.
    const bool redoes = choice.pending() > 1;
    choice.state = redoes && choice.constraint ? Choice::State::Prefill : Choice::State::Decode;
  }
  scheduler_->note_drafts(choice, entry.drafts, right, wrong);
}

// Hidden states of tokens that the choices turned out to have. Choices that have ended need no guesses.
void Engine::show_drafter(const Step& step, const HostRows& hidden) {
  for (std::size_t i = 0; i < step.choices.size(); ++i) {
    const BatchEntry& entry = step.batch.entries()[i];
    Choice& choice = *step.choices[i];
    // The first token comes from the prompt's last row, and the last one needs no guess.
    if (choice.done || choice.max_tokens < choice.prompt_tokens + 3) continue;
    const auto tokens = step.batch.tokens(entry);
    const auto own = std::span(choice.tokens).subspan(entry.position);
    std::uint32_t rows = 0;
    while (rows < tokens.size() && rows + 1 < own.size() && tokens[rows] == own[rows]) ++rows;
    if (rows == 0) continue;
    choice.drafts.text = choice.tokens;
    choice.drafts.longest = choice.max_tokens + 1;
    options_.drafter->observe(choice.drafts, entry.position,
                              {hidden.data + entry.first_row * hidden.stride, rows, hidden.cols, hidden.stride});
  }
}

}  // namespace quire::engine
