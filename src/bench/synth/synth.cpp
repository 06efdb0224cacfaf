#include "quire/bench/synth/synth.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <numbers>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "quire/base/machine.h"
#include "quire/base/thread_team.h"
#include "quire/bench/synth/blocks.h"
#include "quire/bench/synth/metadata.h"
#include "quire/bench/synth/mix.h"
#include "quire/bench/synth/plan.h"
#include "quire/bench/synth/random.h"
#include "quire/bench/synth/vocabulary.h"
#include "quire/gguf/writer.h"

namespace quire::synth {
namespace {

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
      case Kind::score: values[i] = stream.normal(i); break;
      case Kind::norm: values[i] = 1 + 0.1f * stream.normal(i); break;
      case Kind::decay: values[i] = -1 - 15 * stream.fraction(i); break;
      case Kind::ladder:
        values[i] = -static_cast<float>(i % tensor.shape[0] + 1) * (1 + 0.1f * stream.normal(i));
        break;
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
    const Blocks blocks(tensor.type, tensor.deviation(), stream);
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
    const Blocks scaled(tensor.type, tensor.deviation(tensor.factor), stream);
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
  add_hyperparameters(writer, shape);
  writer.add("general.type", "model");
  writer.add("general.name", fmt::format("{} {} random", shape.name, mix.name));
  const std::string outliers =
      shape.outliers == 0 ? "" : fmt::format(", {} channels a hundred times larger", shape.outliers);
  writer.add("general.description", fmt::format("random weights of seed {}{}, made by quire synth", seed, outliers));
  writer.add("general.file_type", mix.file_type);
  writer.add("general.quantization_version", std::uint32_t{2});
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
