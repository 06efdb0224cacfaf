#include "quire/server/engine_calls.h"

#include <fmt/format.h>

namespace quire::server {

Outcome outcome_of(const engine::Refusal& refusal) {
  using Why = engine::Refusal::Why;
  if (refusal.why == Why::QueueFull) return Outcome::QueueFull;
  if (refusal.why == Why::RateLimited) return Outcome::RateLimited;
  if (refusal.why == Why::DeviceLost) return Outcome::Failed;
  return refusal.why == Why::Stopping ? Outcome::Stopping : Outcome::Invalid;
}

std::optional<Failure> failure_of(const Arrival& finished, std::chrono::milliseconds request_timeout) {
  using engine::Finish;
  switch (finished.finish) {
    case Finish::Stop:
    case Finish::Length: return std::nullopt;
    case Finish::Cancelled:
      return Failure{{.status = 503,
                      .type = "server_error",
                      .message = "the server is shutting down, and the answer was not complete",
                      .code = "stopping"},
                     Outcome::Stopping};
    case Finish::Deadline:
      return Failure{{.status = 504,
                      .type = "timeout_error",
                      .message = fmt::format("the answer was not complete after {:g} seconds",
                                             std::chrono::duration<double>(request_timeout).count()),
                      .code = "timeout"},
                     Outcome::Deadline};
    case Finish::Failed:
      return Failure{{.status = 500, .type = "server_error", .message = finished.error, .code = "model_failed"},
                     Outcome::Failed};
  }
  return std::nullopt;
}

}  // namespace quire::server
