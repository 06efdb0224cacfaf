#include "quire/engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "quire/base/check.h"

namespace quire::engine {

namespace {

using Biases = SharedList<std::pair<Token, float>>;

// The biases by ascending token, each token once.
Biases one_for_each_token(const Biases& biases) {
  const auto disorder = std::ranges::adjacent_find(biases, std::greater_equal(), &Biases::value_type::first);
  if (disorder == biases.end()) return biases;
  std::vector<Biases::value_type> sorted(biases.begin(), biases.end());
  std::ranges::stable_sort(sorted, {}, &Biases::value_type::first);
  std::size_t count = 0;
  for (const auto& [token, bias] : sorted) {
    if (count > 0 && sorted[count - 1].first == token) {
      sorted[count - 1].second += bias;
    } else {
      sorted[count++] = {token, bias};
    }
  }
  sorted.resize(count);
  return sorted;
}

// The log-probability of a logit in a row.
float logprob_of(float logit, const sampling::RowSum& sum) {
  const double all = std::log(static_cast<double>(sum.total) / static_cast<double>(sampling::kHighestWeight));
  const double below = logit == sum.highest ? 0 : static_cast<double>(sum.highest) - logit;
  return static_cast<float>(-below - all);
}

void take_alternatives(const sampling::Picked& picked, std::vector<TokenLogprob>& to) {
  to.clear();
  for (const std::uint64_t place : picked.places) {
    to.push_back({sampling::id_at(place), logprob_of(sampling::logit_at(place), picked.sum)});
  }
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

Sampler::Sampler(const SamplerOptions& options, std::uint32_t vocabulary, std::int32_t logprobs,
                 std::uint32_t most_tokens)
    : options_(options), logprobs_(logprobs), vocabulary_(vocabulary) {
  QUIRE_CHECK(check(options).has_value(), "options are checked where they come from");
  penalizes_ = options.repetition_penalty != 1 || options.presence_penalty != 0 || options.frequency_penalty != 0;
  rule_ = sampling::rule_of(options.temperature, options.top_k, options.top_p, options.min_p);
  penalties_ = {static_cast<float>(options.repetition_penalty), static_cast<float>(options.presence_penalty),
                static_cast<float>(options.frequency_penalty)};
  options_.logit_bias = one_for_each_token(options.logit_bias);
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
  const auto at = std::ranges::lower_bound(seen_, token, {}, &sampling::Seen::token);
  if (at != seen_.end() && at->token == token) {
    ++at->times;
  } else {
    seen_.insert(at, {token, 1});
  }
}

void Sampler::hold_back(std::span<const Token> tokens, std::uint64_t until) {
  held_until_ = tokens.empty() ? 0 : until;
  std::vector<std::pair<Token, float>> biases(options_.logit_bias.begin(), options_.logit_bias.end());
  for (const Token token : tokens) biases.emplace_back(token, -std::numeric_limits<float>::infinity());
  const Biases merged = one_for_each_token(Biases(std::move(biases)));
  held_back_.assign(merged.begin(), merged.end());
}

sampling::Job Sampler::job(std::uint64_t position, std::span<const std::uint32_t> mask) const {
  return {.rule = rule_,
          .penalties = penalties_,
          .random = sampling::random_bits(options_.seed, position),
          .seen = seen_,
          .biases = position < held_until_ ? std::span<const std::pair<Token, float>>(held_back_) : options_.logit_bias,
          .mask = mask,
          .logprobs = logprobs_};
}

Sampled Sampler::told(const sampling::Picked& picked) {
  Sampled sampled;
  if (picked.token < 0) return sampled;
  sampled.token = picked.token;
  if (logprobs_ < 0) return sampled;
  sampled.logprob = logprob_of(picked.logit, picked.sum);
  take_alternatives(picked, alternatives_);
  sampled.alternatives = alternatives_;
  return sampled;
}

Sampled Sampler::sample(std::span<const float> logits, std::uint64_t position, SamplerScratch& scratch,
                        std::span<const std::uint32_t> mask) {
  return told(sampling::pick(logits, job(position, mask), scratch));
}

Scored score(std::span<const float> logits, Token token, std::int32_t count, SamplerScratch& scratch,
             std::vector<TokenLogprob>& alternatives) {
  const sampling::Picked first = sampling::pick(logits, {.logprobs = count}, scratch);
  alternatives.clear();
  if (first.token < 0) return {.logprob = std::numeric_limits<float>::quiet_NaN(), .rank = 1};
  take_alternatives(first, alternatives);
  const float logit = logits[static_cast<std::size_t>(token)];
  const std::uint64_t own = sampling::place(logit, token);
  std::uint32_t rank = 1;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    rank += sampling::place(logits[i], static_cast<std::int32_t>(i)) > own ? 1 : 0;
  }
  return {.logprob = logprob_of(logit, first.sum), .rank = rank};
}

}  // namespace quire::engine
