// A block: part of a layer that reads the residual stream (or what its neighbour reads) and adds to it. Attention,
// Mamba-2 and the feed-forward part are blocks; a layer is a list of them (architecture.h). A block knows its tensors,
// what it remembers of a sequence, what scratch memory it wants, and how a batch goes through it.
//
//   declare()   its tensors: checked against the file, and bound
//   state()     what the pool keeps for it
//   place()     where that is, and on which backend it runs
//   forward()   a step
//
// Who may call: one thread. A block does not change after place(); the tensors it declared are filled by the loader.
// How it fails: not at all. What can be wrong with a model is found before it is placed.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>

#include "quire/backend/backend.h"
#include "quire/model/constants.h"
#include "quire/model/hyperparameters.h"
#include "quire/model/tensor_table.h"
#include "quire/state/layout.h"

namespace quire::model {

// Memory for what a block computes on the way. Each block has all of it for itself.
class Scratch {
 public:
  static std::uint64_t bytes_for(std::uint32_t rows, std::initializer_list<std::uint64_t> cols) {
    std::uint64_t bytes = 0;
    for (const std::uint64_t count : cols) bytes += bytes_of(rows, count);
    return bytes;
  }
  explicit Scratch(std::byte* memory) : next_(memory) {}
  Tensor take(std::uint32_t rows, std::uint32_t cols) {
    const Tensor tensor{next_, rows, cols, cols, ElementType::F32};
    next_ += bytes_of(rows, cols);
    return tensor;
  }

 private:
  static std::uint64_t bytes_of(std::uint32_t rows, std::uint64_t cols) {
    return round_up(rows * cols * sizeof(float), kObjectAlignment);
  }
  std::byte* next_;
};

// What a step hands to all its blocks.
struct BlockStep {
  const Constants& constants;
  Tensor cosines, sines;                // rotary angles: [rows][pairs]
  Tensor window_cosines, window_sines;  // of layers with a window
  std::byte* scratch = nullptr;
};

class Block {
 public:
  virtual ~Block() = default;

  virtual void declare(TensorTable& table) = 0;
  // What it remembers of a sequence.
  virtual LayerDesc state(ElementType) const { return {}; }
  void place(Backend& backend, const StateLayout::Place& place) {
    backend_ = &backend;
    place_ = place;
  }

  virtual std::uint64_t scratch_bytes(std::uint32_t rows) const = 0;
  // Makes the backend's sizes large enough for this block.
  virtual void widen(Backend::Sizes& sizes) const = 0;
  // From `in` to `out`, which lacks only its weight and bias.
  virtual void forward(const BlockStep& step, const Input& in, Product out) const = 0;

 protected:
  Backend& backend() const { return *backend_; }
  const StateLayout::Place& place() const { return place_; }

 private:
  Backend* backend_ = nullptr;
  StateLayout::Place place_;
};

// A block of this kind for a layer.
std::unique_ptr<Block> make_block(BlockKind kind, const Hyperparameters& model, const Layer& layer);

}  // namespace quire::model
