// The constants of a model that are not shapes: scales, caps, epsilon, rotary frequencies.
//
// Who may call: anyone, from any thread; there is no state.
// How it fails: with one line that names the file and the key. This includes features that are not supported yet:
//   rotary scalings of other kinds than those of rope_scaling.h and Llama 3's.
#pragma once

#include <vector>

#include "quire/base/error.h"
#include "quire/gguf/gguf.h"
#include "quire/model/hyperparameters.h"
#include "quire/model/rope_scaling.h"

namespace quire::model {

struct Constants {
  float epsilon = 0;
  float embedding_scale = 1;
  float residual_scale = 1;
  float logit_scale = 1;      // logits are multiplied by it
  float attention_scale = 0;  // scores are multiplied by it
  float attention_cap = 0;    // 0: none
  float logit_cap = 0;        // 0: none
  float expert_scale = 1;     // the weights of a token's experts are multiplied by it
  // The angle per position for each pair of elements of a head. Empty: positions are not rotated.
  std::vector<float> frequencies;
  std::vector<float> window_frequencies;  // for layers with a window
  float rope_magnitude = 1;               // cosines and sines are multiplied by it
  float window_rope_magnitude = 1;
  RopeScaling rope_scaling;  // how the frequencies came about
};

// `context`: tokens that sequences may have; 0: as many as the model was trained for. It decides between the long and
// the short factors of longrope, so all sequences of a model have the same ones, whatever their length.
Result<Constants> read_constants(const gguf::File& file, const Hyperparameters& model, std::uint32_t context = 0);

}  // namespace quire::model
