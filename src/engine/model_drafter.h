// Guesses with a smaller model of the same vocabulary: its most likely tokens, one after the other, for all choices in
// one batch.
//
// The smaller model has a backend and a pool of its own. A choice has a sequence there while it drafts. The sequence
// holds the answer so far and what was guessed last; where the answer went another way it is rewound, and what is new
// is computed. When the pool is full, the choice that has not drafted for longest gives up its sequence, which is
// computed again when it is wanted. Nothing here can fail a request: without room, or after a device error, there are
// no guesses.
//
// Who may call: the engine's thread. In steady state nothing is allocated from the heap.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quire/base/error.h"
#include "quire/engine/drafter.h"
#include "quire/engine/hosted_model.h"

namespace quire::engine {

// Whether tokens mean the same in both models. The error names the first difference.
Result<void> same_vocabulary(const model::Model& main, const model::Model& draft);

class ModelDrafter final : public Drafter {
 public:
  // The engine of the hosted model is not used.
  explicit ModelDrafter(std::unique_ptr<HostedModel> hosted);
  ~ModelDrafter() override;

  void propose(std::span<Drafts* const> wanted) override;
  double expected(std::uint32_t) const override { return 0.6; }
  double seconds_per_token() const override { return seconds_per_token_; }

 private:
  class Sequence;  // of a choice
  struct Writing {
    Drafts* drafts = nullptr;
    Sequence* sequence = nullptr;
  };
  Sequence* sequence_of(Drafts& drafts);
  bool open(Sequence& sequence);
  bool give_up_one(const Sequence& but);
  bool rewind(const Drafts& drafts, Sequence& sequence);
  bool reserve(const Sequence& sequence, SequenceId id, std::uint32_t rows);
  void begin_batch();
  void add(const Writing& writing, SequenceId id, std::span<const Token> tokens, bool last);
  bool compute();
  bool catch_up();
  bool step();
  void forget(const Sequence& sequence);

  std::unique_ptr<HostedModel> hosted_;
  bool keeps_states_ = false;  // it has recurrent layers
  std::uint32_t most_ = 0;     // choices that can draft at once
  Batch batch_;
  std::vector<Sequence*> open_;   // those that have a sequence in the pool
  std::vector<Writing> writing_;  // scratch: the choices of this call that still draft
  std::vector<Writing> in_step_;  // scratch: the entries of the batch
  std::vector<sampling::Job> jobs_;
  std::uint64_t calls_ = 0;
  double seconds_per_token_ = 1e-6;  // until it was measured
  bool broken_ = false;              // the device has failed
};

}  // namespace quire::engine
