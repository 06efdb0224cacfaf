#include "quire/cli/ask.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "quire/text/stream_decoder.h"

namespace quire::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Turns the answer's tokens into text.
class Decoding final : public engine::TextStream {
 public:
  Decoding(const text::Tokenizer& tokenizer, bool at_start)
      : decoder_(tokenizer, {.at_start = at_start, .repair_utf8 = true}) {}
  void push(Token token, std::string& out) override { decoder_.push(token, out); }
  void flush(std::string& out) override { decoder_.flush(out); }

 private:
  text::StreamDecoder decoder_;
};

// Listens to the request's events. A listener cannot cancel the request; the loop in ask() does that between two steps.
class Hearing final : public engine::Listener {
 public:
  explicit Hearing(const TextSink& sink) : sink_(sink) {}

  void on_event(const engine::Event& event) override {
    if (event.kind == engine::Event::Kind::Token) {
      if (tokens++ == 0) first_token = Clock::now();
      enough = !sink_(event.token, event.text) || enough;
    } else if (event.kind == engine::Event::Kind::Finished) {
      finish = event.finish;
      error = event.error;
      usage = *event.usage;
      stop_string = !event.stop.empty();
      (void)sink_(text::kNoToken, event.text);
    }
    ended = event.last;
  }

  std::uint32_t tokens = 0;
  Clock::time_point first_token;
  bool enough = false, ended = false, stop_string = false;
  engine::Finish finish = engine::Finish::Stop;
  std::string error;
  engine::Usage usage;

 private:
  const TextSink& sink_;
};

}  // namespace

std::string_view reason(Ending ending) {
  switch (ending) {
    case Ending::end_of_text: return "the model ended it";
    case Ending::stop_string: return "a stop string ended it";
    case Ending::limit: return "the token limit was reached";
    case Ending::context: return "the context is full";
    case Ending::stopped: return "it was stopped";
  }
  return "";
}

std::string_view word(Ending ending) {
  switch (ending) {
    case Ending::end_of_text: return "end";
    case Ending::stop_string: return "stop";
    case Ending::limit: return "limit";
    case Ending::context: return "context";
    case Ending::stopped: return "stopped";
  }
  return "";
}

Result<Answered> ask(engine::HostedModel& host, const text::Tokenizer& tokenizer, Question question, const Watch& watch,
                     const TextSink& sink) {
  const auto prompt = static_cast<std::uint32_t>(question.prompt.size());
  const auto ends = tokenizer.end_of_generation();
  engine::Request request{.prompt = std::move(question.prompt),
                          .max_tokens = question.limit != 0 ? question.limit : host.context(),
                          .sampling = std::move(question.sampling),
                          .stop_tokens = {ends.begin(), ends.end()},
                          .stop_strings = {question.stops.begin(), question.stops.end()}};
  request.text = std::move(question.text);
  if (!request.text) {
    request.text = [&tokenizer, at_start = question.at_start] {
      return std::make_unique<Decoding>(tokenizer, at_start);
    };
  }
  request.constraint = std::move(question.constraint);
  request.adapter = question.adapter;
  const auto hearing = std::make_shared<Hearing>(sink);
  engine::Engine& engine = host.engine();
  const Clock::time_point start = Clock::now();
  const auto id = engine.submit(std::move(request), hearing);
  if (!id) return fail(id.error().message);

  Answered answered;
  while (!hearing->ended) {
    const auto sequences = hearing->tokens == 0 ? engine.sequences() : std::vector<engine::SequenceInfo>();
    const std::uint32_t done = sequences.empty() ? prompt : std::min(sequences.front().computed, prompt);
    if (hearing->enough || (watch && !watch(done, prompt))) {
      engine.cancel(*id);
      break;
    }
    engine.step();
  }
  if (hearing->finish == engine::Finish::Failed) return fail(hearing->error);
  const Clock::time_point end = Clock::now();
  const Clock::time_point first = hearing->tokens > 0 ? hearing->first_token : end;
  answered.reused = hearing->usage.hit.tokens;
  answered.prefill_done = hearing->finish != engine::Finish::Cancelled || hearing->tokens > 0;
  answered.drafted = hearing->usage.drafted_tokens;
  answered.accepted = hearing->usage.accepted_tokens;
  const std::uint32_t computed = prompt - answered.reused;
  const std::uint32_t sampled = hearing->usage.completion_tokens;
  answered.prefill = {computed, seconds_between(start, first), computed};
  answered.decode = {hearing->tokens, seconds_between(first, end), sampled > 0 ? sampled - 1 : 0};
  if (hearing->finish == engine::Finish::Cancelled) {
    answered.ending = Ending::stopped;
  } else if (hearing->finish == engine::Finish::Stop) {
    answered.ending = hearing->stop_string ? Ending::stop_string : Ending::end_of_text;
  } else {
    answered.ending = hearing->tokens == question.limit ? Ending::limit : Ending::context;
  }
  return answered;
}

Result<Timing> compute(engine::HostedModel& host, std::vector<Token> prompt, std::uint32_t adapter,
                       const std::function<void(std::uint32_t done, std::uint32_t total)>& progress) {
  const auto total = static_cast<std::uint32_t>(prompt.size());
  const TextSink none = [](text::TokenId, std::string_view) { return true; };
  const auto hearing = std::make_shared<Hearing>(none);
  engine::Engine& engine = host.engine();
  const Clock::time_point start = Clock::now();
  const auto id = engine.submit({.prompt = std::move(prompt), .max_tokens = 0, .adapter = adapter}, hearing);
  if (!id) return fail(id.error().message);
  while (!hearing->ended) {
    const auto sequences = engine.sequences();
    if (!sequences.empty()) progress(std::min(sequences.front().computed, total), total);
    engine.step();
  }
  if (hearing->finish == engine::Finish::Failed) return fail(hearing->error);
  const std::uint32_t computed = total - hearing->usage.hit.tokens;
  return Timing{computed, seconds_between(start, Clock::now()), computed};
}

}  // namespace quire::cli
