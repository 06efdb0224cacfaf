// Prefixes that lie in a tier: wait for them, compute them, or both.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "quire/base/numbers.h"
#include "quire/engine/scheduler.h"

namespace quire::engine {
namespace {

using Phase = tiers::FetchStatus::Phase;

// How long a choice waits for tiers that do not answer, in seconds, and how long for the next object.
constexpr double kPatience = 0.3;
// Computing that takes less is not worth a question to a tier that has not answered yet.
constexpr double kLeastPatience = 0.02;
constexpr double kLatency = 0.002;  // of a fetch, beside the time that reading its bytes takes
// Of the part that would be computed while the rest is fetched: less is not worth while, and with more than the rest
// left out, the tier does not help.
constexpr double kLeastPart = 0.1;
// How often a choice fetches again what was evicted before it ran. Each time may cost it its turn.
constexpr std::uint32_t kMostRetries = 1;
constexpr std::uint32_t kIdleSteps = 2;   // without a token of the front, and as long as kPatience: nobody computes it
constexpr std::size_t kLongerCosts = 32;  // bytes that the line of costs may grow by, for longer exponents

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Whose costs they are.
std::string costs_of(const SequencePool& pool, const EngineOptions& options) {
  const auto& words = pool.config().model.words;
  return fmt::format("{:016x}{:016x}{:016x}{:016x} {}", words[0], words[1], words[2], words[3], options.machine);
}

}  // namespace

// What the last server on the same disk has measured. Without it nothing is known before the first step.
void Scheduler::recall_costs() {
  if (options_->tiers == nullptr || options_->machine.empty()) return;
  costs_of_ = costs_of(*pool_, *options_);
  to_text({}, costs_of_, costs_text_);
  costs_text_.reserve(costs_text_.size() + kLongerCosts);  // steps write it without allocating
  const auto costs = costs_from_text(options_->tiers->kept_note(), costs_of_);
  if (!costs) return;
  cost_model_.start_with(*costs);
  pool_->set_costs({.token = costs->prefill_row, .token_per_context = costs->prefill_context});
}

void Scheduler::keep_costs() {
  if (options_->tiers == nullptr || options_->machine.empty()) return;
  to_text(cost_model_.costs(), costs_of_, costs_text_);
  options_->tiers->keep_note(costs_text_);
}

// The time to compute these tokens of a prompt. Infinite if nothing was measured, by this server or by the last one:
// then nothing speaks for computing what is there already.
double Scheduler::compute_seconds(std::uint32_t from, std::uint32_t to) const {
  if (!cost_model_.knows_anything()) return std::numeric_limits<double>::infinity();
  const StepCosts& costs = cost_model_.costs();
  return costs.prefill_seconds(from, to - from) + costs.base * divide_up(to - from, step_tokens_);
}

// Whether the choice waits for pages that are on their way from a tier.
bool Scheduler::waits_for_tiers(Choice& choice) {
  tiers::Tiers* tiers = options_->tiers;
  if (tiers == nullptr || choice.suspended || !choice.reuse) return false;
  if (choice.looked && choice.brought > 0 && choice.brought_at != room_changes_ && running_.size() < max_running_) {
    // It did not run at once. What it waited for may be gone again.
    choice.brought_at = room_changes_;
    if (choice.retries < kMostRetries && pool_->lookup(choice.tokens, choice.name_space).tokens < choice.brought) {
      ++choice.retries;
      choice.looked = false;
    }
  }
  if (choice.looked) return false;
  if (choice.fetch == 0) {
    if (choice.no_room_at == room_changes_) return false;
    choice.fetch = tiers->look(choice.tokens, choice.name_space);
    choice.looked = choice.fetch == 0;
    if (choice.looked) return false;
  }
  const tiers::FetchStatus status = tiers->status(choice.fetch);
  const double compute = compute_seconds(0, static_cast<std::uint32_t>(choice.tokens.size()));
  switch (status.phase) {
    case Phase::Looking:
      if (status.waited < std::clamp(compute / 2, kLeastPatience, kPatience)) return true;
      break;
    case Phase::Found:
      if (begin_fetch(choice, status)) return true;
      if (choice.fetch != 0) return false;  // it computes meanwhile
      break;
    case Phase::Fetching:
      if (status.since_progress < kPatience && !is_too_slow(choice, status)) return true;
      break;
    case Phase::Done:
      choice.brought = status.tokens;
      choice.brought_at = room_changes_;
      break;
  }
  end_fetch(choice);
  choice.looked = !status.no_room;
  if (status.no_room) choice.no_room_at = room_changes_;
  return false;
}

// Decides between fetching and computing. Returns whether the choice waits; a fetch that was not worth while is ended.
bool Scheduler::begin_fetch(Choice& choice, const tiers::FetchStatus& status) {
  tiers::Tiers* tiers = options_->tiers;
  const std::uint32_t block = pool_->layout().block_size;
  const std::uint32_t known = tiers->known_blocks(choice.fetch), end = status.tokens / block;
  const double fetch = status.seconds + kLatency;
  const double compute = compute_seconds(std::min(known * block, status.tokens), status.tokens);
  // Both at once, from both ends: they meet where both have taken the same time.
  const double computed = std::isinf(compute) ? 0 : fetch / (fetch + compute);
  const auto missing = static_cast<double>(end - std::min(known, end));
  std::uint32_t first = computed < kLeastPart ? known : known + static_cast<std::uint32_t>(computed * missing);
  // What is fetched behind computed blocks waits in staging memory. If it is too much for that, only one of both is
  // done.
  const bool one_only = first > known && !tiers->can_wait(choice.fetch, first);
  if (computed > (one_only ? 0.5 : 1 - kLeastPart)) {
    end_fetch(choice);
    choice.looked = true;
    return false;
  }
  if (one_only) first = known;
  tiers->fetch(choice.fetch, first);
  choice.front = {};
  if (first > known) {
    choice.front = {.end = first * block, .open = true, .at = Clock::now()};
    choice.looked = true;  // it is admitted now, and take_fetched() looks after the fetch
    ++counters_.tier_splits;
    return false;
  }
  choice.wait = {.bytes = status.bytes, .since = Clock::now()};
  ++counters_.tier_waits;
  return true;
}

// Whether computing what is still missing takes less time than it takes to fetch it, as fast as it has come so far. A
// store may become slow after it was asked.
bool Scheduler::is_too_slow(const Choice& choice, const tiers::FetchStatus& status) const {
  const double waited = seconds_since(choice.wait.since);
  const double compute = compute_seconds(std::min(status.brought, status.tokens), status.tokens);
  if (waited < kPatience || std::isinf(compute)) return false;
  const auto read = static_cast<double>(choice.wait.bytes - std::min(status.bytes, choice.wait.bytes));
  return waited * static_cast<double>(status.bytes) > compute * read;
}

// Choices that compute the front of a prefix while the rest is fetched: when the rest has arrived, the choice goes on
// after it. It leaves its place for that, and admit() gives it back with all that is in the pool now.
void Scheduler::take_fetched() {
  tiers::Tiers* tiers = options_->tiers;
  if (tiers == nullptr) return;
  for (const Tenant* tenant : tenants_.all()) {
    for (Choice* choice : tenant->waiting) {
      // It was not admitted meanwhile. Others need the staging memory; it looks again when there may be room.
      if (!choice->looked || choice->fetch == 0) continue;
      if (tiers->status(choice->fetch).since_progress <= kPatience) continue;
      end_fetch(*choice);
      choice->looked = false;
      choice->no_room_at = room_changes_;
    }
  }
  for (std::size_t i = 0; i < running_.size(); ++i) {
    Choice& choice = *running_[i];
    if (choice.fetch == 0) continue;
    const tiers::FetchStatus status = tiers->status(choice.fetch);
    // What was fetched waits for the front, however long that takes, but not for one that is not computed.
    Choice::Front& front = choice.front;
    const bool ahead = std::exchange(front.open, choice.position < front.end);
    ++front.idle_steps;
    if (ahead && choice.position > front.position) {
      front.at = Clock::now();
      front.position = choice.position;
      front.idle_steps = 0;
    }
    const bool idle = std::min(status.since_progress, seconds_since(front.at)) > kPatience &&
                      (front.idle_steps >= kIdleSteps || !front.open);
    const bool over = choice.position >= status.tokens || idle || choice.decodes();
    if (status.phase != Phase::Done && !over) continue;
    end_fetch(choice);
    const Hit now = pool_->lookup(choice.tokens, choice.name_space);
    if (choice.decodes() || now.tokens < choice.position + pool_->layout().block_size) continue;
    suspend(choice, false);
    --choice.suspensions;
    --counters_.suspensions_by_recompute;
    choice.looked = true;
    --i;
  }
}

void Scheduler::end_fetch(Choice& choice) {
  if (choice.fetch == 0) return;
  const tiers::FetchStatus status = options_->tiers->status(choice.fetch);
  for (std::size_t i = 0; i < kTierKinds; ++i) choice.from[i] += status.from[i];
  options_->tiers->end(choice.fetch);
  choice.fetch = 0;
}

}  // namespace quire::engine
