// Loads a model with the options that all model commands share: -m, --device, --threads, --ctx, --memory, --kv-type,
// --block-size, --state-type.
//
// What holds: on a terminal, a bar shows the progress. The file is read once from beginning to end, so that the first
//   token does not wait for many small reads from the disk.
// How it fails: with one line that names the file and what is wrong with it, or the option that cannot be met.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/cli/console.h"
#include "quire/engine/hosted_model.h"
#include "quire/model/adapter.h"

namespace quire::cli {

// Whether answers are speculated (engine/drafter.h), and by what.
enum class Speculate : std::uint8_t {
  Off,
  Auto,   // by a smaller model if one was given, by the model's head if it has one, otherwise by look-up
  Ngram,  // by look-up in the conversation
  Heads,  // by the model's own next-token head
};

struct ModelOptions {
  std::string model;          // a GGUF file; empty: the bundled one
  std::uint32_t threads = 0;  // 0: one per core
  Placement placement = {};   // of the CPU's threads and memory
  std::uint32_t context = 0;  // tokens; 0: the model's
  std::uint64_t memory = 0;   // bytes; 0: enough for one sequence
  ElementType kv_type = ElementType::F16;
  ElementType state_type = ElementType::F32;  // of recurrent states
  std::string device = "auto";                // see BackendOptions in backend/factory.h
  std::string variant;                        // of the kernels; empty: the best
  std::uint32_t block_size = kDefaultBlockSize;
  std::vector<model::AdapterOptions> adapters;  // --lora
  std::string adapter;                          // the one to answer with, by name; empty: the only one, if there is one
  Speculate speculate = Speculate::Off;
  std::uint32_t draft_tokens = 8;  // the most drafts of an answer in a step
  std::string draft;               // the file of a smaller model that drafts; empty: none
};

// The number of the adapter that a command answers with; 0: none. Fails if there are several and none was chosen.
Result<std::uint32_t> chosen_adapter(const ModelOptions& options);

// The model alone, with its adapters, without a backend.
Result<std::unique_ptr<model::Model>> load_model(const ModelOptions& options, const Console& console);
// The model with backend, pool and engine. `host` gives the settings that are not in the options.
Result<std::unique_ptr<engine::HostedModel>> load(const ModelOptions& options, engine::HostOptions host,
                                                  const Console& console);
// Settings for one sequence at a time.
engine::HostOptions one_sequence();

}  // namespace quire::cli
