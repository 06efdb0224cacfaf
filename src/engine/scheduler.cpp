#include "quire/engine/scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "quire/base/check.h"
#include "quire/base/numbers.h"

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
// How often others may be admitted before a choice that waits for memory, and how many such choices one step looks at.
constexpr std::uint32_t kMostPassed = 16;
constexpr std::size_t kMostBlocked = 8;
// A choice that did not fit is tried again after so many steps, even if nobody has left meanwhile.
constexpr std::uint64_t kTryAgain = 16;
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
      chunk_beside_decode_(step_tokens),
      tenants_(std::min<std::size_t>(options.queue_limit, kQueue) + max_running),
      step_{Batch(step_tokens, max_running, static_cast<std::uint32_t>(pool.layout().groups.size())), {}} {
  for (const PageShape& group : pool.layout().groups) has_windows_ = has_windows_ || group.window != 0;
  running_.reserve(max_running);
  entries_.reserve(max_running);
  step_.choices.reserve(max_running);
  others_.reserve(max_running);
  prompts_.reserve(max_running);
  failures_.reserve(max_running);
  blocked_.reserve(kMostBlocked);
  leaving_.reserve(max_running);
  leaving_ids_.reserve(max_running);
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

void Scheduler::start_running(Choice& choice) {
  insert(running_, choice);
  ++choice.tenant->running;
  ++room_changes_;
}

void Scheduler::stop_running(Choice& choice) {
  if (!erase(running_, choice)) return;
  --choice.tenant->running;
  ++room_changes_;
}

void Scheduler::add(Choice& choice) {
  if (choice.state == State::Waiting) ++queued_;
  tenants_.wake(*choice.tenant);
  insert(choice.tenant->waiting, choice);
  ++waiting_;
}

void Scheduler::add_running(Choice& choice, SequenceId sequence) {
  choice.sequence = sequence;
  choice.state = State::Decode;
  start_running(choice);
}

void Scheduler::remove(Choice& choice) {
  if (choice.sequence.valid()) {
    const auto ok = pool_->release(choice.sequence);
    QUIRE_CHECK(ok.has_value(), "a running choice has a live sequence");
    choice.sequence = SequenceId{};
    stop_running(choice);
  } else if (erase(choice.tenant->waiting, choice)) {
    --waiting_;
    if (choice.state == State::Waiting) --queued_;
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
    // All running choices wait for memory. The last in rank is preempted.
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

// The waiting choice that is next: the first of each tenant's queue, the earliest of them. A tenant that had more than
// its share counts as having come later.
Choice* Scheduler::next_waiting() const {
  Choice* first = nullptr;
  Rank least;
  for (Tenant* tenant : tenants_.all()) {
    if (tenant->next >= tenant->waiting.size() || !tenant->may_run_more()) continue;
    Choice& choice = *tenant->waiting[tenant->next];
    Rank rank = choice.rank;
    rank.time += tenants_.debt(*tenant).count();
    if (first == nullptr || rank < least) {
      first = &choice;
      least = rank;
    }
  }
  return first;
}

void Scheduler::admit() {
  ++admissions_;
  if (waiting_ == 0) return;
  tenants_.compare();
  for (Tenant* tenant : tenants_.all()) tenant->next = 0;
  blocked_.clear();
  for (std::uint32_t looks = 0; looks < kLooks && !lost_; ++looks) {
    Choice* choice = next_waiting();
    if (choice == nullptr) return;
    Tenant& tenant = *choice->tenant;
    if (choice->state == State::Waiting && waits_for_prefix(*choice)) {
      ++tenant.next;
      continue;
    }
    const Admission admission = admit_or_preempt(*choice);
    if (admission == Admission::Done) {
      erase(tenant.waiting, *choice);
      --waiting_;
      start_running(*choice);
      for (Choice* passed : blocked_) ++passed->passed;
      continue;
    }
    ++tenant.next;
    if (admission == Admission::Failed) continue;  // the engine ends it
    // Others that fit pass one that waits for memory, but not for ever.
    if (choice->passed >= kMostPassed || blocked_.size() == kMostBlocked) return;
    blocked_.push_back(choice);
  }
}

// Admits the choice. If there is no room, it looks for running choices that may be preempted for it. They are suspended
// only if it is certain that it fits then.
Scheduler::Admission Scheduler::admit_or_preempt(Choice& choice) {
  // A choice that did not fit is not tried again before something has left or come, or some steps have passed.
  if (choice.blocked_at == room_changes_ && admissions_ - choice.blocked_in < kTryAgain) return Admission::NoRoom;
  if (running_.size() < max_running_) {
    if (const Admission admission = try_admit(choice); admission != Admission::NoRoom) return admission;
  }
  leaving_.clear();
  bool fits = false;
  while (!fits) {
    Choice* victim = cheapest([&](const Choice& other) {
      return !other.just_resumed && may_take_the_place_of(choice, other) &&
             std::ranges::find(leaving_, &other) == leaving_.end();
    });
    if (victim == nullptr) break;
    leaving_.push_back(victim);
    ++victim->tenant->leaving;
    fits = would_fit(choice);
  }
  for (Choice* victim : leaving_) victim->tenant->leaving = 0;
  if (fits) {
    for (Choice* victim : leaving_) suspend(*victim, true);
    leaving_.clear();
    if (const Admission admission = try_admit(choice); admission != Admission::NoRoom) return admission;
  }
  leaving_.clear();
  choice.blocked_at = room_changes_;
  choice.blocked_in = admissions_;
  return Admission::NoRoom;
}

// Whether a running choice may be suspended so that a waiting one is admitted: it has a lower priority, or its tenant
// has more than its share of what runs while the other's has less.
bool Scheduler::may_take_the_place_of(const Choice& choice, const Choice& other) const {
  if (other.priority < choice.priority && choice.rank < other.rank) return true;
  const Tenant& mine = *choice.tenant;
  const Tenant& theirs = *other.tenant;
  if (&mine == &theirs || other.priority > choice.priority) return false;
  const auto rounded = [&](const Tenant& tenant) {
    return std::max<long>(1, std::lround(tenants_.share(tenant, running_.size())));
  };
  return mine.running + 1 <= rounded(mine) && theirs.running - theirs.leaving > rounded(theirs);
}

// Lists what must stay free beside an admitted choice: for each that decodes, the tokens that it will write while the
// prompt of the new one is computed, and a block; for each in prefill, the rest of its prompt. Otherwise they would
// preempt the new one at once, or stop half way. Those that leave are not counted.
void Scheduler::list_others(const Choice& choice) {
  others_.clear();
  const std::uint32_t steps = divide_up(choice.pending(), std::max(1u, chunk_beside_decode_));
  for (Choice* other : running_) {
    if (std::ranges::find(leaving_, other) != leaving_.end()) continue;
    const std::uint32_t left = other->max_tokens - std::min(other->max_tokens, other->position);
    const std::uint32_t writes = std::min(left, pool_->layout().block_size + steps);
    others_.push_back({.sequence = other->sequence, .rows = other->decodes() ? writes : other->pending()});
  }
}

// Whether the choice fits once those in leaving_ are suspended.
bool Scheduler::would_fit(const Choice& choice) {
  if (running_.size() - leaving_.size() >= max_running_) return false;
  list_others(choice);
  leaving_ids_.clear();
  for (const Choice* victim : leaving_) leaving_ids_.push_back(victim->sequence);
  if (choice.saved) {
    return pool_->can_restore(*choice.saved, choice.pending(), step_tokens_, others_, leaving_ids_).has_value();
  }
  const SequencePool::Request request{
      .prompt = choice.tokens, .name_space = choice.name_space, .request = choice.request, .reuse = choice.reuse};
  return pool_
      ->can_admit(request, static_cast<std::uint32_t>(choice.tokens.size()), step_tokens_, others_, leaving_ids_)
      .has_value();
}

Scheduler::Admission Scheduler::try_admit(Choice& choice) {
  if (running_.size() == max_running_) return Admission::NoRoom;
  list_others(choice);
  const Admission admission = choice.saved ? restore(choice) : start(choice);
  if (admission != Admission::Done) return admission;
  if (choice.state == State::Waiting) --queued_;
  choice.just_resumed = choice.suspensions > 0;
  if (choice.just_resumed) ++counters_.resumed;
  choice.state = choice.generated() > 0 && choice.pending() == 1 ? State::Decode : State::Prefill;
  choice.leader = nullptr;
  choice.passed = 0;
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

// What a prompt's place depends on: the seconds of computing it still needs, and how long ago it came. A level of
// priority counts like some seconds of waiting, and so does what its tenant had less than others. The smallest goes
// first.
double Scheduler::prefill_order(const Choice& choice) const {
  const std::int64_t came = choice.rank.time + tenants_.debt(*choice.tenant).count();
  return cost_model_.costs().prefill_seconds(choice.position, choice.pending()) +
         kAge * static_cast<double>(came) * 1e-9;
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
    if (!preempt_behind(choice)) return false;
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

// Suspends one running choice behind this one in rank, so that this one can go on: the one that is cheapest to resume.
// One that was just resumed is taken only if there is no other. False: there is none.
bool Scheduler::preempt_behind(const Choice& choice) {
  const auto behind = [&](const Choice& other) { return choice.rank < other.rank; };
  Choice* victim = cheapest([&](const Choice& other) { return behind(other) && !other.just_resumed; });
  if (victim == nullptr) victim = cheapest(behind);
  if (victim == nullptr) return false;
  suspend(*victim, true);
  return true;
}

// The running choice that is cheapest to resume among those that `may` leave, or null. Suspending it frees something.
template <typename May>
Choice* Scheduler::cheapest(const May& may) const {
  Choice* victim = nullptr;
  double least = 0;
  for (Choice* other : running_) {
    if (!may(*other)) continue;
    const auto cost = cost_of(*other);
    if (!cost || (victim != nullptr && cost->seconds > least)) continue;
    victim = other;
    least = cost->seconds;
  }
  return victim;
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
  stop_running(choice);
  insert(choice.tenant->waiting, choice);
  ++waiting_;
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

void Scheduler::measure(double model_seconds) {
  const StepShape all = shape();
  cost_model_.learn(all, model_seconds);
  if (all.decode_rows > 0 && all.prefill_rows > 0) chunk_beside_decode_ = all.prefill_rows;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    // What is computed a second time after a suspension is not charged again.
    Choice& choice = *step_.choices[i];
    const std::uint32_t end = choice.position + entries_[i].rows;
    if (end <= choice.charged) continue;
    tenants_.charge(*choice.tenant, end - std::max(choice.position, choice.charged), choice.decodes());
    choice.charged = end;
  }
}

}  // namespace quire::engine
