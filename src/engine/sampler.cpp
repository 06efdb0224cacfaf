#include "quire/engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "quire/base/check.h"

namespace quire::engine {

namespace {

// The finalizer of SplitMix64: every bit of the result depends on every bit of x.
std::uint64_t mix_bits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

std::optional<Token> first_of(std::span<const float> logits) {
  std::optional<Token> best;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) continue;
    if (!best || logits[i] > logits[static_cast<std::size_t>(*best)]) best = static_cast<Token>(i);
  }
  return best;
}

}  // namespace

Result<void> check(const SamplerOptions& options) {
  // The comparisons are negated so that NaN is refused too.
  if (!(options.temperature >= 0 && options.temperature <= 100)) {
    return fail(fmt::format("a temperature of {} is not between 0 and 100", options.temperature));
  }
  if (!(options.top_p >= 0 && options.top_p <= 1)) {
    return fail(fmt::format("a top-p of {} is not between 0 and 1", options.top_p));
  }
  if (!(options.min_p >= 0 && options.min_p <= 1)) {
    return fail(fmt::format("a min-p of {} is not between 0 and 1", options.min_p));
  }
  if (!(options.repetition_penalty > 0 && options.repetition_penalty <= 100)) {
    return fail(fmt::format("a repetition penalty of {} is not above 0 and at most 100", options.repetition_penalty));
  }
  if (!(std::abs(options.presence_penalty) <= 100)) {
    return fail(fmt::format("a presence penalty of {} is not between -100 and 100", options.presence_penalty));
  }
  if (!(std::abs(options.frequency_penalty) <= 100)) {
    return fail(fmt::format("a frequency penalty of {} is not between -100 and 100", options.frequency_penalty));
  }
  if (options.logit_bias.size() > kMostBiases) {
    return fail(fmt::format("{} logit biases are more than {}", options.logit_bias.size(), kMostBiases));
  }
  for (const auto& [token, bias] : options.logit_bias) {
    if (token < 0) return fail(fmt::format("a logit bias for token {}, which is not a token id", token));
    if (std::isnan(bias)) return fail(fmt::format("the logit bias for token {} is not a number", token));
  }
  return {};
}

double random_number(std::uint64_t seed, std::uint64_t position) {
  constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;
  // The seed is mixed first. Otherwise neighbouring seeds would give the same random numbers, shifted by a position.
  const std::uint64_t bits = mix_bits(mix_bits(seed + kGolden) + (position + 1) * kGolden);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

SamplerScratch::SamplerScratch(std::uint32_t vocabulary) {
  candidates_.reserve(vocabulary);
  logits_.reserve(vocabulary);
}

bool SamplerScratch::behind(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit < b.logit : a.id > b.id;
}

Sampler::Sampler(const SamplerOptions& options, std::uint32_t vocabulary, std::int32_t logprobs,
                 std::uint32_t most_tokens)
    : options_(options), logprobs_(logprobs), vocabulary_(vocabulary) {
  QUIRE_CHECK(check(options).has_value(), "options are checked where they come from");
  penalizes_ = options.repetition_penalty != 1 || options.presence_penalty != 0 || options.frequency_penalty != 0;
  if (penalizes_) seen_.reserve(std::min(vocabulary, most_tokens));
  if (logprobs > 0) alternatives_.reserve(std::min<std::size_t>(static_cast<std::size_t>(logprobs), vocabulary));
}

void Sampler::see_prompt(std::span<const Token> prompt) {
  // The other penalties are for tokens of the answer only.
  if (options_.repetition_penalty == 1) return;
  // A bit for each token sorts them: every choice of a request does this, and a prompt can be long.
  std::vector<std::uint64_t> bits((std::size_t{vocabulary_} + 63) / 64);
  for (const Token token : prompt) {
    bits[static_cast<std::size_t>(token) / 64] |= std::uint64_t{1} << (static_cast<std::size_t>(token) % 64);
  }
  seen_.clear();
  for (std::size_t word = 0; word < bits.size(); ++word) {
    for (std::uint64_t rest = bits[word]; rest != 0; rest &= rest - 1) {
      seen_.push_back({static_cast<Token>(word * 64 + static_cast<std::size_t>(std::countr_zero(rest))), 0});
    }
  }
}

void Sampler::see(Token token) {
  if (!penalizes_) return;
  const auto at = std::ranges::lower_bound(seen_, token, {}, &Seen::token);
  if (at != seen_.end() && at->token == token) {
    ++at->times;
  } else {
    seen_.insert(at, {token, 1});
  }
}

// The model's logits after penalties and bias.
std::span<const float> Sampler::adjusted(std::span<const float> logits, SamplerScratch& scratch) const {
  if (!penalizes_ && options_.logit_bias.empty()) return logits;
  std::vector<float>& own = scratch.logits_;
  own.assign(logits.begin(), logits.end());
  for (const Seen& seen : seen_) {
    const auto i = static_cast<std::size_t>(seen.token);
    if (i >= own.size()) break;
    const double penalty = options_.repetition_penalty;
    double logit = own[i];
    logit = logit > 0 ? logit / penalty : logit * penalty;
    if (seen.times > 0) logit -= options_.presence_penalty + seen.times * options_.frequency_penalty;
    own[i] = static_cast<float>(logit);
  }
  for (const auto& [token, bias] : options_.logit_bias) {
    if (static_cast<std::size_t>(token) < own.size()) own[static_cast<std::size_t>(token)] += bias;
  }
  return own;
}

void Sampler::tell_logprobs(std::span<const float> logits, Sampled& sampled, SamplerScratch& scratch) {
  const std::optional<Token> first = first_of(logits);
  const double highest = logits[static_cast<std::size_t>(*first)];
  double sum = 0;
  for (const float logit : logits) {
    if (!std::isnan(logit)) sum += std::exp(logit - highest);
  }
  const double all = highest + std::log(sum);
  const auto logprob = [&](Token token) { return static_cast<float>(logits[static_cast<std::size_t>(token)] - all); };
  sampled.logprob = logprob(*sampled.token);
  alternatives_.clear();
  if (logprobs_ <= 0) return;
  auto& candidates = scratch.candidates_;
  candidates.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i])) candidates.push_back({logits[i], static_cast<Token>(i), 0});
  }
  const std::size_t count = std::min<std::size_t>(static_cast<std::size_t>(logprobs_), candidates.size());
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count), candidates.end(),
                    [](const Candidate& a, const Candidate& b) { return SamplerScratch::behind(b, a); });
  for (std::size_t i = 0; i < count; ++i) {
    alternatives_.push_back({candidates[i].id, logprob(candidates[i].id)});
  }
  sampled.alternatives = alternatives_;
}

