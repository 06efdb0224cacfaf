#include "quire/model/model.h"

#include <algorithm>
#include <utility>

#include "quire/base/numbers.h"
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
  model->bound_ = std::move(*weights);
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
      width,                                                        // kMade
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
  std::uint32_t groups = 0;
  for (const StateLayout::Place& place : places_) groups = std::max(groups, place.group + 1);
  const Backend::Sizes sizes{.rows = std::max(max_rows, max_logits),
                             .cols = std::max({width, heads * head, inner, wide}),
                             .heads = heads,
                             .groups = groups,
                             .recurrent_heads = numbers_.recurrent.heads};
  if (auto ok = backend.prepare(sizes); !ok) return fail(ok.error().message());
  if (auto ok = arrange_weights(backend); !ok) return ok;
  max_rows_ = max_rows;
  max_logits_ = max_logits;
  return {};
}

// Every matrix that is multiplied goes into the backend's order, one after the other into one piece of memory, whose
// pages can then be huge; what was read of the file for it is given back to the system at once, so that no matrix is in
// memory twice. The embedding is looked up row by row and stays in the file, unless it is the output too.
Result<void> Model::arrange_weights(Backend& backend) {
  weights_ = bound_;
  weights_.converted.clear();  // its vectors are bound_'s
  arranged_ = {};
  std::vector<Weight*> matrices;
  for (LayerWeights& layer : weights_.layers) {
    if (auto* attention = std::get_if<AttentionWeights>(&layer.mixer)) {
      matrices.insert(matrices.end(), {&attention->q, &attention->k, &attention->v, &attention->out});
    } else {
      auto& mamba = std::get<Mamba2Weights>(layer.mixer);
      matrices.insert(matrices.end(), {&mamba.in, &mamba.out});
    }
    if (layer.feed_forward) {
      matrices.insert(matrices.end(), {&layer.feed_forward->gate, &layer.feed_forward->up, &layer.feed_forward->down});
    }
  }
  matrices.push_back(&weights_.output);
  const auto room = [&](const Weight& matrix) { return round_up(backend.arranged_bytes(matrix), std::uint64_t{64}); };
  std::uint64_t bytes = 0;
  for (const Weight* matrix : matrices) bytes += room(*matrix);
  auto memory = DeviceBuffer::create(backend.device(), bytes);
  if (!memory) return fail(memory.error().message());
  arranged_ = std::move(*memory);
  std::byte* to = arranged_.data();
  for (Weight* matrix : matrices) {
    const std::uint64_t taken = room(*matrix);
    if (taken == 0) continue;
    const std::byte* from = matrix->data;
    *matrix = backend.arrange(*matrix, to);
    file_.forget({from, matrix->file_bytes()});
    to += taken;
  }
  if (bound_.output.data == bound_.embedding.data) weights_.embedding = weights_.output;
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
    // What a mixer and a feed-forward part make is added to x; where it is normed first, it goes through `made`.
    const bool normed_after = !layer.post_norm.empty();
    const Rows made = buffer(kMade, rows, width);
    const Input in = Input::normed(x, layer.norm.data(), constants_.epsilon);
    const Product out{.out = normed_after ? made : x, .add = !normed_after, .scale = constants_.residual_scale};
    if (const auto* attention = std::get_if<AttentionWeights>(&layer.mixer)) {
      attention_layer(backend, i, *attention, in, out);
    } else {
      mamba2_layer(backend, i, std::get<Mamba2Weights>(layer.mixer), in, out);
    }
    if (normed_after) add_normed(backend, x, made, layer.post_norm);
    if (!layer.feed_forward) continue;
    const bool feed_normed = !layer.feed_forward->post_norm.empty();
    feed_forward(backend, *layer.feed_forward, x,
                 {.out = feed_normed ? made : x, .add = !feed_normed, .scale = constants_.residual_scale});
    if (feed_normed) add_normed(backend, x, made, layer.feed_forward->post_norm);
  }
  const auto count = static_cast<std::uint32_t>(wanted.size());
  const Rows logits = buffer(kLogits, count, numbers_.vocabulary);
  if (count > 0) {
    const Rows last = buffer(kLast, count, width);
    backend.gather(last, x, wanted);
    const Product product{.out = logits, .weight = &weights_.output};
    backend.matmul({&product, 1}, Input::normed(last, weights_.norm.data(), constants_.epsilon));
    backend.cap_and_scale(logits, constants_.logit_cap, constants_.logit_scale);
  }
  backend.finish();
  return logits;
}

