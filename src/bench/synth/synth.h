// Models of real shapes with random weights, so that anyone can measure without downloading anything, and other engines
// can load the same file.
//
//   auto ok = synth::write_model(*synth::find_shape("llama-1.1b"), "Q8_0", 1, "model.gguf", progress);
//
// Who may call: anyone, from any thread; there is no state.
// What holds: the same shape, type and seed give the same bytes. Weights are spread around 0 with a deviation of one
//   over the root of a row's length, norms around 1, and recurrences decay: whatever the depth, logits are finite.
// How it fails: with one line that names what is wrong: a shape that cannot be, a type that rows of this length cannot
//   have, a disk that is full; then there is no file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"

namespace quire::synth {

struct Shape {
  std::string name;
  std::string architecture;  // as GGUF has it: llama, qwen3, mamba2, granitehybrid
  std::uint32_t layers = 0;
  std::uint32_t embedding = 0;
  std::uint32_t vocabulary = 0;
  std::uint32_t context = 0;
  bool tied = false;  // the output is the embedding
  // Attention; none of it in purely recurrent models
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t feed_forward = 0;
  // Mamba-2; none of it in purely attentive models
  std::uint32_t inner = 0;
  std::uint32_t state = 0;
  std::uint32_t groups = 0;
  std::uint32_t ssm_heads = 0;
  std::uint32_t conv = 0;
  std::vector<std::uint32_t> attention_layers;  // of hybrids: which layers attend

  // What does not change how fast a model is.
  std::string pre;  // the pre-tokenizer of a byte-level BPE; empty: the tokenizer is a SentencePiece one
  float epsilon = 1e-5f;
  float rope_base = 10000;
  float rope_stretch = 1;  // Llama 3.1's: how much longer the context is than it was in training
  // Granite's; 0: there is none
  float embedding_scale = 0;
  float residual_scale = 0;
  float logit_scale = 0;
  float attention_scale = 0;
};

const std::vector<std::string>& shape_names();
const Shape* find_shape(std::string_view name);  // null: none of this name
// "F32", ... "Q8_0": the type of all matrices but the output, which is Q6_K where they are smaller; "Q4_K_M": a mix.
// Upper or lower case.
const std::vector<std::string>& type_names();
// The architectures that a shape can be of, and what is usual for one; nothing of its size.
const std::vector<std::string>& architecture_names();
Shape usual_shape(std::string_view architecture);

// `shape` with all numbers that are not 0 in `changes`, and with what follows from them where that is not among them:
// heads that divide a new embedding as they divided the old one, as many channels for it as before, heads of as many
// channels, and the attending layers that are left. Its name says that it is another one.
Shape changed(Shape shape, const Shape& changes);

// Whether there can be such a model. The message begins with the name of the number that is wrong, as the command line
// has it: "kv-heads: ...".
Result<void> check_shape(const Shape& shape);

struct Summary {
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;  // of the tensors
  // Tensors that are of another type than asked for, as their rows are not whole blocks of that one.
  std::vector<std::string> notes;
};
Result<Summary> summarize(const Shape& shape, std::string_view type);

using Progress = std::function<void(std::uint64_t done_bytes, std::uint64_t all_bytes)>;
Result<void> write_model(const Shape& shape, std::string_view type, std::uint64_t seed, const std::string& path,
                         const Progress& progress);

}  // namespace quire::synth
