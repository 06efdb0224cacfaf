#include "quire/server/answer.h"

#include <utility>

#include <fmt/format.h>

#include "quire/server/engine_calls.h"

namespace quire::server {

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
  std::make_shared<Answer>(context, std::move(request), name_space, std::move(responder))->begin();
}

Answer::Answer(const CompletionContext& context, AnswerRequest request, Namespace name_space,
               std::shared_ptr<Responder> responder)
    : AnsweringCall(context, name_space, std::move(responder)),
      request_(std::move(request.chat)),
      shape_(std::move(request.shape)) {}

void Answer::begin() {
  watch_client();
  if (request_.style.reads()) reader_ = std::make_unique<ChatAnswer>(request_.style);
  engine::Request asked = std::move(request_.options);
  asked.prompt = std::move(request_.prompts.front());
  submit(std::move(asked), 0);
  shape_->open(fmt::format("{}-{}", context_.prefix, ids_.front()), prompt_tokens_);
}

void Answer::receive(const Arrival& arrival) {
  if (over_) return;
  switch (arrival.kind) {
    case engine::Event::Kind::Accepted: {
      if (!request_.stream) return;
      std::string events;
      shape_->begin(events);
      return begin_stream(std::move(events));
    }
    case engine::Event::Kind::Refused: return refuse(*arrival.refusal);
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
  time_token(arrival, last_token_);
  scratch_.clear();
  add_text(arrival.text);
  const auto& blocks = shape_->blocks();
  if (!blocks.empty() && blocks.back().kind == tools::Delta::Kind::Reasoning) ++reasoning_tokens_;
  if (request_.stream && !scratch_.empty()) write(scratch_);
  if (!over_ && reader_ && reader_->over()) cancel();
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
  usage_.add(arrival.usage, miss_reason(arrival.usage.hit.end, context_.has_keys));
  const AnswerEnd end{
      .cut = arrival.finish == Finish::Length, .stop = arrival.stop, .reasoning_tokens = reasoning_tokens_};
  complete(end.cut ? "length" : reader_ && !reader_->calls().empty() ? "tool_calls" : "stop");
  if (request_.stream) {
    shape_->end(end, usage_, scratch_);
    responder_->write(scratch_);
    return responder_->end();
  }
  context_.metrics.answered(200);
  responder_->send({.body = shape_->whole(end, usage_)});
}

}  // namespace quire::server
