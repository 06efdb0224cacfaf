#include "quire/engine/scheduler.h"

#include <algorithm>

#include "quire/base/check.h"

namespace quire::engine {
namespace {

using State = Choice::State;

// The most waiting choices that one step looks at. Those that wait for another choice's pages are passed over.
constexpr std::uint32_t kLooks = 128;
// How often a choice may wait for another choice's pages. In a small pool they may be evicted each time.
constexpr std::uint32_t kMostWaits = 4;
// Weight of the earlier measurements in a moving average.
constexpr double kMemory = 0.8;
constexpr double kRise = 0.1;
constexpr std::uint32_t kMeasureEvery = 16;  // steps
// Prefill may always make a step this many seconds longer. Users do not notice it, and it is enough for small models to
// prefill short prompts.
constexpr double kUnseen = 3e-3;
constexpr std::uint64_t kMeasuredCopy = 1 << 16;  // bytes
// Room for this many choices is reserved, so that a growing queue does not allocate.
constexpr std::size_t kQueue = 1024;

void blend(double& average, double value) {
  average = average == 0 ? value : kMemory * average + (1 - kMemory) * value;
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

bool by_rank(const Choice* a, const Choice* b) { return a->rank < b->rank; }

bool is_device_error(const PoolError& error) {
  return error.code == PoolError::Code::DeviceFailure || error.code == PoolError::Code::WorkFailed;
}

}  // namespace

Scheduler::Scheduler(SequencePool& pool, std::unique_ptr<HostArena> host_arena, const EngineOptions& options,
                     std::uint32_t step_tokens, std::uint32_t max_running, std::uint32_t max_logits)
    : pool_(&pool),
      host_arena_(std::move(host_arena)),
      options_(&options),
      step_tokens_(step_tokens),
      max_running_(max_running),
      max_logits_(max_logits),
      step_{Batch(step_tokens, max_running, static_cast<std::uint32_t>(pool.layout().groups.size())), {}} {
  for (const PageShape& group : pool.layout().groups) has_windows_ = has_windows_ || group.window != 0;
  running_.reserve(max_running);
  entries_.reserve(max_running);
  step_.choices.reserve(max_running);
  others_.reserve(max_running);
  failures_.reserve(max_running);
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
  choice.state = State::Decode;
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
  choice.suspended.reset();
}

Step& Scheduler::schedule() {
  failures_.clear();
  lost_ = false;
  for (;;) {
    entries_.clear();
    step_.choices.clear();
    admit();
    add_decodes();
    add_prefills();
    if (!entries_.empty() || running_.empty() || !failures_.empty() || lost_) break;
    // All running choices wait for memory. The last in rank is preempted, even if it was just resumed.
    QUIRE_CHECK(running_.size() > 1, "a request that is admitted fits into the pool alone");
    suspend(*running_.back(), true);
  }
  pack();
  return step_;
}

// Makes the batch from the planned entries.
void Scheduler::pack() {
  step_.batch.clear();
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Choice& choice = *step_.choices[i];
    step_.batch.add(choice.sequence, std::span(choice.tokens).subspan(choice.position, entries_[i].rows),
                    entries_[i].logits, entries_[i].checkpoint);
  }
}

void Scheduler::plan(Choice& choice, std::uint32_t tokens, Logits logits, bool checkpoint) {
  entries_.push_back({.sequence = choice.sequence, .rows = tokens, .logits = logits, .checkpoint = checkpoint});
  step_.choices.push_back(&choice);
}

// Records a device error. It ends the choice that it concerns. Lost work concerns all choices.
void Scheduler::note(Choice& choice, const PoolError& error) {
  if (!is_device_error(error)) return;
  lost_ = lost_ || error.code == PoolError::Code::WorkFailed;
  failures_.push_back({&choice, error});
}

// --- admission

void Scheduler::admit() {
  std::size_t at = 0;
  for (std::uint32_t looks = 0; at < waiting_.size() && looks < kLooks && !lost_; ++looks) {
    Choice& choice = *waiting_[at];
    if (choice.state == State::Waiting && waits_for_prefix(choice)) {
      ++at;
      continue;
    }
    Admission admission = try_admit(choice);
    while (admission == Admission::NoRoom) {
      if (!preempt_behind(choice, true)) return;  // no choice overtakes one that waits for memory
      admission = try_admit(choice);
    }
    if (admission == Admission::Failed) {
      ++at;  // the engine ends it
      continue;
    }
    erase(waiting_, choice);
    insert(running_, choice);
  }
}

Scheduler::Admission Scheduler::try_admit(Choice& choice) {
  if (running_.size() == max_running_) return Admission::NoRoom;
  // Admission leaves enough memory for the running choices: a block for each that decodes, the rest of the prompt for
  // each in prefill. Otherwise they would preempt this choice at once or stop half way through a prompt.
  others_.clear();
  for (const Choice* other : running_) {
    const std::uint32_t left = pool_->config().max_tokens - other->position;
    others_.push_back({.sequence = other->sequence,
                       .rows = other->decodes() ? std::min(left, pool_->layout().block_size) : other->pending()});
  }
  const Admission admission = choice.suspended ? restore(choice) : start(choice);
  if (admission != Admission::Done) return admission;
  if (choice.state == State::Waiting) --queued_;
  choice.just_resumed = choice.suspensions > 0;
  if (choice.just_resumed) ++counters_.resumed;
  choice.state = choice.generated() > 0 && choice.pending() == 1 ? State::Decode : State::Prefill;
  choice.leader = nullptr;
  return Admission::Done;
}

// Resumes a suspended choice from the copy of its sequence.
Scheduler::Admission Scheduler::restore(Choice& choice) {
  const auto tokens = std::span<const Token>(choice.tokens).first(choice.position);
  if (const auto fits = pool_->can_resume(*choice.suspended, tokens, choice.pending(), others_); !fits) {
    if (fits.error().code != PoolError::Code::PrefixGone) return Admission::NoRoom;
    // Pages that it shared were evicted. The sequence is recomputed from its tokens.
    ++counters_.copies_lost;
    choice.suspended.reset();
    choice.position = 0;
    return start(choice);
  }
  const auto begin = Clock::now();
  const auto sequence = pool_->resume(*choice.suspended, tokens, choice.request);
  if (!sequence) {
    note(choice, sequence.error());
    return is_device_error(sequence.error()) ? Admission::Failed : Admission::NoRoom;
  }
  if (const auto room = pool_->reserve(*sequence, choice.pending()); !room) {
    const auto ok = pool_->release(*sequence);
    QUIRE_CHECK(ok.has_value(), "the sequence was just made");
    note(choice, room.error());
    return is_device_error(room.error()) ? Admission::Failed : Admission::NoRoom;
  }
  note_copy(begin, choice.suspended->bytes);
  choice.sequence = *sequence;
  choice.suspended.reset();
  return Admission::Done;
}

// Creates a sequence for all tokens of the choice. A prefix that is in the cache is not computed again.
Scheduler::Admission Scheduler::start(Choice& choice) {
  const SequencePool::Request request{
      .prompt = choice.tokens, .name_space = choice.name_space, .request = choice.request, .reuse = choice.reuse};
  const auto created = pool_->admit(request, static_cast<std::uint32_t>(choice.tokens.size()), step_tokens_, others_);
  if (!created) {
    note(choice, created.error());
    return is_device_error(created.error()) ? Admission::Failed : Admission::NoRoom;
  }
  choice.sequence = created->id;
  choice.position = created->hit.tokens;
  plan_checkpoints(choice, created->hit);
  if (!choice.admitted_before) {
    choice.admitted_before = true;
    choice.hit = created->hit;
    counters_.prompt_tokens += choice.prompt_tokens;
    counters_.cached_tokens += created->hit.tokens;
  }
  return Admission::Done;
}

// Chooses the checkpoint positions for the prefill of this prompt: its last block boundary, and positions at growing
// distances before it. A later prompt that shares all but the last d tokens then recomputes at most about d tokens
// more. One more checkpoint goes where the pool had the pages but no state to resume from; the next such prompt finds
// it there.
void Scheduler::plan_checkpoints(Choice& choice, const Hit& hit) const {
  choice.checkpoint_positions.clear();
  if (!pool_->layout().has_recurrent() || !choice.reuse || !pool_->config().prefix_cache) return;
  const std::uint32_t block = pool_->layout().block_size;
  const std::uint32_t last = (static_cast<std::uint32_t>(choice.tokens.size()) - 1) / block * block;
  for (std::uint32_t back = 0; back < last && last - back > hit.tokens; back = 2 * back + block) {
    if (back >= pool_->config().checkpoint_interval) break;  // the pool itself keeps checkpoints at this interval
    choice.checkpoint_positions.push_back(last - back);
  }
  if (const std::uint32_t matched = hit.matched / block * block; matched > hit.tokens) {
    choice.checkpoint_positions.push_back(matched);
  }
  std::ranges::sort(choice.checkpoint_positions);
}

// Whether a running choice is about to publish pages that this one can reuse. Then this one waits for them, and a
// recurrent model keeps a checkpoint where the two prompts diverge. A choice never waits for one behind it in rank,
// because that one may itself wait for all those between them.
bool Scheduler::waits_for_prefix(Choice& choice) {
  if (choice.leader != nullptr) {
    const auto at = std::ranges::find(running_, choice.leader);
    const bool same = at != running_.end() && (*at)->rank.number == choice.leader_number;
    if (same && (*at)->state == State::Prefill && (*at)->position < choice.leader_until) return true;
    choice.leader = nullptr;
  }
  if (!choice.reuse || !pool_->config().prefix_cache || choice.waits == kMostWaits) return false;
  const std::uint32_t block = pool_->layout().block_size;
  Choice* best = nullptr;
  std::uint32_t best_until = 0;
  for (Choice* other : running_) {
    if (choice.rank < other->rank) break;
    if (other->state != State::Prefill || other->name_space != choice.name_space || !other->reuse) continue;
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
    auto& positions = best->checkpoint_positions;
    const auto at = std::ranges::lower_bound(positions, best_until);
    if (at == positions.end() || *at != best_until) positions.insert(at, best_until);
  }
  counters_.prefix_waits += choice.waits++ == 0;
  return true;
}

// --- the step

void Scheduler::add_decodes() {
  for (Choice* choice : running_) {
    if (choice->decodes()) plan(*choice, 1, Logits::Last, false);
  }
  if (entries_.empty() || pool_->reserve(entries_)) return;

  // There is not enough memory for all. In the order of rank, each choice preempts those behind it.
  entries_.clear();
  step_.choices.clear();
  for (std::size_t i = 0; i < running_.size(); ++i) {  // only choices behind i are suspended
    Choice& choice = *running_[i];
    if (choice.decodes() && reserve(choice, 1)) plan(choice, 1, Logits::Last, false);
  }
}

void Scheduler::add_prefills() {
  const auto decodes = static_cast<std::uint32_t>(entries_.size());
  std::uint32_t budget = step_tokens_ - std::min(step_tokens_, decodes);
  std::uint32_t logits = max_logits_ - std::min(max_logits_, decodes);
  if (decodes > 0 && options_->patience > 0 && decode_step_seconds_ > 0 && prefill_seconds_ > 0) {
    // Now and then a step has no prefill, to measure a pure decode step again.
    if (++mixed_steps_ % kMeasureEvery == 0) return;
    const double tokens = std::max(options_->patience * decode_step_seconds_, kUnseen) / prefill_seconds_;
    if (tokens < budget) budget = std::max(1u, static_cast<std::uint32_t>(tokens));  // prefill always progresses
  }
  for (std::size_t i = 0; i < running_.size() && budget > 0 && logits > 0; ++i) {
    Choice& choice = *running_[i];
    if (choice.state != State::Prefill) continue;
    const std::uint32_t end = chunk_end(choice, choice.all_logits ? std::min(budget, logits) : budget);
    const std::uint32_t tokens = end - choice.position;
    if (!reserve(choice, tokens)) continue;
    const bool complete = end == choice.tokens.size();
    const Logits wanted = choice.all_logits ? Logits::All : complete ? Logits::Last : Logits::None;
    plan(choice, tokens, wanted, std::ranges::binary_search(choice.checkpoint_positions, end));
    budget -= tokens;
    logits -= wanted == Logits::All ? tokens : wanted == Logits::Last ? 1 : 0;
  }
}

// Reserves memory for the next tokens of a choice. If there is none, preempts choices behind it in rank.
bool Scheduler::reserve(Choice& choice, std::uint32_t tokens) {
  for (;;) {
    const auto ok = pool_->reserve(choice.sequence, tokens);
    if (ok) return true;
    if (is_device_error(ok.error())) {
      note(choice, ok.error());
      return false;
    }
    if (!preempt_behind(choice, false)) return false;
  }
}

// Where the next chunk of a prompt ends. A checkpoint is possible only at the end of a chunk.
std::uint32_t Scheduler::chunk_end(const Choice& choice, std::uint32_t budget) const {
  auto end = static_cast<std::uint32_t>(choice.tokens.size());
  end = std::min(end, choice.position + budget);
  if (!pool_->layout().has_recurrent()) return end;
  if (const auto due = pool_->next_checkpoint(choice.sequence); due && *due > choice.position) {
    end = std::min(end, *due);
  }
  const auto next = std::ranges::upper_bound(choice.checkpoint_positions, choice.position);
  return next == choice.checkpoint_positions.end() ? end : std::min(end, *next);
}

// --- preemption

// Suspends one running choice behind this one: the one that is cheapest to resume. False: there is none.
bool Scheduler::preempt_behind(const Choice& choice, bool lower_priority_only) {
  Choice* victim = nullptr;
  Cost least;
  for (Choice* other : running_) {
    if (other == &choice || other->just_resumed || other->rank < choice.rank) continue;
    if (lower_priority_only && other->priority >= choice.priority) continue;
    const auto cost = cost_of(*other);
    if (!cost) continue;
    if (victim == nullptr || cost->seconds <= least.seconds) {
      victim = other;
      least = *cost;
    }
  }
  if (victim == nullptr) return false;
  suspend(*victim, least.copy);
  return true;
}

// The cost of resuming the choice. Empty: suspending it would free nothing.
std::optional<Scheduler::Cost> Scheduler::cost_of(const Choice& choice) const {
  const auto holding = pool_->holding(choice.sequence);
  if (!holding || holding->own_bytes == 0) return std::nullopt;
  const double copy = 2 * copy_seconds_ * static_cast<double>(holding->saved_bytes);
  const double recompute = prefill_seconds_ * (choice.position - holding->shared_tokens);
  // A sequence without tokens has nothing to copy. In a model with windows, can_resume() wants room for the whole rest
  // of a half computed prompt at once, and there may never be that much.
  const bool copyable = choice.position > 0 && !(has_windows_ && choice.state == State::Prefill);
  const bool allowed = copyable && holding->saved_bytes <= host_arena_->total_bytes() - host_arena_->used_bytes();
  Cost cost;
  cost.copy = allowed && options_->suspend_by != SuspendBy::Recompute &&
              (options_->suspend_by == SuspendBy::Copy || copy < recompute);
  cost.seconds = cost.copy ? copy : recompute;
  return cost;
}

// One way. The fixed cost of a small copy says nothing about a large one.
void Scheduler::note_copy(Clock::time_point begin, std::uint64_t bytes) {
  if (bytes >= kMeasuredCopy) blend(copy_seconds_, seconds_since(begin) / static_cast<double>(bytes));
}

void Scheduler::suspend(Choice& choice, bool copy) {
  const auto cost = copy ? cost_of(choice) : std::nullopt;
  if (cost && cost->copy) {
    const auto begin = Clock::now();
    if (auto suspended = pool_->suspend(choice.sequence, *host_arena_)) {
      note_copy(begin, suspended->bytes);
      counters_.bytes_saved += suspended->bytes;
      choice.suspended = std::move(*suspended);
    } else if (suspended.error().code == PoolError::Code::WorkFailed) {
      note(choice, suspended.error());
    }
    // If the device refused the copy, or the arena is too full for it, the sequence is recomputed instead.
  }
  ++(choice.suspended ? counters_.suspensions_by_copy : counters_.suspensions_by_recompute);
  if (!choice.suspended) {
    const auto ok = pool_->release(choice.sequence);
    QUIRE_CHECK(ok.has_value(), "a running choice has a live sequence");
    choice.position = 0;
  }
  // A prefill may preempt a choice that is already in this step.
  if (const auto at = std::ranges::find(step_.choices, &choice); at != step_.choices.end()) {
    entries_.erase(entries_.begin() + (at - step_.choices.begin()));
    step_.choices.erase(at);
  }
  choice.sequence = SequenceId{};
  choice.state = State::Suspended;
  ++choice.suspensions;
  erase(running_, choice);
  insert(waiting_, choice);
}

void Scheduler::suspend_all() {
  while (!running_.empty()) suspend(*running_.back(), false);
  failures_.clear();
  lost_ = false;
}

void Scheduler::measure(double model_seconds) {
  std::uint32_t decoded = 0, prefilled = 0;
  for (std::size_t i = 0; i < step_.choices.size(); ++i) {
    (step_.choices[i]->decodes() ? decoded : prefilled) += step_.batch.entries()[i].rows;
  }
  if (prefilled == 0) {
    // Something else on this machine may have delayed the step. So the average falls at once and rises slowly.
    if (decode_step_seconds_ == 0 || model_seconds < decode_step_seconds_) {
      decode_step_seconds_ = model_seconds;
    } else {
      decode_step_seconds_ += kRise * (model_seconds - decode_step_seconds_);
    }
  } else if (decoded == 0) {
    blend(prefill_seconds_, model_seconds / prefilled);
  } else if (const double prefill = model_seconds - decode_step_seconds_; prefill > 0) {
    blend(prefill_seconds_, prefill / prefilled);
  }
}

}  // namespace quire::engine
