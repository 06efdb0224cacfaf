// What all calls of the engine share: how its events come to the loop, and how its failures are told.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "quire/server/api_error.h"
#include "quire/server/inbox.h"
#include "quire/server/metrics.h"

namespace quire::server {

// Passes the events of one prompt to the loop.
class PromptListener final : public engine::Listener {
 public:
  PromptListener(std::shared_ptr<Inbox> inbox, std::shared_ptr<Receiver> receiver, std::uint32_t prompt)
      : inbox_(std::move(inbox)), receiver_(std::move(receiver)), prompt_(prompt) {}
  void on_event(const engine::Event& event) override { inbox_->push(receiver_, Arrival(event, prompt_)); }

 private:
  std::shared_ptr<Inbox> inbox_;
  std::shared_ptr<Receiver> receiver_;
  std::uint32_t prompt_;
};

Outcome outcome_of(const engine::Refusal& refusal);

// How a request that has finished failed; empty: it did not. The client did not cancel it: then nobody would listen.
struct Failure {
  ApiError error;
  Outcome outcome;
};
std::optional<Failure> failure_of(const Arrival& finished, std::chrono::milliseconds request_timeout);

}  // namespace quire::server
