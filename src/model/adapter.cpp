#include "quire/model/adapter.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "quire/base/numbers.h"
#include "quire/gguf/message.h"
#include "quire/model/fingerprint.h"

namespace quire::model {
namespace {

constexpr std::string_view kA = ".lora_a", kB = ".lora_b";
constexpr std::uint64_t kAlignment = 64;
constexpr std::uint64_t kMostRank = 65536;  // no matrix of a model has fewer rows and columns than a rank this large

std::unexpected<Error> refuse(const gguf::File& file, const std::string& what) {
  return fail(fmt::format("{}: {}", file.path(), what));
}

FileMatrix matrix_of(const gguf::Tensor& tensor) {
  return {tensor.type, static_cast<std::uint32_t>(tensor.shape[1]), static_cast<std::uint32_t>(tensor.shape[0]),
          tensor.data.data(), tensor.row_bytes()};
}

std::string shape_text(const gguf::Tensor& tensor) {
  std::string text = fmt::format("{}", tensor.shape[0]);
  for (std::uint32_t i = 1; i < tensor.n_dims; ++i) text += fmt::format(" x {}", tensor.shape[i]);
  return text;
}

}  // namespace

Result<void> check_adapter_name(std::string_view name) {
  const bool fits = std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  });
  if (fits && !name.empty() && name.size() <= kMostAdapterName) return {};
  return fail(fmt::format("adapter name {}: a name has 1 to {} letters, digits, '.', '_' and '-'", gguf::quoted(name),
                          kMostAdapterName));
}

Result<AdapterOptions> parse_adapter(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == text.npos) return fail(fmt::format("{}: an adapter is given as NAME=FILE", gguf::quoted(text)));
  AdapterOptions options{.name = std::string(text.substr(0, equals)), .file = {}};
  if (auto ok = check_adapter_name(options.name); !ok) return std::unexpected(ok.error());
  std::string_view file = text.substr(equals + 1);
  if (const std::size_t colon = file.rfind(':'); colon != file.npos) {
    const char *const begin = file.data() + colon + 1, *const end = file.data() + file.size();
    float scale = 0;
    if (const auto [rest, error] = std::from_chars(begin, end, scale); error == std::errc() && rest == end) {
      if (!std::isfinite(scale)) return fail(fmt::format("adapter '{}': its scale is not a number", options.name));
      options.scale = scale;
      file = file.substr(0, colon);
    }
  }
  if (file.empty()) return fail(fmt::format("adapter '{}' has no file: it is given as NAME=FILE", options.name));
  options.file = std::string(file);
  return options;
}

float Adapter::scale_of(const Target& target) const {
  const auto rank = static_cast<float>(target.b.cols);
  return (alpha_ == 0 ? 1.0f : alpha_ / rank) * scale_;
}

Result<Adapter> Adapter::read(gguf::File file, const AdapterOptions& options, const Base& base) {
  if (auto ok = check_adapter_name(options.name); !ok) return std::unexpected(ok.error());
  Adapter adapter(std::move(file));
  adapter.name_ = options.name;
  adapter.scale_ = options.scale;
  if (auto ok = adapter.read_metadata(base); !ok) return std::unexpected(ok.error());
  const gguf::File& own = adapter.file_;
  for (std::size_t i = 0; i < own.tensor_count(); ++i) {
    const std::string_view name = own.tensor(i).name;
    const bool a = name.ends_with(kA);
    if (!a && !name.ends_with(kB)) {
      return refuse(own, fmt::format("tensor {} is neither a .lora_a nor a .lora_b: Quire cannot replace whole tensors",
                                     gguf::quoted(name)));
    }
    const std::string_view tensor = name.substr(0, name.size() - kA.size());
    const std::string other = std::string(tensor) + std::string(a ? kB : kA);
    if (!own.find_tensor(other)) {
      return refuse(own, fmt::format("has tensor {}, but not {}", gguf::quoted(name), gguf::quoted(other)));
    }
    if (!a) continue;
    if (auto ok = adapter.add_pair(tensor, base); !ok) return std::unexpected(ok.error());
  }
  if (adapter.targets_.empty()) return refuse(own, "has no tensors, so it changes nothing");
  adapter.fingerprint_ = model::fingerprint(own, fmt::format("adapter, scale {}", options.scale));
  return adapter;
}

