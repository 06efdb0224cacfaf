// For tests of the simulation: small traces, layouts and costs, and what a trace has in common, counted token by token.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "quire/simulate/simulation.h"

namespace quire::simulate::testing {

inline std::string conversations() { return QUIRE_SOURCE_DIR "/testdata/simulate/conversations.jsonl"; }

inline Trace conversations_trace() {
  const std::string path = conversations();
  auto trace = read_trace(std::span(&path, 1));
  EXPECT_TRUE(trace) << trace.error().message;
  return trace ? *trace : Trace{};
}

inline StateLayout attention_layout() {
  const LayerDesc layers[] = {LayerDesc::attention(2, 64), LayerDesc::attention(2, 64)};
  return *StateLayout::from_layers(layers, 16);
}
inline StateLayout hybrid_layout() {
  const LayerDesc layers[] = {LayerDesc::attention(2, 64), LayerDesc::recurrent(4096, 65536)};
  return *StateLayout::from_layers(layers, 16);
}

inline constexpr engine::StepCosts kCosts{
    .base = 5e-3, .decode_row = 1e-4, .prefill_row = 5e-5, .decode_context = 1e-8, .prefill_context = 1e-9};

inline SimulationOptions small_options() {
  SimulationOptions options{.layout = attention_layout(), .costs = kCosts, .memory = std::uint64_t{1} << 30};
  options.max_sequences = 16;
  options.step_tokens = 512;
  options.check_integrity = true;
  return options;
}

// For each prompt the longest beginning that it has in common with an earlier one, without its last token, all added.
inline std::uint64_t repeated_tokens(const Trace& trace) {
  std::uint64_t sum = 0;
  std::vector<std::vector<Token>> prompts;
  for (const TraceRequest& request : trace.requests) {
    std::vector<Token> prompt = trace.prompt_of(request);
    std::size_t longest = 0;
    for (const auto& earlier : prompts) {
      const auto end = std::ranges::mismatch(prompt, earlier).in1;
      longest = std::max(longest, static_cast<std::size_t>(end - prompt.begin()));
    }
    sum += std::min(longest, prompt.size() - 1);
    prompts.push_back(std::move(prompt));
  }
  return sum;
}

}  // namespace quire::simulate::testing
