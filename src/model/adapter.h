// An adapter of a model (LoRA): a GGUF file with pairs of small matrices A and B. A product with a matrix W of the
// model becomes W x + scale * B (A x) for the sequences that have the adapter (LowRank in backend.h). The weights of
// the model stay as they are, so sequences with different adapters, and with none, are computed in one step.
//
// The file (as llama.cpp's convert_lora_to_gguf.py writes it):
//   general.type = "adapter", adapter.type = "lora", general.architecture: that of the model
//   adapter.lora.alpha      the scale is alpha / rank; 0 or absent: 1
//   NAME.lora_a, NAME.lora_b    for the tensor NAME of the model, "blk.3.attn_q.weight" for example
//                               A [rank][columns of W], B [rows of W][rank]; with an index more for stacked experts
//   token_embd.weight           is looked up: A [tokens][rank], B [columns of W][rank]
// Matrices that a block uses in parts (attn_qkv.weight) are adapted in the same parts.
//
// Who may call: any thread; it does not change after creation.
// How it fails: read() with one line that names the file and the tensor or key that is wrong.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/backend/backend.h"
#include "quire/base/error.h"
#include "quire/gguf/gguf.h"
#include "quire/model/tensor_table.h"
#include "quire/state/ids.h"
#include "quire/state/saved_sequence.h"

namespace quire::model {

// Adapters are numbered from 1. Namespaces have room for so many.
inline constexpr std::uint32_t kMostAdapters = kMostAdapterNumber;
// So that a name can stand in "model:NAME", in a file of a session and in a list with commas.
inline constexpr std::size_t kMostAdapterName = 64;

struct AdapterOptions {
  std::string name;
  std::string file;
  float scale = 1;  // times that of the file
};
// Letters, digits, '.', '_' and '-', at most kMostAdapterName of them. The message names what is wrong.
Result<void> check_adapter_name(std::string_view name);

// NAME=FILE or NAME=FILE:SCALE, as users write it. A scale is a number behind the last colon.
Result<AdapterOptions> parse_adapter(std::string_view text);

class Adapter {
 public:
  // A matrix of the model that the adapter changes, or the part of one that a block uses.
  struct Target {
    Weight* to = nullptr;  // of the model
    bool lookup = false;
    FileMatrix a, b;  // b: the rows of this part
    std::uint32_t stacked = 1;
    std::uint64_t a_stride = 0, b_stride = 0;  // bytes between the matrices of a stack
    std::uint32_t pair = 0;                    // targets with the same number have the same A
  };
  // The model, as an adapter sees it.
  struct Base {
    std::string_view architecture;
    std::span<const Binding> bindings;
    Weight* output = nullptr;  // where the output matrix is the embedding: what it is multiplied as
    std::uint64_t output_rows = 0, output_cols = 0;
  };

  static Result<Adapter> read(gguf::File file, const AdapterOptions& options, const Base& base);

  const std::string& name() const { return name_; }
  const std::string& path() const { return file_.path(); }
  const gguf::File& file() const { return file_; }
  float scale() const { return scale_; }  // of the caller
  float alpha() const { return alpha_; }
  // alpha / rank, times the caller's scale.
  float scale_of(const Target& target) const;
  std::uint32_t rank() const { return rank_; }  // the largest
  std::span<const Target> targets() const { return targets_; }
  // Of its contents and its scale. What was computed with an adapter of another fingerprint is something else.
  const Fingerprint& fingerprint() const { return fingerprint_; }
  std::uint64_t device_bytes() const { return device_bytes_; }

  // Copies its matrices to the device and puts the pairs where the model looks for them: tables[i] belongs to
  // targets()[i].to. Returns the memory that they take.
  Result<DeviceBuffer> load(Backend& backend, std::span<LowRank* const> tables);

 private:
  explicit Adapter(gguf::File file) : file_(std::move(file)) {}
  Result<void> read_metadata(const Base& base);
  Result<void> add_pair(std::string_view tensor, const Base& base);
  Result<void> add_target(const gguf::Tensor& a, const gguf::Tensor& b, std::string_view tensor, Target target,
                          std::uint64_t first, std::uint64_t count, std::uint64_t rows, std::uint64_t cols);

  gguf::File file_;
  std::string name_;
  float scale_ = 1, alpha_ = 0;
  std::uint32_t rank_ = 0, pairs_ = 0;
  std::vector<Target> targets_;
  Fingerprint fingerprint_;
  std::uint64_t device_bytes_ = 0;
};

}  // namespace quire::model
