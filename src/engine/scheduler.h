// Decides who is in the next step, and who has to make room.
//
// Every choice stands in one of two lists, both in the order of rank: waiting (new, or suspended) and running (its
// sequence is in the pool). schedule() first admits from the waiting whom there is room for, then gives every decoding
// choice its token, then fills the rest of the token budget with chunks of prompts. All room that the step needs is
// reserved when it returns.
//
// Memory. A choice is admitted only with room for all the tokens it has, a block for every choice that decodes, and the
// rest of every prompt. A running choice that needs more and finds none takes it from those behind it in rank: the one
// that is cheapest to bring back is suspended, except those that were resumed and have not decoded a token since. If
// there is nobody to take from, the choice keeps what it has and waits in place; where everybody does, the last in rank
// is suspended. The first in rank fits alone (the engine refuses what does not), so somebody always gets on.
//
// Device errors. An operation that the device refuses concerns one choice: it is reported in failures(). Work that
// failed after it was submitted (PoolError::Code::WorkFailed) voids everything on the device: lost() says so, and the
// engine throws the step away and calls suspend_all().
//
// Who may call: the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "quire/engine/choice.h"

namespace quire::engine {

class Scheduler {
 public:
  Scheduler(SequencePool& pool, const EngineOptions& options, std::uint32_t step_tokens, std::uint32_t max_running,
            std::uint32_t max_logits);

  void add(Choice& choice);  // to the waiting
  // A choice whose sequence exists already (a fork): to the running.
  void add_running(Choice& choice, SequenceId sequence);
  // Gives back all that the choice has and forgets it.
  void remove(Choice& choice);

  // The next step. Empty: nobody can run.
  Step& schedule();
  // How long the model took for that step. Nothing of it has been committed yet.
  void measure(double model_seconds);

  // What the device refused in the last schedule(): such a choice cannot get on.
  struct Failure {
    Choice* choice;
    PoolError error;
  };
  std::span<const Failure> failures() const { return failures_; }
  bool lost() const { return lost_; }
  // Releases every sequence without a copy. Each is computed again from its tokens when it is resumed.
  void suspend_all();

  // What the scheduler counts; the engine counts the rest of EngineStats.
  struct Counters {
    std::uint64_t prompt_tokens = 0, cached_tokens = 0;
    std::uint64_t suspensions_by_copy = 0, suspensions_by_recompute = 0, resumed = 0;
    std::uint64_t bytes_saved = 0;
    std::uint64_t prefix_waits = 0;
  };
  const Counters& counters() const { return counters_; }
  std::uint32_t step_tokens() const { return step_tokens_; }
  std::uint32_t max_running() const { return max_running_; }
  std::span<Choice* const> waiting() const { return waiting_; }
  std::uint32_t queued() const { return queued_; }  // of the waiting, the new ones
  std::span<Choice* const> running() const { return running_; }
  std::uint64_t host_bytes() const { return host_bytes_; }

 private:
  enum class Admission : std::uint8_t { Done, NoRoom, Failed };
  void admit();
  Admission bring_in(Choice& choice);
  Admission start(Choice& choice);
  Admission restore(Choice& choice);
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
  const EngineOptions* options_;
  std::uint32_t step_tokens_;
  std::uint32_t max_running_;
  std::uint32_t max_logits_;
  bool has_windows_ = false;
  std::vector<Choice*> waiting_;  // by rank
  std::uint32_t queued_ = 0;      // of them, the new ones
  std::vector<Choice*> running_;  // by rank

  // The step that is being planned: entries and whose they are. pack() makes the batch of them.
  std::vector<BatchEntry> entries_;
  Step step_;
  std::vector<BatchEntry> others_;  // scratch: what the running ones shall still find room for
  std::vector<Failure> failures_;
  bool lost_ = false;
  std::uint64_t host_bytes_ = 0;
  Counters counters_;

  // Measured, for choosing between copies and recomputation, and for the size of chunks.
  double decode_step_seconds_ = 0;  // of a step without prefill
  std::uint32_t mixed_steps_ = 0;
  double prefill_seconds_ = 0;     // for a token of a prompt
  double copy_seconds_ = 2.5e-10;  // for a byte, one way: a guess until the first copy
};

}  // namespace quire::engine
