// The limit of a device with memory of its own: how fast it copies within it.
//
// Who may call: anyone, while the device does nothing else. It takes twice `bytes` of the device's memory for a moment.
// How it fails: with one line, if there is not enough memory or the device is lost.
#pragma once

#include "quire/base/error.h"
#include "quire/bench/machine_limits.h"
#include "quire/state/device.h"

namespace quire::bench {

// Bytes per second that a copy reads and writes, the best of some. Arithmetic has no limit here: it is not measured.
Result<MachineLimits> measure_device(Device& device, std::size_t bytes = std::size_t{1} << 30);  // `bytes`: of a copy

}  // namespace quire::bench
