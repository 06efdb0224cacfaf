// The facts about a model that `quire info` prints, read from its file and checked.
//
// Who may call: anyone, from any thread; there is no state.
// What holds: the facts do not refer to the file. They take a few KB and about 20 bytes per layer, whatever the file
//   says. Strings from the file are cut to kMaxShown bytes but not escaped: pass them through printable() (printable.h)
//   before printing.
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
#include "quire/model/rope_scaling.h"
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
    std::string kind;   // for users
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
  std::string head_problem;         // why its next-token head cannot be used; empty: it can, or there is none
  model::RopeScaling rope_scaling;  // with the trained context
  std::uint64_t parameters = 0;
  std::uint64_t tensors = 0;
  std::vector<TensorType> types;  // the one with the most bytes first

  std::optional<TokenizerFacts> tokenizer;
  std::optional<std::uint64_t> chat_template_bytes;

  // The state of a sequence as long as the context, for each type of keys and values. That of bf16 is as large as f16.
  struct KvChoice {
    ElementType type;
    model::StateCost cost;
  };
  std::vector<KvChoice> states;
  std::uint32_t block_size = 0;  // tokens of a page
  // The recurrent state of a sequence, for each --state-type. Empty if no layer is recurrent.
  struct RecurrentBytes {
    ElementType type = ElementType::F32;
    std::uint64_t bytes = 0;
  };
  std::vector<RecurrentBytes> recurrent_bytes;
};

Result<ModelFacts> model_facts(const gguf::File& file, std::uint32_t block_size = kDefaultBlockSize);

}  // namespace quire::cli
