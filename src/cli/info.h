// `quire info`: describes a model's file, as text or as JSON.
//
// How it fails: info() returns one line that names the file and what is wrong with it. A file is refused as a whole if
//   any part that is shown here is missing or contradictory.
#pragma once

#include <string>

#include <boost/json/object.hpp>

#include "quire/backend/factory.h"
#include "quire/base/error.h"
#include "quire/cli/model_facts.h"
#include "quire/cli/style.h"

namespace quire::cli {

struct InfoOptions {
  std::string path;
  bool json = false;
  bool devices = false;  // list the devices of this machine instead
  std::uint32_t block_size = kDefaultBlockSize;
};

// Returns the whole output.
Result<std::string> info(const InfoOptions& options, const Style& style);

std::string devices_text(const DeviceChoices& choices);
boost::json::object devices_json(const DeviceChoices& choices);
std::string info_text(const ModelFacts& facts, const Style& style);
boost::json::object info_json(const ModelFacts& facts);

}  // namespace quire::cli
