// A model that can be run: its file, its hyperparameters, its weights on a device, and the forward pass. It has no
// state of sequences: keys, values and recurrent states are in the pool that the batch points into.
//
//   auto model = Model::load(path);
//   auto ok = model->prepare(backend, 256, 32);       // the largest step: rows, and rows with logits
//   auto output = model->forward(batch, wants);       // of a batch that the pool has bound
//
// Who may call: one thread at a time. forward() uses the buffers that prepare() took, and allocates nothing.
// How it fails: load() and prepare() with one line that names the file and what is wrong; forward() with the device's
//   error, after which the step is void.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "quire/backend/backend.h"
#include "quire/model/adapter.h"
#include "quire/model/block.h"
#include "quire/model/constants.h"
#include "quire/model/hyperparameters.h"
#include "quire/model/step.h"
#include "quire/model/tensor_table.h"
#include "quire/state/layout.h"

namespace quire::model {

// The tensors of a model that are not of a layer.
struct ModelTensors {
  Weight embedding;    // [vocabulary][embedding]
  Weight positions;    // [context][embedding]; not valid: none
  Weight output;       // [vocabulary][embedding]; the embedding itself if tied
  Tensor output_bias;  // [vocabulary]; not valid: none
  Tensor norm;         // [embedding], before the output matrix
  Tensor norm_bias;    // [embedding]; not valid: none
  // Of a head: the norms of its two inputs, and the matrix that makes one of them: [embedding][2 * embedding].
  Tensor token_norm, hidden_norm;
  Weight joined;
};

// A layer is a list of these.
struct JoinedBlock {
  Join join = Join::After;
  bool shares_input = false;  // the next block reads the same input
  bool post_normed = false;
  Tensor norm;       // [embedding], of its input; not valid: none
  Tensor norm_bias;  // [embedding]; not valid: none
  Tensor post_norm;  // [embedding], of its output
  std::unique_ptr<Block> block;
};

// The blocks of all layers, in order, with nothing bound yet.
std::vector<JoinedBlock> make_blocks(const Hyperparameters& model);

// Whether the file has the tensors that its hyperparameters and its architecture's row require (tensor_table.h).
// Nothing is loaded. Those of layers behind the last one are not looked at: without them the model is complete.
Result<void> check_tensors(const gguf::File& file, const Hyperparameters& model);
// Whether the file has a head (Model::head()) and the tensors that it requires. Those of the model were checked before.
Result<void> check_head(const gguf::File& file, const Hyperparameters& model);

class Model {
 public:
  // `context`: tokens that sequences may have, where the caller knows it; 0: as many as the model was trained for.
  // Models with two lists of rotary factors take the long or the short ones by it (constants.h).
  static Result<std::unique_ptr<Model>> load(const std::string& path, std::uint32_t context = 0);
  // `row`: for tests, an architecture that is not in the table.
  static Result<std::unique_ptr<Model>> create(gguf::File file, const Architecture* row = nullptr,
                                               std::uint32_t context = 0);

  // The head of this model: the layer behind its last one that guesses the token after the next (MTP, NextN), as a
  // model of its own. From the hidden state h of a position (after the final norm) and the token t that follows it, it
  // computes
  //   x = joined [norm(embedding(t)); norm(h)],  x = layer(x),  g = norm(x),  logits = output g
  // of which the best is the guess of the token after t. With g in the place of h and the guess in that of t it guesses
  // on. Embedding, output and final norm are this model's where the file has none for the head, so this model must have
  // been prepared before the head is, on a backend of the same kind, and must outlive it.
  // Fails where there is none (Hyperparameters::head), and where the file has other tensors in its layer than it needs.
  Result<std::unique_ptr<Model>> head() const;

  const gguf::File& file() const { return *file_; }
  const Hyperparameters& hyperparameters() const { return hyperparameters_; }
  const Constants& constants() const { return constants_; }
  // What the bits of keys and values depend on, beside the file and the backend: part of a fingerprint (fingerprint.h).
  const char* arithmetic() const;
  // The state layout for a pool. forward() addresses the groups and layers of this layout.
  Result<StateLayout> layout(std::uint32_t block_size, ElementType kv_type,
                             ElementType state_type = ElementType::F32) const;

