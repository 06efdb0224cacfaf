#include "quire/engine/scheduler.h"

#include <algorithm>

#include "quire/base/check.h"

namespace quire::engine {
namespace {

using State = Choice::State;

// Those who wait for somebody's pages are passed over, but only so many of them in one step.
constexpr std::uint32_t kLooks = 128;
// Nobody waits for more than so many others' pages, one after the other: in a small pool they may be gone each time.
constexpr std::uint32_t kMostWaits = 4;
// How much of what was measured before still counts.
constexpr double kMemory = 0.8;
constexpr double kRise = 0.1;
constexpr std::uint32_t kLookAfter = 16;  // steps
// By so many seconds a step may always be longer: nobody sees them, and small models read short prompts in them.
constexpr double kUnseen = 3e-3;
// A queue of this length takes nothing from the heap as it grows.
constexpr std::size_t kQueue = 1024;

void blend(double& average, double value) {
  average = average == 0 ? value : kMemory * average + (1 - kMemory) * value;
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

bool by_rank(const Choice* a, const Choice* b) { return a->rank < b->rank; }

}  // namespace

Scheduler::Scheduler(SequencePool& pool, const EngineOptions& options, std::uint32_t step_tokens,
                     std::uint32_t max_running)
    : pool_(&pool), options_(&options), step_tokens_(step_tokens), max_running_(max_running) {
  for (const PageShape& group : pool.layout().groups) has_windows_ = has_windows_ || group.window != 0;
  running_.reserve(max_running);
  batch_.reserve(max_running);
  demands_.reserve(max_running + 1);
  waiting_.reserve(std::min<std::size_t>(options.queue_limit, kQueue) + max_running);
}

void Scheduler::insert(std::vector<Choice*>& list, Choice& choice) {
  list.insert(std::ranges::upper_bound(list, &choice, by_rank), &choice);
}

bool Scheduler::erase(std::vector<Choice*>& list, const Choice& choice) {
  const auto at = std::ranges::find(list, &choice);
  if (at == list.end()) return false;
  list.erase(at);
  return true;
}

void Scheduler::add(Choice& choice) {
  if (choice.state == State::Waiting) ++queued_;
  insert(waiting_, choice);
}

void Scheduler::add_running(Choice& choice, SequenceId sequence) {
  choice.sequence = sequence;
  choice.state = State::Writing;
  insert(running_, choice);
}

void Scheduler::remove(Choice& choice) {
  if (choice.sequence.valid()) {
    const auto ok = pool_->release(choice.sequence);
    QUIRE_CHECK(ok.has_value(), "a running choice has a live sequence");
    choice.sequence = SequenceId{};
    erase(running_, choice);
  } else if (erase(waiting_, choice) && choice.state == State::Waiting) {
    --queued_;
  }
  if (choice.saved) host_bytes_ -= choice.saved->bytes;
  choice.saved.reset();
}

std::span<const Scheduled> Scheduler::schedule(EngineStats& stats) {
  for (;;) {
    batch_.clear();
    admit(stats);
    add_writers(stats);
    add_readers(stats);
    if (!batch_.empty() || running_.empty()) return batch_;
    // Everybody waits in place for everybody else. The last in rank gives way, whether or not it got on since it came.
    QUIRE_CHECK(running_.size() > 1, "a request that is admitted fits into the pool alone");
    suspend(*running_.back(), stats);
  }
}

// --- bringing in

void Scheduler::admit(EngineStats& stats) {
  std::size_t at = 0;
  for (std::uint32_t looks = 0; at < waiting_.size() && looks < kLooks; ++looks) {
    Choice& choice = *waiting_[at];
    if (choice.state == State::Waiting && waits_for_prefix(choice, stats)) {
      ++at;
      continue;
    }
    while (!bring_in(choice, stats)) {
      if (!preempt_for(choice, stats)) return;  // nobody overtakes who waits for memory
    }
    erase(waiting_, choice);
    insert(running_, choice);
  }
}

bool Scheduler::bring_in(Choice& choice, EngineStats& stats) {
  if (running_.size() == max_running_) return false;
  // Those who run shall not have to make room for it at once, nor stop half way through a prompt that has not all its
  // room yet.
  demands_.clear();
  for (const Choice* other : running_) {
    const std::uint32_t left = pool_->config().max_tokens - other->position;
    demands_.push_back(
        {other->sequence, other->writes() ? std::min(left, pool_->layout().block_size) : other->pending()});
  }
  if (choice.saved) {
    if (!pool_->can_restore(*choice.saved, choice.pending(), demands_)) return false;
    const auto start = Clock::now();
    const auto sequence = pool_->restore(*choice.saved, choice.request);
    if (!sequence) return false;
    if (!pool_->reserve(*sequence, choice.pending())) {
      const auto ok = pool_->release(*sequence);
      QUIRE_CHECK(ok.has_value(), "the sequence was just made");
      return false;
    }
    blend(copy_seconds_, seconds_since(start) / static_cast<double>(choice.saved->bytes));
    choice.sequence = *sequence;
    choice.position = static_cast<std::uint32_t>(choice.saved->tokens.size());
    host_bytes_ -= choice.saved->bytes;
    choice.saved.reset();
  } else if (!begin(choice, demands_, stats)) {
    return false;
  }
  if (choice.state == State::Waiting) --queued_;
  choice.safe = choice.suspensions > 0;
  if (choice.safe) ++stats.resumed;
  choice.state = choice.generated() > 0 && choice.pending() == 1 ? State::Writing : State::Reading;
  choice.leader = nullptr;
  return true;
}

// A sequence for all the tokens the choice has; what the pool knows of them need not be computed.
bool Scheduler::begin(Choice& choice, std::span<const SequencePool::Demand> others, EngineStats& stats) {
  SequencePool::Request request{
      .prompt = choice.tokens, .name_space = choice.name_space, .request = choice.request, .reuse = choice.reuse};
  const auto length = static_cast<std::uint32_t>(choice.tokens.size());
  if (!pool_->can_admit(request, length, step_tokens_, others)) return false;
  for (;;) {
    const auto created = pool_->create(request);
    if (!created) return false;
    // All the room is taken now, so that the reading does not stop half way. Where layers forget, that would be more
    // than is ever needed at once: there it is the room for the first piece.
    const std::uint32_t missing = length - created->hit.tokens;
    const bool has_room = pool_->reserve(created->id, has_windows_ ? std::min(missing, step_tokens_) : missing) &&
                          pool_->can_reserve(others);
    if (has_room) {
      choice.sequence = created->id;
      choice.position = created->hit.tokens;
      plan_stops(choice, created->hit);
      if (!choice.admitted_before) {
        choice.admitted_before = true;
        choice.hit = created->hit;
        stats.prompt_tokens += choice.prompt_tokens;
        stats.cached_tokens += created->hit.tokens;
      }
      return true;
    }
    const auto ok = pool_->release(created->id);
    QUIRE_CHECK(ok.has_value(), "the sequence was just made");
    // What it would reuse may itself be in the way: can_admit() may have found room only without it.
    if (!request.reuse || !running_.empty()) return false;
    request.reuse = false;
  }
}

// Where recurrent states shall be kept while this prompt is read: at its last block boundary, and in growing steps
// before it. Whoever shares all but the last d tokens then has to compute at most about d more again. And where the
// pool knew the pages but had no state to go on from, so that the next one finds one.
void Scheduler::plan_stops(Choice& choice, const Hit& hit) const {
  choice.stops.clear();
  if (!pool_->layout().has_recurrent() || !choice.reuse || !pool_->config().prefix_cache) return;
  const std::uint32_t block = pool_->layout().block_size;
  const std::uint32_t last = (static_cast<std::uint32_t>(choice.tokens.size()) - 1) / block * block;
  for (std::uint32_t back = 0; back < last && last - back > hit.tokens; back = 2 * back + block) {
    if (back >= pool_->config().checkpoint_interval) break;  // the pool keeps some that far apart by itself
    choice.stops.push_back(last - back);
  }
  if (const std::uint32_t matched = hit.matched / block * block; matched > hit.tokens) choice.stops.push_back(matched);
  std::ranges::sort(choice.stops);
}

// Whether a running choice is about to publish pages that this one would reuse. Then it waits for them, and a recurrent
// model is told to keep a state where the two part. Nobody waits for one behind it in rank, which may have to wait
// itself for all those between them.
bool Scheduler::waits_for_prefix(Choice& choice, EngineStats& stats) {
  if (choice.leader != nullptr) {
    const auto at = std::ranges::find(running_, choice.leader);
    const bool same = at != running_.end() && (*at)->rank.number == choice.leader_number;
    if (same && (*at)->state == State::Reading && (*at)->position < choice.leader_until) return true;
    choice.leader = nullptr;
  }
  if (!choice.reuse || !pool_->config().prefix_cache || choice.waits == kMostWaits) return false;
  const std::uint32_t block = pool_->layout().block_size;
  Choice* best = nullptr;
  std::uint32_t best_until = 0;
  for (Choice* other : running_) {
    if (choice.rank < other->rank) break;
    if (other->state != State::Reading || other->name_space != choice.name_space || !other->reuse) continue;
    const std::size_t usable = std::min(choice.tokens.size() - 1, other->tokens.size());
    const auto end = choice.tokens.begin() + static_cast<std::ptrdiff_t>(usable);
    const auto common = std::mismatch(choice.tokens.begin(), end, other->tokens.begin()).first - choice.tokens.begin();
    const std::uint32_t until = static_cast<std::uint32_t>(common) / block * block;
    if (until > other->position && until > best_until) {
      best = other;
      best_until = until;
    }
  }
  if (best == nullptr) return false;
  const Hit now = pool_->lookup(choice.tokens, choice.name_space);
  if (now.tokens >= best_until) return false;
  choice.leader = best;
  choice.leader_number = best->rank.number;
  choice.leader_until = best_until;
  if (pool_->layout().has_recurrent()) {
    const auto at = std::ranges::lower_bound(best->stops, best_until);
    if (at == best->stops.end() || *at != best_until) best->stops.insert(at, best_until);
  }
  stats.prefix_waits += choice.waits++ == 0;
  return true;
}

// --- the step

void Scheduler::add_writers(EngineStats& stats) {
  demands_.clear();
  for (Choice* choice : running_) {
    if (!choice->writes()) continue;
    batch_.push_back({.choice = choice, .tokens = 1, .logits = true});
    demands_.push_back({choice->sequence, 1});
  }
  if (demands_.empty() || pool_->reserve(demands_)) return;

  // There is not enough for all: in the order of rank, each takes from those behind it.
  demands_.clear();
  batch_.clear();
  for (std::size_t i = 0; i < running_.size(); ++i) {  // whoever goes stands behind i
    Choice& choice = *running_[i];
    if (!choice.writes()) continue;
    demands_.push_back({choice.sequence, 1});
    while (!pool_->can_reserve(demands_) && make_room_behind(choice, stats)) {
    }
    if (pool_->can_reserve(demands_)) {
      batch_.push_back({.choice = &choice, .tokens = 1, .logits = true});
    } else {
      demands_.pop_back();
    }
  }
  if (!demands_.empty() && !pool_->reserve(demands_)) batch_.clear();  // the device refused: the next step tries again
}

void Scheduler::add_readers(EngineStats& stats) {
  std::uint32_t budget =
      step_tokens_ - std::min<std::uint32_t>(step_tokens_, static_cast<std::uint32_t>(batch_.size()));
  if (!batch_.empty() && options_->patience > 0 && write_step_seconds_ > 0 && read_seconds_ > 0) {
    // Now and then nothing is read, to know how long such a step takes by now.
    if (++steps_with_reading_ % kLookAfter == 0) return;
    const double tokens = std::max(options_->patience * write_step_seconds_, kUnseen) / read_seconds_;
    if (tokens < budget) budget = std::max(1u, static_cast<std::uint32_t>(tokens));  // however impatient they are
  }
  for (std::size_t i = 0; i < running_.size() && budget > 0; ++i) {
    Choice& choice = *running_[i];
    if (choice.state != State::Reading) continue;
    const std::uint32_t end = piece_end(choice, budget);
    const std::uint32_t tokens = end - choice.position;
    while (!pool_->reserve(choice.sequence, tokens) && make_room_behind(choice, stats)) {
    }
    if (!pool_->reserve(choice.sequence, tokens)) continue;
    batch_.push_back({.choice = &choice,
                      .tokens = tokens,
                      .logits = end == choice.tokens.size(),
                      .checkpoint = std::ranges::binary_search(choice.stops, end)});
    budget -= tokens;
  }
}

// Where the next piece of a prompt ends. Recurrent states can be kept only there.
std::uint32_t Scheduler::piece_end(const Choice& choice, std::uint32_t budget) const {
  auto end = static_cast<std::uint32_t>(choice.tokens.size());
  end = std::min(end, choice.position + budget);
  if (!pool_->layout().has_recurrent()) return end;
  if (const auto due = pool_->next_checkpoint(choice.sequence); due && *due > choice.position) {
    end = std::min(end, *due);
  }
  const auto stop = std::ranges::upper_bound(choice.stops, choice.position);
  return stop == choice.stops.end() ? end : std::min(end, *stop);
}

// --- making room

bool Scheduler::make_room_behind(const Choice& choice, EngineStats& stats) {
  Choice* victim = cheapest(choice, false);
  if (victim == nullptr) return false;
  suspend(*victim, stats);
  return true;
}

// A waiting choice may take the place of one of lower priority.
bool Scheduler::preempt_for(const Choice& choice, EngineStats& stats) {
  Choice* victim = cheapest(choice, true);
  if (victim == nullptr) return false;
  suspend(*victim, stats);
  return true;
}

Choice* Scheduler::cheapest(const Choice& behind, bool lower_priority_only) {
  Choice* best = nullptr;
  double best_seconds = 0;
  for (Choice* choice : running_) {
    if (choice == &behind || choice->safe || choice->rank < behind.rank) continue;
    if (lower_priority_only && choice->priority >= behind.priority) continue;
    Cost cost;
    if (!cost_of(*choice, cost)) continue;
    if (best == nullptr || cost.seconds <= best_seconds) {
      best = choice;
      best_seconds = cost.seconds;
    }
  }
  return best;
}

// What it takes to bring the choice back; false: suspending it would give nothing.
bool Scheduler::cost_of(const Choice& choice, Cost& cost) const {
  const auto holding = pool_->holding(choice.sequence);
  if (!holding || holding->own_bytes == 0) return false;
  const double copy = 2 * copy_seconds_ * static_cast<double>(holding->saved_bytes);
  const double recompute = read_seconds_ * (choice.position - holding->shared_tokens);
  // Of a prompt of which nothing was read there is nothing to copy. Where layers forget, one that is half read may
  // never find the room that can_restore() wants for the rest of it in one piece.
  const bool copyable = choice.position > 0 && !(has_windows_ && choice.state == State::Reading);
  const bool allowed =
      copyable && holding->saved_bytes <= options_->host_bytes - std::min(options_->host_bytes, host_bytes_);
  cost.copy = allowed && options_->suspend_by != SuspendBy::Recompute &&
              (options_->suspend_by == SuspendBy::Copy || copy < recompute);
  cost.seconds = cost.copy ? copy : recompute;
  cost.bytes = holding->saved_bytes;
  return true;
}

void Scheduler::suspend(Choice& choice, EngineStats& stats) {
  Cost cost;
  (void)cost_of(choice, cost);
  if (cost.copy) {
    const auto start = Clock::now();
    if (auto saved = pool_->save(choice.sequence)) {
      blend(copy_seconds_, seconds_since(start) / static_cast<double>(std::max<std::uint64_t>(1, saved->bytes)));
      choice.saved = std::move(*saved);
      host_bytes_ += choice.saved->bytes;
      stats.bytes_saved += choice.saved->bytes;
    }
  }
  ++(choice.saved ? stats.suspensions_by_copy : stats.suspensions_by_recompute);
  const auto ok = pool_->release(choice.sequence);
  QUIRE_CHECK(ok.has_value(), "a running choice has a live sequence");
  choice.sequence = SequenceId{};
  if (!choice.saved) choice.position = 0;
  choice.state = State::Suspended;
  // A prompt that is being read may take from an answer that was to have its token in this step.
  std::erase_if(batch_, [&](const Scheduled& item) { return item.choice == &choice; });
  ++choice.suspensions;
  erase(running_, choice);
  insert(waiting_, choice);
}

void Scheduler::measure(double model_seconds) {
  std::uint32_t written = 0, read = 0;
  for (const Scheduled& item : batch_) (item.choice->writes() ? written : read) += item.tokens;
  if (read == 0) {
    // A step that was held up by something else on this machine says little: down at once, up slowly.
    if (write_step_seconds_ == 0 || model_seconds < write_step_seconds_) {
      write_step_seconds_ = model_seconds;
    } else {
      write_step_seconds_ += kRise * (model_seconds - write_step_seconds_);
    }
  } else if (written == 0) {
    blend(read_seconds_, model_seconds / read);
  } else if (const double reading = model_seconds - write_step_seconds_; reading > 0) {
    blend(read_seconds_, reading / read);
  }
}

}  // namespace quire::engine
