#include "quire/server/answering_call.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "quire/server/engine_calls.h"

namespace quire::server {
namespace {

double seconds(engine::Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void AnsweringCall::watch_client() {
  submitted_ = engine::Clock::now();
  responder_->on_gone = [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || self->over_) return;
    self->over_ = true;
    self->context_.metrics.completed(Outcome::Gone);
    self->note("cancelled");
    self->cut_off();
    self->cancel();
  };
}

void AnsweringCall::submit(engine::Request asked, std::uint32_t prompt) {
  prompt_tokens_ += asked.prompt.size();
  asked.name_space = name_space_;
  asked.deadline = submitted_ + context_.request_timeout;
  ids_.push_back(context_.service.submit(std::move(asked),
                                         std::make_shared<PromptListener>(context_.inbox, shared_from_this(), prompt)));
  if (ids_.size() == 1) responder_->headers.emplace_back("x-request-id", std::to_string(ids_.front()));
}

void AnsweringCall::cancel() {
  for (const RequestId id : ids_) context_.service.cancel(id);
}

void AnsweringCall::begin_stream(std::string events) {
  begun_ = true;
  HttpResponse head{.content_type = "text/event-stream",
                    .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}},
                    .body = std::move(events)};
  context_.metrics.answered(head.status);
  responder_->begin(std::move(head));
  spoken_ = engine::Clock::now();
  if (context_.stream_keep_alive.count() > 0) keep_alive();
}

// Looks at the stream when it will have been silent for long enough.
void AnsweringCall::keep_alive() {
  const auto silent = std::chrono::duration_cast<std::chrono::milliseconds>(engine::Clock::now() - spoken_);
  context_.loop.after(context_.stream_keep_alive - std::min(silent, context_.stream_keep_alive),
                      [weak = weak_from_this()] {
                        const auto self = weak.lock();
                        if (!self || self->over_) return;
                        const auto now = engine::Clock::now();
                        if (now - self->spoken_ >= self->context_.stream_keep_alive) {
                          self->spoken_ = now;
                          if (self->responder_->pending() == 0) self->responder_->write(self->keep_alive_event());
                        }
                        self->keep_alive();
                      });
}

void AnsweringCall::write(std::string_view events) {
  responder_->write(events);
  spoken_ = engine::Clock::now();
  if (responder_->pending() <= context_.stream_buffer) return;
  fail({.status = 503,
        .type = "server_error",
        .message = fmt::format("the client reads too slowly: more than {} bytes wait for it", context_.stream_buffer),
        .code = "client_too_slow"},
       Outcome::TooSlow);
}

void AnsweringCall::time_token(const Arrival& arrival, engine::Clock::time_point& last) {
  if (last != engine::Clock::time_point{}) {
    context_.metrics.next_token(seconds(arrival.at - last));
  } else if (arrival.choice == 0) {
    context_.metrics.first_token(seconds(arrival.at - submitted_));
  }
  last = arrival.at;
}

void AnsweringCall::refuse(const engine::Refusal& refusal) {
  if (refusal.why == engine::Refusal::Why::RateLimited) context_.metrics.rate_limited(name_space_);
  fail(from_refusal(refusal), outcome_of(refusal));
}

void AnsweringCall::complete(std::string_view finish) {
  over_ = true;
  context_.metrics.completed(Outcome::Finished);
  tokens_ = usage_.completion_tokens;
  note(finish);
}

void AnsweringCall::fail(const ApiError& error, Outcome outcome) {
  over_ = true;
  cut_off();
  context_.metrics.completed(outcome);
  note(error.code.empty() ? error.type : error.code);
  cancel();
  if (!begun_) {
    context_.metrics.answered(error.status);
    return responder_->send(refusal(error));
  }
  std::string end;
  append_failure(error, end);
  responder_->write(end);
  responder_->end();
}

void AnsweringCall::broken() {
  if (!over_) fail(internal_error(), Outcome::Failed);
}

void AnsweringCall::note(std::string_view finish) {
  RequestNotes& notes = responder_->notes;
  notes.request = ids_.empty() ? 0 : ids_.front();
  notes.prompt_tokens = prompt_tokens_;
  notes.completion_tokens = tokens_;
  notes.finish = finish;
}

}  // namespace quire::server
