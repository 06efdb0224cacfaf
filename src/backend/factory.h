// Creates a backend by its name. A new kind of device gets its name here when it passes the conformance suite.
//
// Who may call: anyone, from any thread.
// How it fails: with one line that lists the choices.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "quire/backend/backend.h"
#include "quire/base/error.h"

namespace quire {

struct BackendOptions {
  std::string device = "auto";  // "cpu"; "auto": the best one on this machine
  std::uint32_t threads = 0;    // of the CPU backend; 0: one for each core that this process may use
  std::string variant;          // of the CPU kernels: "scalar", "avx2", "avx512"; empty: the best for this processor
};

Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options);

}  // namespace quire
