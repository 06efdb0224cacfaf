#include "quire/cli/load.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "quire/cli/bundled_model.h"
#include "quire/cli/printable.h"
#include "quire/cli/progress.h"
#include "quire/engine/model_drafter.h"
#include "quire/engine/ngram_drafter.h"
#include "quire/model/model.h"

namespace quire::cli {

namespace {

// Touches one byte of every page of the tensors, so that the operating system reads them from the disk.
void page_in(const gguf::File& file, Progress& progress) {
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kStep = std::size_t{8} << 20;  // bytes between two updates of the progress
  std::uint64_t total = 0, done = 0;
  for (std::size_t i = 0; i < file.tensor_count(); ++i) total += file.tensor(i).data.size();
  for (std::size_t i = 0; i < file.tensor_count(); ++i) {
    std::span<const std::byte> data = file.tensor(i).data;
    while (!data.empty()) {
      const std::span<const std::byte> step = data.first(std::min(kStep, data.size()));
      for (std::size_t at = 0; at < step.size(); at += kPage) {
        (void)*static_cast<const volatile std::byte*>(step.data() + at);
      }
      done += step.size();
      progress.update(done, total);
      data = data.subspan(step.size());
    }
  }
}

}  // namespace

Result<std::uint32_t> chosen_adapter(const ModelOptions& options) {
  if (options.adapter.empty()) {
    if (options.adapters.size() <= 1) return static_cast<std::uint32_t>(options.adapters.size());
    return fail(fmt::format("{} adapters are given: choose one with --adapter NAME", options.adapters.size()));
  }
  const auto found = std::ranges::find(options.adapters, options.adapter, &model::AdapterOptions::name);
  if (found != options.adapters.end()) return static_cast<std::uint32_t>(found - options.adapters.begin()) + 1;
  return fail(fmt::format("--adapter: {} is not the name of a --lora",
                          printable(options.adapter, {.limit = 40, .quotes = true})));
}

Result<std::unique_ptr<model::Model>> load_model(const ModelOptions& options, const Console& console) {
  std::string path = options.model;
  if (path.empty()) {
    auto bundled = bundled_model();
    if (!bundled) return std::unexpected(bundled.error());
    path = std::move(*bundled);
  }
  auto model = model::Model::load(path, options.context);
  if (!model) return model;
  for (const model::AdapterOptions& adapter : options.adapters) {
    if (auto ok = (*model)->add_adapter(adapter); !ok) return std::unexpected(ok.error());
  }
  Progress progress(console.err, console.err_style, "loading");
  page_in((*model)->file(), progress);
  return model;
}

namespace {

constexpr std::uint64_t kDraftMemory = std::uint64_t{512} << 20;  // of the smaller model's pool
constexpr std::uint32_t kDraftSequences = 16;                     // that draft at once

Result<std::shared_ptr<engine::Drafter>> make_drafter(const ModelOptions& options, const model::Model& model,
                                                      std::uint32_t max_sequences, const Console& console) {
  if (options.draft.empty()) return std::make_shared<engine::NgramDrafter>();
  ModelOptions smaller = options;
  smaller.model = options.draft;
  smaller.adapters.clear();  // they are the other model's
  auto draft = load_model(smaller, console);
  if (!draft) return std::unexpected(draft.error());
  if (auto ok = engine::same_vocabulary(model, **draft); !ok) return std::unexpected(ok.error());
  engine::HostOptions host{.memory = kDraftMemory,
                           .kv_type = options.kv_type,
                           .state_type = options.state_type,
                           .block_size = options.block_size,
                           .max_sequences = 2 * std::min(max_sequences, kDraftSequences),
                           .checkpoints = 0,
                           .prefix_cache = false,
                           .event_capacity = 64};
  host.backend = {
      .device = options.device, .threads = options.threads, .placement = options.placement, .variant = options.variant};
  host.engine.host_bytes = 0;
  auto hosted = engine::HostedModel::create(std::move(*draft), host);
  if (!hosted) return fail(fmt::format("{}: {}", options.draft, hosted.error().message));
  return std::make_shared<engine::ModelDrafter>(std::move(*hosted));
}

}  // namespace

Result<std::unique_ptr<engine::HostedModel>> load(const ModelOptions& options, engine::HostOptions host,
                                                  const Console& console) {
  if (!options.draft.empty() && (options.speculate == Speculate::Ngram || options.speculate == Speculate::Heads)) {
    return fail(fmt::format("--draft: {} would not be used with '--speculate {}'; leave out one of the two",
                            printable(options.draft), options.speculate == Speculate::Ngram ? "ngram" : "heads"));
  }
  // An unknown device or variant is refused before the file is read.
  host.backend = {
      .device = options.device, .threads = options.threads, .placement = options.placement, .variant = options.variant};
  auto backend = make_backend(host.backend);
  if (!backend) return std::unexpected(backend.error());
  auto model = load_model(options, console);
  if (!model) return std::unexpected(model.error());
  host.context = options.context;
  host.memory = options.memory;
  host.kv_type = options.kv_type;
  host.block_size = options.block_size;
  host.state_type = options.state_type;
  const bool can_be_head = options.speculate == Speculate::Auto && options.draft.empty();
  host.heads = options.speculate == Speculate::Heads || (can_be_head && (*model)->hyperparameters().head);
  if (options.speculate == Speculate::Heads && !(*model)->hyperparameters().head) {
    return fail(fmt::format("--speculate heads: {} has no next-token head; auto takes what there is",
                            printable((*model)->file().path())));
  }
  if (host.heads) {
    // Before the weights are loaded.
    if (const auto head = (*model)->head(); !head) {
      return fail(head.error().message + " (of its next-token head; '--speculate ngram' does without)");
    }
  }
  host.engine.draft_tokens = options.draft_tokens;
  if (options.speculate != Speculate::Off && !host.heads) {
    auto drafter = make_drafter(options, **model, host.max_sequences, console);
    if (!drafter) return std::unexpected(drafter.error());
    host.engine.drafter = std::move(*drafter);
  }
  return engine::HostedModel::create(std::move(*model), std::move(*backend), host);
}

engine::HostOptions one_sequence() {
  return {.max_sequences = 1, .checkpoints = 0, .prefix_cache = false, .event_capacity = 64};
}

}  // namespace quire::cli
