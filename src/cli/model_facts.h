// What `quire info` has to say of a model, found out and checked, before anyone decides how it looks.
//
// Who may call: anyone, from any thread; there is no state.
// What holds: nothing refers to the file any more. Memory taken is a few KB and some 20 bytes a layer, whatever the
// file
//   says; strings from the file are cut to kMaxShown bytes and otherwise as they are, so whoever prints them makes them
//   printable (printable.h).
// How it fails: with one line that names the file and what in it is missing, contradictory or out of range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/gguf/gguf.h"
#include "quire/model/hyperparameters.h"
#include "quire/model/state_layout.h"

namespace quire::cli {

constexpr std::size_t kMaxShown = 200;

struct ModelFacts {
  struct TensorType {
    gguf::Type type = gguf::Type::F32;
    std::uint64_t tensors = 0, elements = 0, bytes = 0;
  };
  struct SpecialToken {
    std::string role;  // "BOS", "EOS", ...
    std::uint32_t id = 0;
    std::string spelling;
  };
  struct TokenizerFacts {
    std::string model;  // as in the file: "gpt2", "llama"
    std::string kind;   // for people
    std::string pre;    // the pre-tokenizer; empty if the file names none
    bool supported = false;
    std::uint64_t tokens = 0;
    std::vector<SpecialToken> special;
  };

  std::string path;
  std::uint32_t version = 0;
  std::uint64_t bytes = 0;  // of all parts
  std::vector<gguf::File::Part> parts;

  std::string name;  // empty if the file names none
  model::Hyperparameters model;
  std::uint64_t parameters = 0;
  std::uint64_t tensors = 0;
  std::vector<TensorType> types;  // the one with the most bytes first

  std::optional<TokenizerFacts> tokenizer;
  std::optional<std::uint64_t> chat_template_bytes;

  // Of a sequence as long as the context.
  model::StateCost state_f16, state_f32;
};

Result<ModelFacts> model_facts(const gguf::File& file);

}  // namespace quire::cli
