#include "quire/model/model.h"

#include <algorithm>
#include <utility>

#include "quire/model/state_layout.h"
#include "quire/model/tensors.h"

namespace quire::model {

Result<std::unique_ptr<Model>> Model::load(const std::string& path) {
  auto file = gguf::File::open(path);
  if (!file) return std::unexpected(file.error());
  return create(std::move(*file));
}

Result<std::unique_ptr<Model>> Model::create(gguf::File file) {
  std::unique_ptr<Model> model(new Model(std::move(file)));
  auto numbers = read_hyperparameters(model->file_);
  if (!numbers) return std::unexpected(numbers.error());
  model->numbers_ = std::move(*numbers);
  auto constants = read_constants(model->file_, model->numbers_);
  if (!constants) return std::unexpected(constants.error());
  model->constants_ = std::move(*constants);
  const auto layout = state_layout(model->numbers_);
  if (!layout) return std::unexpected(layout.error());
  model->places_ = layout->places;
  if (auto ok = check_tensors(model->file_, model->numbers_); !ok) return std::unexpected(ok.error());
  auto weights = load_weights(model->file_, model->numbers_);
  if (!weights) return std::unexpected(weights.error());
  model->weights_ = std::move(*weights);
  return model;
}

Result<StateLayout> Model::layout(std::uint32_t block_size, ElementType kv_type) const {
  return state_layout(numbers_, block_size, kv_type);
}

Result<void> Model::prepare(Backend& backend, std::uint32_t max_rows, std::uint32_t max_logits) {
  std::uint32_t heads = 0, kv_heads = 0, wide = 0;
  for (const Layer& layer : numbers_.layers) {
    heads = std::max(heads, layer.heads);
    kv_heads = std::max(kv_heads, layer.kv_heads);
    wide = std::max(wide, layer.feed_forward);
  }
  const std::uint32_t width = numbers_.embedding, head = numbers_.key_length;
  const auto inner = numbers_.recurrent.inner;
  const auto angles = static_cast<std::uint32_t>(constants_.frequencies.size());
  const std::uint32_t cols[kSlots] = {
      width,                                                        // kResidual
      width,                                                        // kNormed
      heads * head,                                                 // kQuery
      kv_heads * head,                                              // kKey
      kv_heads * head,                                              // kValue
      std::max(heads * head, inner),                                // kMixed
      static_cast<std::uint32_t>(numbers_.recurrent.projection()),  // kWide
      wide,                                                         // kGate
      wide,                                                         // kUp
      angles,                                                       // kCos
      angles,                                                       // kSin
      angles,                                                       // kWindowCos
      angles,                                                       // kWindowSin
      width,                                                        // kLast
      numbers_.vocabulary,                                          // kLogits
  };
  for (std::uint8_t slot = 0; slot < kSlots; ++slot) {
    const std::uint64_t rows = slot == kLast || slot == kLogits ? max_logits : max_rows;
    auto memory = DeviceBuffer::create(backend.device(), rows * cols[slot] * sizeof(float));
    if (!memory) return fail(memory.error().message());
    buffers_[slot].memory = std::move(*memory);
    buffers_[slot].cols = cols[slot];
  }
  const std::uint32_t most = std::max({width, heads * head, inner, wide});
  if (auto ok = backend.prepare(std::max(max_rows, max_logits), most); !ok) return fail(ok.error().message());
  max_rows_ = max_rows;
  max_logits_ = max_logits;
  return {};
}

Rows Model::forward(Backend& backend, const Step& step, std::span<const std::uint32_t> wanted) {
  const std::uint32_t rows = step.rows(), width = numbers_.embedding;
  backend.begin(step);
  const Rows x = buffer(kResidual, rows, width);
  backend.embed(x, weights_.embedding, constants_.embedding_scale);
  if (!constants_.frequencies.empty()) {
    const auto angles = static_cast<std::uint32_t>(constants_.frequencies.size());
    backend.rope_angles(buffer(kCos, rows, angles), buffer(kSin, rows, angles), constants_.frequencies);
    backend.rope_angles(buffer(kWindowCos, rows, angles), buffer(kWindowSin, rows, angles),
                        constants_.window_frequencies);
  }
  for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
    const LayerWeights& layer = weights_.layers[i];
    const Rows normed = buffer(kNormed, rows, width);
    backend.rms_norm(normed, x, layer.norm.data(), constants_.epsilon);
    // The mixer reads and writes `normed`.
    if (const auto* attention = std::get_if<AttentionWeights>(&layer.mixer)) {
      attention_layer(backend, i, *attention, rows);
    } else {
      mamba2_layer(backend, i, std::get<Mamba2Weights>(layer.mixer), rows);
    }
    if (!layer.post_norm.empty()) backend.rms_norm(normed, normed, layer.post_norm.data(), constants_.epsilon);
    backend.add(x, normed, constants_.residual_scale);
    if (layer.feed_forward) {
      feed_forward(backend, *layer.feed_forward, rows);
      backend.add(x, normed, constants_.residual_scale);
    }
  }
  const auto count = static_cast<std::uint32_t>(wanted.size());
  const Rows logits = buffer(kLogits, count, numbers_.vocabulary);
  if (count > 0) {
    const Rows last = buffer(kLast, count, width);
    backend.gather(last, x, wanted);
    backend.rms_norm(last, last, weights_.norm.data(), constants_.epsilon);
    backend.matmul(logits, weights_.output, last, nullptr);
    backend.cap_and_scale(logits, constants_.logit_cap, constants_.logit_scale);
  }
  backend.finish();
  return logits;
}