Sampled Sampler::sample(std::span<const float> logits, std::uint64_t position, SamplerScratch& scratch) {
  Sampled sampled{.token = pick(adjusted(logits, scratch), position, scratch)};
  if (sampled.token && logprobs_ >= 0) tell_logprobs(logits, sampled, scratch);
  return sampled;
}

std::optional<Token> Sampler::pick(std::span<const float> logits, std::uint64_t position,
                                   SamplerScratch& scratch) const {
  auto& candidates = scratch.candidates_;
  constexpr auto behind = SamplerScratch::behind;
  const std::optional<Token> first = first_of(logits);
  if (!first || options_.temperature == 0) return first;
  const double highest = logits[static_cast<std::size_t>(*first)];
  if (!std::isfinite(highest)) return first;

  QUIRE_CHECK(logits.size() <= candidates.capacity(), "logits are those of the vocabulary");
  candidates.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i])) candidates.push_back({logits[i], static_cast<Token>(i), 0});
  }
  if (options_.top_k > 0 && options_.top_k < candidates.size()) {
    const auto end = candidates.begin() + options_.top_k;
    std::nth_element(candidates.begin(), end, candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return behind(b, a); });
    candidates.erase(end, candidates.end());
  }
  double sum = 0;
  for (Candidate& candidate : candidates) {
    candidate.weight = std::exp((candidate.logit - highest) / options_.temperature);
    sum += candidate.weight;
  }

  // Only the beginning of the sorted order is needed, so the rest stays a heap. Popped tokens are at the end of the
  // array, the latest one first.
  std::make_heap(candidates.begin(), candidates.end(), behind);
  const double random = random_number(options_.seed, position);
  const bool all = options_.top_p >= 1 && options_.min_p <= 0;
  const double enough = all ? random * sum : options_.top_p * sum;
  double kept = 0;
  auto rest = candidates.end();
  while (rest != candidates.begin()) {
    // The first token is always kept: its weight is 1.
    if (candidates.front().weight < options_.min_p) break;
    kept += candidates.front().weight;
    std::pop_heap(candidates.begin(), rest, behind);
    --rest;
    if (all ? kept > enough : kept >= enough) break;
  }
  if (all) return rest->id;
  double passed = 0;
  for (auto candidate = candidates.end(); candidate-- != rest;) {
    passed += candidate->weight;
    if (passed > random * kept) return candidate->id;
  }
  return rest->id;  // rounding can put the random number behind the last token
}

}  // namespace quire::engine
