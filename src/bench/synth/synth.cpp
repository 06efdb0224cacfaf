#include "quire/bench/synth/synth.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <map>
#include <numbers>
#include <span>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "quire/base/machine.h"
#include "quire/base/thread_team.h"
#include "quire/bench/synth/blocks.h"
#include "quire/bench/synth/mix.h"
#include "quire/bench/synth/outliers.h"
#include "quire/bench/synth/random.h"
#include "quire/bench/synth/vocabulary.h"
#include "quire/gguf/writer.h"

namespace quire::synth {
namespace {

using gguf::Type;

// The distribution of a tensor's values.
enum class Kind : std::uint8_t {
  matrix,    // mean 0, standard deviation of one over the square root of the row length
  bias,      // close to 0
  key_bias,  // close to 0; outliers are as much larger than the projection's values, which are around 1
  norm,      // around 1
  decay,     // Mamba-2's A: -16 to -1, as before training
  step,      // Mamba-2's dt bias: the logarithm of steps of about 0.001 to 0.1
  rope,      // Llama 3.1's RoPE frequency factors
};

struct Tensor {
  std::string name;
  Kind kind;
  Type type;
  std::vector<std::uint64_t> shape;  // shape[0]: the length of a row
  // Rows of a matrix, or elements of a vector, that are multiplied by a factor; rising.
  std::vector<std::uint64_t> scaled = {};
  float factor = 1;

  std::uint64_t elements() const {
    std::uint64_t product = 1;
    for (const std::uint64_t length : shape) product *= length;
    return product;
  }
  std::uint64_t bytes() const { return *gguf::byte_size(type, elements()); }
};

// The tensors of a model, in the order of the file.
class Plan {
 public:
  static Result<Plan> make(const Shape& shape, const Mix& mix) {
    Plan plan(shape, mix);
    if (auto ok = plan.add_all(); !ok) return std::unexpected(ok.error());
    return plan;
  }

  const std::vector<Tensor>& tensors() const { return tensors_; }

  Summary summary() const {
    Summary sum;
    for (const Tensor& tensor : tensors_) {
      sum.parameters += tensor.elements();
      sum.bytes += tensor.bytes();
    }
    for (const auto& [change, count] : changes_) {
      const auto& [wanted, columns, given] = change;
      sum.notes.push_back(fmt::format("rows of {} are not whole blocks of {}: {} tensor{} of type {} instead", columns,
                                      gguf::type_name(wanted), count, count == 1 ? " is" : "s are",
                                      gguf::type_name(given)));
    }
    return sum;
  }

 private:
  Plan(const Shape& shape, const Mix& mix) : shape_(shape), mix_(mix) {}

  bool attends(std::uint32_t layer) const {
    if (shape_.inner == 0) return true;
    return std::ranges::find(shape_.attention_layers, layer) != shape_.attention_layers.end();
  }

  void vector(std::string_view name, Kind kind, std::vector<std::uint64_t> shape) {
    tensors_.push_back({prefix_ + std::string(name), kind, Type::F32, std::move(shape)});
  }

  // `index` of `count` tensors with this role.
  Result<void> matrix(std::string_view name, std::uint64_t columns, std::uint64_t rows, Role role = Role::other,
                      std::uint32_t index = 0, std::uint32_t count = 1) {
    const Type wanted = mix_.choose(role, index, count);
    const auto type = fit(wanted, role, columns);
    if (!type) return fail(fmt::format("tensor '{}{}': {}", prefix_, name, type.error().message));
    if (*type != wanted) ++changes_[{wanted, columns, *type}];
    tensors_.push_back({prefix_ + std::string(name), Kind::matrix, *type, {columns, rows}});
    return {};
  }

  Result<void> add_all() {
    const std::uint64_t width = shape_.embedding, vocabulary = shape_.vocabulary;
    Result<void> ok = matrix("token_embd.weight", width, vocabulary, shape_.tied ? Role::output : Role::other);
    if (ok && !shape_.tied) ok = matrix("output.weight", width, vocabulary, Role::output);
    vector("output_norm.weight", Kind::norm, {width});
    if (shape_.rope_stretch != 1) vector("rope_freqs.weight", Kind::rope, {shape_.head_dim / 2});
    std::uint32_t attending = 0;
    for (std::uint32_t i = 0; ok && i < shape_.layers; ++i) {
      prefix_ = fmt::format("blk.{}.", i);
      vector("attn_norm.weight", Kind::norm, {width});
      ok = attends(i) ? add_attention(i, attending++) : add_recurrence();
      if (ok && shape_.feed_forward != 0) ok = add_feed_forward(i);
    }
    return ok;
  }

