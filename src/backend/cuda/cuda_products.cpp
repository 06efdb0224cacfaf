#include "quire/backend/cuda/cuda_products.h"

#include <algorithm>
#include <cstring>

#include "quire/backend/cuda/arrange.h"
#include "quire/backend/cuda/ring_launch.h"
#include "quire/backend/cuda/split_launch.h"
#include "quire/base/check.h"
#include "quire/base/numbers.h"

namespace quire::cuda {

namespace {

// Up to this many tokens launch_stream() is the fastest: on a device with launch_split() of halves and of quantised
// weights, and on others.
constexpr std::uint32_t kStreamedHalves = 8, kStreamedPacked = 16, kStreamedElsewhere = 64;
// Quantised weights become halves here before a GEMM, as many rows at a time as fit.
constexpr std::uint64_t kExpandedBytes = std::uint64_t{128} << 20;
constexpr std::uint64_t kAlignment = 256;
constexpr std::uint64_t kRowBytes = kRingInputs * kPieceCols * 2;  // the rows of launch_ring()

// Head products read the file's rows, as lookups do.
bool has_rows_only(WeightUse use) { return use == WeightUse::Lookup || use == WeightUse::Heads; }

const float* floats_of(const Tensor& x) { return reinterpret_cast<const float*>(x.data); }

InputKind gated_kind(Activation activation) {
  switch (activation) {
    case Activation::Silu: return InputKind::GatedSilu;
    case Activation::GeluTanh: return InputKind::GatedGelu;
    case Activation::Sigmoid: return InputKind::GatedSigmoid;
    case Activation::ClampedSwiglu: return InputKind::GatedClamped;
    case Activation::None: break;
  }
  return InputKind::Multiplied;
}

InputKind kind_of(const Input& input) {
  switch (input.kind) {
    case Input::Kind::Plain: return InputKind::Plain;
    case Input::Kind::Normed: return InputKind::Normed;
    case Input::Kind::Gated: return gated_kind(input.activation);
    case Input::Kind::GatedNormed: return InputKind::GatedNormed;
    case Input::Kind::NormedGated: return InputKind::NormedGated;
    case Input::Kind::LayerNormed: return InputKind::LayerNormed;
    case Input::Kind::Activated:
      QUIRE_CHECK(input.activation == Activation::Silu || input.activation == Activation::GeluTanh,
                  "an activation that no kernel has alone");
      return input.activation == Activation::Silu ? InputKind::ActivatedSilu : InputKind::ActivatedGelu;
  }
  return InputKind::Plain;
}

// Tiles [first, first + count) of a matrix, as a matrix.
MatrixArgs tiles_from(MatrixArgs args, std::uint32_t first, std::uint32_t count, const std::byte* tiles) {
  const std::uint32_t row = first * kTileRows;
  args.rows = std::min(args.rows - row, count * kTileRows);
  args.tiles = tiles;
  args.inverses += row;
  args.out += row;
  if (args.bias != nullptr) args.bias += row;
  return args;
}

// The scratch memory, cut in pieces.
struct Scratch {
  std::uint64_t halves, floats, inverses;  // bytes of each; bf16 takes `halves` twice

