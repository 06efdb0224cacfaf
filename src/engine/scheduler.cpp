#include "quire/engine/scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "quire/base/check.h"
#include "quire/base/numbers.h"

namespace quire::engine {
namespace {

using State = Choice::State;

// Weight of the earlier measurements in a moving average.
constexpr double kMemory = 0.8;
// Prompts always get on, even if decode alone takes longer than the target: by this part of the time of decode.
constexpr double kLeastPrefill = 0.1;
// How much a second of waiting counts against a second of computing when prompts are put in order. A prompt of s
// seconds is overtaken by shorter ones for 1 / kAge * s seconds at most.
constexpr double kAge = 0.5;
constexpr std::uint64_t kMeasuredCopy = 1 << 16;  // bytes
// After so many steps the pool is told what it costs to compute a token again. Its evictions depend on it.
constexpr std::uint64_t kTellCosts = 64;
constexpr std::uint64_t kFirstCosts = 8;  // after so many steps they are kept for the next start, and then as often
// Room for this many choices is reserved, so that a growing queue does not allocate.
constexpr std::size_t kQueue = 1024;

void blend(double& average, double value) {
  average = average == 0 ? value : kMemory * average + (1 - kMemory) * value;
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

bool by_rank(const Choice* a, const Choice* b) { return a->rank < b->rank; }

}  // namespace

Scheduler::Scheduler(SequencePool& pool, std::unique_ptr<HostArena> host_arena, const EngineOptions& options,
                     std::uint32_t step_tokens, std::uint32_t max_running, std::uint32_t max_logits)
    : pool_(&pool),
      host_arena_(std::move(host_arena)),
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
  recall_costs();
  if (!options.drafter || options.draft_tokens == 0) return;
  speculation_ = std::make_unique<Speculation>(options.drafter, options.draft_tokens, max_running,
                                               pool.layout().has_recurrent(), options.draft_always, options.now);
  candidates_.reserve(max_running);
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
  end_fetch(choice);
  if (choice.sequence.valid()) {
    const auto ok = pool_->release(choice.sequence);
    QUIRE_CHECK(ok.has_value(), "a running choice has a live sequence");
    choice.sequence = SequenceId{};
    stop_running(choice);
  } else if (erase(choice.tenant->waiting, choice)) {
    --waiting_;
    if (choice.state == State::Waiting) --queued_;
  }
  choice.suspended.reset();
}

Step& Scheduler::schedule() {
  failures_.clear();
  lost_ = false;
  for (;;) {
    entries_.clear();
    step_.choices.clear();
    take_fetched();
    admit();
    add_decodes();
    if (speculation_) add_drafts();
    add_prefills();
    if (!entries_.empty() || running_.empty() || !failures_.empty() || lost_) break;
    // All running choices wait for memory. The last in rank is preempted.
    QUIRE_CHECK(running_.size() > 1, "a request that is admitted fits into the pool alone");
    suspend(*running_.back(), true);
  }
  if (speculation_ && failures_.empty() && !lost_) reserve_drafts();
  pack();
  return step_;
}

// Makes the batch from the planned entries.
void Scheduler::pack() {
  step_.batch.clear();
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Choice& choice = *step_.choices[i];
    step_.batch.add(choice.sequence, std::span(choice.tokens).subspan(choice.position, entries_[i].rows),
                    entries_[i].logits, entries_[i].checkpoint, choice.drafts.drafted().first(entries_[i].drafts),
                    adapter_of(choice.name_space));
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

// --- the step

// A choice that decodes has one token to compute, or more if drafts were right that have to be computed again.
void Scheduler::add_decodes() {
  std::uint32_t spare = step_tokens_;
  for (const Choice* choice : running_) spare -= choice->decodes() ? 1 : 0;
  const auto rows_of = [&](const Choice& choice) {
    const std::uint32_t more = std::min(choice.pending() - 1, spare);
    spare -= more;
    return 1 + more;
  };
  const auto plan_rows = [&](Choice& choice, std::uint32_t rows) {
    plan(choice, rows, rows == choice.pending() ? Logits::Last : Logits::None, false);
  };
  for (Choice* choice : running_) {
    if (choice->decodes()) plan_rows(*choice, rows_of(*choice));
  }
  if (entries_.empty() || pool_->reserve(entries_)) return;

  // There is not enough memory for all. In the order of rank, each choice preempts those behind it.
  entries_.clear();
  step_.choices.clear();
  for (std::size_t i = 0; i < running_.size(); ++i) {  // only choices behind i are suspended
    Choice& choice = *running_[i];
    if (choice.decodes() && reserve(choice, 1)) plan_rows(choice, 1);
  }
}

// Rows and logits that are left go to drafts, if they pay. While there are prompts, half of both are theirs: a prompt
// gets on only if there is a row of logits for its last token.
void Scheduler::add_drafts() {
  candidates_.clear();
  std::uint32_t rows = step_tokens_, logits = max_logits_;
  for (const BatchEntry& entry : entries_) {
    rows -= entry.rows;
    logits -= std::min(logits, entry.wanted_rows());
  }
  const auto prefills = [](const Choice* choice) { return choice->state == State::Prefill; };
  if (std::ranges::any_of(running_, prefills)) {
    rows /= 2;
    logits /= 2;
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Choice& choice = *step_.choices[i];
    choice.drafts.count = 0;
    if (entries_[i].logits == Logits::Last) candidates_.push_back({&choice, most_drafts(choice)});
  }
  speculation_->plan(candidates_, shape(), cost_model_, std::min(rows, logits));
  for (std::size_t i = 0; i < entries_.size(); ++i) entries_[i].drafts = step_.choices[i]->drafts.count;
}

// One token follows the last draft that is right. A recurrent state is kept where a checkpoint is due, so drafts end
// there.
std::uint32_t Scheduler::most_drafts(const Choice& choice) const {
  const auto length = static_cast<std::uint32_t>(choice.tokens.size());
  std::uint32_t end = choice.max_tokens - 1;
  if (pool_->layout().has_recurrent()) {
    const auto due = pool_->next_checkpoint(choice.sequence);
    if (due && *due > choice.position) end = std::min(end, *due);
  }
  return end > length ? end - length : 0;
}

// Memory for the drafts, if there is some without anybody having to leave.
void Scheduler::reserve_drafts() {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    BatchEntry& entry = entries_[i];
    if (entry.drafts == 0) continue;
    const auto ok = pool_->draft(entry.sequence, entry.rows, entry.drafts);
    if (ok) continue;
    entry.drafts = 0;
    if (ok.error().code == PoolError::Code::WorkFailed) return note(*step_.choices[i], ok.error());
  }
}

void Scheduler::note_drafts(Choice& choice, std::uint32_t count, std::uint32_t right, bool wrong) {
  speculation_->note(choice, count, right, wrong);
  if (choice.position <= choice.charged) return;
  tenants_.charge(*choice.tenant, choice.position - choice.charged, true);
  choice.charged = choice.position;
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
  const double target =
      options_->target_itl ? std::chrono::duration<double>(*options_->target_itl).count() : default_target(decode);
  return std::max(target / cost_model_.lateness() - decode, kLeastPrefill * decode);
}

void Scheduler::add_prefills() {
  std::uint32_t budget = step_tokens_, logits = max_logits_;
  for (const BatchEntry& entry : entries_) {
    budget -= std::min(budget, entry.rows + entry.drafts);
    logits -= std::min(logits, entry.wanted_rows());
  }
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
    const std::uint32_t end = chunk_end(choice, choice.every_row ? std::min(rows, logits) : rows);
    const std::uint32_t tokens = end - choice.position;
    if (!reserve(choice, tokens)) continue;  // it waits in its place
    any = true;
    const bool complete = end == choice.tokens.size();
    const Logits wanted = choice.every_row ? Logits::All : complete ? Logits::Last : Logits::None;
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

// The cost of resuming the choice. Empty: suspending it would free nothing.
std::optional<Scheduler::Cost> Scheduler::cost_of(const Choice& choice) const {
  const auto holding = pool_->holding(choice.sequence);
  if (!holding || holding->own_bytes == 0) return std::nullopt;
  const double copy = 2 * copy_seconds_ * static_cast<double>(holding->saved_bytes);
  const double recompute =
      cost_model_.costs().prefill_seconds(holding->shared_tokens, choice.position - holding->shared_tokens);
  const bool copyable = choice.position > 0;  // otherwise there is nothing to copy
  const bool allowed = copyable && holding->saved_bytes <= room_in_host_arena();
  Cost cost;
  cost.copy = allowed && options_->suspend_by != SuspendBy::Recompute &&
              (options_->suspend_by == SuspendBy::Copy || copy < recompute);
  cost.seconds = cost.copy ? copy : recompute;
  return cost;
}

// For copies of suspended sequences. What the pool has evicted gives way to them.
std::uint64_t Scheduler::room_in_host_arena() const {
  std::uint64_t cells = host_arena_->free_cells();
  if (options_->host_cache_bytes > 0) cells += options_->tiers->host()->cells_to_give();
  return cells * host_arena_->cell_bytes();
}

void Scheduler::make_room_in_host_arena(const Choice& choice) {
  const auto holding = pool_->holding(choice.sequence);
  if (!holding) return;
  // An object takes whole cells, and none is smaller than a cell.
  const std::uint64_t cells = 2 * host_arena_->cells_for(holding->saved_bytes);
  (void)options_->tiers->host()->make_room(std::min(cells, host_arena_->total_bytes() / host_arena_->cell_bytes()));
}

// One way. The fixed cost of a small copy says nothing about a large one.
void Scheduler::note_copy(Clock::time_point begin, std::uint64_t bytes) {
  if (bytes >= kMeasuredCopy) blend(copy_seconds_, seconds_since(begin) / static_cast<double>(bytes));
}

void Scheduler::suspend(Choice& choice, bool copy) {
  end_fetch(choice);  // what it brings would wait in staging memory for as long as the choice does
  const auto cost = copy ? cost_of(choice) : std::nullopt;
  if (cost && cost->copy) {
    const auto begin = Clock::now();
    if (options_->host_cache_bytes > 0) make_room_in_host_arena(choice);
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
  choice.looked = false;
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
      shape.draft_rows += entries_[i].rows - 1 + entries_[i].drafts;
    } else {
      shape.add_prefill(choice.position, entries_[i].rows);
    }
  }
  return shape;
}

void Scheduler::measure(double model_seconds) {
  const StepShape all = shape();
  cost_model_.learn(all, model_seconds);
  if (speculation_) speculation_->account(all, cost_model_, model_seconds);
  if (all.decode_rows > 0 && all.prefill_rows > 0) chunk_beside_decode_ = all.prefill_rows;
  if (const StepCosts& costs = cost_model_.costs(); costs.prefill_row > 0) {
    const bool tell = ++measured_ % kTellCosts == 0;
    if (tell) pool_->set_costs({.token = costs.prefill_row, .token_per_context = costs.prefill_context});
    if (tell || measured_ == kFirstCosts) keep_costs();
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    // What is computed a second time after a suspension is not charged again.
    Choice& choice = *step_.choices[i];
    const std::uint32_t end = choice.position + entries_[i].rows;
    if (end <= choice.charged) continue;
    tenants_.charge(*choice.tenant, end - std::max(choice.position, choice.charged), choice.decodes());
    choice.charged = end;
  }
}

void Scheduler::measure_outside(double seconds) {
  if (speculation_) speculation_->account_outside(seconds);
}

}  // namespace quire::engine
