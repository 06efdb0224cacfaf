// Moves the engine's events from the engine's thread to the loop's. Events that arrive before the loop has
// taken the last ones travel together, so the loop wakes about once per step and not once per event.
//
// Who may call: push() any thread; deliver() runs on the loop's thread.
// What holds: the events of one sender arrive in their order. A receiver that throws loses its own events alone.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quire/engine/request.h"
#include "quire/server/http.h"

namespace quire::server {

// A copy of an engine::Event that can be kept.
struct Arrival {
  engine::Event::Kind kind = engine::Event::Kind::Token;
  std::uint32_t prompt = 0;  // index among the prompts of the call
  std::uint32_t choice = 0;
  std::uint32_t rank = 0;  // of a token of the prompt
  Token token = 0;
  std::string text;
  float logprob = 0;
  std::vector<engine::TokenLogprob> alternatives;
  std::vector<float> vector;  // Embedding
  engine::Finish finish = engine::Finish::Stop;
  std::string error;  // if the answer failed
  std::string stop;   // the stop string that ended it
  bool last = false;
  engine::Usage usage;
  std::optional<engine::Refusal> refusal;
  engine::Clock::time_point at;  // when it happened

  Arrival(const engine::Event& event, std::uint32_t of_prompt)
      : kind(event.kind),
        prompt(of_prompt),
        choice(event.choice),
        rank(event.rank),
        token(event.token),
        text(event.text),
        logprob(event.logprob),
        alternatives(event.alternatives.begin(), event.alternatives.end()),
        finish(event.finish),
        error(event.error),
        stop(event.stop),
        last(event.last),
        at(engine::Clock::now()) {
    if (event.kind == engine::Event::Kind::Embedding) vector.assign(event.logits.begin(), event.logits.end());
    if (event.usage != nullptr) usage = *event.usage;
    if (event.refusal != nullptr) refusal = *event.refusal;
  }
};

class Receiver {
 public:
  virtual ~Receiver() = default;
  virtual void receive(const Arrival& arrival) = 0;
  // receive() has thrown (out of memory), and the arrival is lost: the call ends with an error.
  virtual void broken() = 0;
};

class Inbox : public std::enable_shared_from_this<Inbox> {
 public:
  // The loop outlives all senders.
  explicit Inbox(Loop& loop) : loop_(&loop) {}

  void push(std::shared_ptr<Receiver> receiver, Arrival arrival) {
    bool wake = false;
    {
      const std::lock_guard lock(mutex_);
      wake = waiting_.empty();
      waiting_.emplace_back(std::move(receiver), std::move(arrival));
    }
    if (wake) loop_->post([self = shared_from_this()] { self->deliver(); });
  }

 private:
  void deliver() {
    auto arrived = std::move(arrived_);
    {
      const std::lock_guard lock(mutex_);
      arrived.swap(waiting_);
    }
    for (auto& [receiver, arrival] : arrived) {
      try {
        receiver->receive(arrival);
      } catch (const std::exception&) {
        end(*receiver);
      }
    }
    arrived.clear();
    arrived_ = std::move(arrived);
  }

  static void end(Receiver& receiver) {
    try {
      receiver.broken();
    } catch (const std::exception&) {  // there is no memory for the error either
    }
  }

  Loop* loop_;
  std::mutex mutex_;
  std::vector<std::pair<std::shared_ptr<Receiver>, Arrival>> waiting_;
  std::vector<std::pair<std::shared_ptr<Receiver>, Arrival>> arrived_;  // empty: memory for deliver()
};

}  // namespace quire::server
