// A model that is ready to answer: backend, model, pool, executor and engine, created together in the right order. The
// server, the commands and the benchmarks use it.
//
//   auto host = HostedModel::create(std::move(*model), {.max_sequences = 64});
//   (*host)->engine().submit(...);                          // on this thread
//   auto service = Service::start((*host)->release_engine());   // or on a thread of its own
//
// Who may call: one thread. A released engine belongs to its new owner and must be destroyed before the HostedModel.
//   Model, pool and backend then belong to the engine's thread. What never changes may still be read from any thread:
//   the model's file and hyperparameters, the pool's config.
// What holds: the pool allocates all its memory in create() and admits a sequence of context() tokens.
// How it fails: create() returns one line that says which value is too large or too small.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "quire/backend/factory.h"
#include "quire/base/error.h"
#include "quire/engine/engine.h"
#include "quire/engine/executor.h"
#include "quire/model/model.h"
#include "quire/model/state_layout.h"
#include "quire/state/sequence_pool.h"

namespace quire::engine {

struct HostOptions {
  BackendOptions backend;
  std::uint32_t context = 0;  // tokens of one sequence; 0: the model's, or as many as the memory holds
  // Bytes of the pool; 0: room for some sequences of the whole context, but at most half of the free memory.
  std::uint64_t memory = 0;
  ElementType kv_type = ElementType::F16;
  ElementType state_type = ElementType::F32;     // of recurrent states
  std::uint32_t block_size = kDefaultBlockSize;  // tokens of a page
  std::uint32_t max_sequences = 64;              // running at once
  std::uint32_t step_tokens = 256;               // in one step, unless more sequences than that decode
  std::uint32_t max_logits = 0;                  // rows of logits in one step; raised to max_sequences, and for drafts
  // Recurrent models. Checkpoints are a cache. The default size of the pool has room for this many beside the state of
  // each sequence of the whole context, and together they may take checkpoint_percent of the pool. Both may be 0.
  std::uint32_t checkpoints = 8;
  std::uint32_t checkpoint_percent = 50;
  std::uint32_t checkpoint_interval = 256;  // tokens between two checkpoints
  // They lie at multiples of so many tokens, whatever the block size. Models without recurrent layers: see PoolConfig.
  std::uint32_t checkpoint_unit = model::kDefaultCheckpointUnit;
  bool prefix_cache = true;
  std::uint32_t event_capacity = 1 << 14;  // of the pool's log
  PoolJournal* journal = nullptr;          // is told of every operation on the pool; must outlive the HostedModel
  // Where state lies besides the pool, with its tiers added and no pool attached yet. They end with the hosted model.
  // Null: nowhere.
  std::shared_ptr<tiers::Tiers> tiers = {};
  // Guess with the model's own head (model::Model::head()), on a second backend that is made by `backend`, which must
  // give one like the model's. The engine's drafter is set here then. A model without a head is refused.
  bool heads = false;
  EngineOptions engine;  // leave its step_tokens 0 and its tiers null
};

// What the bits of a backend depend on: "cpu avx512". The number of a GPU is not part of it, so two GPUs of a kind find
// what the other one stored.
std::string arithmetic_of(const BackendFacts& facts);

class HostedModel {
 public:
  static Result<std::unique_ptr<HostedModel>> create(std::unique_ptr<model::Model> model, const HostOptions& options);
  // On the caller's backend; options.backend is used for heads only.
  static Result<std::unique_ptr<HostedModel>> create(std::unique_ptr<model::Model> model,
                                                     std::unique_ptr<Backend> backend, const HostOptions& options);
  ~HostedModel();
  HostedModel(const HostedModel&) = delete;
  HostedModel& operator=(const HostedModel&) = delete;

  const model::Model& model() const { return *model_; }
  SequencePool& pool() { return *pool_; }
  const SequencePool& pool() const { return *pool_; }
  const Backend& backend() const { return *backend_; }
  Executor& executor() { return *executor_; }
  Engine& engine() { return *engine_; }  // until it is released
  const Engine& engine() const { return *engine_; }
  std::unique_ptr<Engine> release_engine() { return std::move(engine_); }
  std::uint32_t context() const { return pool_->config().max_tokens; }
  std::uint32_t max_sequences() const { return pool_->config().max_sequences - (tiers_ ? kTierSequences : 0); }
  tiers::Tiers* tiers() { return tiers_.get(); }  // null: there are none

 private:
  HostedModel();

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<model::Model> model_;
  std::shared_ptr<tiers::Tiers> tiers_;  // outlives the pool, which tells it what it caches
  std::unique_ptr<SequencePool> pool_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace quire::engine
