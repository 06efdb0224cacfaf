#include <cstdint>
#include <string>

#include <boost/json/array.hpp>
#include <fmt/format.h>

#include "quire/cli/info.h"

namespace quire::cli {
namespace {

double gibibytes(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

}  // namespace

std::string devices_text(const DeviceChoices& choices) {
  std::string out;
  for (const DeviceChoice& device : choices.usable) {
    out += fmt::format("{:<8}  {}, {:.1f} GiB{}\n", device.name, device.description, gibibytes(device.memory.total),
                       &device == &choices.usable.front() ? "  (auto)" : "");
  }
  if (!choices.why_no_gpu.empty()) out += fmt::format("no GPU: {}\n", choices.why_no_gpu);
  return out;
}

boost::json::object devices_json(const DeviceChoices& choices) {
  boost::json::array devices;
  for (const DeviceChoice& device : choices.usable) {
    devices.push_back({{"name", device.name},
                       {"description", device.description},
                       {"memory_bytes", device.memory.total},
                       {"auto", &device == &choices.usable.front()}});
  }
  boost::json::object out{{"devices", std::move(devices)}};
  out["why_no_gpu"] = choices.why_no_gpu.empty() ? boost::json::value() : boost::json::value(choices.why_no_gpu);
  return out;
}

}  // namespace quire::cli