namespace {
const float* data_or_null(Vector vector) { return vector.empty() ? nullptr : vector.data(); }
}  // namespace

void Model::attention_layer(Backend& backend, std::size_t layer, const AttentionWeights& weights, std::uint32_t rows) {
  const Layer& numbers = numbers_.layers[layer];
  const std::uint32_t head = numbers_.key_length;
  const Rows in = buffer(kNormed, rows, numbers_.embedding);
  const Rows q = buffer(kQuery, rows, numbers.heads * head);
  const Rows k = buffer(kKey, rows, numbers.kv_heads * head);
  const Rows v = buffer(kValue, rows, numbers.kv_heads * head);
  backend.matmul(q, weights.q, in, data_or_null(weights.q_bias));
  backend.matmul(k, weights.k, in, data_or_null(weights.k_bias));
  backend.matmul(v, weights.v, in, data_or_null(weights.v_bias));
  // Head by head: the same floats seen as more and shorter rows.
  const auto by_head = [&](Rows x, std::uint32_t heads) { return Rows{x.data, rows * heads, head, head}; };
  if (!weights.q_norm.empty()) {
    backend.rms_norm(by_head(q, numbers.heads), by_head(q, numbers.heads), weights.q_norm.data(), constants_.epsilon);
  }
  if (!weights.k_norm.empty()) {
    backend.rms_norm(by_head(k, numbers.kv_heads), by_head(k, numbers.kv_heads), weights.k_norm.data(),
                     constants_.epsilon);
  }
  if (!constants_.frequencies.empty()) {
    const auto angles = static_cast<std::uint32_t>(constants_.frequencies.size());
    const bool window = numbers.window != 0;
    const Rows cosines = buffer(window ? kWindowCos : kCos, rows, angles);
    const Rows sines = buffer(window ? kWindowSin : kSin, rows, angles);
    backend.rope(q, numbers.heads, head, cosines, sines, numbers_.architecture->rope_pairs);
    backend.rope(k, numbers.kv_heads, head, cosines, sines, numbers_.architecture->rope_pairs);
  }
  const AttentionShape shape{.group = places_[layer].group,
                             .layer = places_[layer].index,
                             .heads = numbers.heads,
                             .kv_heads = numbers.kv_heads,
                             .head_dim = head,
                             .scale = constants_.attention_scale,
                             .soft_cap = constants_.attention_cap,
                             .window = numbers.window};
  backend.store_kv(shape, k, v);
  const Rows mixed = buffer(kMixed, rows, numbers.heads * head);
  backend.attention(mixed, q, shape);
  backend.matmul(in, weights.out, mixed, data_or_null(weights.out_bias));
}

void Model::mamba2_layer(Backend& backend, std::size_t layer, const Mamba2Weights& weights, std::uint32_t rows) {
  const RecurrentShape& numbers = numbers_.recurrent;
  const Mamba2Shape shape{.layer = places_[layer].index,
                          .heads = numbers.heads,
                          .head_dim = numbers.inner / numbers.heads,
                          .groups = numbers.groups,
                          .state_dim = numbers.state,
                          .conv_width = numbers.conv_kernel};
  const Rows in = buffer(kNormed, rows, numbers_.embedding);
  const Rows wide = buffer(kWide, rows, static_cast<std::uint32_t>(numbers.projection()));
  backend.matmul(wide, weights.in, in, nullptr);
  const std::uint32_t inner = numbers.inner, shared = numbers.groups * numbers.state;
  const Rows gate = wide.columns(0, inner);
  const Rows convolved = wide.columns(inner, shape.conv_channels());
  const Rows dt = wide.columns(inner + shape.conv_channels(), numbers.heads);
  backend.mamba2_conv(convolved, weights.conv.data(), data_or_null(weights.conv_bias), shape);
  const Rows mixed = buffer(kMixed, rows, inner);
  backend.mamba2_scan(mixed, convolved.columns(0, inner), convolved.columns(inner, shared),
                      convolved.columns(inner + shared, shared), dt, weights.dt_bias.data(), weights.a.data(),
                      weights.d.data(), shape);
  backend.gated_norm(mixed, mixed, gate, weights.norm.data(), constants_.epsilon, numbers.groups);
  backend.matmul(in, weights.out, mixed, nullptr);
}

// From the residual stream to `normed`.
void Model::feed_forward(Backend& backend, const FeedForwardWeights& weights, std::uint32_t rows) {
  const Rows normed = buffer(kNormed, rows, numbers_.embedding);
  const Rows gate = buffer(kGate, rows, weights.gate.rows), up = buffer(kUp, rows, weights.up.rows);
  backend.rms_norm(normed, buffer(kResidual, rows, numbers_.embedding), weights.norm.data(), constants_.epsilon);
  backend.matmul(gate, weights.gate, normed, nullptr);
  backend.matmul(up, weights.up, normed, nullptr);
  backend.gate(gate, gate, up, numbers_.architecture->activation);
  backend.matmul(normed, weights.down, gate, nullptr);
  if (!weights.post_norm.empty()) backend.rms_norm(normed, normed, weights.post_norm.data(), constants_.epsilon);
}

}  // namespace quire::model
