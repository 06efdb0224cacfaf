// Creates a backend by the name of its device, and lists the devices of this machine. A new kind of device gets its
// name here when it passes the conformance suite.
//
// Who may call: anyone, from any thread.
// How it fails: with one line that lists the choices, or says why the device cannot be used.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quire/backend/backend.h"
#include "quire/backend/placement.h"
#include "quire/base/error.h"

namespace quire {

struct BackendOptions {
  std::string device = "auto";  // "cpu", "cuda", "cuda:1"; "auto": a GPU if there is one, else the CPU
  std::uint32_t threads = 0;    // of the CPU backend; 0: one for each core that this process may use
  Placement placement = {};     // of its threads and its memory
  // Of the CPU kernels: "scalar", "avx2", "avx512"; empty: the best for this processor. "auto" is the CPU then.
  std::string variant;
};

Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options);

// A device that make_backend() knows, for people.
struct DeviceChoice {
  std::string name;  // as BackendOptions::device has it
  std::string description;
  DeviceMemory memory;
};
struct DeviceChoices {
  std::vector<DeviceChoice> usable;  // the first is the one that "auto" takes
  std::string why_no_gpu;            // empty if there is one
};
DeviceChoices known_devices();

}  // namespace quire
