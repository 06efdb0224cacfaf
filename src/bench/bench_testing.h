// For tests of the benchmark: models that are tiny and fast.
#pragma once

#include "quire/bench/synth/synth.h"

namespace quire::bench::testing {

inline synth::Shape tiny_llama() {
  return {.name = "tiny-llama",
          .architecture = "llama",
          .layers = 2,
          .embedding = 64,
          .vocabulary = 320,
          .context = 512,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 16,
          .feed_forward = 96};
}

inline synth::Shape tiny_mamba() {
  return {.name = "tiny-mamba",
          .architecture = "mamba2",
          .layers = 2,
          .embedding = 64,
          .vocabulary = 320,
          .context = 512,
          .tied = true,
          .inner = 128,
          .state = 16,
          .groups = 1,
          .ssm_heads = 4,
          .conv = 4};
}

}  // namespace quire::bench::testing
