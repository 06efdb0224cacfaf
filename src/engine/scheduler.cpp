#include "quire/engine/scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>

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
// The target of a step if none was given: so many times a step that only decodes, but at least kLeastTarget seconds.
constexpr double kTargetSteps = 2;
constexpr double kLeastTarget = 0.1;
// Prompts always get on, even if decode alone takes longer than the target: by this part of the time of decode.
constexpr double kLeastPrefill = 0.1;
// How much a second of waiting counts against a second of computing when prompts are put in order. A prompt of s
// seconds is overtaken by shorter ones for 1 / kAge * s seconds at most.
constexpr double kAge = 0.5;
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

Scheduler::Scheduler(SequencePool& pool, const EngineOptions& options, std::uint32_t step_tokens,
                     std::uint32_t max_running, std::uint32_t max_logits)
    : pool_(&pool),
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
  prompts_.reserve(max_running);
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
  if (choice.saved) host_bytes_ -= choice.saved->bytes;
  choice.saved.reset();
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
  const Admission admission = choice.saved ? restore(choice) : start(choice);
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
  if (!pool_->can_restore(*choice.saved, choice.pending(), step_tokens_, others_)) return Admission::NoRoom;
  const auto begin = Clock::now();
  const auto sequence = pool_->restore(*choice.saved, choice.request);
  if (!sequence && sequence.error().code == PoolError::Code::Damaged) {
    // The copy is damaged. The sequence is recomputed from its tokens.
    host_bytes_ -= choice.saved->bytes;
    choice.saved.reset();
    choice.position = 0;
    return start(choice);
  }
  if (!sequence) {
    note(choice, sequence.error());
    return is_device_error(sequence.error()) ? Admission::Failed : Admission::NoRoom;
  }
  const std::uint32_t rows = has_windows_ ? std::min(choice.pending(), step_tokens_) : choice.pending();
  if (const auto room = pool_->reserve(*sequence, rows); !room) {
    const auto ok = pool_->release(*sequence);
    QUIRE_CHECK(ok.has_value(), "the sequence was just made");
    note(choice, room.error());
    return is_device_error(room.error()) ? Admission::Failed : Admission::NoRoom;
  }
  blend(copy_seconds_, seconds_since(begin) / static_cast<double>(choice.saved->bytes));
  choice.sequence = *sequence;
  choice.position = static_cast<std::uint32_t>(choice.saved->tokens.size());
  host_bytes_ -= choice.saved->bytes;
  choice.saved.reset();
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

// What a prompt's place depends on: the seconds of computing it still needs, and how long ago it came (a level of
// priority counts like some seconds of waiting). The smallest goes first.
double Scheduler::prefill_order(const Choice& choice) const {
  return cost_model_.costs().prefill_seconds(choice.position, choice.pending()) +
         kAge * static_cast<double>(choice.rank.time) * 1e-9;
}

// How many seconds of this step prompts may take.
double Scheduler::prefill_seconds() const {
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  const bool throughput = options_->target_itl && options_->target_itl->count() == 0;
  if (entries_.empty() || throughput || !cost_model_.knows_anything()) return kNoLimit;
  const double decode = cost_model_.costs().seconds(shape());
  const double target = options_->target_itl ? std::chrono::duration<double>(*options_->target_itl).count()
                                             : std::max(kTargetSteps * decode, kLeastTarget);
  return std::max(target / cost_model_.lateness() - decode, kLeastPrefill * decode);
}

void Scheduler::add_prefills() {
  const auto decodes = static_cast<std::uint32_t>(entries_.size());
  std::uint32_t budget = step_tokens_ - std::min(step_tokens_, decodes);
  std::uint32_t logits = max_logits_ - std::min(max_logits_, decodes);
  double seconds = prefill_seconds();
  prompts_.clear();
  for (Choice* choice : running_) {
    if (choice->state == State::Prefill) prompts_.push_back({prefill_order(*choice), choice});
  }
  // Equal ones stay in the order of rank.
  std::ranges::sort(prompts_, [](const Prompt& a, const Prompt& b) {
    return a.order != b.order ? a.order < b.order : a.choice->rank < b.choice->rank;
  });
  bool any = false;
  for (std::size_t i = 0; i < prompts_.size() && budget > 0 && logits > 0; ++i) {
    Choice& choice = *prompts_[i].choice;
    if (choice.state != State::Prefill) continue;  // suspended by one before it
    const StepCosts& costs = cost_model_.costs();
    std::uint32_t rows = std::isinf(seconds) ? budget : costs.prefill_rows_within(seconds, choice.position, budget);
    if (!any) rows = std::max(rows, 1u);  // prefill always progresses
    if (rows == 0) break;
    const std::uint32_t end = chunk_end(choice, choice.all_logits ? std::min(rows, logits) : rows);
    const std::uint32_t tokens = end - choice.position;
    if (!reserve(choice, tokens)) continue;
    any = true;
    const bool complete = end == choice.tokens.size();
    const Logits wanted = choice.all_logits ? Logits::All : complete ? Logits::Last : Logits::None;
    plan(choice, tokens, wanted, std::ranges::binary_search(choice.checkpoint_positions, end));
    budget -= tokens;
    seconds -= costs.prefill_seconds(choice.position, tokens);
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
  const double recompute =
      cost_model_.costs().prefill_seconds(holding->shared_tokens, choice.position - holding->shared_tokens);
  const bool copyable = choice.position > 0;  // otherwise there is nothing to copy
  const bool allowed =
      copyable && holding->saved_bytes <= options_->host_bytes - std::min(options_->host_bytes, host_bytes_);
  Cost cost;
  cost.copy = allowed && options_->suspend_by != SuspendBy::Recompute &&
              (options_->suspend_by == SuspendBy::Copy || copy < recompute);
  cost.seconds = cost.copy ? copy : recompute;
  return cost;
}

void Scheduler::suspend(Choice& choice, bool copy) {
  const auto cost = copy ? cost_of(choice) : std::nullopt;
  if (cost && cost->copy) {
    const auto start = Clock::now();
    if (auto saved = pool_->save(choice.sequence)) {
      blend(copy_seconds_, seconds_since(start) / static_cast<double>(std::max<std::uint64_t>(1, saved->bytes)));
      choice.saved = std::move(*saved);
      host_bytes_ += choice.saved->bytes;
      counters_.bytes_saved += choice.saved->bytes;
    } else if (saved.error().code == PoolError::Code::WorkFailed) {
      note(choice, saved.error());  // if the device only refused the copy, the sequence is recomputed instead
    }
  }
  ++(choice.saved ? counters_.suspensions_by_copy : counters_.suspensions_by_recompute);
  const auto ok = pool_->release(choice.sequence);
  QUIRE_CHECK(ok.has_value(), "a running choice has a live sequence");
  // A prefill may preempt a choice that is already in this step.
  if (const auto at = std::ranges::find(step_.choices, &choice); at != step_.choices.end()) {
    entries_.erase(entries_.begin() + (at - step_.choices.begin()));
    step_.choices.erase(at);
  }
  choice.sequence = SequenceId{};
  if (!choice.saved) choice.position = 0;
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

StepShape Scheduler::shape() const {
  StepShape shape;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Choice& choice = *step_.choices[i];
    if (choice.decodes()) {
      shape.add_decode(choice.position);
    } else {
      shape.add_prefill(choice.position, entries_[i].rows);
    }
  }
  return shape;
}

void Scheduler::measure(double model_seconds) { cost_model_.learn(shape(), model_seconds); }

}  // namespace quire::engine