  // Scales these channels of each of `heads` heads in the tensor that was added last.
  void scale(const std::vector<std::uint32_t>& channels, std::uint32_t heads, float factor) {
    Tensor& tensor = tensors_.back();
    tensor.factor = factor;
    for (std::uint64_t head = 0; head < heads; ++head) {
      for (const std::uint32_t channel : channels) tensor.scaled.push_back(head * shape_.head_dim + channel);
    }
  }

  // Where keys are normed, outlier channels come from the norm's weight; where they have a bias, from the bias, as in
  // Qwen2 itself. Otherwise from the projection.
  Result<void> add_attention(std::uint32_t layer, std::uint32_t index) {
    const bool normed = shape_.architecture == "qwen3", biased = shape_.architecture == "qwen2";
    const std::vector<std::uint32_t> outliers = key_outliers(shape_, layer);
    const std::uint32_t count =
        shape_.inner == 0 ? shape_.layers : static_cast<std::uint32_t>(shape_.attention_layers.size());
    const std::uint64_t width = shape_.embedding, head = shape_.head_dim;
    Result<void> ok = matrix("attn_q.weight", width, shape_.heads * head);
    if (ok && !normed) scale(outliers, shape_.heads, 1 / kOutlierFactor);
    if (ok) ok = matrix("attn_k.weight", width, shape_.kv_heads * head);
    if (ok && !normed && !biased) scale(outliers, shape_.kv_heads, kOutlierFactor);
    if (ok) ok = matrix("attn_v.weight", width, shape_.kv_heads * head, Role::attention_value, index, count);
    if (ok) ok = matrix("attn_output.weight", shape_.heads * head, width, Role::attention_output, index, count);
    if (biased) {
      vector("attn_q.bias", Kind::bias, {shape_.heads * head});
      scale(outliers, shape_.heads, 1 / kOutlierFactor);
      vector("attn_k.bias", Kind::key_bias, {shape_.kv_heads * head});
      scale(outliers, shape_.kv_heads, kOutlierFactor);
      vector("attn_v.bias", Kind::bias, {shape_.kv_heads * head});
    }
    if (normed) {
      vector("attn_q_norm.weight", Kind::norm, {head});
      scale(outliers, 1, 1 / kOutlierFactor);
      vector("attn_k_norm.weight", Kind::norm, {head});
      scale(outliers, 1, kOutlierFactor);
    }
    return ok;
  }

  Result<void> add_recurrence() {
    const std::uint64_t width = shape_.embedding, inner = shape_.inner, heads = shape_.ssm_heads;
    const std::uint64_t convolved = inner + 2 * std::uint64_t{shape_.groups} * shape_.state;  // x, B, C
    Result<void> ok = matrix("ssm_in.weight", width, inner + convolved + heads);
    // These tensors have two dimensions but are small, and F32 in every file.
    vector("ssm_conv1d.weight", Kind::matrix, {shape_.conv, convolved});
    vector("ssm_conv1d.bias", Kind::bias, {convolved});
    vector("ssm_dt.bias", Kind::step, {heads});
    vector("ssm_a", Kind::decay, {1, heads});
    vector("ssm_d", Kind::norm, {1, heads});
    vector("ssm_norm.weight", Kind::norm, {inner / shape_.groups, shape_.groups});
    if (ok) ok = matrix("ssm_out.weight", inner, width);
    return ok;
  }

  Result<void> add_feed_forward(std::uint32_t layer) {
    const std::uint64_t width = shape_.embedding, wide = shape_.feed_forward;
    vector("ffn_norm.weight", Kind::norm, {width});
    Result<void> ok = matrix("ffn_gate.weight", width, wide);
    if (ok) ok = matrix("ffn_up.weight", width, wide);
    if (ok) scale(feed_forward_outliers(shape_, layer), 1, kOutlierFactor);
    if (ok) ok = matrix("ffn_down.weight", wide, width, Role::feed_forward_down, layer, shape_.layers);
    return ok;
  }

