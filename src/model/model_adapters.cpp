// The adapters of a model: read and checked before prepare(), loaded by it.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "quire/model/model.h"

namespace quire::model {

Result<void> Model::add_adapter(const AdapterOptions& options) {
  auto file = gguf::File::open(options.file);
  if (!file) return std::unexpected(file.error());
  return add_adapter(std::move(*file), options);
}

Result<void> Model::add_adapter(gguf::File file, const AdapterOptions& options) {
  if (adapter_number(options.name) != 0) return fail(fmt::format("adapter '{}' is given twice", options.name));
  if (adapters_.size() == kMostAdapters) return fail(fmt::format("more than {} adapters are given", kMostAdapters));
  const Adapter::Base base{.architecture = hyperparameters_.architecture->name,
                           .bindings = bindings_,
                           .output = tied_ ? &tensors_.output : nullptr,
                           .output_rows = hyperparameters_.vocabulary,
                           .output_cols = hyperparameters_.embedding};
  auto adapter = Adapter::read(std::move(file), options, base);
  if (!adapter) return std::unexpected(adapter.error());
  adapters_.push_back(std::move(*adapter));
  return {};
}

std::uint32_t Model::adapter_number(std::string_view name) const {
  const auto found = std::ranges::find(adapters_, name, &Adapter::name);
  return found == adapters_.end() ? 0 : static_cast<std::uint32_t>(found - adapters_.begin()) + 1;
}

std::uint64_t Model::adapter_bytes() const {
  std::uint64_t bytes = 0;
  for (const Adapter& adapter : adapters_) bytes += adapter.device_bytes();
  return bytes;
}

// Each matrix that some adapter changes gets a table with a pair for every adapter; most models have the same matrices
// in all adapters. The weights are on the device already.
Result<void> Model::load_adapters() {
  adapter_memory_.clear();
  std::vector<Weight*> adapted;
  for (const Adapter& adapter : adapters_) {
    for (const Adapter::Target& target : adapter.targets()) adapted.push_back(target.to);
  }
  std::ranges::sort(adapted);
  adapted.erase(std::unique(adapted.begin(), adapted.end()), adapted.end());
  low_ranks_.assign(adapted.size() * adapters_.size(), {});
  for (std::size_t i = 0; i < adapted.size(); ++i) adapted[i]->adapters = &low_ranks_[i * adapters_.size()];
  std::vector<LowRank*> tables;
  for (std::size_t number = 0; number < adapters_.size(); ++number) {
    tables.clear();
    for (const Adapter::Target& target : adapters_[number].targets()) {
      const auto at = static_cast<std::size_t>(std::ranges::lower_bound(adapted, target.to) - adapted.begin());
      tables.push_back(&low_ranks_[at * adapters_.size() + number]);
    }
    auto memory = adapters_[number].load(*backend_, tables);
    if (!memory) return std::unexpected(memory.error());
    adapter_memory_.push_back(std::move(*memory));
  }
  return {};
}

}  // namespace quire::model
