#include "quire/cli/load.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "quire/cli/bundled_model.h"
#include "quire/cli/printable.h"
#include "quire/cli/progress.h"
#include "quire/model/model.h"

namespace quire::cli {

namespace {

// Looks at a byte of every page of the tensors, which makes the kernel read them.
void page_in(const gguf::File& file, Progress& progress) {
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kStep = std::size_t{8} << 20;  // between two looks at the clock
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

Result<std::unique_ptr<model::Model>> load_model(const ModelOptions& options, const Console& console) {
  std::string path = options.model;
  if (path.empty()) {
    auto bundled = bundled_model();
    if (!bundled) return std::unexpected(bundled.error());
    path = std::move(*bundled);
  }
  auto model = model::Model::load(path);
  if (!model) return model;
  Progress progress(console.err, console.err_style, "loading");
  page_in((*model)->file(), progress);
  return model;
}

Result<const cpu::Kernels*> kernels_of(const ModelOptions& options) {
  if (options.variant.empty()) return nullptr;
  const cpu::Kernels* kernels = cpu::kernels_by_name(options.variant.c_str());
  if (kernels == nullptr) return fail(fmt::format("this machine cannot run the {} variant", options.variant));
  return kernels;
}

Result<std::unique_ptr<engine::Session>> load(const ModelOptions& options, engine::SessionOptions session,
                                              const Console& console) {
  const auto kernels = kernels_of(options);
  if (!kernels) return std::unexpected(kernels.error());
  auto model = load_model(options, console);
  if (!model) return std::unexpected(model.error());
  session.kernels = *kernels;
  session.threads = options.threads;
  session.context = options.context;
  session.memory = options.memory;
  session.kv_type = options.kv_type;
  return engine::Session::create(std::move(*model), session);
}

}  // namespace quire::cli
