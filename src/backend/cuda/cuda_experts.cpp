#include "quire/backend/cuda/cuda_experts.h"

#include <algorithm>
#include <utility>

#include "quire/backend/cuda/arrange.h"
#include "quire/base/check.h"
#include "quire/base/numbers.h"

namespace quire::cuda {
namespace {

constexpr std::uint64_t kAlignment = 256;
// A block computes 8 or 32 choices of one expert; 32 from kManyChoices choices per expert on. Small blocks read the
// weights of a popular expert several times; large blocks multiply zeros where few rows chose the expert.
constexpr std::uint32_t kSmallBlock = 8, kLargeBlock = 32, kManyChoices = 8;

// The scratch memory, cut in pieces.
struct Scratch {
  std::uint64_t halves, floats, inverses, outputs, blocks, choices;  // bytes of each; bf16 takes `halves` twice

  explicit Scratch(const Backend::Sizes& sizes) {
    const std::uint64_t most = std::uint64_t{sizes.rows} * sizes.experts_used;
    const std::uint64_t all = round_up(most, std::uint64_t{kTokenGroup}) * pieces_of(sizes.expert_inner) * kPieceCols;
    halves = all * sizeof(std::uint16_t);
    floats = all * sizeof(float);
    inverses = round_up(round_up(most, std::uint64_t{kTokenGroup}) * sizeof(float), kAlignment);
    outputs = round_up(most * sizes.expert_width * sizeof(float), kAlignment);
    // Of either size of blocks.
    const auto count = static_cast<std::uint32_t>(most);
    const std::uint64_t small = most_blocks(count, sizes.experts, kSmallBlock),
                        large = most_blocks(count, sizes.experts, kLargeBlock);
    blocks = round_up(small * sizeof(std::uint32_t), kAlignment);
    choices = round_up(std::max(small * kSmallBlock, large * kLargeBlock) * sizeof(std::uint32_t), kAlignment);
  }
  std::uint64_t bytes() const { return 3 * halves + floats + inverses + outputs + blocks + choices; }
};

InputForms forms_of(Packing packing) {
  InputForms forms;
  (packing == Packing::F32 ? forms.floats : packing == Packing::BF16 ? forms.bf16 : forms.halves) = true;
  return forms;
}

void add(ExpertSet& to, const Product& product) {
  to.stride[to.set.count] = product.weight->stride;
  to.set.matrix[to.set.count++] = CudaProducts::args_of(product);
}

RouterArgs args_of(const Router& router) {
  const auto scores = router.scores == Router::Scores::Softmax   ? RouterArgs::Scores::Softmax
                      : router.scores == Router::Scores::Sigmoid ? RouterArgs::Scores::Sigmoid
                                                                 : RouterArgs::Scores::ChosenSoftmax;
  return {scores,        router.experts, router.used,      router.groups, router.groups_used,
          router.normed, router.scale,   Router::kLeastSum};
}

}  // namespace

std::uint64_t CudaExperts::scratch_bytes(const Backend::Sizes& sizes) {
  return sizes.experts == 0 ? 0 : Scratch(sizes).bytes();
}

cudaError_t CudaExperts::prepare(const Backend::Sizes& sizes, std::byte* scratch, bool overlap) {
  sizes_ = sizes;
  overlap_ = overlap;
  if (sizes.experts == 0) return cudaSuccess;
  QUIRE_CHECK(sizes.experts <= kMostSortedExperts, "models with more experts are refused");
  const Scratch parts(sizes);
  const auto take = [&](std::uint64_t bytes) {
    std::byte* at = scratch;
    scratch += bytes;
    return at;
  };
  inner_.halves = reinterpret_cast<std::uint16_t*>(take(parts.halves));
  inner_.high = reinterpret_cast<std::uint16_t*>(take(parts.halves));
  inner_.low = reinterpret_cast<std::uint16_t*>(take(parts.halves));
  inner_.floats = reinterpret_cast<float*>(take(parts.floats));
  inner_.inverses = reinterpret_cast<float*>(take(parts.inverses));
  inner_.overlap = overlap;
  outputs_ = reinterpret_cast<float*>(take(parts.outputs));
  experts_ = reinterpret_cast<std::uint32_t*>(take(parts.blocks));
  choices_ = reinterpret_cast<std::uint32_t*>(take(parts.choices));
  return prepare_experts();
}

void CudaExperts::route(cudaStream_t stream, const Choices& choices, Tensor logits, Tensor selection_bias,
                        const Router& router) const {
  launch_route(stream, overlap_, choices.numbers, choices.weights, logits, selection_bias, args_of(router));
}

// The experts of one row all differ, so there is nothing to sort.
ChoiceBlocks CudaExperts::sort(cudaStream_t stream, const Choices& choices, std::uint32_t experts) const {
  const std::uint32_t count = choices.numbers.rows * choices.numbers.cols;
  ChoiceBlocks blocks{.numbers = reinterpret_cast<const float*>(choices.numbers.data),
                      .stride = choices.numbers.stride,
                      .used = choices.numbers.cols};
  if (choices.numbers.rows == 1) {
    blocks.block = kSmallBlock;
    blocks.count = count;
    return blocks;
  }
  blocks.experts = experts_;
  blocks.choices = choices_;
  blocks.block = count / experts >= kManyChoices ? kLargeBlock : kSmallBlock;
  blocks.count = most_blocks(count, experts, blocks.block);
  launch_sort(stream, overlap_, choices.numbers, experts, blocks);
  return blocks;
}

void CudaExperts::experts(cudaStream_t stream, const CudaProducts& products, const CudaLowRank& adapters,
                          const ExpertLayer& layer, const Input& input, const Choices& choices) const {
  const Weight &gate = *layer.gate.weight, &up = *layer.up.weight, &down = *layer.down.weight;
  const std::uint32_t rows = input.x.rows, used = choices.numbers.cols;
  if (rows == 0) return;
  QUIRE_CHECK(rows <= sizes_.rows && used <= sizes_.experts_used && gate.count <= sizes_.experts &&
                  down.cols <= sizes_.expert_inner && down.rows <= sizes_.expert_width && input.x.cols <= sizes_.cols,
              "steps are as large as they were prepared for");
  QUIRE_CHECK(input.x.cols == gate.cols && gate.cols == up.cols && gate.rows == up.rows && gate.rows == down.cols &&
                  layer.down.out.cols == down.rows && gate.count == up.count && gate.count == down.count &&
                  layer.gate.out.rows == rows * used,
              "shapes agree");
  ChoiceBlocks blocks = sort(stream, choices, gate.count);
  const Packing gates = packing_of(gate.type), ups = packing_of(up.type), downs = packing_of(down.type);
  InputForms forms = forms_of(gates), more = forms_of(ups);
  const Product both[] = {layer.gate, layer.up};
  const bool adapted = adapters.adapts(both), adapted_down = adapters.adapts({&layer.down, 1});
  forms = {forms.halves || more.halves, forms.bf16 || more.bf16, forms.floats || more.floats || adapted};
  launch_prepare(stream, CudaProducts::args_of(input), products.prepared(), forms);

  blocks.by_row = true;
  ExpertSet set;
  add(set, layer.gate);
  if (ups != gates) launch_experts(stream, gates, std::exchange(set, {}), blocks, products.prepared());
  add(set, layer.up);
  launch_experts(stream, ups, set, blocks, products.prepared());

  if (adapted) {
    const std::uint64_t stride = std::uint64_t{pieces_of(input.x.cols)} * kPieceCols;
    for (const Product& product : both) {
      adapters.add_to_chosen(stream, product, products.prepared().floats, stride, false, choices);
    }
  }

  InputForms inner = forms_of(downs);
  inner.floats = inner.floats || adapted_down;
  launch_prepare(stream, CudaProducts::args_of(Input::gated(layer.gate.out, layer.up.out, layer.activation)), inner_,
                 inner);
  blocks.by_row = false;
  Product out = layer.down;
  out.out = {reinterpret_cast<std::byte*>(outputs_), rows * used, down.rows, down.rows, ElementType::F32};
  out.add = false;
  ExpertSet last;
  add(last, out);
  launch_experts(stream, downs, last, blocks, inner_);
  if (adapted_down) {
    adapters.add_to_chosen(stream, out, inner_.floats, std::uint64_t{pieces_of(down.cols)} * kPieceCols, true, choices);
  }
  launch_mix(stream, overlap_, layer.down.out, outputs_, choices.weights, layer.down.add, layer.down.scale);
}

}  // namespace quire::cuda
