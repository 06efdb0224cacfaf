#include "quire/bench/synth/named_shapes.h"

namespace quire::synth {

std::vector<Shape> dense_shapes() {
  return {
      // TinyLlama/TinyLlama-1.1B-Chat-v1.0
      {.name = "llama-1.1b",
       .architecture = "llama",
       .layers = 22,
       .embedding = 2048,
       .vocabulary = 32000,
       .context = 2048,
       .heads = 32,
       .kv_heads = 4,
       .head_dim = 64,
       .feed_forward = 5632},
      // meta-llama/Llama-3.1-8B
      {.name = "llama-8b",
       .architecture = "llama",
       .layers = 32,
       .embedding = 4096,
       .vocabulary = 128256,
       .context = 131072,
       .heads = 32,
       .kv_heads = 8,
       .head_dim = 128,
       .feed_forward = 14336,
       .pre = "llama-bpe",
       .rope_base = 500000,
       .rope_stretch = 8},
      // mistralai/Mistral-7B-Instruct-v0.2, which has no sliding window. In GGUF its architecture is llama.
      {.name = "mistral-7b",
       .architecture = "llama",
       .layers = 32,
       .embedding = 4096,
       .vocabulary = 32000,
       .context = 32768,
       .heads = 32,
       .kv_heads = 8,
       .head_dim = 128,
       .feed_forward = 14336,
       .rope_base = 1000000},
      // Qwen/Qwen2.5-0.5B. In GGUF its architecture is qwen2.
      {.name = "qwen2.5-0.5b",
       .architecture = "qwen2",
       .layers = 24,
       .embedding = 896,
       .vocabulary = 151936,
       .context = 32768,
       .tied = true,
       .heads = 14,
       .kv_heads = 2,
       .head_dim = 64,
       .feed_forward = 4864,
       .pre = "qwen2",
       .epsilon = 1e-6f,
       .rope_base = 1000000},
      // Qwen/Qwen3-0.6B
      {.name = "qwen3-0.6b",
       .architecture = "qwen3",
       .layers = 28,
       .embedding = 1024,
       .vocabulary = 151936,
       .context = 40960,
       .tied = true,
       .heads = 16,
       .kv_heads = 8,
       .head_dim = 128,
       .feed_forward = 3072,
       .pre = "qwen2",
       .epsilon = 1e-6f,
       .rope_base = 1000000},
  };
}

}  // namespace quire::synth
