// libFuzzer target: reads any bytes as an adapter of a small model, and loads it if it fits.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/backend/cpu/cpu_backend.h"
#include "quire/gguf/gguf.h"
#include "quire/model/adapter.h"

namespace {

using namespace quire;
using namespace quire::model;

void require(bool condition) {
  if (!condition) std::abort();
}

// Matrices of all kinds that adapters meet: plain, in parts, stacked, looked up, of heads; and a vector.
struct SmallModel {
  Weight plain, first, second, stack, table, heads, output;
  Tensor vector;
  std::vector<Binding> bindings;

  SmallModel() {
    add("blk.0.attn_q.weight", {8, 6}, &plain, 0, 6);
    add("blk.0.attn_qkv.weight", {8, 6}, &first, 0, 4);
    add("blk.0.attn_qkv.weight", {8, 6}, &second, 4, 2);
    add("blk.0.ffn_up_exps.weight", {8, 4, 3}, &stack, 0, 4).stacked = 3;
    add("token_embd.weight", {8, 5}, &table, 0, 5).use = WeightUse::Both;
    add("blk.0.attn_k_b.weight", {8, 2, 3}, &heads, 0, 2).use = WeightUse::Heads;
    Binding& norm = add("blk.0.attn_norm.weight", {8}, nullptr, 0, 8);
    norm.vector = &vector;
  }
  Binding& add(std::string_view name, std::initializer_list<std::uint64_t> shape, Weight* to, std::uint64_t first_row,
               std::uint64_t rows) {
    Binding& binding = bindings.emplace_back();
    binding.source.name = name;
    binding.source.n_dims = static_cast<std::uint32_t>(shape.size());
    std::size_t i = 0;
    for (const std::uint64_t length : shape) binding.source.shape[i++] = length;
    binding.weight = to;
    binding.first = first_row;
    binding.count = rows;
    return binding;
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto file = gguf::File::from_memory(std::as_bytes(std::span(data, size)), "fuzz");
  if (!file) return 0;
  SmallModel model;
  const Adapter::Base base{
      .architecture = "llama", .bindings = model.bindings, .output = &model.output, .output_rows = 5, .output_cols = 8};
  auto adapter = Adapter::read(std::move(*file), {.name = "x", .file = {}}, base);
  if (!adapter) {
    require(!adapter.error().message.empty() && adapter.error().message.find('\n') == std::string::npos);
    return 0;
  }
  require(!adapter->targets().empty() && adapter->rank() > 0);
  CpuBackend backend(1);
  std::vector<LowRank> pairs(adapter->targets().size());
  std::vector<LowRank*> tables;
  for (LowRank& pair : pairs) tables.push_back(&pair);
  const auto memory = adapter->load(backend, tables);
  require(memory.has_value());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const Adapter::Target& target = adapter->targets()[i];
    require(pairs[i].valid() && pairs[i].b.rows == target.b.rows && pairs[i].b.cols == target.b.cols);
  }
  return 0;
}
