#include "quire/server/answer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "quire/server/engine_calls.h"

namespace quire::server {
namespace {

double seconds(engine::Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void append_event(std::string& out, std::string_view name, std::string_view data) {
  out += "event: ";
  out += name;
  out += "\ndata: ";
  out += data;
  out += "\n\n";
}

void AnswerShape::add(const tools::Delta& delta, std::string& out) {
  using Kind = tools::Delta::Kind;
  const Kind kind = delta.kind == Kind::Arguments ? Kind::Call : delta.kind;
  const bool begins = delta.kind == Kind::Call || !block_open_ || blocks_.back().kind != kind;
  if (begins) {
    close_block(out);
    blocks_.push_back({.kind = kind, .text = {}, .name = delta.name, .id = delta.id});
    block_open_ = true;
    block_begins(out);
  }
  if (delta.text.empty()) return;
  blocks_.back().text += delta.text;
  block_grows(delta.text, out);
}

void AnswerShape::close_block(std::string& out) {
  if (std::exchange(block_open_, false)) block_ends(out);
}

void Answer::start(const CompletionContext& context, AnswerRequest request, Namespace name_space,
                   std::shared_ptr<Responder> responder) {
  std::make_shared<Answer>(context, std::move(request), std::move(responder))->submit(name_space);
}

Answer::Answer(const CompletionContext& context, AnswerRequest request, std::shared_ptr<Responder> responder)
    : context_(context),
      request_(std::move(request.chat)),
      shape_(std::move(request.shape)),
      responder_(std::move(responder)) {}

void Answer::submit(Namespace name_space) {
  submitted_ = engine::Clock::now();
  responder_->on_gone = [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || self->over_) return;
    self->over_ = true;
    self->context_.metrics.completed(Outcome::Gone);
    self->note("cancelled");
    self->context_.service.cancel(self->id_);
  };
  if (request_.style.reads()) reader_ = std::make_unique<ChatAnswer>(request_.style);
  engine::Request asked = std::move(request_.options);
  asked.prompt = std::move(request_.prompts.front());
  asked.name_space = name_space;
  asked.deadline = submitted_ + context_.request_timeout;
  prompt_tokens_ = asked.prompt.size();
  request_.options.name_space = name_space;
  id_ = context_.service.submit(std::move(asked),
                                std::make_shared<PromptListener>(context_.inbox, shared_from_this(), 0));
  responder_->headers.emplace_back("x-request-id", std::to_string(id_));
  shape_->open(fmt::format("{}-{}", context_.prefix, id_), prompt_tokens_);
}

void Answer::begin() {
  if (!request_.stream) return;
  begun_ = true;
  HttpResponse head{.content_type = "text/event-stream",
                    .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}};
  shape_->begin(head.body);
  context_.metrics.answered(head.status);
  responder_->begin(std::move(head));
  spoken_ = engine::Clock::now();
  if (context_.stream_keep_alive.count() > 0) keep_alive();
}

// Looks at the stream when it will have been silent for long enough.
void Answer::keep_alive() {
  const auto silent = std::chrono::duration_cast<std::chrono::milliseconds>(engine::Clock::now() - spoken_);
  context_.loop.after(context_.stream_keep_alive - std::min(silent, context_.stream_keep_alive),
                      [weak = weak_from_this()] {
                        const auto self = weak.lock();
                        if (!self || self->over_) return;
                        const auto now = engine::Clock::now();
                        if (now - self->spoken_ >= self->context_.stream_keep_alive) {
                          self->spoken_ = now;
                          if (self->responder_->pending() == 0) self->responder_->write(self->shape_->keep_alive());
                        }
                        self->keep_alive();
                      });
}

void Answer::receive(const Arrival& arrival) {
  if (over_) return;
  switch (arrival.kind) {
    case engine::Event::Kind::Accepted: return begin();
    case engine::Event::Kind::Refused:
      if (arrival.refusal->why == engine::Refusal::Why::RateLimited) {
        context_.metrics.rate_limited(request_.options.name_space);
      }
      return fail(from_refusal(*arrival.refusal), outcome_of(*arrival.refusal));
    case engine::Event::Kind::Token: return token(arrival);
    case engine::Event::Kind::Finished: return finished(arrival);
    case engine::Event::Kind::PromptLogits:
    case engine::Event::Kind::PromptToken:
    case engine::Event::Kind::Embedding: return;
  }
}

void Answer::add(const std::vector<tools::Delta>& deltas) {
  for (const tools::Delta& delta : deltas) shape_->add(delta, scratch_);
}

void Answer::add_text(const std::string& text) {
  if (reader_) {
    add(reader_->push(text));
  } else if (!text.empty()) {
    shape_->add({.text = text}, scratch_);
  }
}

void Answer::token(const Arrival& arrival) {
  ++tokens_;
  if (last_token_ != engine::Clock::time_point{}) {
    context_.metrics.next_token(seconds(arrival.at - last_token_));
  } else {
    context_.metrics.first_token(seconds(arrival.at - submitted_));
  }
  last_token_ = arrival.at;
  scratch_.clear();
  add_text(arrival.text);
  const auto& blocks = shape_->blocks();
  if (!blocks.empty() && blocks.back().kind == tools::Delta::Kind::Reasoning) ++reasoning_tokens_;
  if (request_.stream && !scratch_.empty()) stream(scratch_);
  if (!over_ && reader_ && reader_->over()) context_.service.cancel(id_);
}

void Answer::finished(const Arrival& arrival) {
  using engine::Finish;
  // An answer that has its one call was cancelled here.
  const bool has_its_call = arrival.finish == Finish::Cancelled && reader_ && reader_->over();
  if (const auto failure = failure_of(arrival, context_.request_timeout); failure && !has_its_call) {
    return fail(failure->error, failure->outcome);
  }
  scratch_.clear();
  add_text(arrival.text);
  if (reader_) add(reader_->finish(arrival.finish == Finish::Length));
  over_ = true;
  usage_.add(arrival.usage, miss_reason(arrival.usage.hit.end, context_.has_keys));
  tokens_ = usage_.completion_tokens;
  context_.metrics.completed(Outcome::Finished);
  const AnswerEnd end{
      .cut = arrival.finish == Finish::Length, .stop = arrival.stop, .reasoning_tokens = reasoning_tokens_};
  note(end.cut ? "length" : reader_ && !reader_->calls().empty() ? "tool_calls" : "stop");
  if (request_.stream) {
    shape_->end(end, usage_, scratch_);
    responder_->write(scratch_);
    return responder_->end();
  }
  context_.metrics.answered(200);
  responder_->send({.body = shape_->whole(end, usage_)});
}

void Answer::stream(std::string_view events) {
  responder_->write(events);
  spoken_ = engine::Clock::now();
  if (responder_->pending() <= context_.stream_buffer) return;
  fail({.status = 503,
        .type = "server_error",
        .message = fmt::format("the client reads too slowly: more than {} bytes wait for it", context_.stream_buffer),
        .code = "client_too_slow"},
       Outcome::TooSlow);
}

void Answer::fail(const ApiError& error, Outcome outcome) {
  over_ = true;
  context_.metrics.completed(outcome);
  note(error.code.empty() ? error.type : error.code);
  context_.service.cancel(id_);
  if (!begun_) {
    context_.metrics.answered(error.status);
    return responder_->send(shape_->refusal(error));
  }
  std::string end;
  shape_->fail(error, end);
  responder_->write(end);
  responder_->end();
}

void Answer::note(std::string_view finish) {
  RequestNotes& notes = responder_->notes;
  notes.request = id_;
  notes.prompt_tokens = prompt_tokens_;
  notes.completion_tokens = tokens_;
  notes.finish = finish;
}

}  // namespace quire::server