Result<void> Adapter::read_metadata(const Base& base) {
  const auto type = file_.get_or<std::string_view>("general.type", "");
  if (!type) return std::unexpected(type.error());
  if (*type != "adapter") {
    return refuse(file_, *type == "model" || type->empty()
                             ? std::string("is a model and not an adapter (general.type)")
                             : fmt::format("is not an adapter: general.type is {}", gguf::quoted(*type)));
  }
  const auto kind = file_.get<std::string_view>("adapter.type");
  if (!kind) return std::unexpected(kind.error());
  if (*kind != "lora") {
    return refuse(file_, fmt::format("is an adapter of type {}: Quire knows 'lora' only", gguf::quoted(*kind)));
  }
  const auto architecture = file_.get<std::string_view>("general.architecture");
  if (!architecture) return std::unexpected(architecture.error());
  if (*architecture != base.architecture) {
    return refuse(file_, fmt::format("is an adapter for models of architecture {}, and the model has '{}'",
                                     gguf::quoted(*architecture), base.architecture));
  }
  if (file_.has("adapter.alora.invocation_tokens")) {
    return refuse(file_, "is an activated LoRA (adapter.alora.invocation_tokens), which Quire does not support");
  }
  const auto alpha = file_.get_or<float>("adapter.lora.alpha", 0.0f);
  if (!alpha) return std::unexpected(alpha.error());
  if (!std::isfinite(*alpha)) return refuse(file_, "metadata 'adapter.lora.alpha' is not a number");
  alpha_ = *alpha;
  return {};
}

Result<void> Adapter::add_pair(std::string_view tensor, const Base& base) {
  const gguf::Tensor a = *file_.find_tensor(std::string(tensor) + std::string(kA));
  const gguf::Tensor b = *file_.find_tensor(std::string(tensor) + std::string(kB));
  for (const gguf::Tensor* const each : {&a, &b}) {
    if (gguf::type_info(each->type).dequantizable) continue;
    return refuse(file_, fmt::format("tensor '{}' is of type {}, which Quire cannot compute with", each->name,
                                     gguf::type_name(each->type)));
  }
  ++pairs_;
  bool found = false;
  for (const Binding& binding : base.bindings) {
    if (binding.source.name != tensor) continue;
    found = true;
    const bool table = binding.use == WeightUse::Lookup || binding.use == WeightUse::Both;
    if (binding.weight == nullptr || binding.use == WeightUse::Heads || binding.transposed ||
        (table && tensor != "token_embd.weight")) {
      return refuse(file_, fmt::format("adapts tensor {}, which is not one that adapters can change in a model of "
                                       "architecture '{}'",
                                       gguf::quoted(tensor), base.architecture));
    }
    const std::uint64_t rows = binding.source.rows() / binding.stacked;
    if (auto ok = add_target(a, b, tensor, {.to = binding.weight, .lookup = table, .stacked = binding.stacked},
                             binding.first, binding.count, rows, binding.source.shape[0]);
        !ok) {
      return ok;
    }
  }
  // The model may have its embedding as its output matrix. An adapter of the output is one of the product alone.
  if (!found && tensor == "output.weight" && base.output != nullptr) {
    return add_target(a, b, tensor, {.to = base.output}, 0, base.output_rows, base.output_rows, base.output_cols);
  }
  if (found) return {};
  return refuse(file_, fmt::format("adapts tensor {}, which the model does not have", gguf::quoted(tensor)));
}

