// `quire info`: what a model's file is, for people or as JSON.
//
// How it fails: info() with one line that names the file and what is wrong with it. A file of which any part shown
//   here is missing or contradictory is refused as a whole.
#pragma once

#include <string>

#include <boost/json/object.hpp>

#include "quire/base/error.h"
#include "quire/cli/model_facts.h"
#include "quire/cli/style.h"

namespace quire::cli {

struct InfoOptions {
  std::string path;
  bool json = false;
};

// Everything there is to print.
Result<std::string> info(const InfoOptions& options, const Style& style);

std::string info_text(const ModelFacts& facts, const Style& style);
boost::json::object info_json(const ModelFacts& facts);

}  // namespace quire::cli
