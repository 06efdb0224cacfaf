// Decides which choices are in the next step, and which are preempted.
//
// A choice waits (new, or suspended) or runs (its sequence is in the pool). Both lists are in the order of rank, and
// each tenant has a waiting list of its own. schedule() first admits waiting choices that fit. Then it gives every
// decoding choice its token, and drafts where they pay (speculation.h). Then it fills the step with chunks of prompts.
// When it returns, all memory that the step needs is reserved. Drafts get theirs last, and only what is left: nobody is
// preempted or has to wait for them.
//
// Time. While choices decode, prompts fill a step until its predicted time reaches the target (cost_model.h predicts).
// Several prompts share a step. The prompt with the least left to compute goes first, so that a short one is not stuck
// behind a long one. Age counts against that: see prefill_order().
//
// Memory. A choice is admitted only if there is room for all its tokens, and beside them for what the running choices
// will need meanwhile. It may take the place of running choices of lower priority, and of those of a tenant that has
// more than its share; but they are suspended only if it is certain that it fits then. A choice that waits for memory
// is passed by others that fit, a bounded number of times. When a running choice needs more memory and there is none,
// it preempts a choice behind it in rank: the one that is cheapest to resume is suspended. If there is none, the choice
// keeps its pages and waits in place. If all choices wait in place, the last in rank is suspended. The first in rank
// fits alone (the engine refuses a request that does not), so there is always progress.
//
// Tiers. A prompt whose prefix lies in a tier waits until it is in the pool, if that is faster than computing it. If
// both take about as long, the front is computed while the rest is fetched. What computing costs on this machine is
// kept beside a disk cache, so that a server knows it before its first step. Whatever a tier does, it delays a request
// by a fraction of a second at most; then the request is computed.
//
// Device errors. An operation that the device refuses concerns one choice: failures() reports it. Work that failed
// after it was submitted (PoolError::Code::WorkFailed) voids everything on the device: lost() returns true, and the
// engine throws the step away and calls suspend_all().
//
// Who may call: the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quire/engine/choice.h"
#include "quire/engine/cost_model.h"
#include "quire/engine/speculation.h"
#include "quire/engine/tenants.h"

namespace quire::engine {

class Scheduler {
 public:
  Scheduler(SequencePool& pool, std::unique_ptr<HostArena> host_arena, const EngineOptions& options,
            std::uint32_t step_tokens, std::uint32_t max_running, std::uint32_t max_logits);

  void add(Choice& choice);  // to the waiting list
  // Adds a choice whose sequence already exists (a fork) to the running list.
  void add_running(Choice& choice, SequenceId sequence);
  // Releases everything the choice holds, and removes it from its list.
  void remove(Choice& choice);

  // The next step. Empty: no choice can run.
  Step& schedule();
  // How long the model took for that step. Called before the step is committed.
  void measure(double model_seconds);
  // How long the engine took for it besides. Called when the step is committed.
  void measure_outside(double seconds);
  // How the drafts of a choice in that step turned out; see Speculation::note(). Called when those that were right are
  // committed.
  void note_drafts(Choice& choice, std::uint32_t count, std::uint32_t right, bool wrong);

  // Device errors of the last schedule(). Such a choice cannot continue.
  struct Failure {
    Choice* choice;
    PoolError error;
  };
  std::span<const Failure> failures() const { return failures_; }
  bool lost() const { return lost_; }
  // Releases every sequence without a copy. Each is recomputed from its tokens when it is resumed.
  void suspend_all();

  // What the scheduler counts; the engine counts the rest of EngineStats.
  struct Counters {
    std::uint64_t prompt_tokens = 0, cached_tokens = 0;
    std::uint64_t suspensions_by_copy = 0, suspensions_by_recompute = 0, resumed = 0;
    std::uint64_t bytes_saved = 0, copies_lost = 0;
    std::uint64_t prefix_waits = 0;
    std::uint64_t tier_waits = 0, tier_splits = 0;
  };
  const Counters& counters() const { return counters_; }
  std::uint32_t step_tokens() const { return step_tokens_; }
  std::uint32_t max_running() const { return max_running_; }
  std::uint32_t waiting() const { return waiting_; }
  std::uint32_t queued() const { return queued_; }  // waiting choices that were never admitted
  Tenants& tenants() { return tenants_; }
  const Tenants& tenants() const { return tenants_; }
  // Whether one more choice of this tenant may run, by number. Memory is another question.
  bool has_place(const Tenant& tenant) const { return running_.size() < max_running_ && tenant.may_run_more(); }
  std::span<Choice* const> running() const { return running_; }
  const HostArena& host_arena() const { return *host_arena_; }
  const CostModel& cost_model() const { return cost_model_; }