  // Adds an adapter, to be chosen by number for each sequence (BatchEntry::adapter): the first one is 1. Before
  // prepare(), which loads all of them.
  Result<void> add_adapter(const AdapterOptions& options);
  Result<void> add_adapter(gguf::File file, const AdapterOptions& options);
  std::span<const Adapter> adapters() const { return adapters_; }
  std::uint32_t adapter_number(std::string_view name) const;  // 0: there is none of that name
  std::uint64_t adapter_bytes() const;                        // device memory that adapters take

  // Loads the weights to the backend's device, and allocates memory there for steps of up to `max_rows` tokens and
  // `max_logits` rows of logits. The backend must outlive the model.
  Result<void> prepare(Backend& backend, std::uint32_t max_rows, std::uint32_t max_logits);
  std::uint64_t weight_bytes() const { return weights_.size(); }  // device memory that the weights take
  std::uint32_t max_rows() const { return max_rows_; }
  std::uint32_t max_logits() const { return max_logits_; }
  // What a step may be asked to sample.
  const sampling::Limits& sampling_limits() const { return sampling_limits_; }

  // Runs a batch that the pool has bound, and writes its keys, values and states. Logits are computed for the rows that
  // the batch wants. Tokens are sampled on the device, and only logits and hidden states that were asked for are read
  // back.
  PoolResult<StepOutput> forward(const Batch& batch, const StepWants& wants);

 private:
  explicit Model(std::shared_ptr<const gguf::File> file) : file_(std::move(file)) {}
  Input normed(Tensor x, Tensor weight, Tensor bias) const;
  void norm(Tensor out, Tensor x, Tensor weight, Tensor bias);
  PoolResult<void> check_positions(const Batch& batch) const;
  PoolResult<void> check_adapters(const Batch& batch) const;
  void join_inputs(Tensor x);
  void borrow();
  void walk_layers(const BlockStep& step, Tensor x);
  void compute_logits(Tensor rows, Tensor logits);
  BlockStep begin_step(const Batch& batch);
  std::unexpected<Error> refuse(const PoolError& error) const;
  Result<std::vector<HostVector>> compute_vectors();
  Result<void> load_adapters();
  Result<void> take_buffers(std::uint32_t max_rows, std::uint32_t max_logits);

  // Activations of a step: [rows][cols] each, and the scratch memory of blocks.
  enum Buffer : std::uint8_t {
    kResidual,
    kNormed,  // input of two blocks side by side
    kOutput,  // of a block, before its norm and before it is added
    kCos,
    kSin,
    kWindowCos,
    kWindowSin,
    kLast,    // rows whose logits are wanted
    kHidden,  // the same after the final norm, if the host wants to see them
    kLogits,
    kEvery,   // all rows after the final norm, for a head
    kGiven,   // of a head: hidden states that the host gives
    kJoined,  // of a head: both inputs
    kBuffers
  };
  Tensor buffer(Buffer which, std::uint32_t rows, std::uint32_t cols) const {
    return {buffers_[which].data(), rows, cols, cols, ElementType::F32};
  }

  std::shared_ptr<const gguf::File> file_;
  const Model* whole_ = nullptr;  // the model that this is a head of; null: it is none
  Hyperparameters hyperparameters_;
  Constants constants_;
  std::vector<Binding> bindings_;  // tensors of the file and where they go

  Backend* backend_ = nullptr;
  DeviceBuffer weights_;
  std::vector<JoinedBlock> blocks_;  // of all layers
  ModelTensors tensors_;
  bool tied_ = false;  // the file has no output matrix of its own
  std::vector<Adapter> adapters_;
  std::vector<DeviceBuffer> adapter_memory_;
  std::vector<LowRank> low_ranks_;  // [adapted matrices][adapters]; Weight::adapters point here
  Tensor frequencies_, window_frequencies_;
  DeviceBuffer buffers_[kBuffers];
  DeviceBuffer scratch_;
  std::uint32_t max_rows_ = 0;
  std::uint32_t max_logits_ = 0;
  sampling::Limits sampling_limits_;
};

}  // namespace quire::model
