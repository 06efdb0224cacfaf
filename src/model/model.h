// A model that can be run: its file, its numbers, its weights, and the walk of a batch of tokens through its layers.
// State is none of it: keys, values and recurrent states are in the pool that the step's views point into.
//
//   auto model = Model::load(path);
//   auto ok = model->prepare(backend, 256, 32);       // the largest step: rows, and rows whose logits are wanted
//   Rows logits = model->forward(backend, step, wanted);
//
// Who may call: one thread at a time; forward() uses the buffers that prepare() took and allocates nothing.
// How it fails: load() with one line that names the file and what is wrong with it; forward() not at all.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "quire/backend/backend.h"
#include "quire/model/constants.h"
#include "quire/model/hyperparameters.h"
#include "quire/model/weights.h"
#include "quire/state/layout.h"

namespace quire::model {

class Model {
 public:
  static Result<std::unique_ptr<Model>> load(const std::string& path);
  static Result<std::unique_ptr<Model>> create(gguf::File file);

  const gguf::File& file() const { return file_; }
  const Hyperparameters& numbers() const { return numbers_; }
  const Constants& constants() const { return constants_; }
  // What the model remembers, for a pool: groups and places in it are what forward() addresses.
  Result<StateLayout> layout(std::uint32_t block_size, ElementType kv_type) const;

  // Takes memory for steps of up to so many tokens, of which so many want logits, and brings the weights into the order
  // that the backend wants.
  Result<void> prepare(Backend& backend, std::uint32_t max_rows, std::uint32_t max_logits);
  std::uint64_t arranged_bytes() const { return arranged_.size(); }  // memory that the weights take besides the file's
  std::uint32_t max_rows() const { return max_rows_; }
  std::uint32_t max_logits() const { return max_logits_; }

  // Computes the step and writes its keys, values and states through its views. Gives the logits of the `wanted` rows,
  // in that order: [wanted][vocabulary], valid until the next step.
  Rows forward(Backend& backend, const Step& step, std::span<const std::uint32_t> wanted);

 private:
  explicit Model(gguf::File file) : file_(std::move(file)) {}
  Result<void> arrange_weights(Backend& backend);
  // From `in`, or from the residual stream, to `out`, which lacks only its weight.
  void attention_layer(Backend& backend, std::size_t layer, const AttentionWeights& weights, const Input& in,
                       Product out);
  void mamba2_layer(Backend& backend, std::size_t layer, const Mamba2Weights& weights, const Input& in, Product out);
  void feed_forward(Backend& backend, const FeedForwardWeights& weights, Rows x, Product out);
  void add_normed(Backend& backend, Rows x, Rows made, Vector norm);

  // Activations of a step: [max_rows][width] each.
  struct Buffer {
    DeviceBuffer memory;
    std::uint32_t cols = 0;
    Rows rows(std::uint32_t count, std::uint32_t width) const {
      return {reinterpret_cast<float*>(memory.data()), count, width, width};
    }
  };
  enum Slot : std::uint8_t {
    kResidual,
    kMade,
    kQuery,
    kKey,
    kValue,
    kMixed,
    kWide,
    kGate,
    kUp,
    kCos,
    kSin,
    kWindowCos,
    kWindowSin,
    kLast,
    kLogits,
    kSlots
  };
  Rows buffer(Slot slot, std::uint32_t count, std::uint32_t width) const { return buffers_[slot].rows(count, width); }

  gguf::File file_;
  Hyperparameters numbers_;
  Constants constants_;
  Weights bound_;    // as the file has them
  Weights weights_;  // as the backend wants them; small vectors are those of bound_
  DeviceBuffer arranged_;
  std::vector<StateLayout::Place> places_;  // by layer
  Buffer buffers_[kSlots];
  std::uint32_t max_rows_ = 0;
  std::uint32_t max_logits_ = 0;
};

}  // namespace quire::model
