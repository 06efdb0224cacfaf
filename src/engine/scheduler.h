// Decides which choices are in the next step, and which are preempted.
//
// Every choice is in one of two lists, both in the order of rank: waiting (new, or suspended) and running (its sequence
// is in the pool). schedule() first admits waiting choices that fit. Then it gives every decoding choice its token.
// Then it fills the rest of the token budget with chunks of prompts. When it returns, all memory that the step needs is
// reserved.
//
// Memory. A waiting choice may preempt running choices of lower priority. It is admitted only if there is room for all
// its tokens, and beside them for a block for every decoding choice and for the rest of every running prompt. When a
// running choice needs more memory and there is none, it preempts a choice behind it in rank: the one that is cheapest
// to resume is suspended. A choice that was resumed and has not decoded a token since is not preempted. If there is
// none to preempt, the choice keeps its pages and waits in place. If all choices wait in place, the last in rank is
// suspended. The first in rank fits alone (the engine refuses a request that does not), so there is always progress.
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
#include <vector>

#include "quire/engine/choice.h"

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
  };
  const Counters& counters() const { return counters_; }
  std::uint32_t step_tokens() const { return step_tokens_; }
  std::uint32_t max_running() const { return max_running_; }
  std::span<Choice* const> waiting() const { return waiting_; }
  std::uint32_t queued() const { return queued_; }  // waiting choices that were never admitted
  std::span<Choice* const> running() const { return running_; }
  const HostArena& host_arena() const { return *host_arena_; }

 private:
  enum class Admission : std::uint8_t { Done, NoRoom, Failed };
  void admit();
  Admission try_admit(Choice& choice);
  Admission start(Choice& choice);
  Admission restore(Choice& choice);
  void note_copy(Clock::time_point begin, std::uint64_t bytes);
  void plan_checkpoints(Choice& choice, const Hit& hit) const;
  bool waits_for_prefix(Choice& choice);

  void add_decodes();
  void add_prefills();
  std::uint32_t chunk_end(const Choice& choice, std::uint32_t budget) const;
  bool reserve(Choice& choice, std::uint32_t tokens);
  void plan(Choice& choice, std::uint32_t tokens, Logits logits, bool checkpoint);
  void pack();

  bool preempt_behind(const Choice& choice, bool lower_priority_only);
  struct Cost {
    double seconds = 0;
    bool copy = false;
  };
  std::optional<Cost> cost_of(const Choice& choice) const;
  void suspend(Choice& choice, bool copy);
  void note(Choice& choice, const PoolError& error);
  void insert(std::vector<Choice*>& list, Choice& choice);
  static bool erase(std::vector<Choice*>& list, const Choice& choice);

  SequencePool* pool_;
  std::unique_ptr<HostArena> host_arena_;  // for copies of suspended sequences
  const EngineOptions* options_;
  std::uint32_t step_tokens_;
  std::uint32_t max_running_;
  std::uint32_t max_logits_;
  bool has_windows_ = false;
  std::vector<Choice*> waiting_;  // by rank
  std::uint32_t queued_ = 0;      // of those, the ones that were never admitted
  std::vector<Choice*> running_;  // by rank

  // The step that is being planned. Entry i belongs to step_.choices[i]. pack() makes the batch from the entries.
  std::vector<BatchEntry> entries_;
  Step step_;
  std::vector<BatchEntry> others_;  // scratch: memory that must stay free for the running choices
  std::vector<Failure> failures_;
  bool lost_ = false;
  Counters counters_;

  // Measurements. They decide between copy and recomputation, and the size of chunks.
  double decode_step_seconds_ = 0;  // of a step without prefill
  std::uint32_t mixed_steps_ = 0;   // steps with both decode and prefill
  double prefill_seconds_ = 0;      // per token of a prompt
  double copy_seconds_ = 2.5e-10;   // per byte, one way; a guess until the first copy
};

}  // namespace quire::engine
