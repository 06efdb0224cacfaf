// A block: a part of a layer. It reads the residual stream (or the same input as its neighbour) and adds to the stream.
// Attention, Mamba-2 and feed-forward are blocks, and a layer is a list of them (architecture.h). A block knows its
// tensors, its state for a sequence, the scratch memory that it needs, and its forward pass.
//
//   declare()   its tensors: checked against the file, and bound
//   state()     what the pool keeps for it
//   compute()   vectors that follow from its tensors and are not in the file
//   place()     where that state is, and on which backend the block runs
//   forward()   a step
//
// Who may call: one thread. A block does not change after place(); the loader fills the tensors that it declared.
// How it fails: not at all. Errors of a model are found before its blocks are placed.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

#include "quire/backend/backend.h"
#include "quire/model/constants.h"
#include "quire/model/hyperparameters.h"
#include "quire/model/tensor_table.h"
#include "quire/state/layout.h"

namespace quire::model {

class FileSources;  // loader.h
struct HostVector;

// Scratch memory for the intermediate results of a block. Each block may use all of it, since blocks run one at a time.
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

// The inputs that all blocks of a step share.
struct BlockStep {
  const Constants& constants;
  Tensor cosines, sines;                // rotary angles: [rows][pairs]
  Tensor window_cosines, window_sines;  // the same for layers with a window
  std::byte* scratch = nullptr;
};

class Block {
 public:
  virtual ~Block() = default;

  virtual void declare(TensorTable& table) = 0;
  // What the pool keeps for it per sequence.
  virtual LayerDesc state(ElementType /*kv_type*/, ElementType /*state_type*/) const { return {}; }
  void place(Backend& backend, const StateLayout::Place& place) {
    backend_ = &backend;
    place_ = place;
  }

  // Adds the vectors that the block computes from its tensors in the file. `norm`: the destination of the weights that
  // its input is normed with; the file may have none.
  virtual Result<void> compute(const FileSources& /*file*/, const Tensor& /*norm*/, const Constants& /*constants*/,
                               std::vector<HostVector>& /*computed*/) {
    return {};
  }

  virtual std::uint64_t scratch_bytes(std::uint32_t rows) const = 0;
  // Raises the sizes to what this block needs.
  virtual void widen(Backend::Sizes& sizes) const = 0;
  // Computes the block from `in`. Its last product goes to `out`; the block adds the weight and the bias.
  virtual void forward(const BlockStep& step, const Input& in, Product out) const = 0;

 protected:
  Backend& backend() const { return *backend_; }
  const StateLayout::Place& place() const { return place_; }

 private:
  Backend* backend_ = nullptr;
  StateLayout::Place place_;
};

// Makes a block of this kind for a layer.
std::unique_ptr<Block> make_block(BlockKind kind, const Hyperparameters& model, const Layer& layer);

}  // namespace quire::model
