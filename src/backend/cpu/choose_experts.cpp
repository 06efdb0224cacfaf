#include "quire/backend/cpu/choose_experts.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

namespace quire::cpu {
namespace {

constexpr float kTaken = -INFINITY;  // the score of an expert that can no longer be chosen

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// The index of the highest score, the first of equal ones.
std::uint32_t best_of(const float* scores, std::uint32_t count) {
  std::uint32_t best = 0;
  for (std::uint32_t i = 1; i < count; ++i) {
    if (scores[i] > scores[best]) best = i;
  }
  return best;
}

float group_score(const float* scores, std::uint32_t count, bool two) {
  const std::uint32_t best = best_of(scores, count);
  if (!two || count == 1) return scores[best];
  float second = -INFINITY;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (i != best && scores[i] > second) second = scores[i];
  }
  return scores[best] + second;
}

// Makes all experts unavailable that are not in the best groups.
void leave_groups(const Router& router, float* scores) {
  const std::uint32_t each = router.experts / router.groups;
  const bool two = router.scores == Router::Scores::Sigmoid;
  // A group is left if as many groups as can be used are better. There are few groups, so each is compared with all.
  bool left[Router::kMostGroups];
  for (std::uint32_t g = 0; g < router.groups; ++g) {
    const float own = group_score(scores + g * each, each, two);
    std::uint32_t better = 0;
    for (std::uint32_t other = 0; other < router.groups; ++other) {
      const float score = group_score(scores + other * each, each, two);
      if (score > own || (score == own && other < g)) ++better;
    }
    left[g] = better >= router.groups_used;
  }
  for (std::uint32_t g = 0; g < router.groups; ++g) {
    if (left[g]) std::fill_n(scores + g * each, each, kTaken);
  }
}

// Turns chosen logits into weights: e to the (logit - highest), divided by the sum of these over `all` logits.
void softmax_weights(const float* all, std::uint32_t count, float* weights, std::uint32_t used) {
  const float highest = all[best_of(all, count)];
  float sum = 0;
  for (std::uint32_t i = 0; i < count; ++i) sum += std::exp(all[i] - highest);
  for (std::uint32_t k = 0; k < used; ++k) weights[k] = std::exp(weights[k] - highest) / sum;
}

}  // namespace

void choose_experts(const Router& router, const float* logits, const float* selection_bias, float* scores,
                    float* numbers, float* weights) {
  using Scores = Router::Scores;
  const std::uint32_t count = router.experts, used = router.used;
  // A softmax does not change the order, so without a bias the logits decide.
  std::copy_n(logits, count, scores);
  if (router.scores == Scores::Sigmoid) {
    for (std::uint32_t i = 0; i < count; ++i) scores[i] = sigmoid(logits[i]);
  } else if (router.scores == Scores::Softmax && selection_bias != nullptr) {
    softmax_weights(logits, count, scores, count);
  }
  for (std::uint32_t i = 0; selection_bias != nullptr && i < count; ++i) scores[i] += selection_bias[i];
  // Above kTaken, also where it is not a number: no expert is chosen twice for a row.
  for (std::uint32_t i = 0; i < count; ++i) scores[i] = scores[i] >= -FLT_MAX ? scores[i] : -FLT_MAX;
  if (router.groups > 1) leave_groups(router, scores);

  for (std::uint32_t k = 0; k < used; ++k) {
    const std::uint32_t best = best_of(scores, count);
    scores[best] = kTaken;
    numbers[k] = static_cast<float>(best);
    weights[k] = router.scores == Scores::Sigmoid ? sigmoid(logits[best]) : logits[best];
  }
  if (router.scores == Scores::Softmax) softmax_weights(logits, count, weights, used);
  if (router.scores == Scores::ChosenSoftmax) {
    std::copy_n(weights, used, scores);
    softmax_weights(scores, used, weights, used);
  }
  float factor = router.scale;
  if (router.normed) {
    float sum = 0;
    for (std::uint32_t k = 0; k < used; ++k) sum += weights[k];
    factor /= std::max(sum, Router::kLeastSum);
  }
  for (std::uint32_t k = 0; k < used; ++k) weights[k] *= factor;
}

}  // namespace quire::cpu
