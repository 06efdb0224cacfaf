#include "quire/server/completion.h"

#include <algorithm>
#include <utility>

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include "quire/server/engine_calls.h"
#include "quire/server/session_store.h"

namespace quire::server {

void Completion::start(const CompletionContext& context, CompletionRequest request, Namespace name_space,
                       std::shared_ptr<Responder> responder) {
  std::make_shared<Completion>(context, std::move(request), name_space, std::move(responder))->begin();
}

Completion::Completion(const CompletionContext& context, CompletionRequest request, Namespace name_space,
                       std::shared_ptr<Responder> responder)
    : AnsweringCall(context, name_space, std::move(responder)), request_(std::move(request)) {}

void Completion::begin() {
  watch_client();
  open_ = request_.prompts.size();
  for (std::size_t i = 0; i < request_.prompts.size() * request_.options.n; ++i) {
    choices_.push_back({.text = {}, .logprobs = LogprobsFormat(context_.model, request_.chat)});
    if (request_.style.reads()) choices_.back().answer = std::make_unique<ChatAnswer>(request_.style);
  }
  for (std::size_t i = 0; request_.options.prompt_logprobs >= 0 && i < request_.prompts.size(); ++i) {
    prompts_.push_back({.echo = LogprobsFormat(context_.model, false),
                        .scores = PromptLogprobsFormat(context_.model),
                        .text = context_.model.text_stream(true, false)});
    Prompt& prompt = prompts_.back();
    const Token first = request_.prompts[i].front();
    scratch_.clear();
    prompt.text->push(first, scratch_);
    if (request_.echo_logprobs >= 0) prompt.echo.add_prompt(first, std::nullopt, {}, scratch_);
  }
  for (std::size_t i = 0; i < request_.prompts.size(); ++i) {
    engine::Request asked = request_.options;
    asked.prompt = std::move(request_.prompts[i]);
    submit(std::move(asked), static_cast<std::uint32_t>(i));
  }
  format_ = std::make_unique<CompletionFormat>(request_.chat, request_.stream, request_.include_usage,
                                               fmt::format("{}-{}", context_.prefix, ids_.front()),
                                               context_.model.name_of(request_.options.adapter), request_.session_id);
}

void Completion::accepted() {
  if (over_ || begun_) return;
  std::string events;
  for (std::uint32_t i = 0; i < choices_.size(); ++i) {
    const std::string& echo = request_.echoes[i / request_.options.n];
    if (request_.chat) {
      format_->role_chunk(events, i);
    } else if (!echo.empty() && request_.echo_logprobs < 0) {
      format_->chunk(events, {.index = i, .text = echo});
    }
  }
  events += std::exchange(early_, {});
  begin_stream(std::move(events));
  if (open_ == 0) end();
}

void Completion::stream(std::string_view events) {
  if (begun_) return write(events);
  early_ += events;
}

void Completion::receive(const Arrival& arrival) {
  if (over_) return;
  const std::uint32_t index = arrival.prompt * request_.options.n + arrival.choice;
  switch (arrival.kind) {
    case engine::Event::Kind::Accepted:
      // A stream begins when the engine has accepted all its prompts. Until then the whole call can still be refused.
      if (++accepted_ == request_.prompts.size() && request_.stream) accepted();
      return;
    case engine::Event::Kind::PromptLogits:
    case engine::Event::Kind::Embedding: return;
    case engine::Event::Kind::PromptToken: return prompt_token(arrival);
    case engine::Event::Kind::Refused: return refuse(*arrival.refusal);
    case engine::Event::Kind::Token: return token(arrival, index);
    case engine::Event::Kind::Finished: return finished(arrival, index);
  }
}

void Completion::prompt_token(const Arrival& arrival) {
  Prompt& prompt = prompts_[arrival.prompt];
  const auto first = [&](std::int32_t count) {
    return std::span(arrival.alternatives)
        .first(std::min(arrival.alternatives.size(), static_cast<std::size_t>(count)));
  };
  if (request_.echo_logprobs >= 0) {
    scratch_.clear();
    prompt.text->push(arrival.token, scratch_);
    prompt.echo.add_prompt(arrival.token, arrival.logprob, first(request_.echo_logprobs), scratch_);
  }
  if (request_.prompt_logprobs >= 0) {
    prompt.scores.add(arrival.token, arrival.logprob, arrival.rank, first(request_.prompt_logprobs));
  }
}

// All tokens of a prompt have come before the first of an answer. Each choice begins with them.
void Completion::echo_scores(std::uint32_t index) {
  Choice& choice = choices_[index];
  if (request_.echo_logprobs < 0 || std::exchange(choice.echoed, true)) return;
  choice.logprobs = prompts_[index / request_.options.n].echo;
  if (!request_.stream) return;
  const std::string taken = choice.logprobs.take();
  scratch_.clear();
  format_->chunk(scratch_, {.index = index, .text = request_.echoes[index / request_.options.n], .logprobs = taken});
  stream(scratch_);
}

void Completion::token(const Arrival& arrival, std::uint32_t index) {
  ++tokens_;
  if (request_.session) request_.session->add(arrival.token, arrival.text);
  echo_scores(index);
  if (over_) return;
  Choice& choice = choices_[index];
  time_token(arrival, choice.last_token);
  const bool logprobs = request_.options.logprobs >= 0;
  if (logprobs) choice.logprobs.add(arrival.token, arrival.logprob, arrival.alternatives);
  if (choice.answer) {
    if (!choice.answer->over()) add(choice.answer->push(arrival.text), index);
    if (!over_ && one_call_came(index)) context_.service.cancel(ids_[arrival.prompt]);
  } else if (!request_.stream) {
    choice.text += arrival.text;
  } else if (logprobs || !arrival.text.empty()) {
    const std::string taken = logprobs ? choice.logprobs.take() : std::string();
    scratch_.clear();
    format_->chunk(scratch_, {.index = index, .text = arrival.text, .logprobs = taken});
    stream(scratch_);
  }
}

// Streams what an answer has got. Log-probabilities come with the first of it, or alone.
void Completion::add(const std::vector<tools::Delta>& deltas, std::uint32_t index) {
  if (!request_.stream) return;
  std::string taken = request_.options.logprobs >= 0 ? choices_[index].logprobs.take() : std::string();
  scratch_.clear();
  if (deltas.empty() && !taken.empty()) format_->chunk(scratch_, {.index = index, .logprobs = taken});
  for (const tools::Delta& delta : deltas) {
    format_->chunk(scratch_, {.index = index, .logprobs = taken, .object = delta_json(delta)});
    taken.clear();
  }
  if (!scratch_.empty()) stream(scratch_);
}

// Whether no choice of this prompt needs more text.
bool Completion::one_call_came(std::uint32_t index) {
  const std::uint32_t first = index - index % request_.options.n;
  return std::ranges::all_of(std::span(choices_).subspan(first, request_.options.n),
                             [](const Choice& each) { return each.answer && each.answer->over(); });
}

void Completion::finished(const Arrival& arrival, std::uint32_t index) {
  Choice& choice = choices_[index];
  const bool one_call = choice.answer && choice.answer->over() && arrival.finish == engine::Finish::Cancelled;
  if (const auto failure = failure_of(arrival, context_.request_timeout); failure && !one_call) {
    return fail(failure->error, failure->outcome);
  }
  if (request_.session) request_.session->add_text(arrival.text);
  choice.finish = arrival.finish == engine::Finish::Length ? "length" : "stop";
  if (choice.answer) {
    add(choice.answer->push(arrival.text), index);
    if (!over_) add(choice.answer->finish(arrival.finish == engine::Finish::Length), index);
    if (over_) return;
    if (!choice.answer->calls().empty() && arrival.finish != engine::Finish::Length) choice.finish = "tool_calls";
  }
  echo_scores(index);
  if (over_) return;
  if (request_.stream) {
    scratch_.clear();
    if (!choice.answer && !arrival.text.empty()) format_->chunk(scratch_, {.index = index, .text = arrival.text});
    format_->chunk(scratch_, {.index = index, .finish = choice.finish});
    stream(scratch_);
    if (over_) return;
  } else {
    choice.text += arrival.text;
  }
  if (!arrival.last) return;
  usage_.add(arrival.usage, miss_reason(arrival.usage.hit.end, context_.has_keys));
  if (--open_ == 0) end();
}

void Completion::end() {
  if (request_.stream && !begun_) return;  // accepted() calls it again
  // Before the client knows: its next call may come at once.
  end_session(std::string_view(choices_.front().finish) != "length", false);
  const bool same = std::ranges::all_of(
      choices_, [this](const Choice& c) { return std::string_view(c.finish) == choices_.front().finish; });
  complete(same ? choices_.front().finish : "mixed");
  if (request_.stream) {
    std::string events;
    if (request_.include_usage) format_->usage_chunk(events, usage_);
    CompletionFormat::done(events);
    responder_->write(events);
    return responder_->end();
  }
  std::vector<std::string> logprobs, scores, messages;
  std::vector<ChoiceAnswer> answers;
  logprobs.reserve(choices_.size());
  messages.reserve(choices_.size());
  for (const Prompt& prompt : prompts_) scores.push_back(prompt.scores.json());
  for (std::uint32_t i = 0; i < choices_.size(); ++i) {
    logprobs.push_back(request_.options.logprobs >= 0 ? choices_[i].logprobs.take() : std::string());
    messages.push_back(choices_[i].answer ? message_json(*choices_[i].answer) : std::string());
    answers.push_back({.index = i,
                       .echo = request_.echoes[i / request_.options.n],
                       .text = choices_[i].text,
                       .logprobs = logprobs.back(),
                       .finish = choices_[i].finish,
                       .object = messages.back(),
                       .prompt_logprobs = request_.prompt_logprobs >= 0
                                              ? std::string_view(scores[i / request_.options.n])
                                              : std::string_view()});
  }
  context_.metrics.answered(200);
  responder_->send({.body = format_->whole(answers, usage_)});
}

void Completion::append_failure(const ApiError& error, std::string& out) {
  out += fmt::format("data: {}\n\n", to_json(error));
  CompletionFormat::done(out);
}

// What has come of the answer becomes part of its session, which others may use from now on.
void Completion::end_session(bool ended, bool was_cut_off) {
  const auto session = std::exchange(request_.session, nullptr);
  if (!session) return;
  std::optional<boost::json::object> message;
  if (choices_.front().answer) message = boost::json::parse(message_json(*choices_.front().answer)).as_object();
  session->end_answer(ended, was_cut_off, std::move(message));
}

}  // namespace quire::server