  const Shape& shape_;
  const Mix& mix_;
  std::string prefix_;
  std::vector<Tensor> tensors_;
  std::map<std::tuple<Type, std::uint64_t, Type>, std::uint32_t> changes_;  // wanted, columns, given: how many
};

// Llama 3.1 keeps wavelengths that are short compared with the original context, stretches the long ones, and
// interpolates between the two.
float rope_factor(const Shape& shape, std::uint64_t i) {
  constexpr double kOldContext = 8192, kLow = 1, kHigh = 4;
  const double frequency = std::pow(double{shape.rope_base}, -2.0 * static_cast<double>(i) / shape.head_dim);
  const double waves = kOldContext * frequency / (2 * std::numbers::pi);
  if (waves <= kLow) return shape.rope_stretch;
  if (waves >= kHigh) return 1;
  const double smooth = (waves - kLow) / (kHigh - kLow);
  return static_cast<float>(1 / ((1 - smooth) / shape.rope_stretch + smooth));
}

std::vector<float> values_of(const Tensor& tensor, const Shape& shape, Stream stream) {
  std::vector<float> values(tensor.elements());
  for (std::uint64_t i = 0; i < values.size(); ++i) {
    switch (tensor.kind) {
      case Kind::matrix: break;
      case Kind::bias:
      case Kind::key_bias: values[i] = 0.02f * stream.normal(i); break;
      case Kind::norm: values[i] = 1 + 0.1f * stream.normal(i); break;
      case Kind::decay: values[i] = -1 - 15 * stream.fraction(i); break;
      case Kind::step: values[i] = -6.9f + 4.6f * stream.fraction(i); break;
      case Kind::rope: values[i] = rope_factor(shape, i); break;
    }
  }
  for (const std::uint64_t i : tensor.scaled) {
    values[i] = tensor.kind == Kind::key_bias ? std::copysign(tensor.factor, values[i]) : values[i] * tensor.factor;
  }
  return values;
}

// The file that is being written, and the threads that fill it.
class Work {
 public:
  Work(const Shape& shape, std::uint64_t seed, std::uint64_t all_bytes, const Progress& progress)
      : team_(available_cores()), shape_(shape), seed_(seed), all_(all_bytes), progress_(progress), buffer_(kBuffer) {}

  // Tensor number `number` of the file.
  Result<void> write(const Tensor& tensor, std::uint64_t number, gguf::Sink& sink) {
    const Stream stream(seed_, number);
    if (tensor.kind != Kind::matrix) {
      const std::vector<float> values = values_of(tensor, shape_, stream);
      return pass(std::as_bytes(std::span(values)), sink);
    }
    const float deviation = 1 / std::sqrt(static_cast<float>(tensor.shape[0]));
    const Blocks blocks(tensor.type, deviation, stream);
    const std::size_t block_bytes = gguf::type_info(tensor.type).block_bytes;
    const std::uint64_t count = tensor.bytes() / block_bytes, most = buffer_.size() / block_bytes;
    for (std::uint64_t first = 0; first < count;) {
      const std::uint64_t now = std::min(most, count - first);
      team_.run([&](std::uint32_t part, std::uint32_t parts) {
        const std::uint64_t begin = now * part / parts, end = now * (part + 1) / parts;
        blocks.fill(first + begin, std::span(buffer_).subspan(begin * block_bytes, (end - begin) * block_bytes));
      });
      scale_rows(tensor, stream, first, std::span(buffer_).first(now * block_bytes));
      if (auto ok = pass(std::span(buffer_).first(now * block_bytes), sink); !ok) return ok;
      first += now;
    }
    return {};
  }

 private:
  static constexpr std::size_t kBuffer = std::size_t{4} << 20;

  // Writes the blocks of scaled rows again, among the blocks from index `first` on.
  static void scale_rows(const Tensor& tensor, const Stream& stream, std::uint64_t first, std::span<std::byte> blocks) {
    if (tensor.scaled.empty()) return;
    const gguf::TypeInfo& info = gguf::type_info(tensor.type);
    const Blocks scaled(tensor.type, tensor.factor / std::sqrt(static_cast<float>(tensor.shape[0])), stream);
    const std::uint64_t row = tensor.shape[0] / info.block_size, last = first + blocks.size() / info.block_bytes;
    for (const std::uint64_t i : tensor.scaled) {
      const std::uint64_t begin = std::max(first, i * row), end = std::min(last, (i + 1) * row);
      if (begin >= end) continue;
      scaled.fill(begin, blocks.subspan((begin - first) * info.block_bytes, (end - begin) * info.block_bytes));
    }
  }

  Result<void> pass(std::span<const std::byte> bytes, gguf::Sink& sink) {
    if (auto ok = sink.write(bytes); !ok) return ok;
    done_ += bytes.size();
    if (progress_) progress_(done_, all_);
    return {};
  }

