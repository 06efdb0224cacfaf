// One sequence on a pool of its own: what a program needs that runs a model for one person. A server's many sequences
// are the scheduler's; they share no code with this but the runner below it.
//
//   auto session = Session::create(std::move(*model), {.context = 2048});
//   auto reading = (*session)->read(prompt);              // computes what the sequence does not hold yet
//   auto next = sampler.sample((*session)->logits(), (*session)->length());
//   auto ok = (*session)->write(*next);                   // and again
//
// Who may call: one thread. After create() nothing but an error takes memory from the heap.
// What holds: the pool takes all its memory in create() and admits one sequence of context() tokens, whatever is read
//   and written; so neither read() nor write() fails for memory.
// How it fails: create() with one line that says which number is too large or too small; read() and write() where the
//   tokens do not fit the context or are none of the model's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "quire/backend/cpu/cpu_backend.h"
#include "quire/base/error.h"
#include "quire/model/runner.h"
#include "quire/state/sequence_pool.h"

namespace quire::engine {

struct SessionOptions {
  std::uint32_t threads = 0;  // 0: one for each core this process may use
  std::uint32_t context = 0;  // tokens; 0: the model's, or as many as the memory holds
  std::uint64_t memory = 0;   // bytes of the pool; 0: what one sequence takes
  ElementType kv_type = ElementType::F16;
  std::uint32_t chunk = 256;     // tokens read at once
  std::uint32_t max_logits = 1;  // rows of them, at once
  // The sequence may be rewound: recurrent states are kept on the way, and where the context is read again after a
  // reset(), its beginning is found in the pool.
  bool rewinds = false;
  const cpu::Kernels* kernels = nullptr;  // null: the best this processor has
};

class Session {
 public:
  static Result<std::unique_ptr<Session>> create(std::unique_ptr<model::Model> model, const SessionOptions& options);

  // Called between chunks with the tokens done and all there are; false stops the reading there.
  using Watch = std::function<bool(std::uint32_t done, std::uint32_t total)>;
  struct Reading {
    std::uint32_t reused = 0;  // tokens that the sequence held already
    std::uint32_t computed = 0;
    bool complete = true;  // false: the watch stopped it; the sequence holds the beginning
  };
  // Makes the sequence hold these tokens and no others.
  Result<Reading> read(std::span<const Token> tokens, const Watch& watch = {});
  // The same from the beginning, handing out the logits of every token, chunk by chunk, in order.
  using RowsSink = std::function<Result<void>(const Rows& logits)>;
  Result<void> read_all(std::span<const Token> tokens, const RowsSink& sink);
  // One more token.
  Result<void> write(Token token);
  // Forgets the sequence. What the pool has cached of it stays until something needs the room.
  void reset();

  // Of the token that was read or written last: [vocabulary], until the next call. Empty if the last reading was
  // stopped.
  std::span<const float> logits() const { return logits_; }
  std::uint32_t length() const;  // tokens the sequence holds
  std::uint32_t context() const { return pool_->config().max_tokens; }

  const model::Model& model() const { return *model_; }
  const SequencePool& pool() const { return *pool_; }
  const CpuBackend& backend() const { return *backend_; }

 private:
  Session() = default;
  Result<Rows> step(std::span<const Token> tokens, model::Runner::Work::Logits logits, bool checkpoint);
  Result<std::uint32_t> stand_before_rest(std::span<const Token> tokens);
  std::uint32_t last_boundary(std::uint32_t end) const;
  std::uint32_t next_chunk(std::uint32_t position, std::uint32_t end) const;

  std::unique_ptr<CpuBackend> backend_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<SequencePool> pool_;
  std::optional<model::Runner> runner_;
  std::optional<SequenceId> sequence_;
  std::span<const float> logits_;
  bool keeps_checkpoints_ = false;
};

}  // namespace quire::engine