// `first`, `count`: rows of W that the target has. `rows`, `cols`: of W.
Result<void> Adapter::add_target(const gguf::Tensor& a, const gguf::Tensor& b, std::string_view tensor, Target target,
                                 std::uint64_t first, std::uint64_t count, std::uint64_t rows, std::uint64_t cols) {
  const std::uint64_t rank = b.shape[0], stacked = target.stacked;
  // Looked up: a row of A for each row of W, and B gives its columns.
  const std::array a_shape = target.lookup ? std::array{rank, rows, stacked, std::uint64_t{1}}
                                           : std::array{cols, rank, stacked, std::uint64_t{1}};
  const std::array b_shape = {rank, target.lookup ? cols : rows, stacked, std::uint64_t{1}};
  if (rank == 0 || rank > kMostRank || a.shape != a_shape || b.shape != b_shape) {
    return refuse(file_, fmt::format("tensors '{}{}' and '{}' do not fit: they are {} and {}, and the model's tensor "
                                     "has {} rows of {}{}",
                                     tensor, kA, kB.substr(1), shape_text(a), shape_text(b), rows, cols,
                                     stacked > 1 ? fmt::format(" for each of {} experts", stacked) : ""));
  }
  target.a = matrix_of(a);
  target.b = matrix_of(b);
  target.a_stride = target.a.bytes();
  target.b_stride = target.b.bytes();
  if (!target.lookup) target.b = target.b.part(static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(count));
  target.pair = pairs_;
  rank_ = std::max(rank_, static_cast<std::uint32_t>(rank));
  targets_.push_back(target);
  return {};
}

Result<DeviceBuffer> Adapter::load(Backend& backend, std::span<LowRank* const> tables) {
  const auto room = [&](const FileMatrix& matrix, WeightUse use) {
    return round_up(backend.weight_bytes(matrix, use), kAlignment);
  };
  const auto use_of_a = [](const Target& target) { return target.lookup ? WeightUse::Lookup : WeightUse::LowRank; };
  // Targets of one pair are next to each other.
  const auto shares_a = [&](std::size_t i) { return i > 0 && targets_[i - 1].pair == targets_[i].pair; };
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    const Target& target = targets_[i];
    if (!shares_a(i)) bytes += target.stacked * room(target.a, use_of_a(target));
    bytes += target.stacked * room(target.b, WeightUse::LowRank);
  }
  auto memory = DeviceBuffer::create(backend.device(), bytes);
  if (!memory) return refuse(file_, memory.error().message());
  std::byte* to = memory->data();
  const auto place = [&](const FileMatrix& matrix, WeightUse use, std::uint32_t stacked,
                         std::uint64_t stride) -> Result<Weight> {
    Weight placed;
    const std::uint64_t each = room(matrix, use);
    for (std::uint32_t i = 0; i < stacked; ++i, to += each) {
      FileMatrix one = matrix;
      one.data += i * stride;
      const auto loaded = backend.load(one, use, to);
      if (!loaded) return refuse(file_, loaded.error().message());
      if (i == 0) placed = *loaded;
    }
    placed.count = stacked;
    placed.stride = stacked > 1 ? each : 0;
    return placed;
  };
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    const Target& target = targets_[i];
    LowRank& pair = *tables[i];
    if (shares_a(i)) {
      pair.a = tables[i - 1]->a;
    } else {
      const auto a = place(target.a, use_of_a(target), target.stacked, target.a_stride);
      if (!a) return std::unexpected(a.error());
      pair.a = *a;
    }
    const auto b = place(target.b, WeightUse::LowRank, target.stacked, target.b_stride);
    if (!b) return std::unexpected(b.error());
    pair.b = *b;
    pair.scale = scale_of(target);
  }
  if (auto ok = backend.device().fence(); !ok) return refuse(file_, ok.error().message());
  device_bytes_ = bytes;
  return std::move(*memory);
}

}  // namespace quire::model
