// A model made ready to run, as the options that every such command has say: -m, --threads, --ctx, --memory, --kv-type.
//
// What holds: on a terminal a bar shows how far the loading is. The file is read once from its beginning to its end, so
//   that the first token does not wait for the disk in many small pieces.
// How it fails: with one line that names the file and what is wrong with it, or the number that is too large or small.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "quire/base/error.h"
#include "quire/cli/console.h"
#include "quire/engine/hosted_model.h"

namespace quire::cli {

struct ModelOptions {
  std::string model;          // a GGUF file; empty: the bundled one
  std::uint32_t threads = 0;  // 0: one for each core
  std::uint32_t context = 0;  // tokens; 0: the model's
  std::uint64_t memory = 0;   // bytes; 0: what one sequence takes
  ElementType kv_type = ElementType::F16;
  std::string device = "auto";
  std::string variant;  // of the kernels; empty: the best
};

// The model alone.
Result<std::unique_ptr<model::Model>> load_model(const ModelOptions& options, const Console& console);
// Ready to answer. What is not in the options comes from `host`.
Result<std::unique_ptr<engine::HostedModel>> load(const ModelOptions& options, engine::HostOptions host,
                                                  const Console& console);
// For one sequence at a time.
engine::HostOptions one_sequence();

}  // namespace quire::cli
