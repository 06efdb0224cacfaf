// Real models in engine tests: on which devices they run, and what is compared of their answers.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "quire/backend/backends_testing.h"
#include "quire/engine/hosted_model.h"
#include "quire/engine/ngram_drafter.h"
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

// Sanitizers are slow, so they run with QUIRE_PROPERTY_PERCENT below 100.
inline bool thorough() {
  const char* percent = std::getenv("QUIRE_PROPERTY_PERCENT");
  return percent == nullptr || std::strtoul(percent, nullptr, 10) >= 100;
}

struct BackendAndModel {
  BackendKind kind;
  std::string model;
};

// Each model on the best backends; in thorough tests also on one of the CPU's other instruction sets, in turn.
inline std::vector<BackendAndModel> backends_and_models(std::span<const char* const> models) {
  std::vector<BackendKind> others = quire::testing::backend_kinds();
  std::erase_if(others, [](const BackendKind& kind) {
    const auto best = best_backends();
    return std::ranges::find(best, kind.name, &BackendKind::name) != best.end();
  });
  if (!thorough()) others.clear();
  std::vector<BackendAndModel> all;
  for (std::size_t i = 0; i < models.size(); ++i) {
    for (const BackendKind& kind : best_backends()) all.push_back({kind, models[i]});
    if (!others.empty()) all.push_back({others[i % others.size()], models[i]});
  }
  return all;
}
inline std::string name_of(const ::testing::TestParamInfo<BackendAndModel>& run) {
  std::string name = run.param.kind.name + "_" + run.param.model;
  std::ranges::replace(name, '-', '_');
  return name;
}

// `file`: from the top of the source tree.
inline std::unique_ptr<HostedModel> host_file(const std::string& file, const BackendKind& kind,
                                              const HostOptions& options, std::uint32_t threads = 1) {
  auto model = model::Model::load(std::string(QUIRE_SOURCE_DIR) + "/" + file);
  EXPECT_TRUE(model.has_value()) << model.error().message;
  auto made = HostedModel::create(std::move(*model), kind.make(threads), options);
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

// Guesses how texts go on that it was told, and others by n-grams: a prompt of random tokens may repeat nothing.
class KnowingDrafter final : public Drafter {
 public:
  explicit KnowingDrafter(std::vector<std::vector<Token>> known) : known_(std::move(known)) {}
  void propose(std::span<Drafts* const> wanted) override {
    ngrams_.propose(wanted);
    for (Drafts* drafts : wanted) {
      const std::span<const Token> text = drafts->text;
      const auto at = std::ranges::find_if(known_, [&](const std::vector<Token>& known) {
        return known.size() > text.size() && std::ranges::equal(text, std::span(known).first(text.size()));
      });
      if (at == known_.end()) continue;
      const auto rest = std::span<const Token>(*at).subspan(text.size());
      drafts->count = std::min({static_cast<std::uint32_t>(rest.size()), drafts->most, kMostDrafts});
      std::ranges::copy(rest.first(drafts->count), drafts->tokens.begin());
    }
  }
  double expected(std::uint32_t kind) const override { return ngrams_.expected(kind); }

 private:
  std::vector<std::vector<Token>> known_;
  NgramDrafter ngrams_;
};

}  // namespace quire::engine::testing
