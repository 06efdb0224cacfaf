// A request inside the engine: the request itself, its choices, and its usage so far. Only the engine's own files
// include this.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quire/engine/choice.h"

namespace quire::engine {

struct Engine::Job {
  RequestId id = 0;
  Request request;
  std::shared_ptr<Listener> listener;
  std::vector<std::unique_ptr<Choice>> choices;
  std::uint32_t open = 0;  // choices that are not done
  bool siblings_started = false;
  bool ended = false;
  Clock::time_point submitted;
  bool admitted = false;
  Usage usage;
  std::string text;  // scratch: the text of the latest token
  // Positions of the prompt whose output was taken. A prompt that was preempted is computed again from its beginning;
  // its listener is told once.
  std::uint32_t taken = 0;
  std::vector<double> pooled;  // embedding: the sum so far

  bool tells_at_once() const { return choices.size() == request.n; }
  bool tells_prompt_logits() const {
    return (request.prompt_logits != Logits::None || request.prompt_logprobs >= 0) && !siblings_started;
  }
  bool embeds() const { return request.embedding != Pooling::None; }

  // Calls call() for the choices that pick a token where `choice` stands. The other choices of a request begin where
  // the prompt of the first one ends, and each samples a token of its own there.
  template <typename Call>
  void each_picking(Choice& choice, const Call& call) {
    if (choice.max_tokens == choice.prompt_tokens) return;  // max_tokens of the request is 0
    if (siblings_started) return call(choice);
    for (const auto& each : choices) call(*each);
  }
};

inline double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace quire::engine
