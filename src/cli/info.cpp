#include "quire/cli/info.h"

#include "quire/cli/printable.h"
#include "quire/gguf/gguf.h"

namespace quire::cli {

Result<std::string> info(const InfoOptions& options, const Style& style) {
  if (options.devices) {
    const DeviceChoices choices = known_devices();
    return options.json ? json_line(devices_json(choices)) : devices_text(choices);
  }
  const auto file = gguf::File::open(options.path);
  if (!file) return std::unexpected(file.error());
  const auto facts = model_facts(*file, options.block_size);
  if (!facts) return std::unexpected(facts.error());
  return options.json ? json_line(info_json(*facts)) : info_text(*facts, style);
}

}  // namespace quire::cli