  ThreadTeam team_;  // first: it is aligned to a cache line
  const Shape& shape_;
  std::uint64_t seed_, all_, done_ = 0;
  const Progress& progress_;
  std::vector<std::byte> buffer_;
};

void add_metadata(gguf::Writer& writer, const Shape& shape, const Mix& mix, std::uint64_t seed) {
  writer.add("general.architecture", shape.architecture);
  writer.add("general.type", "model");
  writer.add("general.name", fmt::format("{} {} random", shape.name, mix.name));
  const std::string outliers =
      shape.outliers == 0 ? "" : fmt::format(", {} channels a hundred times larger", shape.outliers);
  writer.add("general.description", fmt::format("random weights of seed {}{}, made by quire synth", seed, outliers));
  writer.add("general.file_type", mix.file_type);
  writer.add("general.quantization_version", std::uint32_t{2});
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", shape.architecture, name); };
  const auto add = [&](std::string_view name, auto value) { writer.add(key(name), value); };
  add("block_count", shape.layers);
  add("context_length", shape.context);
  add("embedding_length", shape.embedding);
  add("feed_forward_length", shape.feed_forward);
  add("vocab_size", shape.vocabulary);
  add("attention.layer_norm_rms_epsilon", shape.epsilon);
  add("attention.head_count", shape.heads);
  const bool hybrid = shape.heads != 0 && shape.inner != 0;
  if (hybrid) {
    // Layers without KV heads are recurrent. There is no RoPE.
    std::vector<std::int32_t> kv_heads(shape.layers);
    for (const std::uint32_t layer : shape.attention_layers) {
      kv_heads[layer] = static_cast<std::int32_t>(shape.kv_heads);
    }
    writer.add_array<std::int32_t>(key("attention.head_count_kv"), kv_heads);
    add("rope.scaling.finetuned", false);
  } else if (shape.heads != 0) {
    add("attention.head_count_kv", shape.kv_heads);
  }
  if (shape.heads != 0) {
    add("attention.key_length", shape.head_dim);
    add("attention.value_length", shape.head_dim);
    add("rope.dimension_count", shape.head_dim);
    add("rope.freq_base", shape.rope_base);
  }
  if (shape.inner != 0) {
    add("ssm.conv_kernel", shape.conv);
    add("ssm.inner_size", shape.inner);
    add("ssm.state_size", shape.state);
    add("ssm.group_count", shape.groups);
    add("ssm.time_step_rank", shape.ssm_heads);
  }
  if (shape.embedding_scale != 0) add("embedding_scale", shape.embedding_scale);
  if (shape.residual_scale != 0) add("residual_scale", shape.residual_scale);
  if (shape.logit_scale != 0) add("logit_scale", shape.logit_scale);
  if (shape.attention_scale != 0) add("attention.scale", shape.attention_scale);
  add_tokenizer(writer, shape.vocabulary, shape.pre);
}

Result<const Mix*> mix_of(std::string_view type) {
  if (const Mix* mix = find_mix(type)) return mix;
  return fail(fmt::format("'{}' is not one of the types {}", type, fmt::join(type_names(), ", ")));
}

Result<Plan> plan_of(const Shape& shape, const Mix& mix) {
  if (auto ok = check_shape(shape); !ok) return std::unexpected(ok.error());
  return Plan::make(shape, mix);
}

// Checked before writing, which takes minutes.
Result<void> check_room(const std::string& path, std::uint64_t bytes) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(path, error).parent_path();
  const auto space = error ? std::filesystem::space_info{} : std::filesystem::space(folder, error);
  if (error || space.available >= bytes) return {};  // if unknown, writing will fail
  return fail(fmt::format("{}: takes {} MiB, and there are {} left on that disk", path, (bytes >> 20) + 1,
                          space.available >> 20));
}

}  // namespace

Result<Summary> summarize(const Shape& shape, std::string_view type) {
  const auto mix = mix_of(type);
  if (!mix) return std::unexpected(mix.error());
  const auto plan = plan_of(shape, **mix);
  if (!plan) return std::unexpected(plan.error());
  return plan->summary();
}

Result<void> write_model(const Shape& shape, std::string_view type, std::uint64_t seed, const std::string& path,
                         const Progress& progress) {
  const auto mix = mix_of(type);
  if (!mix) return std::unexpected(mix.error());
  const auto plan = plan_of(shape, **mix);
  if (!plan) return std::unexpected(plan.error());
  const std::uint64_t bytes = plan->summary().bytes;
  if (auto ok = check_room(path, bytes); !ok) return ok;

  Work work(shape, seed, bytes, progress);
  gguf::Writer writer;
  add_metadata(writer, shape, **mix, seed);
  for (std::size_t i = 0; i < plan->tensors().size(); ++i) {
    const Tensor& tensor = plan->tensors()[i];
    writer.add_tensor(tensor.name, tensor.type, tensor.shape,
                      [&work, &tensor, i](gguf::Sink& sink) { return work.write(tensor, i, sink); });
  }
  return writer.write(path);
}

}  // namespace quire::synth
