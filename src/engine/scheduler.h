// Decides who is in the next step, and who has to make room.
//
// Every choice stands in one of two lists, both in the order of rank: waiting (new, or suspended) and running (its
// sequence is in the pool). schedule() first brings in from the waiting whom there is room for, then gives every
// running answer its token, then reads prompts with what is left of the budget. All room that the step needs is
// reserved when it returns.
//
// Memory. A choice is brought in only with room for all the tokens it has, a block for every answer that is running and
// the rest of every prompt. Who then needs more and finds none takes it from those behind in rank: the one that is
// cheapest to bring back is suspended, but for those who were brought back and have not written a token since. Who
// finds nobody keeps what it has and waits in place; where everybody does, the last in rank gives way. The first in
// rank fits alone (the engine refuses what does not), so there is always someone who gets on.
//
// Who may call: the engine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quire/engine/choice.h"

namespace quire::engine {

class Scheduler {
 public:
  Scheduler(SequencePool& pool, const EngineOptions& options, std::uint32_t step_tokens, std::uint32_t max_running);

  void add(Choice& choice);  // to the waiting
  // A choice whose sequence exists already (a fork): to the running.
  void add_running(Choice& choice, SequenceId sequence);
  // Gives back all that the choice has and forgets it.
  void remove(Choice& choice);

  // The next step. Empty: nobody can run.
  std::span<const Scheduled> schedule(EngineStats& stats);
  // How long the model took for that step; nothing of it has been committed yet.
  void measure(double model_seconds);

  std::uint32_t step_tokens() const { return step_tokens_; }
  std::uint32_t max_running() const { return max_running_; }
  std::span<Choice* const> waiting() const { return waiting_; }
  std::uint32_t queued() const { return queued_; }  // of the waiting, the new
  std::span<Choice* const> running() const { return running_; }
  std::uint64_t host_bytes() const { return host_bytes_; }

 private:
  void admit(EngineStats& stats);
  bool bring_in(Choice& choice, EngineStats& stats);
  bool begin(Choice& choice, std::span<const SequencePool::Demand> others, EngineStats& stats);
  void plan_stops(Choice& choice, const Hit& hit) const;
  bool waits_for_prefix(Choice& choice, EngineStats& stats);
  bool preempt_for(const Choice& choice, EngineStats& stats);

  void add_writers(EngineStats& stats);
  void add_readers(EngineStats& stats);
  std::uint32_t piece_end(const Choice& choice, std::uint32_t budget) const;
  bool make_room_behind(const Choice& choice, EngineStats& stats);
  Choice* cheapest(const Choice& behind, bool lower_priority_only);
  struct Cost {
    double seconds = 0;
    bool copy = false;
    std::uint64_t bytes = 0;
  };
  bool cost_of(const Choice& choice, Cost& cost) const;
  void suspend(Choice& choice, EngineStats& stats);
  void insert(std::vector<Choice*>& list, Choice& choice);
  static bool erase(std::vector<Choice*>& list, const Choice& choice);

  SequencePool* pool_;
  const EngineOptions* options_;
  std::uint32_t step_tokens_;
  std::uint32_t max_running_;
  bool has_windows_ = false;
  std::vector<Choice*> waiting_;  // by rank
  std::uint32_t queued_ = 0;      // of them, the new
  std::vector<Choice*> running_;  // by rank
  std::vector<Scheduled> batch_;
  std::vector<SequencePool::Demand> demands_;
  std::uint64_t host_bytes_ = 0;

  // Measured, for choosing between copies and computing again, and for the size of pieces.
  double write_step_seconds_ = 0;  // of a step that reads nothing
  std::uint32_t steps_with_reading_ = 0;
  double read_seconds_ = 0;        // for a token of a prompt
  double copy_seconds_ = 2.5e-10;  // for a byte, one way: a guess until the first copy
};

}  // namespace quire::engine