 private:
  static constexpr std::size_t kMostBlocked = 8;  // choices that do not fit, in one step; then it looks no further
  enum class Admission : std::uint8_t { Done, NoRoom, Failed };
  void admit();
  Choice* next_waiting() const;
  Admission admit_or_preempt(Choice& choice);
  bool may_take_the_place_of(const Choice& choice, const Choice& other) const;
  void list_others(const Choice& choice);
  bool would_fit(const Choice& choice);
  Admission try_admit(Choice& choice);
  Admission start(Choice& choice);
  Admission restore(Choice& choice);
  std::uint64_t room_in_host_arena() const;
  void make_room_in_host_arena(const Choice& choice);
  void note_copy(Clock::time_point begin, std::uint64_t bytes);
  void plan_checkpoints(Choice& choice, const Hit& hit) const;
  bool waits_for_prefix(Choice& choice);
  // tiers (scheduler_tiers.cpp)
  bool waits_for_tiers(Choice& choice);
  bool begin_fetch(Choice& choice, const tiers::FetchStatus& status);
  bool is_too_slow(const Choice& choice, const tiers::FetchStatus& status) const;
  double compute_seconds(std::uint32_t from, std::uint32_t to) const;
  void recall_costs();
  void keep_costs();
  void take_fetched();
  void end_fetch(Choice& choice);
  struct Shared {
    std::uint32_t tokens = 0;
    std::uint32_t until = 0;  // the other has published them when it stands here
  };
  Shared shared_with(const Choice& other, std::uint32_t common) const;

  void add_decodes();
  void add_drafts();
  std::uint32_t most_drafts(const Choice& choice) const;
  void reserve_drafts();
  void add_prefills();
  double prefill_order(const Choice& choice) const;
  double prefill_seconds() const;
  StepShape shape() const;
  std::uint32_t chunk_end(const Choice& choice, std::uint32_t budget) const;
  bool reserve(Choice& choice, std::uint32_t tokens);
  void plan(Choice& choice, std::uint32_t tokens, Logits logits, bool checkpoint);
  void pack();

  bool preempt_behind(const Choice& choice);
  template <typename May>
  Choice* cheapest(const May& may) const;
  struct Cost {
    double seconds = 0;
    bool copy = false;
  };
  std::optional<Cost> cost_of(const Choice& choice) const;
  void suspend(Choice& choice, bool copy);
  static bool is_device_error(const PoolError& error) {
    return error.code == PoolError::Code::DeviceFailure || error.code == PoolError::Code::WorkFailed;
  }
  void note(Choice& choice, const PoolError& error);
  void start_running(Choice& choice);
  void stop_running(Choice& choice);
  static void insert(std::vector<Choice*>& list, Choice& choice);
  static bool erase(std::vector<Choice*>& list, const Choice& choice);

  SequencePool* pool_;
  std::unique_ptr<HostArena> host_arena_;  // for copies of suspended sequences
  const EngineOptions* options_;
  std::uint32_t step_tokens_;
  std::uint32_t max_running_;
  std::uint32_t max_logits_;
  bool has_windows_ = false;
  std::uint32_t chunk_beside_decode_;  // rows of prompts in the last step that also decoded
  Tenants tenants_;                    // with the waiting choices
  std::uint32_t waiting_ = 0;          // choices
  std::uint32_t queued_ = 0;           // of those, the ones that were never admitted
  std::vector<Choice*> running_;       // by rank
  std::uint64_t room_changes_ = 1;     // how often a choice began or ceased to run
  std::uint64_t admissions_ = 0;       // calls of admit()

  // The step that is being planned. Entry i belongs to step_.choices[i]. pack() makes the batch from the entries.
  std::vector<BatchEntry> entries_;
  Step step_;
  struct Prompt {
    double order;
    Choice* choice;
  };
  std::vector<Prompt> prompts_;          // scratch: the choices in prefill, in the order in which they get their chunks
  std::vector<Choice*> blocked_;         // scratch: those that did not fit in this step
  std::vector<Choice*> leaving_;         // scratch: those that would be preempted
  std::vector<SequenceId> leaving_ids_;  // scratch
  std::vector<BatchEntry> others_;       // scratch: memory that must stay free for the running choices
  std::vector<Failure> failures_;
  bool lost_ = false;
  Counters counters_;

  std::unique_ptr<Speculation> speculation_;        // null: no drafts
  std::vector<Speculation::Candidate> candidates_;  // scratch

  // Measurements. They decide between copy and recomputation, and the size of chunks.
  CostModel cost_model_;
  std::string costs_of_;           // the model and the machine, as the tiers keep them
  std::string costs_text_;         // scratch: with the costs
  std::uint64_t measured_ = 0;     // steps
  double copy_seconds_ = 2.5e-10;  // per byte, one way; a guess until the first copy
};

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

}  // namespace quire::engine
