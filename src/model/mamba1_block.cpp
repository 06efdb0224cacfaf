#include "quire/model/mamba1_block.h"

#include <algorithm>

#include "quire/model/loader.h"

namespace quire::model {

Mamba1Block::Mamba1Block(const Hyperparameters& model)
    : has_norms_(model.architecture->step_norms || model.recurrent.plain_step_norms),
      norms_have_weights_(model.architecture->step_norms),
      width_(model.embedding),
      shape_(model.recurrent) {}

void Mamba1Block::declare(TensorTable& table) {
  const std::uint64_t inner = shape_.inner;
  table.matrix("ssm_in.weight", 2 * inner, width_, in_);
  table.transposed("ssm_conv1d.weight", inner, shape_.conv_kernel, conv_);
  table.vector("ssm_conv1d.bias", inner, conv_bias_);
  table.matrix("ssm_x.weight", shape_.rank + 2 * std::uint64_t{shape_.state}, inner, x_);
  table.matrix("ssm_dt.weight", inner, shape_.rank, dt_);
  table.vector("ssm_dt.bias", inner, dt_bias_);
  table.transposed("ssm_a", inner, shape_.state, a_);
  table.vector("ssm_d", inner, d_);
  table.matrix("ssm_out.weight", width_, inner, out_);
  if (norms_have_weights_) {
    table.vector("ssm_dt_norm.weight", shape_.rank, dt_norm_);
    table.vector("ssm_b_norm.weight", shape_.state, b_norm_);
    table.vector("ssm_c_norm.weight", shape_.state, c_norm_);
  }
}

LayerDesc Mamba1Block::state(ElementType, ElementType state_type) const {
  return LayerDesc::recurrent(std::uint64_t{shape_.conv_kernel - 1} * shape_.inner * sizeof(float),
                              std::uint64_t{shape_.inner} * shape_.state * element_bytes(state_type), state_type);
}

// A norm without weights is one whose weights are all 1.
Result<void> Mamba1Block::compute(const FileSources&, const Tensor&, const Constants&,
                                  std::vector<HostVector>& computed) {
  if (!has_norms_ || norms_have_weights_) return {};
  computed.push_back({std::vector<float>(shape_.rank, 1.0f), &dt_norm_});
  computed.push_back({std::vector<float>(shape_.state, 1.0f), &b_norm_});
  computed.push_back({std::vector<float>(shape_.state, 1.0f), &c_norm_});
  return {};
}

std::uint64_t Mamba1Block::scratch_bytes(std::uint32_t rows) const {
  const std::uint64_t inner = shape_.inner;
  return Scratch::bytes_for(rows, {2 * inner, shape_.rank + 2 * std::uint64_t{shape_.state}, inner, inner});
}

void Mamba1Block::widen(Backend::Sizes& sizes) const { sizes.cols = std::max({sizes.cols, shape_.inner, shape_.rank}); }

void Mamba1Block::forward(const BlockStep& step, const Input& in, Product out) const {
  const std::uint32_t rows = in.x.rows, inner = shape_.inner, rank = shape_.rank, state = shape_.state;
  Scratch scratch(step.scratch);
  const Tensor wide = scratch.take(rows, 2 * inner), low = scratch.take(rows, rank + 2 * state);
  const Tensor dt = scratch.take(rows, inner), scanned = scratch.take(rows, inner);
  const Product first{.out = wide, .weight = &in_};
  backend().matmul({&first, 1}, in);
  const Tensor x = wide.columns(0, inner), gate = wide.columns(inner, inner);
  backend().convolve(x, {}, conv_, conv_bias_,
                     {.layer = place().index, .channels = inner, .width = shape_.conv_kernel});
  const Product second{.out = low, .weight = &x_};
  backend().matmul({&second, 1}, Input::plain(x));
  const Tensor low_dt = low.columns(0, rank), b = low.columns(rank, state), c = low.columns(rank + state, state);
  if (has_norms_) {
    backend().rms_norm(b, b, b_norm_, step.constants.epsilon);
    backend().rms_norm(c, c, c_norm_, step.constants.epsilon);
  }
  const Product third{.out = dt, .weight = &dt_};
  backend().matmul({&third, 1},
                   has_norms_ ? Input::normed(low_dt, dt_norm_, step.constants.epsilon) : Input::plain(low_dt));
  backend().mamba1_scan(scanned, x, b, c, dt, dt_bias_, a_, d_,
                        {.layer = place().index, .channels = inner, .state_dim = state});
  out.weight = &out_;
  backend().matmul({&out, 1}, Input::gated(gate, scanned, Activation::Silu));
}

}  // namespace quire::model
