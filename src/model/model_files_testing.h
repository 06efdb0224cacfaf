// For tests over every model file in the tree: the golden models and the demo models, as parameters of a test suite.
#pragma once

#include <cctype>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

namespace quire::model::testing {

// How far the logits of a golden model may be from Hugging Face's on the CPU, in parts of their spread. The converter
// multiplied the multipliers of Falcon-H1 into its weights and rounded those to halves: the file itself, computed in
// double precision, is 1.06e-3 off.
inline double golden_tolerance(const std::string& path) {
  return path.find("falcon-h1") != std::string::npos ? 1.5e-3 : 1e-3;
}

inline auto golden_files() {
  return ::testing::Values("testdata/golden/cohere2/model.gguf",             //
                           "testdata/golden/deepseek2/model.gguf",           //
                           "testdata/golden/falcon-h1/model.gguf",           //
                           "testdata/golden/gemma2/model.gguf",              //
                           "testdata/golden/gemma3/model.gguf",              //
                           "testdata/golden/glm4/model.gguf",                //
                           "testdata/golden/gpt-oss/model.gguf",             //
                           "testdata/golden/gpt2/model.gguf",                //
                           "testdata/golden/granite/model.gguf",             //
                           "testdata/golden/granite-hybrid/model.gguf",      //
                           "testdata/golden/granite-moe-hybrid/model.gguf",  //
                           "testdata/golden/jamba/model.gguf",               //
                           "testdata/golden/lfm2/model.gguf",                //
                           "testdata/golden/lfm2moe/model.gguf",             //
                           "testdata/golden/llama/model.gguf",               //
                           "testdata/golden/llama-yarn/model.gguf",          //
                           "testdata/golden/llama31/model.gguf",             //
                           "testdata/golden/mamba/model.gguf",               //
                           "testdata/golden/mamba2/model.gguf",              //
                           "testdata/golden/mistral/model.gguf",             //
                           "testdata/golden/mixtral/model.gguf",             //
                           "testdata/golden/olmo2/model.gguf",               //
                           "testdata/golden/olmoe/model.gguf",               //
                           "testdata/golden/phi3/model.gguf",                //
                           "testdata/golden/phi3-longrope/model.gguf",       //
                           "testdata/golden/qwen2/model.gguf",               //
                           "testdata/golden/qwen3/model.gguf",               //
                           "testdata/golden/qwen35/model.gguf",              //
                           "testdata/golden/qwen35moe/model.gguf",           //
                           "testdata/golden/qwen3moe/model.gguf",            //
                           "testdata/golden/qwen3next/model.gguf",           //
                           "testdata/golden/smollm3/model.gguf",             //
                           "testdata/golden/starcoder2/model.gguf");
}
inline auto demo_files() {
  return ::testing::Values("models/quire-demo-llama-q8_0.gguf", "models/quire-demo-mamba2-q8_0.gguf",
                           "models/quire-demo-hybrid-q8_0.gguf");
}

// A test name for such a file.
inline std::string readable(const ::testing::TestParamInfo<std::string>& model) {
  std::string name = model.param;
  for (const char* part : {"testdata/golden/", "/model.gguf", "models/quire-", ".gguf"}) {
    if (const auto at = name.find(part); at != std::string::npos) name.erase(at, std::strlen(part));
  }
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

}  // namespace quire::model::testing