  explicit Scratch(const Backend::Sizes& sizes) {
    const std::uint64_t rows = round_up(std::max(sizes.rows, 1u), kTokenGroup);
    const std::uint64_t all = rows * pieces_of(std::max(sizes.cols, 1u)) * kPieceCols;
    halves = all * sizeof(std::uint16_t);
    floats = all * sizeof(float);
    inverses = rows * sizeof(float);
  }
  std::uint64_t bytes() const { return 3 * halves + floats + inverses + kRowBytes + kExpandedBytes; }
};

// Whether an output lies where the input does.
bool lies_on_input(std::span<const Product> products, const Input& input) {
  const auto end = [](const Tensor& t) { return t.data + ((t.rows - 1) * t.stride + t.cols) * sizeof(float); };
  return std::ranges::any_of(products, [&](const Product& product) {
    return std::ranges::any_of(std::initializer_list<Tensor>{input.x, input.gate}, [&](const Tensor& read) {
      return read.valid() && read.data < end(product.out) && product.out.data < end(read);
    });
  });
}

}  // namespace

std::uint64_t CudaProducts::scratch_bytes(const Backend::Sizes& sizes) { return Scratch(sizes).bytes(); }

cudaError_t CudaProducts::prepare(const Backend::Sizes& sizes, std::byte* scratch) {
  sizes_ = sizes;
  const Scratch parts(sizes);
  const auto take = [&](std::uint64_t bytes) {
    std::byte* at = scratch;
    scratch += bytes;
    return at;
  };
  prepared_.halves = reinterpret_cast<std::uint16_t*>(take(parts.halves));
  prepared_.high = reinterpret_cast<std::uint16_t*>(take(parts.halves));
  prepared_.low = reinterpret_cast<std::uint16_t*>(take(parts.halves));
  prepared_.floats = reinterpret_cast<float*>(take(parts.floats));
  prepared_.inverses = reinterpret_cast<float*>(take(parts.inverses));
  prepared_.rows = reinterpret_cast<std::uint16_t*>(take(kRowBytes));
  expanded_ = take(kExpandedBytes);
  split_ = device_has_split();
  prepared_.overlap = split_;  // the kernels are compiled for 9.0
  cudaError_t error = prepare_gemm();
  if (error == cudaSuccess) error = prepare_inputs();
  if (error == cudaSuccess && split_) error = prepare_split();
  if (error == cudaSuccess && split_) error = prepare_ring(&processors_);
  return error;
}

// --- weights

std::uint64_t CudaProducts::weight_bytes(const FileMatrix& matrix, WeightUse use) {
  const std::uint64_t table = use == WeightUse::Product ? 0 : round_up(matrix.bytes(), kAlignment);
  return table + (has_rows_only(use) ? 0 : arranged_bytes(matrix.type, matrix.rows, matrix.cols));
}

void CudaProducts::arrange(const FileMatrix& matrix, WeightUse use, ThreadTeam& team, std::byte* staging) {
  if (!has_rows_only(use)) {
    cuda::arrange(matrix, team, staging);
    staging += arranged_bytes(matrix.type, matrix.rows, matrix.cols);
  }
  if (use == WeightUse::Product) return;
  std::memcpy(staging, matrix.data, matrix.bytes());
  std::memset(staging + matrix.bytes(), 0, round_up(matrix.bytes(), kAlignment) - matrix.bytes());
}

Weight CudaProducts::weight(const FileMatrix& matrix, WeightUse use, const std::byte* device) {
  Weight weight{matrix.type, matrix.rows, matrix.cols, device, matrix.row_bytes, false};
  if (has_rows_only(use)) return weight;
  weight.arranged = true;
  weight.unit_bytes = tile_bytes(packing_of(matrix.type), matrix.cols);
  if (use == WeightUse::Both) weight.table = device + arranged_bytes(matrix.type, matrix.rows, matrix.cols);
  return weight;
}

// --- products

MatrixArgs CudaProducts::args_of(const Product& product) {
  const Weight& weight = *product.weight;
  MatrixArgs args;
  const bool tiles = packing_of(weight.type) != Packing::F32;
  args.tiles = weight.data + (tiles ? tiles_at(weight.rows) : 0);
  args.inverses = tiles ? reinterpret_cast<const float*>(weight.data) : nullptr;
  args.rows = weight.rows;
  args.cols = weight.cols;
  args.parts = parts_of(weight.cols);
  args.out = reinterpret_cast<float*>(product.out.data);
  args.out_stride = product.out.stride;
  args.bias = floats_of(product.bias);
  args.add = product.add;
  args.scale = product.scale;
  return args;
}

InputArgs CudaProducts::args_of(const Input& input) {
  const Tensor gate = input.kind == Input::Kind::Activated ? input.x : input.gate;
  return {kind_of(input), input.x, gate, input.weight, input.epsilon, input.groups, input.bias};
}

void CudaProducts::multiply_expanded(cudaStream_t stream, Packing packing, const MatrixSet& set,
                                     std::uint32_t tokens) const {
  const std::uint32_t cols = set.matrix[0].cols, pieces = pieces_of(cols);
  const std::uint64_t from_bytes = tile_bytes(packing, cols), to_bytes = tile_bytes(Packing::F16, cols);
  const auto most = static_cast<std::uint32_t>(std::max<std::uint64_t>(kExpandedBytes / to_bytes, 1));
  MatrixSet some;
  std::uint32_t used = 0;  // tiles of the scratch memory
  const auto multiply_some = [&] {
    launch_gemm(stream, some, tokens, prepared_);
    some.count = used = 0;
  };
  for (std::uint32_t i = 0; i < set.count; ++i) {
    const MatrixArgs& args = set.matrix[i];
    const std::uint32_t tiles = tiles_of(args.rows);
    for (std::uint32_t first = 0; first < tiles;) {
      if (used == most || some.count == kMostTogether) multiply_some();
      const std::uint32_t count = std::min(most - used, tiles - first);
      std::byte* const to = expanded_ + used * to_bytes;
      launch_expand(stream, packing, args.tiles + first * from_bytes, count, pieces, to);
      some.matrix[some.count++] = tiles_from(args, first, count, to);
      used += count;
      first += count;
    }
  }
  multiply_some();
}

bool CudaProducts::takes_ring(Packing packing, std::uint32_t tokens, std::uint32_t cols) const {
  return split_ && cuda::has_split(packing) && kernels_ == Kernels::Best && ring_takes(tokens, cols);
}

bool CudaProducts::takes_split(Packing packing, std::uint32_t tokens) const {
  if (!split_ || !cuda::has_split(packing) || kernels_ == Kernels::Mma) return false;
  return kernels_ == Kernels::Split || tokens > (packing == Packing::F16 ? kStreamedHalves : kStreamedPacked);
}

void CudaProducts::multiply(cudaStream_t stream, Packing packing, const MatrixSet& set, std::uint32_t tokens,
                            const InputArgs* raw) const {
  if (takes_ring(packing, tokens, set.matrix[0].cols)) {
    return launch_ring(stream, packing, set, tokens, prepared_, raw, processors_);
  }
  if (takes_split(packing, tokens)) return launch_split(stream, packing, set, tokens, prepared_);
  const bool only_streamed = packing == Packing::F32 || packing == Packing::BF16;
  if (only_streamed || tokens <= kStreamedElsewhere) return launch_stream(stream, packing, set, tokens, prepared_);
  if (packing == Packing::F16) return launch_gemm(stream, set, tokens, prepared_);
  multiply_expanded(stream, packing, set, tokens);
}

void CudaProducts::matmul(cudaStream_t stream, std::span<const Product> products, const Input& input) const {
  const std::uint32_t tokens = input.x.rows;
  if (tokens == 0 || products.empty()) return;
  QUIRE_CHECK(tokens <= sizes_.rows && input.x.cols <= sizes_.cols, "steps are as large as they were prepared for");
  // A single token may be made ready by the product itself. That leaves other forms for other packings.
  const InputArgs args = args_of(input);
  const bool own =
      is_common(args.kind) && ring_makes_ready(tokens, input.x.cols, input.groups) && !lies_on_input(products, input);
  const InputArgs* raw = own ? &args : nullptr;
  InputForms forms;
  for (const Product& product : products) {
    QUIRE_CHECK(
        input.x.cols == product.weight->cols && product.out.cols == product.weight->rows && product.out.rows == tokens,
        "shapes agree");
    const Packing packing = packing_of(product.weight->type);
    if (packing == Packing::F32) {
      forms.floats = true;
    } else if (packing == Packing::BF16) {
      forms.bf16 = true;
    } else if (takes_ring(packing, tokens, product.weight->cols)) {
      forms.rows = raw == nullptr;
    } else {
      forms.halves = true;
    }
  }
  if (forms.any()) launch_prepare(stream, args, prepared_, forms);
  // Products of one packing go together, in the order of their first.
  MatrixSet set;
  for (std::size_t i = 0; i < products.size(); ++i) {
    const Packing packing = packing_of(products[i].weight->type);
    const auto same = [&](const Product& other) { return packing_of(other.weight->type) == packing; };
    if (std::ranges::any_of(products.first(i), same)) continue;  // went with an earlier one
    for (std::size_t k = i; k < products.size(); ++k) {
      if (!same(products[k])) continue;
      set.matrix[set.count++] = args_of(products[k]);
      if (set.count < kMostTogether) continue;
      multiply(stream, packing, set, tokens, raw);
      set.count = 0;
    }
    if (set.count > 0) multiply(stream, packing, set, tokens, raw);
    set.count = 0;
  }
}

}  // namespace quire::cuda
