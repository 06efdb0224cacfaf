// Guesses with the model's own head (model::Model::head()): a layer that computes the token after the next from the
// model's last hidden state and the next token. A guess costs one layer and the output matrix.
//
// The head has a backend and a pool of its own for its keys and values. The engine shows the hidden states of every
// step (Drafter::observe). Each of them makes a pair with the token that follows it, and the pairs of a choice, in
// their order, are its sequence in that pool. Long ones, which are prompts, are computed at once. Others wait until the
// choice drafts, so a choice that does not draft costs nothing. The first guess comes from the last pair. The next ones
// come from the head's own hidden state and its last guess: pairs that are forgotten when the call ends.
//
// A sequence begins where the first hidden state was seen. It begins anew where there was a gap: behind a prefix that
// came from the cache, in the other choices of a request (their prompt was the first one's), after a long time without
// drafts, or when the pool was full. The head attends to what it has seen, at distances as they are, so what is lost
// makes guesses worse and changes no answer.
//
// Who may call: the engine's thread. In steady state nothing is allocated from the heap.
// How it fails: it does not. Without room, or after a device error, there are no guesses.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quire/base/error.h"
#include "quire/engine/drafter.h"
#include "quire/engine/hosted_model.h"

namespace quire::engine {

// A drafter for a model that has been prepared on `backend`. Both must outlive it.
Result<std::shared_ptr<Drafter>> make_head_drafter(const model::Model& model, const Backend& backend,
                                                   const HostOptions& options);

class HeadDrafter final : public Drafter {
 public:
  // The engine of the hosted head is not used.
  explicit HeadDrafter(std::unique_ptr<HostedModel> head);
  ~HeadDrafter() override;

  void propose(std::span<Drafts* const> wanted) override;
  double expected(std::uint32_t) const override { return 0.7; }
  double seconds_per_token() const override { return seconds_per_token_; }
  bool observes() const override { return true; }
  void observe(Drafts& drafts, std::uint32_t position, const HostRows& hidden) override;

  std::uint64_t computed_pairs() const { return computed_pairs_; }  // of hidden states that were shown (tests)

 private:
  class Sequence;  // of a choice
  struct Writing {
    Drafts* drafts = nullptr;
    Sequence* sequence = nullptr;
  };
  Sequence* sequence_of(Drafts& drafts);
  bool open(Sequence& sequence);
  bool give_up_one(const Sequence& but);
  bool reserve(const Sequence& sequence, std::uint32_t rows);
  bool flush(const Drafts& drafts, Sequence& sequence);
  void begin_batch();
  void add(const Writing& writing, std::span<const Token> tokens, std::span<const float> hidden, Logits logits);
  bool compute();
  bool catch_up();
  bool step();
  void forget(const Sequence& sequence);

  std::unique_ptr<HostedModel> head_;
  std::uint32_t width_ = 0;  // of a hidden state
  std::uint32_t most_ = 0;   // choices that can have a sequence at once
  Batch batch_;
  std::vector<Sequence*> open_;        // those that have a sequence in the pool
  std::vector<Writing> writing_;       // scratch: the choices of this call that still draft
  std::vector<Writing> in_step_;       // scratch: those that get a guess from the batch
  std::vector<float> given_;           // scratch: hidden states of the rows of the batch
  std::vector<std::uint32_t> wanted_;  // scratch: rows whose hidden states are wanted
  std::vector<sampling::Job> jobs_;
  std::uint64_t calls_ = 0;
  std::uint64_t computed_pairs_ = 0;
  double seconds_per_token_ = 1e-6;  // until it was measured
  bool broken_ = false;              // the device has failed
};

}  // namespace quire::engine
