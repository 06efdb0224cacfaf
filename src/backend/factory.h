// Backends by name. A new kind of device gets its name here when it passes the conformance suite.
//
// Who may call: anyone, from any thread.
// How it fails: with one line that says what there is.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "quire/backend/backend.h"
#include "quire/base/error.h"

namespace quire {

struct BackendOptions {
  std::string device = "auto";  // "cpu"; "auto": the best there is
  std::uint32_t threads = 0;    // of the CPU; 0: one for each core this process may use
  std::string variant;          // kernels of the CPU: "scalar", "avx2", "avx512"; empty: the best this processor has
};

Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options);

}  // namespace quire
