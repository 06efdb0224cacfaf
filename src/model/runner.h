// A model on a pool: takes tokens for sequences of the pool, in a ragged batch, and does with them what a step does:
// reserve, compute, commit. The tables that kernels read are made once per step.
//
// Who may call: the thread that owns the pool. Nothing is allocated after create().
// How it fails: with the pool's error where there is no room; then nothing has happened.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "quire/model/model.h"
#include "quire/state/sequence_pool.h"

namespace quire::model {

class Runner {
 public:
  // Model, backend and pool must outlive the runner; the model has been prepared.
  static Result<Runner> create(Model& model, Backend& backend, SequencePool& pool);

  struct Work {
    SequenceId id;
    std::span<const Token> tokens;
    enum class Logits : std::uint8_t { None, Last, All } logits = Logits::Last;
    bool checkpoint = false;  // keep the recurrent state where these tokens end, if that is a block boundary
  };
  // One step: at most model.max_rows() tokens, and max_logits() rows of logits. Logits come in the order of the work.
  PoolResult<Rows> run(std::span<const Work> work);
  // The middle of it alone, for who reserves and commits himself.
  PoolResult<Rows> forward(std::span<const Work> work);

 private:
  PoolResult<void> check(std::span<const Work> work) const;
  Runner(Model& model, Backend& backend, SequencePool& pool) : model_(&model), backend_(&backend), pool_(&pool) {}

  Model* model_;
  Backend* backend_;
  SequencePool* pool_;
  std::vector<Token> tokens_;
  std::vector<std::uint32_t> positions_;
  std::vector<std::uint32_t> wanted_;
  std::vector<Step::Part> parts_;
  std::vector<KvView> kv_;
  std::vector<std::uint64_t> layer_bytes_;
  std::vector<StateView> states_;
  std::vector<SequencePool::Demand> demands_;
};

}  // namespace quire::model
