// What happens after a device error: some requests end and the others are recomputed, or all of them end.
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "quire/base/check.h"
#include "quire/engine/engine.h"
#include "quire/engine/job.h"
#include "quire/engine/scheduler.h"

namespace quire::engine {

// The device refused an operation of these choices, so they end. If work was lost too, all others are recomputed.
void Engine::end_failed() {
  ++stats_.device_errors;
  const bool work_failed = fetch_device_errors() || scheduler_->lost();
  if (!device_lost_.empty()) return lose_device();
  std::vector<std::pair<RequestId, std::string>> failed;
  for (const Scheduler::Failure& failure : scheduler_->failures()) {
    failed.emplace_back(failure.choice->request, failure.error.message());
  }
  for (const auto& [id, message] : failed) {
    Job& job = *jobs_.at(id);
    if (!job.ended) end_job(job, {.why = Finish::Failed, .error = message});
  }
  if (work_failed) recover();
}

// Moves content to and from the tiers. What the device lost meanwhile is noticed here as well as in a step.
void Engine::advance_tiers() {
  if (!options_.tiers->advance(!scheduler_->running().empty())) device_failed();
}

void Engine::device_failed() {
  ++stats_.device_errors;
  (void)fetch_device_errors();
  device_lost_.empty() ? recover() : lose_device();
}

// The step is void. Its requests end. The state of all other sequences is on a device that cannot be trusted, so it is
// recomputed.
void Engine::lose_step(const Step& step, const PoolError& error) {
  ++stats_.device_errors;
  (void)fetch_device_errors();
  if (!device_lost_.empty()) return lose_device();
  const std::string message = error.message();
  const std::vector<Choice*> lost = step.choices;
  for (const Choice* choice : lost) {
    Job& job = *jobs_.at(choice->request);
    if (!job.ended) end_job(job, {.why = Finish::Failed, .error = message});
  }
  recover();
}

// Waits for the device after an error. Returns whether work failed that nobody had waited for yet. Nothing is submitted
// between the two fences, so only a device that is lost fails at the second one.
bool Engine::fetch_device_errors() {
  Device& device = pool_->arena().device();
  if (device.fence()) return false;
  if (const auto again = device.fence(); !again) {
    const PoolError& error = again.error();
    const bool has_words = error.code == PoolError::Code::WorkFailed && *error.what != '\0';
    device_lost_ =
        fmt::format("the device {} is lost: {}", device.name(), has_words ? std::string(error.what) : error.message());
  }
  return true;
}

// Nothing can be computed any more, so every request ends. The pool is only bookkeeping now, and stays sound.
void Engine::lose_device() {
  for (auto& [id, job] : jobs_) {
    if (!job->ended) end_job(*job, {.why = Finish::Failed, .error = device_lost_});
  }
  recover();
}

// Does not use the device.
void Engine::recover() {
  scheduler_->suspend_all();
  const auto ok = pool_->recover();
  QUIRE_CHECK(ok.has_value(), "no sequence is alive");
  const auto sound = pool_->check_integrity();
  QUIRE_CHECK(sound.has_value(), "an empty pool is sound");
}

}  // namespace quire::engine
