// The tensors of a shape: their names, sizes, types and the distribution of their values, as llama.cpp's converter
// writes them for that architecture.
//
//   const auto plan = Plan::make(shape, *find_mix("Q4_K_M"));
//   for (const Tensor& tensor : plan->tensors()) ...
//
// Who may call: anyone, from any thread; there is no state. The shape and the mix outlive the plan.
// How it fails: with one line, if the rows of a tensor do not fit the type. The shape is one that check_shape() allows.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "quire/base/error.h"
#include "quire/bench/synth/family.h"
#include "quire/bench/synth/mix.h"
#include "quire/bench/synth/synth.h"
#include "quire/gguf/types.h"

namespace quire::synth {

// The distribution of a tensor's values.
enum class Kind : std::uint8_t {
  matrix,    // mean 0, standard deviation of one over the square root of the row length
  bias,      // close to 0
  key_bias,  // close to 0; outliers are as much larger than the projection's values, which are around 1
  score,     // mean 0, standard deviation 1: attention sinks
  norm,      // around 1
  decay,     // A of Mamba-2 and of the delta rule: -16 to -1, as before training
  ladder,    // A of Mamba-1: about -1, -2, ... -state for each channel, as before training
  step,      // the bias of dt: the logarithm of steps of about 0.001 to 0.1
  rope,      // Llama 3.1's RoPE frequency factors
};

struct Tensor {
  std::string name;
  Kind kind;
  gguf::Type type;
  std::vector<std::uint64_t> shape;  // shape[0]: the length of a row
  // Rows of a matrix, or elements of a vector, that are multiplied by a factor; rising.
  std::vector<std::uint64_t> scaled = {};
  float factor = 1;
  std::uint64_t inputs = 0;  // of a matrix: how many products are added, if that is not the row length

  std::uint64_t elements() const;
  std::uint64_t bytes() const;
  float deviation(float times = 1) const;  // of a matrix
};

class Plan {
 public:
  static Result<Plan> make(const Shape& shape, const Mix& mix);

  const std::vector<Tensor>& tensors() const { return tensors_; }  // in the order of the file
  Summary summary() const;

 private:
  Plan(const Shape& shape, const Mix& mix) : shape_(shape), family_(*find_family(shape.architecture)), mix_(mix) {}

  void vector(std::string_view name, Kind kind, std::vector<std::uint64_t> shape);
  // `index` of `count` tensors with this role.
  Result<void> matrix(std::string_view name, std::uint64_t columns, std::uint64_t rows, Role role = Role::other,
                      std::uint32_t index = 0, std::uint32_t count = 1);
  // One matrix for each expert or head.
  Result<void> stack(std::string_view name, std::vector<std::uint64_t> shape, Role role = Role::other,
                     std::uint32_t index = 0, std::uint32_t count = 1);
  Result<void> add(std::string_view name, std::vector<std::uint64_t> shape, Role role, std::uint32_t index,
                   std::uint32_t count, bool stacked);
  void scale(const std::vector<std::uint32_t>& channels, std::uint32_t heads, float factor);

  Result<void> add_all();
  Result<void> add_layer(std::uint32_t layer);
  Result<void> add_attention(std::uint32_t layer);
  void add_attention_vectors(std::uint32_t layer);
  Result<void> add_latent_attention();
  Result<void> add_recurrence();
  Result<void> add_mamba1();
  Result<void> add_mamba2();
  Result<void> add_delta_rule();
  Result<void> add_convolution();
  Result<void> add_feed_forward(std::uint32_t layer);
  Result<void> add_experts(std::uint32_t layer);

  const Shape& shape_;
  const Family& family_;
  const Mix& mix_;
  std::string prefix_;
  std::uint32_t values_ = 0, value_count_ = 0;  // tensors with Role::attention_value: added so far, and in all
  std::vector<Tensor> tensors_;
  std::map<std::tuple<gguf::Type, std::uint64_t, gguf::Type>, std::uint32_t>
      changes_;  // wanted, columns, given: number
};

}  // namespace quire::synth
