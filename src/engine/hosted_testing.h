// Real models in engine tests: on which devices they run, and what is compared of their answers.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "quire/backend/backends_testing.h"
#include "quire/engine/hosted_model.h"
#include "quire/engine/weightless_testing.h"

namespace quire::engine::testing {

using quire::testing::BackendKind;

// One of each device. Of the CPU only the best instruction set, since all have passed the same suites.
inline std::vector<BackendKind> best_backends() {
  std::vector<BackendKind> all = quire::testing::backend_kinds();
  const auto gpu = std::ranges::find(all, true, &BackendKind::gpu);
  if (gpu - all.begin() > 1) all.erase(all.begin(), gpu - 1);
  return all;
}

// `file`: from the top of the source tree.
inline std::unique_ptr<HostedModel> host_file(const std::string& file, const BackendKind& kind,
                                              const HostOptions& options) {
  auto model = model::Model::load(std::string(QUIRE_SOURCE_DIR) + "/" + file);
  EXPECT_TRUE(model.has_value()) << model.error().message;
  auto made = HostedModel::create(std::move(*model), kind.make(1), options);
  EXPECT_TRUE(made.has_value()) << made.error().message;
  return std::move(*made);
}

// What a client sees of a choice: tokens, the bits of their log-probabilities, and why it ended.
struct Seen {
  std::vector<Token> tokens;
  std::vector<std::uint32_t> logprobs;
  Finish finish = Finish::Length;
  friend bool operator==(const Seen&, const Seen&) = default;
};
inline Seen seen(const Collector::Choice& choice) {
  Seen all{choice.tokens, {}, choice.finish};
  for (const float logprob : choice.logprobs) all.logprobs.push_back(std::bit_cast<std::uint32_t>(logprob));
  return all;
}

}  // namespace quire::engine::testing
