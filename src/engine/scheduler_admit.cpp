// Admission: which waiting choices begin to run, and for whom others are preempted.
#include <algorithm>
#include <cmath>

#include "quire/base/check.h"
#include "quire/base/numbers.h"
#include "quire/engine/scheduler.h"

namespace quire::engine {
namespace {

using State = Choice::State;

// The most waiting choices that one step looks at. Those that wait for another choice's pages are passed over.
constexpr std::uint32_t kLooks = 128;
// How often a choice may wait for another choice's pages. In a small pool they may be evicted each time.
constexpr std::uint32_t kMostWaits = 4;
// How often others may be admitted before a choice that waits for memory.
constexpr std::uint32_t kMostPassed = 16;
// A choice that did not fit is tried again after so many steps, even if nobody has left meanwhile.
constexpr std::uint64_t kTryAgain = 16;
}  // namespace

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
    if ((choice->state == State::Waiting && waits_for_prefix(*choice)) || waits_for_tiers(*choice)) {
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
  if (choice.suspended) {
    const auto tokens = std::span<const Token>(choice.tokens).first(choice.position);
    return pool_->can_resume(*choice.suspended, tokens, choice.pending(), step_tokens_, others_, leaving_ids_)
        .has_value();
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
  const Admission admission = choice.suspended ? restore(choice) : start(choice);
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
  const auto tokens = std::span<const Token>(choice.tokens).first(choice.position);
  if (const auto fits = pool_->can_resume(*choice.suspended, tokens, choice.pending(), step_tokens_, others_); !fits) {
    if (fits.error().code != PoolError::Code::PrefixGone) return Admission::NoRoom;
    // Pages that it shared were evicted. The sequence is recomputed from its tokens.
    ++counters_.copies_lost;
    choice.suspended.reset();
    choice.position = 0;
    list_others(choice);
    return start(choice);
  }
  const auto begin = Clock::now();
  const auto sequence = pool_->resume(*choice.suspended, tokens, choice.request);
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
  if (choice.admitted_before && choice.generated() == 0 && created->hit.tokens > choice.hit.tokens &&
      choice.suspensions == 0) {  // the rest of its prefix has arrived from a tier
    counters_.cached_tokens += created->hit.tokens - choice.hit.tokens;
    choice.hit = created->hit;
  }
  if (!choice.admitted_before) {
    choice.admitted_before = true;
    choice.hit = created->hit;
    counters_.prompt_tokens += choice.prompt_tokens;
    counters_.cached_tokens += created->hit.tokens;
  }
  return Admission::Done;
}

// Chooses the checkpoint positions for the prefill of this prompt: the last one possible, and positions at growing
// distances before it. A later prompt that shares all but the last d tokens then recomputes at most about d tokens
// more. One more checkpoint goes where the pool had the pages but no state to resume from; the next such prompt finds
// it there.
void Scheduler::plan_checkpoints(Choice& choice, const Hit& hit) const {
  choice.checkpoint_positions.clear();
  if (!pool_->layout().has_recurrent() || !choice.reuse || !pool_->config().prefix_cache) return;
  const std::uint32_t unit = pool_->config().checkpoint_unit;
  // A prompt with an answer is found again up to its last token but one. One without is there to be continued.
  const bool is_continued = choice.max_tokens == choice.prompt_tokens;
  const std::uint32_t last = (static_cast<std::uint32_t>(choice.tokens.size()) - (is_continued ? 0 : 1)) / unit * unit;
  for (std::uint32_t back = 0; back < last && last - back > hit.tokens; back = 2 * back + unit) {
    if (back >= pool_->config().checkpoint_interval) break;  // the pool itself keeps checkpoints at this interval
    choice.checkpoint_positions.push_back(last - back);
  }
  if (const std::uint32_t matched = hit.matched / unit * unit; matched > hit.tokens) {
    choice.checkpoint_positions.push_back(matched);
  }
  std::ranges::sort(choice.checkpoint_positions);
}

// What a choice can reuse of another one in prefill, with which it has `common` tokens in common. A recurrent model
// keeps a checkpoint where it is asked for one. Other models publish whole blocks; with blocks larger than the
// checkpoint unit, it is worth while to wait for the end of the block in which the two part.
Scheduler::Shared Scheduler::shared_with(const Choice& other, std::uint32_t common) const {
  const std::uint32_t unit = pool_->config().checkpoint_unit, block = pool_->layout().block_size;
  if (pool_->layout().has_recurrent()) return {common / unit * unit, common / unit * unit};
  const std::uint32_t end = divide_up(common, block) * block;
  if (unit < block && end <= other.tokens.size()) return {common, end};
  return {common / block * block, common / block * block};
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
  Choice* best = nullptr;
  Shared most;
  for (Choice* other : running_) {
    if (choice.rank < other->rank) break;
    if (other->state != State::Prefill || other->name_space != choice.name_space || !other->reuse) continue;
    const std::size_t usable = std::min(choice.tokens.size() - 1, other->tokens.size());
    const auto end = choice.tokens.begin() + static_cast<std::ptrdiff_t>(usable);
    const auto common = std::mismatch(choice.tokens.begin(), end, other->tokens.begin()).first - choice.tokens.begin();
    const Shared shared = shared_with(*other, static_cast<std::uint32_t>(common));
    if (shared.until > other->position && shared.tokens > most.tokens) {
      best = other;
      most = shared;
    }
  }
  if (best == nullptr) return false;
  const Hit now = pool_->lookup(choice.tokens, choice.name_space);
  if (now.tokens >= most.tokens) return false;
  choice.leader = best;
  choice.leader_number = best->rank.number;
  choice.leader_until = most.until;
  if (pool_->layout().has_recurrent()) {
    auto& positions = best->checkpoint_positions;
    const auto at = std::ranges::lower_bound(positions, most.until);
    if (at == positions.end() || *at != most.until) positions.insert(at, most.until);
  }
  counters_.prefix_waits += choice.waits++ == 0;
  return true;
}

}  // namespace quire::engine
