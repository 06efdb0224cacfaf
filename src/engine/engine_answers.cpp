// What happens after a token was sampled: the answer grows, its listener is told, and the answer may end.
#include <algorithm>
#include <limits>
#include <utility>

#include "quire/engine/engine.h"
#include "quire/engine/job.h"
#include "quire/engine/scheduler.h"

namespace quire::engine {

const char* name(Finish finish) {
  switch (finish) {
    case Finish::Stop: return "stop";
    case Finish::Length: return "length";
    case Finish::Cancelled: return "cancelled";
    case Finish::Deadline: return "deadline";
    case Finish::Failed: return "failed";
  }
  return "?";
}

const char* name(Pooling pooling) {
  switch (pooling) {
    case Pooling::None: return "none";
    case Pooling::Mean: return "mean";
    case Pooling::First: return "cls";
    case Pooling::Last: return "last";
  }
  return "?";
}

void Engine::accept(Choice& choice) {
  Job& job = *jobs_.at(choice.request);
  const auto picked = std::exchange(choice.picked, std::nullopt);
  if (!picked) return finish(choice, {.why = Finish::Length});  // max_tokens of the request is 0
  const Sampled& sampled = *picked;
  if (!sampled.token) {
    const std::string why = choice.constraint ? choice.constraint->error() : "";
    return finish(choice, {.why = Finish::Failed,
                           .error = why.empty() ? "no token can be chosen: all logits of the model are NaN" : why});
  }
  const Token token = *sampled.token;
  ++job.usage.completion_tokens;
  choice.logprob_sum += sampled.logprob;
  if (std::ranges::binary_search(job.request.stop_tokens, token)) {
    return finish(choice, {.why = Finish::Stop, .stop_token = token});
  }
  if (choice.constraint && !choice.constraint->accept(token)) {
    return finish(choice, {.why = Finish::Failed, .error = choice.constraint->error()});
  }
  if (!append(choice, token, sampled.logprob, sampled.alternatives)) return;
  if (choice.constraint) follow_constraint(choice);
}

// What follows from the constraint after a token was sampled: the end of the answer, or tokens without an alternative.
// They become part of the answer at once, and the next step computes them as it computes the chunk of a prompt. With
// log-probabilities they are sampled one by one, where only they are allowed. The answer is the same, so each of them
// is treated here as accept() treats it.
void Engine::follow_constraint(Choice& choice) {
  Job& job = *jobs_.at(choice.request);
  if (!choice.forced.empty()) choice.forced.pop_back();  // it was sampled
  for (;;) {
    if (choice.forced.empty()) choice.find_forced();
    if (choice.forced.empty() || choice.sampler.tells_logprobs()) break;
    const Token token = choice.forced.back();
    choice.forced.pop_back();
    ++job.usage.completion_tokens;
    if (std::ranges::binary_search(job.request.stop_tokens, token)) {
      return finish(choice, {.why = Finish::Stop, .stop_token = token});
    }
    if (!choice.constraint->accept(token)) {
      return finish(choice, {.why = Finish::Failed, .error = choice.constraint->error()});
    }
    if (!append(choice, token, 0, {})) return;
  }
  if (choice.constraint->complete()) return finish(choice, {.why = Finish::Stop});
  if (choice.decodes() && choice.pending() > 1) choice.state = Choice::State::Prefill;
}

// The answer grows by a token. False: it ended with it.
bool Engine::append(Choice& choice, Token token, float logprob, std::span<const TokenLogprob> alternatives) {
  Job& job = *jobs_.at(choice.request);
  choice.tokens.push_back(token);
  choice.sampler.see(token);
  job.text.clear();
  if (choice.text) choice.text->push(token, job.text);
  const bool may_stop = choice.may_stop(job.request.min_tokens);
  const std::string_view text = choice.untold(may_stop ? choice.stop.push(job.text) : std::string_view(job.text));
  if (job.tells_at_once()) {
    tell(job, {.kind = Event::Kind::Token,
               .choice = choice.index,
               .index = choice.generated() - 1,
               .token = token,
               .text = text,
               .logprob = logprob,
               .alternatives = alternatives});
  } else {
    choice.told_text += text;
    choice.told_alternatives.insert(choice.told_alternatives.end(), alternatives.begin(), alternatives.end());
    choice.told.push_back({token, logprob, choice.told_text.size(), choice.told_alternatives.size()});
  }
  if (choice.stop.matched()) {
    finish(choice, {.why = Finish::Stop, .stop = choice.stop.which()});
  } else if (choice.tokens.size() == choice.max_tokens) {
    // A constraint that is complete with the last token has its end.
    const bool complete = choice.constraint && choice.constraint->complete();
    finish(choice, {.why = complete ? Finish::Stop : Finish::Length});
  }
  return !choice.done;
}

void Engine::finish(Choice& choice, Ending ending) {
  Job& job = *jobs_.at(choice.request);
  if (choice.index == 0 || job.siblings_started) scheduler_->remove(choice);
  choice.done = true;
  --job.open;
  job.usage.suspensions += choice.suspensions;
  if (!choice.guesses.empty()) job.usage.accepted_tokens += choice.right_guesses();
  job.usage.total_seconds = seconds(now() - job.submitted);

  job.text.clear();
  if (choice.text && !choice.stop.matched()) choice.text->flush(job.text);
  const bool may_stop = choice.may_stop(job.request.min_tokens);
  std::string tail(may_stop ? choice.stop.push(job.text) : std::string_view(job.text));
  const bool by_itself = ending.why == Finish::Stop || ending.why == Finish::Length;
  if (choice.stop.matched() && by_itself && ending.stop.empty()) {
    // The flushed rest of an incomplete character completed a stop string.
    ending = {.why = Finish::Stop, .stop = choice.stop.which(), .stop_token = ending.stop_token};
  }
  if (!choice.stop.matched()) tail += choice.stop.finish();
  tail.erase(0, tail.size() - choice.untold(tail).size());
  const bool last = job.open == 0;
  if (job.tells_at_once()) {
    tell(job, {.kind = Event::Kind::Finished,
               .choice = choice.index,
               .text = tail,
               .finish = ending.why,
               .error = ending.error,
               .stop = ending.stop,
               .stop_token = ending.stop_token,
               .last = last,
               .usage = &job.usage});
  } else {
    choice.told_text += tail;
    choice.finish = ending.why;
    choice.finish_error = ending.error;
    choice.finish_stop = ending.stop;
    choice.finish_token = ending.stop_token;
    if (last) tell_best(job);
  }
  if (!last) return;
  job.ended = true;
  switch (ending.why) {
    case Finish::Cancelled: ++stats_.cancelled; break;
    case Finish::Deadline: ++stats_.expired; break;
    case Finish::Failed: ++stats_.failed; break;
    default: ++stats_.finished;
  }
  ended_.push_back(job.id);
}

// Tells the n most likely of the best_of choices, by the mean log-probability of their tokens, stop token included. Of
// equal choices the first wins. A choice without a token comes last.
void Engine::tell_best(Job& job) {
  std::vector<Choice*> order;
  order.reserve(job.choices.size());
  for (auto& choice : job.choices) order.push_back(choice.get());
  const auto mean = [](const Choice* c) {
    const std::size_t picked = c->told.size() + (c->finish_token >= 0 ? 1 : 0);
    return picked == 0 ? -std::numeric_limits<double>::infinity() : c->logprob_sum / static_cast<double>(picked);
  };
  std::ranges::stable_sort(order, [&](const Choice* a, const Choice* b) { return mean(a) > mean(b); });
  for (std::uint32_t i = 0; i < job.request.n; ++i) {
    const Choice& choice = *order[i];
    std::size_t text = 0, alternatives = 0;
    for (std::uint32_t t = 0; t < choice.told.size(); ++t) {
      const Choice::Told& told = choice.told[t];
      tell(job, {.kind = Event::Kind::Token,
                 .choice = i,
                 .index = t,
                 .token = told.token,
                 .text = std::string_view(choice.told_text).substr(text, told.text_end - text),
                 .logprob = told.logprob,
                 .alternatives =
                     std::span(choice.told_alternatives).subspan(alternatives, told.alternatives_end - alternatives)});
      text = told.text_end;
      alternatives = told.alternatives_end;
    }
    tell(job, {.kind = Event::Kind::Finished,
               .choice = i,
               .text = std::string_view(choice.told_text).substr(text),
               .finish = choice.finish,
               .error = choice.finish_error,
               .stop = choice.finish_stop,
               .stop_token = choice.finish_token,
               .last = i + 1 == job.request.n,
               .usage = &job.usage});
  }
}

void Engine::tell(Job& job, const Event& event) {
  if (!job.listener) return;
  Event addressed = event;
  addressed.request = job.id;
  job.listener->on_event(addressed);
}

}  // namespace quire::engine
