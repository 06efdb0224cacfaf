// For tests of what is built on a backend: the same test on every kind of backend of this machine.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "quire/backend/cpu/kernels.h"
#include "quire/backend/factory.h"
#include "quire/base/check.h"

namespace quire::testing {

struct BackendKind {
  std::string name;
  BackendOptions options;
  bool gpu = false;

  std::unique_ptr<Backend> make(std::uint32_t threads) const {
    BackendOptions own = options;
    own.threads = threads;
    return std::move(*make_backend(own));
  }
};

// The CPU's instruction sets, and a GPU if there is one. QUIRE_BACKENDS=cuda: the GPU alone (tests/gpu/run). cpu: no
// GPU.
inline std::vector<BackendKind> backend_kinds() {
  std::vector<BackendKind> kinds;
  const char* const asked = std::getenv("QUIRE_BACKENDS");
  const std::string only = asked != nullptr ? asked : "";
  for (const char* variant : cpu::kVariants) {
    const BackendOptions options{.device = "cpu", .threads = 1, .variant = variant};
    if (only != "cuda" && make_backend(options)) kinds.push_back({variant, options});
  }
  const BackendOptions cuda{.device = "cuda"};
  const bool has_gpu = only != "cpu" && make_backend(cuda).has_value();
  QUIRE_CHECK(only != "cuda" || has_gpu, "QUIRE_BACKENDS=cuda, but this machine has no GPU that can be used");
  if (has_gpu) kinds.push_back({"cuda", cuda, true});
  return kinds;
}

}  // namespace quire::testing