void Model::add_normed(Backend& backend, Rows x, Rows made, Vector norm) {
  backend.rms_norm(made, made, norm.data(), constants_.epsilon);
  backend.add(x, made, constants_.residual_scale);
}

namespace {
const float* data_or_null(Vector vector) { return vector.empty() ? nullptr : vector.data(); }
}  // namespace

void Model::attention_layer(Backend& backend, std::size_t layer, const AttentionWeights& weights, const Input& in,
                            Product out) {
  const Layer& numbers = numbers_.layers[layer];
  const std::uint32_t head = numbers_.key_length, rows = in.x.rows;
  const Rows q = buffer(kQuery, rows, numbers.heads * head);
  const Rows k = buffer(kKey, rows, numbers.kv_heads * head);
  const Rows v = buffer(kValue, rows, numbers.kv_heads * head);
  const Product products[] = {{.out = q, .weight = &weights.q, .bias = data_or_null(weights.q_bias)},
                              {.out = k, .weight = &weights.k, .bias = data_or_null(weights.k_bias)},
                              {.out = v, .weight = &weights.v, .bias = data_or_null(weights.v_bias)}};
  backend.matmul(products, in);
  const AttentionShape shape{.group = places_[layer].group,
                             .layer = places_[layer].index,
                             .heads = numbers.heads,
                             .kv_heads = numbers.kv_heads,
                             .head_dim = head,
                             .scale = constants_.attention_scale,
                             .soft_cap = constants_.attention_cap,
                             .window = numbers.window};
  const auto angles = static_cast<std::uint32_t>(constants_.frequencies.size());
  const bool window = numbers.window != 0;
  backend.store_kv(shape, q, k, v,
                   {.q_norm = data_or_null(weights.q_norm),
                    .k_norm = data_or_null(weights.k_norm),
                    .epsilon = constants_.epsilon,
                    .cosines = buffer(window ? kWindowCos : kCos, rows, angles),
                    .sines = buffer(window ? kWindowSin : kSin, rows, angles),
                    .pairs = numbers_.architecture->rope_pairs});
  const Rows mixed = buffer(kMixed, rows, numbers.heads * head);
  backend.attention(mixed, q, shape);
  out.weight = &weights.out;
  out.bias = data_or_null(weights.out_bias);
  backend.matmul({&out, 1}, Input::plain(mixed));
}

void Model::mamba2_layer(Backend& backend, std::size_t layer, const Mamba2Weights& weights, const Input& in,
                         Product out) {
  const RecurrentShape& numbers = numbers_.recurrent;
  const Mamba2Shape shape{.layer = places_[layer].index,
                          .heads = numbers.heads,
                          .head_dim = numbers.inner / numbers.heads,
                          .groups = numbers.groups,
                          .state_dim = numbers.state,
                          .conv_width = numbers.conv_kernel};
  const std::uint32_t rows = in.x.rows;
  const Rows wide = buffer(kWide, rows, static_cast<std::uint32_t>(numbers.projection()));
  const Product product{.out = wide, .weight = &weights.in};
  backend.matmul({&product, 1}, in);
  const std::uint32_t inner = numbers.inner, shared = numbers.groups * numbers.state;
  const Rows gate = wide.columns(0, inner);
  const Rows convolved = wide.columns(inner, shape.conv_channels());
  const Rows dt = wide.columns(inner + shape.conv_channels(), numbers.heads);
  backend.mamba2_conv(convolved, weights.conv.data(), data_or_null(weights.conv_bias), shape);
  const Rows mixed = buffer(kMixed, rows, inner);
  backend.mamba2_scan(mixed, convolved.columns(0, inner), convolved.columns(inner, shared),
                      convolved.columns(inner + shared, shared), dt, weights.dt_bias.data(), weights.a.data(),
                      weights.d.data(), shape);
  out.weight = &weights.out;
  backend.matmul({&out, 1}, {.kind = Input::Kind::GatedNormed,
                             .x = mixed,
                             .gate = gate,
                             .weight = weights.norm.data(),
                             .epsilon = constants_.epsilon,
                             .groups = numbers.groups});
}

void Model::feed_forward(Backend& backend, const FeedForwardWeights& weights, Rows x, Product out) {
  const Rows gate = buffer(kGate, x.rows, weights.gate.rows), up = buffer(kUp, x.rows, weights.up.rows);
  const Product products[] = {{.out = gate, .weight = &weights.gate}, {.out = up, .weight = &weights.up}};
  backend.matmul(products, Input::normed(x, weights.norm.data(), constants_.epsilon));
  out.weight = &weights.down;
  backend.matmul({&out, 1}, Input::gated(gate, up, numbers_.architecture->activation));
}

}  // namespace quire::model
